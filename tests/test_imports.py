"""The structure of the package: imports point one way, heavy libraries load only when called, the public list is complete."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import meanfield_pde as mf

PACKAGE = Path(mf.__file__).parent
ROWS = (
    "sphere records inputs threads progress bessel measure",
    "mesh.record mesh.polygons mesh.voronoi mesh.families mesh.locate mesh.quadrature",
    "laws.law laws.perturbed laws.projection laws.stratified",
    "integrals.scaled integrals.queries integrals.direct integrals.harmonics integrals.spectral integrals.methods",
    "models.velocity models.attention",
    "transport.stencil transport.reconstruction transport.flux transport.transport",
    "systems.system systems.components systems.atoms systems.density systems.particles",
    "stepping.stepper stepping.ssp stepping.adaptive stepping.phased stepping.summed stepping.compiled stepping.ensembles",
    "kinds solution",
    "files.contents files.replacing files.tables files.tokens files.vtk files.vtk_xml files.meshes",
    "files.vtkhdf files.results files.checkpoints files.series",
    "recorder solve",
    "exact.rates exact.laws exact.two_clusters",
    "diagnostics.measures diagnostics.spread diagnostics.distances diagnostics.comparison diagnostics.stages diagnostics.lat_long",
    "pictures.canvas pictures.maps pictures.panels",
    "pictures.overview pictures.staircase pictures.single pictures.films",
    "cases.stopping cases.changes cases.case cases.schema cases.runs cases.preview cases.mesh_commands",
    "studies.jobs studies.convergence studies.phase studies.first_clusters studies.inner_products studies.plan",
    "studies.pictures studies.study cli __main__",
)
ORDER = [name for row in ROWS for name in row.split()]
"""A module may import only modules before it: the list reads as the method."""


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not name.endswith("__init__"):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("meanfield_pde"):
            parent = node.module.removeprefix("meanfield_pde").lstrip(".")
            for alias in node.names:
                full = f"{parent}.{alias.name}".lstrip(".")
                if full != "exact":  # the public list of a folder
                    yield full if full in ORDER else parent


def wrong_way(name, tree):
    return [other for other in imported(tree) if ORDER.index(other) >= ORDER.index(name)]


def test_every_module_has_its_place():
    assert sorted(name for name, _ in modules()) == sorted(ORDER)


@pytest.mark.parametrize(("name", "tree"), list(modules()))
def test_imports_point_one_way(name, tree):
    assert wrong_way(name, tree) == []
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)]
    assert ast.get_docstring(tree)


def blocks(order):
    """The folders in the order of the list, each as often as it begins anew."""
    folders = [name.split(".")[0] if "." in name else "" for name in order]
    return [folder for folder, before in zip(folders, ["", *folders], strict=False) if folder and folder != before]


def test_folders_import_one_way_too():
    assert len(blocks(ORDER)) == len(set(blocks(ORDER)))
    assert len(blocks([*ORDER, "mesh.record"])) > len(set(blocks(ORDER))), "the control: a module of the meshes after all others"


def test_the_root_is_small_and_files_are_short():
    """What all share or a user meets first; a file that grows beyond a screenful of screens has two jobs."""
    lengths = {path.relative_to(PACKAGE): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert sum(len(path.parts) == 1 for path in lengths) <= 14
    assert max(lengths.values()) < 350


def classes(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, sum(isinstance(entry, ast.FunctionDef) for entry in node.body)


def test_classes_are_small():
    counts = {name: count for _, tree in modules() for name, count in classes(tree)}
    assert max(counts.values()) < 20, max(counts, key=counts.get)


def test_an_import_against_the_order_is_seen():
    """The control: the mesh must not know the solver."""
    assert wrong_way("mesh.record", ast.parse("from meanfield_pde.solve import solve")) == ["solve"]


def test_heavy_libraries_load_only_when_called():
    script = "import sys, meanfield_pde; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    heavy = {"pyvista", "vtk", "vtkmodules", "matplotlib", "ot", "rich", "cyclopts"}
    assert not heavy & set(ast.literal_eval(loaded))
    assert "numba" in loaded


def test_cases_studies_and_pictures_load_when_they_are_asked_for():
    script = "import sys, meanfield_pde as mf; b = set(sys.modules); mf.study; print(sorted(set(sys.modules) - b), sorted(b), sep=';')"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    added, before = map(ast.literal_eval, told.split(";"))
    parts = tuple(f"meanfield_pde.{part}" for part in ("cases", "studies", "pictures", "files.series", "exact"))
    late = [name for name in before if name.startswith(parts)]
    assert not late and not {"tomllib", "ducc0", "basix", "multiprocessing", "concurrent.futures.thread"} & set(before)
    assert "meanfield_pde.studies.study" in added and set(mf.__all__) <= set(dir(mf))
    with pytest.raises(AttributeError, match="has no attribute 'studie'"):
        mf.studie  # noqa: B018


@pytest.mark.parametrize("name", mf.__all__)
def test_public_names_are_documented(name):
    text = (getattr(mf, name).__doc__ or "").strip()
    assert len(text) > 10 and not text.startswith(f"{name}("), "a dataclass without docstring shows its signature"
