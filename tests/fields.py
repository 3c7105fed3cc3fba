"""What tests ask of a field beside its velocity: attention outputs, partition functions, normal velocities of faces, counts of work."""

import numpy as np

from meanfield_pde.measure import Measure
from meanfield_pde.sphere import normalise
from meanfield_pde.systems.density import DensityState


def field_of(model, measure, method="auto", weights=None):
    found = model.field(measure, 0.0, method)
    return found if weights is None else found.weighing(weights)


def counted(ask, found, points, work):
    result = ask(found, np.asarray(points))
    if work is not None:
        work.update(found.work)
    return result


def output(model, points, measure, method="auto", work=None):
    """A[mu] (m, d), the attention output before its projection to the tangent space."""
    return counted(lambda field, x: field.output(x), field_of(model, measure, method), points, work)


def velocity(model, points, measure, method="auto", work=None, weights=None):
    return counted(lambda field, x: field.velocity(x), field_of(model, measure, method, weights), points, work)


def potential(model, points, measure, method="auto", work=None, weights=None):
    return counted(lambda field, x: field.potential(x), field_of(model, measure, method, weights), points, work)


def log_partition(model, points, measure, method="auto"):
    """log Z(beta B x) (m,)."""
    return field_of(model, measure, method).log_partition(np.asarray(points))


def state_of(system, masses, atoms=None):
    return DensityState.of(system.mesh, masses, atoms)


def form_of(system):
    """ "potential" (two-point difference) or "midpoint" (field at face midpoints)."""
    return system.described()["face velocity"]


def on_cells(mesh, masses):
    """The measure of a density."""
    return DensityState.of(mesh, masses).measure


def flow_of(system, masses, t=0.0):
    """The potential at the centers or the normal velocities of the faces, as the fluxes of a run are made from them."""
    state = state_of(system, masses)
    return system.transport.rate(masses, system.model.field(state.measure, t, system.method)).flow


def face_velocities(system, masses, t=0.0, on_cells=True):
    """Normal velocities (n_faces,), left to right, that cell masses cause; on_cells=False: as if the centers were mere points."""
    mesh = system.mesh
    measure = state_of(system, masses).measure if on_cells else Measure(mesh.centers, masses)
    flow = system.transport.rate(masses, system.model.field(measure, t, system.method))
    if not flow.of_potential:
        return flow.flow
    left, right = mesh.face_cells.T
    return (flow.flow[right] - flow.flow[left]) / mesh.face_distances


def exp_map(x, v):
    """The point reached from x along the geodesic with tangent v after unit time, (..., d)."""
    angle = np.linalg.norm(v, axis=-1)[..., None]
    return normalise(np.cos(angle) * x + np.sinc(angle / np.pi) * v)
