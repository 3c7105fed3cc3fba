"""The JSON schema of cases: what a case may hold it allows, and what is refused it refuses."""

import json
import tomllib
from pathlib import Path

import pytest

from meanfield_pde.cases.case import make_case
from meanfield_pde.cases.schema import case_schema
from meanfield_pde.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float), "integer": int}
CASE = {
    "t_end": 0.1,
    "mesh": {"kind": "circle", "n": 8},
    "attention": {"beta": 2.0},
    "start": {"kind": "von_mises_fisher", "mean": [1, 0], "kappa": 1.0},
    "particles": {"count": 3, "seed": 1},
}


def allows(schema, value):
    """The words of draft 7 that the schema uses."""
    for words, of in (("oneOf", lambda found: sum(found) == 1), ("anyOf", any)):
        if words in schema and not of([allows(part, value) for part in schema[words]]):
            return False
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    if "type" in schema and (not isinstance(value, KINDS[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean")):
        return False
    if (
        value is not True
        and isinstance(value, (int, float))
        and not (value > schema.get("exclusiveMinimum", -1e300) and value >= schema.get("minimum", -1e300))
    ):
        return False
    if schema.get("type") == "array":
        return all(allows(schema["items"], entry) for entry in value)
    if schema.get("type") != "object":
        return True
    known = schema["properties"]
    return value.keys() <= known.keys() and set(schema["required"]) <= value.keys() and all(allows(known[k], v) for k, v in value.items())


def cases():
    tables = {path.name: tomllib.loads(path.read_text()) for path in EXAMPLES.glob("*.toml")}
    return {name: table for name, table in tables.items() if "t_end" in table}


def test_examples_are_allowed():
    assert "three_clusters.toml" in cases()
    for name, table in cases().items():
        assert allows(case_schema(), table), name


GOOD = {
    "as it is": {},
    "a method": {"solver": {"order": 1, "method": "direct", "cfl": 0.5}},
    "output times": {"save_at": [0.05, 0.1]},
    "the kind of attention": {"attention": {"kind": "softmax", "beta": 1, "normalised": False}},
    "another mesh": {"mesh": {"kind": "circle", "n": 9}},
    "atoms": {"atoms": {"points": [[1, 0]], "masses": [0.5]}},
}
BAD = {
    "an unknown key": {"t_stop": 1.0},
    "a text for a number": {"t_end": "0.1"},
    "an end before the start": {"t_end": -1.0},
    "an unknown kind": {"mesh": {"kind": "torus", "n": 8}},
    "a key of another kind": {"mesh": {"kind": "circle", "level": 3}},
    "a missing argument": {"start": {"kind": "von_mises_fisher", "kappa": 1.0}},
    "cells that are not whole": {"mesh": {"kind": "circle", "n": 8.5}},
    "an unknown key of the method": {"solver": {"ordre": 1}},
    "order three": {"solver": {"order": 3}},
    "a text for beta": {"attention": {"beta": "nine"}},
    "masses without points": {"atoms": {"masses": [0.5]}},
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_case_may_hold(name):
    make_case(CASE | GOOD[name])
    assert allows(case_schema(), CASE | GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_what_it_may_not(name):
    with pytest.raises(ValueError, match=r"\w"):
        make_case(CASE | BAD[name])
    assert not allows(case_schema(), CASE | BAD[name])


def test_the_command_prints_it(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["schema"])
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out) == case_schema()
