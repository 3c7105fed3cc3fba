"""The mean-field limit of self-attention: the density of tokens on the sphere, its particle reference, and what compares them."""

from meanfield_pde import exact
from meanfield_pde.attention.model import Attention
from meanfield_pde.comparison import Comparison, compare
from meanfield_pde.density import MeanFieldPDE, State
from meanfield_pde.diagnostics import clusters, energy, entropy, log_energy, order_parameter
from meanfield_pde.distances import aggregate, wasserstein
from meanfield_pde.export.pictures import overview, staircase
from meanfield_pde.export.vtk import write_vtk
from meanfield_pde.initial import Mixture, Moebius, PerturbedUniform, Smoothed, Uniform, VonMisesFisher, sample
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
from meanfield_pde.solve import PinnedWarning, solve
from meanfield_pde.stages import Stage, metastable, stages
from meanfield_pde.stepping import EULER, SSP, SSPRK2, SSPRK3, Adaptive
from meanfield_pde.system import SolveError
from meanfield_pde.token_files import read_tokens

__all__ = [
    "EULER",
    "SSP",
    "SSPRK2",
    "SSPRK3",
    "Adaptive",
    "Attention",
    "Comparison",
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
    "Uniform",
    "VonMisesFisher",
    "aggregate",
    "bin_tokens",
    "circle",
    "clusters",
    "compare",
    "cubed_sphere",
    "energy",
    "entropy",
    "exact",
    "icosahedral",
    "load",
    "log_energy",
    "metastable",
    "order_parameter",
    "overview",
    "project",
    "read_mesh",
    "read_tokens",
    "sample",
    "save",
    "solve",
    "stages",
    "staircase",
    "voronoi",
    "wasserstein",
    "write_mesh",
    "write_vtk",
]
