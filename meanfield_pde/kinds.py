"""The table of kinds: the name of every model, system, method, stepper, law and mesh in files, and how an object becomes plain values.

An object is described by its kind and the values of its constructor arguments, which it keeps as attributes of the same names:

    {"kind": "softmax", "beta": 4.0, "query": None, ...}        plain values and arrays, nested

Results, checkpoints, studies and `info` describe objects so, and a table of a case file is such a description with fewer words. A class of
one's own goes by its name; whoever reads it back gives the class: `mf.load(path, kinds=[Mine])`. A new model of the package is one line
in `MODELS`.

Data in: objects, or plain values. Data out: plain values and arrays, or objects.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.integrals.methods import Auto, Direct, Spectral
from meanfield_pde.laws.law import Mixture, Moebius, Uniform, VonMisesFisher
from meanfield_pde.laws.perturbed import PerturbedUniform
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.models.attention import Attention
from meanfield_pde.models.velocity import OwnModel, VelocityModel, wrapped
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.phased import Phased
from meanfield_pde.stepping.ssp import SSP, Tableau
from meanfield_pde.systems.density import MeanFieldPDE
from meanfield_pde.systems.particles import ParticleSystem

Kinds = Mapping[str, Callable[..., Any]]

MODELS: Kinds = {"softmax": Attention}
SYSTEMS: Kinds = {"density": MeanFieldPDE, "tokens": ParticleSystem}
METHODS: Kinds = {"auto": Auto, "direct": Direct, "spectral": Spectral}
STEPPERS: Kinds = {"ssp": SSP, "dop853": Adaptive, "phased": Phased}
LAWS: Kinds = {
    "uniform": Uniform,
    "von_mises_fisher": VonMisesFisher,
    "mixture": Mixture,
    "moebius": Moebius,
    "perturbed_uniform": PerturbedUniform,
}
MESHES: Kinds = {"circle": circle, "icosahedral": icosahedral, "cubed_sphere": cubed_sphere}
RECORDS: Kinds = {"mesh": SphereMesh, "measure": Measure, "tableau": Tableau}
STORED: Kinds = {**MODELS, **SYSTEMS, **METHODS, **STEPPERS, **LAWS, **RECORDS}
"""What a file can give back without being told the class."""


class UnknownKindError(ValueError):
    """A file holds an object of a class that nobody has named."""


PLAIN = (bool, int, float, str, type(None))


def own_classes(kinds: Iterable[type]) -> tuple[type, ...]:
    """Classes of one's own. Raises ValueError for what is no class."""
    own = inputs.sequence("kinds", kinds, "a list of classes")
    for i, kind in enumerate(own):
        if not isinstance(kind, type):
            raise ValueError(f"kinds[{i}] is {inputs.shown(kind)}, wanted a class")
    return tuple(own)


def with_own(known: Kinds, kinds: Iterable[type]) -> Kinds:
    """A table with classes of one's own, under their names. Raises ValueError for what is no class."""
    return {**known, **{kind.__name__: kind for kind in own_classes(kinds)}}


def described(value: Any, where: str = "value") -> Any:
    """Nested plain values and arrays for an object. Raises ValueError naming what a file could not give back."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, *PLAIN)):
        return value
    if isinstance(value, (list, tuple)):
        return [described(entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(name): described(entry, f"{where}[{name!r}]") for name, entry in value.items()}
    if isinstance(value, OwnModel):
        return described(value.own, where)
    kind = type(value)
    if not is_dataclass(kind) and (callable(value) or not hasattr(value, "__dict__")):
        raise ValueError(f"{where} is of the type {kind.__name__}, wanted plain values, arrays or objects with named arguments in a file")
    name = next((name for name, known in STORED.items() if known is kind), kind.__name__)
    if STORED.get(name, kind) is not kind:
        raise ValueError(f"{where} is of a class named {name}, like a kind of this package, wanted another name for it")
    return {"kind": name} | {argument: described(kept, f"{where}.{argument}") for argument, kept in _arguments(value, where).items()}


def in_words(model: VelocityModel, without: Collection[str] = ()) -> str:
    """ "softmax, beta = 9": a model's kind, its beta and what else is not as by default, as captions and prompts have it. without: names
    of arguments to leave out."""
    own = wrapped(model)
    words = [next((name for name, kind in MODELS.items() if kind is type(own)), type(own).__name__)]
    try:
        parameters, kept = inspect.signature(type(own)).parameters, vars(own)
    except (TypeError, ValueError):  # an object of a built-in class, or one without attributes
        return words[0]
    for name in (name for name in parameters if name in kept and name not in without):
        value, usual = kept[name], parameters[name].default
        if isinstance(value, np.ndarray):
            words.append(f"{name} {value.shape}")
        elif isinstance(value, (int, float, str)) and (name == "beta" or value != usual):
            words.append(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}")
    return ", ".join(words)


def restored(plain: Any, known: Kinds = STORED) -> Any:
    """The object that was described so. Raises ValueError for a kind that is not known."""
    if isinstance(plain, list):
        return tuple(restored(entry, known) for entry in plain)
    if not isinstance(plain, Mapping):
        return plain
    values = {name: restored(entry, known) for name, entry in plain.items() if name != "kind"}
    if "kind" not in plain:
        return values
    name = plain["kind"]
    if name not in known:
        raise UnknownKindError(f"it holds an object of the class {name}, which is not of this package, wanted that class: kinds=[{name}]")
    return known[name](**values)


def chosen(where: str, table: Any, known: Kinds, default: str | None = None) -> Any:
    """The object of a table of a file: its kind, or the default one, made with its other keys. Raises ValueError naming the key."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} is {inputs.shown(table)}, wanted a table")
    arguments = dict(table)
    kind = inputs.choice(f"{where}.kind", arguments.pop("kind", default), known)
    return construct(where, known[kind], arguments)


def construct(where: str, constructor: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The constructor called with a table's keys, which must be its arguments. Raises ValueError naming the table and the key."""
    parameters = inspect.signature(constructor).parameters
    inputs.known_keys(where, arguments, parameters)
    inputs.needed_keys(where, arguments, (name for name, parameter in parameters.items() if parameter.default is parameter.empty))
    try:
        return constructor(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _arguments(value: Any, where: str) -> dict[str, Any]:
    """The constructor's arguments, which an object keeps as attributes."""
    kind, parameters = type(value).__name__, inspect.signature(type(value)).parameters
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters.values()):
        raise ValueError(f"{where} is a {kind}, whose constructor takes any arguments, wanted one with named arguments in a file")
    for name in parameters:
        if not hasattr(value, name):
            wanted = "wanted one for each constructor argument: that is how a file keeps an object"
            raise ValueError(f"{where} is a {kind} without the attribute {name!r}, {wanted}")
    return {name: getattr(value, name) for name in parameters}
