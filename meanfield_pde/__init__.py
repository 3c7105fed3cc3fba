"""The mean-field limit of self-attention: the density of tokens on the sphere, its particle reference, and what compares them.

What a run itself does not need (cases, studies, comparisons, pictures, exact solutions) is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meanfield_pde.diagnostics.measures import close_pairs, clusters, energy, entropy, inner_products, log_energy, order_parameter
from meanfield_pde.diagnostics.stages import Stage, metastable, stages
from meanfield_pde.files.checkpoints import Checkpoint
from meanfield_pde.files.results import load, save
from meanfield_pde.files.tokens import read_tokens
from meanfield_pde.integrals.methods import Auto, Direct, Spectral
from meanfield_pde.laws.law import Mixture, Moebius, Smoothed, Uniform, VonMisesFisher, sample
from meanfield_pde.laws.perturbed import PerturbedUniform
from meanfield_pde.laws.projection import bin_tokens, project
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.models.attention import Attention
from meanfield_pde.models.velocity import Field, VelocityModel
from meanfield_pde.recorder import PinnedWarning
from meanfield_pde.solution import Solution
from meanfield_pde.solve import solve
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.ssp import EULER, SSP, SSPRK2, SSPRK3
from meanfield_pde.systems.density import MeanFieldPDE, State
from meanfield_pde.systems.particles import ParticleSystem
from meanfield_pde.systems.system import SolveError

if TYPE_CHECKING:
    __version__: str
    from meanfield_pde import exact
    from meanfield_pde.cases.runs import resume, run
    from meanfield_pde.diagnostics.comparison import Comparison, compare
    from meanfield_pde.diagnostics.distances import aggregate, mmd, wasserstein
    from meanfield_pde.diagnostics.lat_long import density_at, lat_long
    from meanfield_pde.files.meshes import read_mesh, write_mesh
    from meanfield_pde.files.series import write_vtk
    from meanfield_pde.laws.stratified import stratified
    from meanfield_pde.pictures.films import film
    from meanfield_pde.pictures.overview import overview, overview_figure
    from meanfield_pde.pictures.single import energy_panel, order_panel, state_panel
    from meanfield_pde.pictures.staircase import staircase, staircase_figure, staircase_panel
    from meanfield_pde.stepping.ensembles import Ensemble, solve_ensemble
    from meanfield_pde.studies.pictures import convergence_panel, study_figure
    from meanfield_pde.studies.plan import Study, read_study
    from meanfield_pde.studies.study import StudyResult, study

_LATER = {
    "diagnostics.comparison": "Comparison compare",
    "diagnostics.distances": "aggregate mmd wasserstein",
    "diagnostics.lat_long": "density_at lat_long",
    "files.meshes": "read_mesh write_mesh",
    "laws.stratified": "stratified",
    "stepping.ensembles": "Ensemble solve_ensemble",
    "cases.runs": "resume run",
    "files.series": "write_vtk",
    "pictures.films": "film",
    "pictures.overview": "overview overview_figure",
    "pictures.single": "energy_panel order_panel state_panel",
    "pictures.staircase": "staircase staircase_figure staircase_panel",
    "studies.pictures": "convergence_panel study_figure",
    "studies.plan": "Study read_study",
    "studies.study": "StudyResult study",
}
"""Names that are loaded when they are asked for, by module."""


def __getattr__(name: str) -> Any:
    if name == "exact":
        return import_module("meanfield_pde.exact")
    if name == "__version__":
        return import_module("importlib.metadata").version("meanfield-pde")
    for module, names in _LATER.items():
        if name in names.split():
            value = globals()[name] = getattr(import_module(f"meanfield_pde.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _picture(solution: Solution) -> str:
    from meanfield_pde.pictures.overview import overview_html

    return overview_html(solution)


Solution.picture = _picture

__all__ = ["Attention", "Auto", "Direct", "Field", "MeanFieldPDE", "ParticleSystem", "Spectral", "State", "VelocityModel"]
__all__ += ["EULER", "SSP", "SSPRK2", "SSPRK3", "Adaptive", "Checkpoint", "Ensemble", "PinnedWarning", "Solution", "SolveError", "load"]
__all__ += ["resume", "run", "save", "solve", "solve_ensemble"]
__all__ += ["Mixture", "Moebius", "PerturbedUniform", "Smoothed", "SphereMesh", "Uniform", "VonMisesFisher", "bin_tokens", "circle"]
__all__ += ["cubed_sphere", "icosahedral", "project", "read_mesh", "read_tokens", "sample", "stratified", "voronoi", "write_mesh"]
__all__ += ["Comparison", "Measure", "Stage", "aggregate", "close_pairs", "clusters", "compare", "density_at", "energy", "entropy"]
__all__ += ["exact", "inner_products", "lat_long", "log_energy", "metastable", "mmd", "order_parameter", "stages", "wasserstein"]
__all__ += ["Study", "StudyResult", "film", "overview", "read_study", "staircase", "study", "write_vtk"]
__all__ += ["convergence_panel", "energy_panel", "order_panel", "overview_figure", "staircase_figure", "staircase_panel", "state_panel"]
__all__ += ["study_figure"]
