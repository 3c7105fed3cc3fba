"""Five tokens under unnormalised attention at large beta: clusters meet at times like e^(beta (1 - cos gap)), which tokens reach."""

import numpy as np
from scipy.integrate import quad

import meanfield_pde as mf


def time_to_meet(beta, gap, mass):
    """Of two clusters of that mass together, from the gap to 1e-12: d(gap)/dt = -mass e^(beta (cos gap - 1)) sin gap, over log gap."""
    return quad(lambda u: np.exp(beta * (1 - np.cos(np.exp(u))) + u) / (mass * np.sin(np.exp(u))), np.log(1e-12), np.log(gap), limit=500)[0]


for beta, scale in ((500.0, 1.0), (2000.0, 0.5)):
    angles = scale * np.array([0.0, 0.09, 0.18, 0.38, 0.58])
    attention = mf.Attention(beta, normalised=False, log_scale=beta)  # time in units of e^-beta: tokens that have met attract at rate 1
    tokens = mf.solve(mf.ParticleSystem(attention), np.stack([np.cos(angles), np.sin(angles)], axis=1), 1e18)
    history = tokens.history
    print(f"beta = {beta:g}: {len(history)} steps to t = {history.t[-1]:g}")
    met = {int(count): float(history.t[history.clusters == count][0]) for count in (3, 2, 1)}
    second, third = time_to_meet(beta, 0.2 * scale, 0.4), time_to_meet(beta, 0.39 * scale, 1.0)
    print(f"  3 clusters from t = {met[3]:.4g}, 2 from {met[2]:.5g} (theory {second:.5g}), 1 from {met[1]:.4g} (theory {third:.4g})")
