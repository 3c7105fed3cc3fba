"""A value matrix with one expanding direction: tokens gather at both ends of its axis, densities and tokens alike."""

import numpy as np

import meanfield_pde as mf

value = np.diag([1.0, -0.5, 0.2])
attention = mf.Attention(beta=3.0, value=value)
mesh = mf.icosahedral(level=3)
law = mf.VonMisesFisher(mean=(1, 2, 2), kappa=1.0)

limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=3.0, save_every=0.5)
tokens = mf.solve(
    mf.ParticleSystem(attention), mf.sample(law, count=2000, seed=0), t_end=3.0, save_every=0.5, stepper=mf.Adaptive(1e-8, 1e-10)
)

print("face velocity from:", limit.record["face velocity"])
print("   t   <x1^2> limit  <x1^2> tokens")
for k, t in enumerate(limit.times):
    limit_measure, token_measure = limit.measure(k), tokens.measure(k)
    moments = [measure.masses @ measure.points[:, 0] ** 2 for measure in (limit_measure, token_measure)]
    print(f"{t:4.2f}   {moments[0]:.6f}      {moments[1]:.6f}")
