"""The contract of a velocity model: what moves a measure, at any time t.

A model makes a field from a measure: `field = model.field(measure, t, method)` analyses the measure once, and then answers

    field.velocity(points)      X[mu](x), tangent, (m, d)
    field.potential(points)     (m,), whose tangent gradient is the velocity, where `is_gradient`
    field.energy()              the model's energy of the measure, nan where it has none
    field.speed_bound           an upper bound of the speed, 0 where none is known

A model of one's own needs `velocity(points, measure, t)` alone: as a plain object it is wrapped once, by `as_model`, where it enters; as a
subclass of `VelocityModel` it may also declare a potential, an energy and the rest. Whoever overrides `velocity` gives up the field, the
potential and the energy of the class it inherits from: they belong to another velocity.

Data in: measures and points. Data out: velocities, potentials, energies.
"""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Method
from meanfield_pde.integrals.scaled import Scaled
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray, dot

RADIAL, RADIAL_ROUNDING = 1e-6, 1e-9
"""A velocity counts as tangent if its radial part is below RADIAL times the largest speed, or below RADIAL_ROUNDING: near a consensus of
all tokens speeds vanish, and the rounding of what they are differences of does not."""


class Field(ABC):
    """The velocity field that a measure causes at one time. The measure is analysed once, whatever is asked of the field."""

    measure: Measure
    is_gradient: bool = False
    speed_bound: float = 0.0

    @abstractmethod
    def velocity(self, points: FloatArray) -> FloatArray:
        """Tangent velocities (m, d) at points (m, d)."""

    def potential(self, points: FloatArray) -> FloatArray:
        """The potential (m,) at points (m, d). Raises ValueError unless `is_gradient`."""
        raise ValueError("this field has no potential, wanted one that is a gradient")

    def energy(self) -> Scaled:
        """The model's energy of the measure, nan if it has none."""
        return Scaled.missing()

    def weighing(self, weights: FloatArray) -> "Field":
        """The same field for points that carry these masses (m,), if only mass times velocity needs to be accurate."""
        return self

    @property
    def work(self) -> Counter[str]:
        """How many points were answered so far, by "sums" and by "transforms"."""
        return Counter()


class VelocityModel:
    """What moves a measure. A subclass defines `field`, or `velocity` (and, if it likes, `potential`, `energy` and `speed_bound`).

    dimension: d of the sphere S^{d-1} on which it lives, None for any. is_gradient: whether the velocity is the tangent gradient of
    `potential`. has_energy: whether `energy` has a value, as it has in a class that defines it. is_isotropic: whether the field commutes
    with rotations, so that the uniform law is at rest.
    """

    def __init__(self) -> None:
        if type(self) is VelocityModel:
            raise TypeError("VelocityModel defines neither field nor velocity, wanted a class of one's own that does")

    @property
    def dimension(self) -> int | None:
        return None

    @property
    def is_gradient(self) -> bool:
        return False

    @property
    def is_isotropic(self) -> bool:
        return False

    @property
    def has_energy(self) -> bool:
        return False

    @property
    def breaks(self) -> tuple[float, ...]:
        """Times at which the model jumps, increasing: steps of methods with fixed steps end there."""
        return ()

    @property
    def kernel_beta(self) -> float:
        """Inverse temperature of the kernel `e^{beta (<x, y> - 1)}` in which measures are compared (MMD)."""
        return 1.0

    def self_weight(self, d: int) -> float:
        """The share of a token's attention that it pays to itself among n spread evenly, times n; 0 if it pays itself none in particular.

        The limit describes n tokens for n far above this number."""
        return 0.0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "energy" in vars(cls) and "has_energy" not in vars(cls):
            cls.has_energy = True  # type: ignore[assignment, method-assign]
        if "velocity" in vars(cls) and "field" not in vars(cls):
            for name in ("field", "potential", "energy", "speed_bound", "is_gradient", "is_isotropic", "has_energy"):
                if name not in vars(cls):
                    setattr(cls, name, vars(VelocityModel)[name])
        if cls.field is VelocityModel.field and cls.velocity is VelocityModel.velocity:
            raise TypeError(f"{cls.__name__} defines neither field nor velocity, wanted one of them")

    def field(self, measure: Measure, t: float = 0.0, method: str | Method = "auto") -> Field:
        """The field that a measure causes at time t. method: how integrals are computed, for models that have some."""
        return _OwnField(self, measure, t)

    def velocity(self, points: np.ndarray, measure: Measure, t: float = 0.0) -> FloatArray:
        """Tangent velocity X[mu] (m, d) at points (m, d): the short form of `field`."""
        return self._made_field(measure, t).velocity(checked_points(points, measure))

    def potential(self, points: np.ndarray, measure: Measure, t: float = 0.0) -> FloatArray:
        """The potential (m,) whose tangent gradient is the velocity. Raises ValueError unless `is_gradient`."""
        if type(self).field is VelocityModel.field:
            raise ValueError(f"{type(self).__name__} has no potential, wanted a model that is a gradient")
        return self.field(measure, t).potential(checked_points(points, measure))

    def energy(self, measure: Measure, t: float = 0.0) -> Scaled | float:
        """The energy of a measure, nan if the model has none."""
        return Scaled.missing() if type(self).field is VelocityModel.field else self.field(measure, t).energy()

    def speed_bound(self, measure: Measure, t: float = 0.0) -> float:
        """An upper bound of the speed, 0 if none is known."""
        return 0.0 if type(self).field is VelocityModel.field else self.field(measure, t).speed_bound

    def _made_field(self, *arguments: Any) -> Field:
        """The field of the nearest class that makes one: a subclass whose own velocity took its place reaches it by `super().velocity`."""
        makers = (vars(kind)["field"] for kind in type(self).__mro__ if "field" in vars(kind))
        return next((make for make in makers if make is not VelocityModel.field), VelocityModel.field)(self, *arguments)


