"""A script as users write it, with types: `mypy --strict` finds nothing in it (.ci/run)."""

import numpy as np

import meanfield_pde as mf


class Turning:
    def velocity(self, points: np.ndarray, measure: mf.Measure, t: float = 0.0) -> np.ndarray:
        return np.cross(np.array([0.0, 0.0, 1.0]), points)


class Mine(mf.VelocityModel):
    def velocity(self, points: np.ndarray, measure: mf.Measure, t: float = 0.0) -> np.ndarray:
        return np.zeros_like(points)


mesh = mf.icosahedral(level=2)
start = mf.project(mesh, mf.VonMisesFisher(mean=[1, 0, 0], kappa=2.0))
limit = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(beta=4.0)), start, t_end=1.0, save_every=0.1)
other = mf.solve(mf.MeanFieldPDE(mesh, Turning()), start, 1.0)
tokens = mf.solve(mf.ParticleSystem(Mine()), mf.sample(mf.Uniform(3), 100, seed=0), 1.0)
print(limit.system.mesh.n_cells, limit.mesh.areas.sum(), mf.compare(limit, tokens), limit.history.energy)
