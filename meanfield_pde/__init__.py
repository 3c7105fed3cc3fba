"""The mean-field limit of self-attention: the density of tokens on the sphere, its particle reference, and what compares them."""

from meanfield_pde import exact
from meanfield_pde.attention.model import Attention
from meanfield_pde.checkpoints import Checkpoint
from meanfield_pde.comparison import Comparison, compare
from meanfield_pde.density import MeanFieldPDE, State
from meanfield_pde.diagnostics import close_pairs, clusters, energy, entropy, inner_products, log_energy, order_parameter
from meanfield_pde.distances import aggregate, mmd, wasserstein
from meanfield_pde.ensembles import Ensemble, solve_ensemble
from meanfield_pde.export.films import film
from meanfield_pde.export.pictures import overview, staircase
from meanfield_pde.export.vtk import write_vtk
from meanfield_pde.initial import Mixture, Moebius, PerturbedUniform, Smoothed, Uniform, VonMisesFisher, sample
from meanfield_pde.lat_long import density_at, lat_long
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.circle import circle
from meanfield_pde.mesh.cubed_sphere import cubed_sphere
from meanfield_pde.mesh.files import read_mesh, write_mesh
from meanfield_pde.mesh.icosahedral import icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi
from meanfield_pde.particles import ParticleSystem
from meanfield_pde.projection import bin_tokens, project
from meanfield_pde.results import load, save
from meanfield_pde.solution import Solution
from meanfield_pde.solve import PinnedWarning, resume, solve
from meanfield_pde.stages import Stage, metastable, stages
from meanfield_pde.stepping import EULER, SSP, SSPRK2, SSPRK3, Adaptive
from meanfield_pde.stratified import stratified
from meanfield_pde.studies.plan import Study, read_study
from meanfield_pde.studies.study import StudyResult, study
from meanfield_pde.system import SolveError
from meanfield_pde.token_files import read_tokens

__all__ = [
    "EULER",
    "SSP",
    "SSPRK2",
    "SSPRK3",
    "Adaptive",
    "Attention",
    "Checkpoint",
    "Comparison",
    "Ensemble",
    "MeanFieldPDE",
    "Measure",
    "Mixture",
    "Moebius",
    "ParticleSystem",
    "PerturbedUniform",
    "PinnedWarning",
    "Smoothed",
    "Solution",
    "SolveError",
    "SphereMesh",
    "Stage",
    "State",
    "Study",
    "StudyResult",
    "Uniform",
    "VonMisesFisher",
    "aggregate",
    "bin_tokens",
    "circle",
    "close_pairs",
    "clusters",
    "compare",
    "cubed_sphere",
    "density_at",
    "energy",
    "entropy",
    "exact",
    "film",
    "icosahedral",
    "inner_products",
    "lat_long",
    "load",
    "log_energy",
    "metastable",
    "mmd",
    "order_parameter",
    "overview",
    "project",
    "read_mesh",
    "read_study",
    "read_tokens",
    "resume",
    "sample",
    "save",
    "solve",
    "solve_ensemble",
    "stages",
    "staircase",
    "stratified",
    "study",
    "voronoi",
    "wasserstein",
    "write_mesh",
    "write_vtk",
]
