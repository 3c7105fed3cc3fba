"""The documents say what is there: models of one's own run as they are shown, files exist, folders stand in the order of import.

Docstrings are read as Markdown by pdoc, which takes <x, y> for a tag and X[mu](x) for a link unless they stand in code.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from test_imports import ORDER

import meanfield_pde as mf
from meanfield_pde import kinds

PACKAGE = Path(mf.__file__).parent
ROOT = Path(__file__).parents[1]
README, CONTRIBUTING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", ".github/CONTRIBUTING.md"))
MADE = {"limit.vtkhdf", "tokens.vtkhdf", "study.csv", "study.png", "study.json", "models/pull.py", "out/api"}
"""What CONTRIBUTING names because a run or a reader makes it."""


def blocks(text, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def run(monkeypatch, tmp_path, *code):
    """The names that blocks leave, run one after the other as one module."""
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": __name__, "mf": mf}
    for block in code:
        exec(compile(block, "document", "exec"), scope)
    return scope


# --- models of one's own ---


def test_readme_model(monkeypatch, tmp_path):
    scope = run(monkeypatch, tmp_path, blocks(README)[1])
    assert scope["tokens"].status == "done"
    assert mf.order_parameter(scope["tokens"].measure(-1)) > mf.order_parameter(scope["tokens"].measure(0)) + 0.1


def test_model_outside_the_package(monkeypatch, tmp_path):
    scope = run(monkeypatch, tmp_path, *blocks(CONTRIBUTING))
    limit = scope["limit"]
    assert limit.model == scope["Pull"](0.5) and limit.record["face velocity"] == "potential"
    assert np.diff(limit.history.energy).min() > 0


def test_model_inside_the_package(monkeypatch, tmp_path):
    """One line in the table of kinds: no reader is told the class."""
    model, use = blocks(CONTRIBUTING)
    scope = run(monkeypatch, tmp_path, model)
    (name,) = re.findall(r'`"(\w+)": Pull,` in `MODELS`', CONTRIBUTING)
    use = use.replace('"kind": "Pull"', f'"kind": "{name}"').replace(", kinds=[Pull]", "")
    with pytest.raises(ValueError, match=r"attention\.kind is 'pull', wanted 'softmax'"):
        exec(use, scope)
    for table in (kinds.MODELS, kinds.STORED):
        monkeypatch.setitem(table, name, scope["Pull"])
    exec(use, scope)
    assert scope["limit"].model == scope["Pull"](0.5)


# --- names of files ---


def named(text):
    """Files and folders of a text, as they are written."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return set(re.findall(r"(?<![\w./])\.?\w[\w/]*(?:\.(?:py|md|vtkhdf|csv|png|json|toml)\b|/(?=[\s`]))", text)) | set(
        re.findall(r"(?<=`)\.?\w+(?:/\w+)+(?=`)", text)
    )


def missing(names):
    return {name for name in names - MADE if not ((PACKAGE / name).exists() or (ROOT / name).exists())}


def test_contributing_names_what_exists():
    found = named(CONTRIBUTING)
    assert {"measure.py", "systems/density.py", "mesh/", "kinds.py", ".ci/run", "tests/test_imports.py", "CHANGELOG.md"} <= found
    assert missing(found) == set()


def test_a_name_of_nothing_is_seen():
    """The control."""
    assert missing(named("copy `models/attention.py` or systems/masses.py to `flows/`, then `.ci/walk`")) == {
        "systems/masses.py",
        "flows/",
        ".ci/walk",
    }


def parts(text):
    return re.findall(r"\w+/|\w+\.py", text)


def test_folders_stand_in_the_order_of_import():
    listed = re.search(r"## Folders, in the order of import\n\n(.*?)\n\n", CONTRIBUTING, flags=re.S)[1]
    order = list(dict.fromkeys(name.split(".")[0] + ("/" if "." in name else ".py") for name in ORDER))
    assert parts(listed) == order
    table = re.search(r"\| folder, in the order of import.*?\n\n", README, flags=re.S)[0]
    in_readme = re.findall(r"`([\w./]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row))
    assert in_readme == [name for name in order if name in in_readme]
    assert {name for name in order if name.endswith("/")} <= set(in_readme)


# --- docstrings as Markdown ---


def eaten(docstring):
    """What Markdown would take for a tag or a link."""
    prose = [line for line in inspect.cleandoc(docstring).splitlines() if not line.startswith("    ")]
    return re.findall(r"<(?=[A-Za-z/!])[^>]*>|\]\(", re.sub(r"`[^`]*`", "", "\n".join(prose)))


def documented():
    for module in (mf, mf.exact):
        yield module.__name__, module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            yield name, value.__doc__
            if inspect.isclass(value):
                for member, entry in vars(value).items():
                    if not member.startswith("_") and isinstance(getattr(entry, "__doc__", None), str):
                        yield f"{name}.{member}", entry.__doc__


def test_docstrings_survive_markdown():
    found = dict(documented())
    assert len(found) > 100
    assert {name: lost for name, text in found.items() if text and (lost := eaten(text))} == {}


def test_a_formula_in_prose_is_seen():
    """The control."""
    text = """The mean of <x, y>, and X[mu](x).

        e^{beta <x, y>}

    A last line.
    """
    assert eaten(text) == ["<x, y>", "]("]
    assert eaten(text.replace("<x, y>, and X[mu](x)", "`<x, y>`, and `X[mu](x)`")) == []
