"""Out of the uniform law at beta = 5: of all modes the third grows fastest, so a random perturbation becomes three clusters."""

import numpy as np

import meanfield_pde as mf

beta = 5.0
rates = [mf.exact.growth_rate(2, beta, k) for k in range(1, 6)]
print("growth rates of modes 1-5:", "  ".join(f"{rate:.4f}" for rate in rates))

mesh = mf.circle(256)
start = mf.PerturbedUniform(d=2, noise=1e-3, max_degree=16, seed=1)
limit = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta)), mf.project(mesh, start), t_end=20.0, save_every=0.5)

angle = np.arctan2(mesh.centers[:, 1], mesh.centers[:, 0])
third = np.abs(limit.masses @ np.exp(-3j * angle))
early = (limit.times >= 4) & (limit.times <= 8)
measured = np.polyfit(limit.times[early], np.log(third[early]), 1)[0]
print(f"third mode grows at {measured:.4f}, theory {rates[2]:.4f}")

clusters = mf.clusters(limit.measure(-1), angle=0.2, floor=0.01)
for mass, centre in clusters:
    print(f"cluster of mass {mass:.4f} at angle {np.degrees(np.arctan2(centre[1], centre[0])):7.2f} degrees")
print(f"clusters: {len(clusters)}")
