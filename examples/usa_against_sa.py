"""Softmax (SA) against unnormalised attention (USA) from one law: time runs differently, the cluster is the same."""

import meanfield_pde as mf

beta = 2.0
mesh = mf.icosahedral(level=3)
law = mf.Mixture([mf.VonMisesFisher((0, 0, 1), 4.0), mf.VonMisesFisher((0, 1, 0), 2.0)], weights=[0.6, 0.4])
start = mf.project(mesh, law)

runs = {}
for name, normalised in (("SA", True), ("USA", False)):
    system = mf.MeanFieldPDE(mesh, mf.Attention(beta, normalised=normalised))
    runs[name] = mf.solve(system, start, t_end=2.0, save_every=0.25)

print("   t   order SA  order USA")
for k, t in enumerate(runs["SA"].times):
    print(f"{t:4.2f}   {mf.order_parameter(runs['SA'].measure(k)):.6f}   {mf.order_parameter(runs['USA'].measure(k)):.6f}")
