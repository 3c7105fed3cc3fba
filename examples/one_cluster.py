"""A cap of tokens on the sphere becomes one cluster: the density beside 1 000 tokens, and both for ParaView."""

import meanfield_pde as mf

mesh = mf.icosahedral(level=4)                                # S², 2 562 Voronoi cells; mf.circle(512) is S¹
law = mf.VonMisesFisher(mean=(0, 0, 1), kappa=2.0)            # law(x): (m, d) -> (m,) density wrt surface measure
attention = mf.Attention(beta=4.0)                            # softmax, Q = K = V = identity

limit = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=5.0, save_every=0.5)
tokens = mf.solve(mf.ParticleSystem(attention), mf.sample(law, count=1000, seed=0), t_end=5.0, save_every=0.5)

print(mf.compare(limit, tokens))                              # a table: t, energies, order parameters, W1, W2, their error
mf.write_vtk("out/one_cluster", limit, tokens)                # out/one_cluster/limit.pvd, tokens.pvd and their frames