class _OwnField(Field):
    """The field of a model that defines `velocity` itself. What it returns is checked: shape, real numbers, tangency."""

    def __init__(self, model: VelocityModel, measure: Measure, t: float) -> None:
        self.measure, self._model, self._t = measure, model, t
        self.is_gradient, self.speed_bound = model.is_gradient, model.speed_bound(measure, t)

    def velocity(self, points: FloatArray) -> FloatArray:
        name = f"velocity of {type(wrapped(self._model)).__name__}"
        velocity = inputs.real_array(name, self._model.velocity(points, self.measure, self._t), points.shape, like=" like the points")
        radial = np.abs(dot(points, velocity))
        allowed = max(RADIAL_ROUNDING * max(1.0, self.speed_bound), RADIAL * float(np.abs(velocity).max(initial=0.0)))
        if (radial > allowed).any():
            (row,) = inputs.first_index(radial > allowed)
            raise ValueError(
                f"{name} has a radial part of {radial[row]:.3g} at point {row}, wanted a tangent vector: subtract <v, x> x from it"
            )
        return velocity

    def potential(self, points: FloatArray) -> FloatArray:
        name = f"potential of {type(wrapped(self._model)).__name__}"
        return inputs.real_array(name, self._model.potential(points, self.measure, self._t), points.shape[:1], like=" like the points")

    def energy(self) -> Scaled:
        return energy_of(self._model, self.measure, self._t)


class OwnModel(VelocityModel):
    """A plain object with velocity(points, measure, t), as a model. own: the object."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def velocity(self, points: np.ndarray, measure: Measure, t: float = 0.0) -> FloatArray:
        return self.own.velocity(points, measure, t)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnModel) and bool(self.own == other.own)

    __hash__ = None  # type: ignore[assignment]


def as_model(name: str, value: Any) -> VelocityModel:
    """A model as it is, or a plain object with `velocity` wrapped into one. ValueError naming the argument for anything else."""
    if isinstance(value, VelocityModel):
        return value
    wanted = "an Attention, another VelocityModel or an object with velocity(points, measure, t)"
    inputs.having(name, value, wanted, "velocity")
    inputs.function(f"{name}.velocity", value.velocity, "a function of (points, measure, t)")
    return OwnModel(value)


def energy_of(model: VelocityModel, measure: Measure, t: float) -> Scaled:
    """The model's energy, nan if it has none. Raises ValueError if it is no number."""
    value = model.energy(measure, t)
    if isinstance(value, Scaled):
        return value
    return Scaled.of(float(inputs.real_array(f"energy of {type(wrapped(model)).__name__}", value, ())))


def checked_points(points: ArrayLike, measure: Measure) -> FloatArray:
    """Points (m, d) where a measure on S^{d-1} is felt. Raises ValueError if the dimension does not fit or the measure has no mass."""
    inputs.instance("measure", measure, Measure)
    x = inputs.real_array("points", points, ("m", measure.dimension), like=" like the measure's points")
    if not measure.total > 0:
        raise ValueError(f"the measure has mass {measure.total:g}, wanted a positive mass")
    return x


def wrapped(model: VelocityModel) -> Any:
    """The object that a user gave: what `as_model` wrapped, or the model itself."""
    return model.own if isinstance(model, OwnModel) else model
