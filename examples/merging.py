"""Three clusters form on the circle and two of them merge, at the time that the equation of two clusters gives."""

import numpy as np

import meanfield_pde as mf

beta, mesh = 9.0, mf.circle(256)
centres = [(np.cos(angle), np.sin(angle)) for angle in (0.0, 1.35, 3.6)]
law = mf.Mixture([mf.VonMisesFisher(centre, kappa=30.0) for centre in centres], weights=[0.3, 0.3, 0.4])
attention = mf.Attention(beta)

limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=1000.0, save_every=1.0)

for stage in mf.stages(limit):
    masses = ", ".join(f"{mass:.3f}" for mass in stage.masses)
    print(f"t = {stage.t_start:8.3f} to {stage.t_end:8.3f}: {stage.clusters} clusters of mass {masses}")

k = int(np.searchsorted(limit.times, 15.0))
near = sorted(zip(limit.atoms(k).points, limit.atoms(k).masses, strict=True), key=lambda atom: -atom[0][0])[:2]
gap = float(np.arccos(near[0][0] @ near[1][0]))
theory = limit.times[k] + mf.exact.two_cluster_time(beta, gap, 0.1, [mass / (near[0][1] + near[1][1]) for _, mass in near])
measured = mf.stages(limit)[1].t_start
print(f"the two are {gap:.4f} apart at t = {limit.times[k]:.0f}; .1 apart at t = {measured:.3f}, by theory at t = {theory:.3f}")
mf.staircase("out/merging.png", limit)
