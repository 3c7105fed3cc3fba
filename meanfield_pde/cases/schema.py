"""A JSON schema of cases, for editors that complete and check TOML: made from the constructors that read a case, so that it knows them all.

Data in: the table of kinds. Data out: plain values.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from meanfield_pde.cases.case import NEEDED, OWN_TOKENS, PARTICLES, SOLVER, TABLES, VALUES
from meanfield_pde.kinds import LAWS, MESHES, MODELS, Kinds
from meanfield_pde.measure import Measure

Schema = dict[str, Any]

TYPES: dict[object, Schema] = {
    float: {"type": "number"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
}
KNOWN: dict[str, Schema] = {
    "t_end": {"type": "number", "exclusiveMinimum": 0, "description": "end of the run, from t = 0"},
    "save_every": {"type": "number", "exclusiveMinimum": 0, "description": "time between outputs"},
    "save_at": {"type": "array", "items": {"type": "number"}, "description": "output times"},
    "stop_speed": {"type": "number", "exclusiveMinimum": 0, "description": "mean speed below which the run ends"},
    "order": {"enum": [1, 2], "description": "of the finite volumes"},
    "method": {"type": "string", "description": "how integrals are computed: auto, direct, spectral"},
    "stepper": {"type": "string", "description": "Runge-Kutta method"},
    "cfl": {"type": "number", "exclusiveMinimum": 0, "description": "Courant number, .9 by default"},
    "atoms": {"type": "boolean", "description": "clusters below the mesh become atoms"},
    "count": {"type": "integer", "minimum": 1, "description": "number of tokens"},
    "seed": {"type": "integer", "description": "of the generator that draws the tokens"},
    "file": {"type": "string", "description": "relative to the case"},
    "weighted": {"type": "boolean", "description": "the last column holds masses"},
    "normalise": {"type": "boolean", "description": "divide each point by its length"},
    "bandwidth": {"type": "number", "exclusiveMinimum": 0, "description": "standard deviation of a smeared token, radians"},
    "merge": {"type": "number", "minimum": 0, "description": "angle within which tokens have met"},
    "rtol": {"type": "number", "exclusiveMinimum": 0},
    "atol": {"type": "number", "exclusiveMinimum": 0},
}
"""Keys that are no arguments of constructors."""


def case_schema() -> Schema:
    """The schema (draft 7) of a case file, nested plain values."""
    file = _table(["file"], needed=["file"])
    tokens = _table(OWN_TOKENS, needed=["kind", "file"])
    tokens["properties"] |= {"kind": {"const": "tokens"}}
    tables = {
        "mesh": {"oneOf": [*_kinds(MESHES), file]},
        "attention": {"anyOf": _kinds(MODELS, default="softmax")},
        "start": {"oneOf": [*_kinds(LAWS), tokens]},
        "atoms": _arguments(Measure),
        "particles": _table(PARTICLES),
        "solver": _table(SOLVER),
    }
    case = _table(VALUES, needed=NEEDED)
    case["properties"] |= {name: tables[name] for name in TABLES}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "a case of meanfield-pde"} | case


def _kinds(known: Kinds, default: str | None = None) -> list[Schema]:
    """A table of each kind; the default one may leave its kind out."""
    found = []
    for name, constructor in known.items():
        table = _arguments(constructor)
        table["properties"] |= {"kind": {"const": name}}
        table["required"] += [] if name == default else ["kind"]
        found.append(table)
    return found


def _arguments(constructor: Callable[..., Any]) -> Schema:
    parameters = inspect.signature(constructor).parameters
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    return _closed({name: dict(TYPES.get(parameter.annotation, {})) for name, parameter in parameters.items()}, needed)


def _table(names: Iterable[str], needed: Iterable[str] = ()) -> Schema:
    return _closed({name: KNOWN.get(name, {"type": "string"}) for name in names}, needed)


def _closed(properties: dict[str, Schema], needed: Iterable[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": False}
