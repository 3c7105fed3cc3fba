"""Bad input of every kind, through every public name and through the command line: one sentence that names the field and the value.

From Python it is a ValueError (FileNotFoundError for a file; TypeError where Python itself refuses an argument); on the command line exit
code 2, one line on stderr and no file. Whatever the input, the answer comes within a second.
"""

import re
import time
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

import meanfield_pde as mf
from meanfield_pde.cli import main

AXES = Figure().subplots()

MESH, RING, LAW, SOFTMAX = mf.icosahedral(1), mf.circle(8), mf.VonMisesFisher((0, 0, 1), 2.0), mf.Attention(1.0)
DENSITY, TOKENS = mf.MeanFieldPDE(MESH, SOFTMAX), mf.ParticleSystem(SOFTMAX)
START, CORNERS = mf.project(MESH, LAW), mf.Measure(np.eye(3))
NAN, INF = float("nan"), float("inf")
TABLES = {"t_end": 0.4, "mesh": {"kind": "circle", "n": 8}, "start": {"kind": "uniform", "d": 2}}
HUGE = 10**400
"""An integer that no float holds."""


def changed(array, index, value):
    other = np.array(array)
    other[index] = value
    return other


def nested(depth):
    lists = 1.0
    for _ in range(depth):
        lists = [lists]
    return lists


def cells(**arrays):
    return replace(MESH, **arrays)


def run(**arguments):
    return mf.solve(**{"system": DENSITY, "start": START, "t_end": 0.01} | arguments)


class Answering:
    """A plain velocity model that returns whatever it is told to make of the points."""

    def __init__(self, answer):
        self.velocity = lambda points, measure, t=0.0: answer(points)


class Still(mf.VelocityModel):
    """A model that nothing moves, and that answers whatever it is told to as its potential and as its energy."""

    is_gradient = True

    def __init__(self, potential=lambda points: np.zeros(len(points)), energy=0.0):
        self.answer, self.number = potential, energy

    def velocity(self, points, measure, t=0.0):
        return np.zeros_like(points)

    def potential(self, points, measure, t=0.0):
        return self.answer(points)

    def energy(self, measure, t=0.0):
        return self.number


class Drifting(mf.VelocityModel):
    """A model with a velocity alone."""

    def velocity(self, points, measure, t=0.0):
        return np.zeros_like(points)


def moved(answer):
    return run(system=mf.MeanFieldPDE(MESH, Answering(answer)))


def sloped(potential):
    return run(system=mf.MeanFieldPDE(MESH, Still(potential)))


def moved_tokens(answer):
    return run(system=mf.ParticleSystem(Answering(answer)), start=np.eye(3))


def moved_atom(answer):
    """The cells are answered as they should be, a lone atom is not."""
    start = mf.State(START / 2, mf.Measure([[1, 0, 0]], [0.5]))
    return run(system=mf.MeanFieldPDE(MESH, Answering(lambda x: answer(x) if len(x) < 2 else 0 * x)), start=start)


@cache
def solved():
    return run()


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The first runs of a process compile code or read it; answers are timed without that."""
    solved()
    sloped(lambda x: 0 * x[:, 0])
    moved_atom(lambda x: 0 * x)
    moved_tokens(lambda x: 0 * x)


# -- Python: (what is called, what the sentence says)

PYTHON = {
    # numbers that are none
    "a string for a number": (lambda: mf.Attention(beta="5"), r"^beta is '5', wanted a number$"),
    "bytes for a number": (lambda: mf.VonMisesFisher((0, 0, 1), b"2"), r"^kappa is b'2', wanted a number$"),
    "True for a number": (lambda: mf.Attention(beta=True), r"^beta is True, wanted a number$"),
    "numpy's True for a number": (lambda: mf.VonMisesFisher((0, 0, 1), np.True_), r"^kappa is np.True_, wanted a number$"),
    "numpy's True for an integer": (lambda: mf.circle(np.True_), r"^n is np.True_, wanted an integer at least 3$"),
    "a string for an integer": (lambda: mf.icosahedral("2"), r"^level is '2', wanted an integer in \[0, 9\]$"),
    "None for an integer": (lambda: mf.cubed_sphere(None), r"^n is None, wanted an integer at least 2$"),
    "an array for a number": (lambda: mf.Attention(beta=np.array([1.0])), r"^beta is array\(\[1\.\]\), wanted a number$"),
    "a complex number": (lambda: mf.Attention(beta=1j), r"^beta is 1j, wanted a number$"),
    "numpy's complex number": (lambda: mf.Attention(beta=np.complex128(1)), r"^beta is .*, wanted a number$"),
    "a date for a number": (lambda: run(t_end=date(2020, 1, 1)), r"^t_end is datetime.date\(2020, 1, 1\), wanted a number$"),
    "a number beyond floats": (lambda: mf.Attention(beta=HUGE), r"^beta is 1000.*0, wanted a number$"),
    "a number of more digits than Python prints": (lambda: mf.Attention(beta=10**5000), r"^beta is of type int, wanted a number$"),
    "an integer beyond memory": (lambda: mf.circle(10**12), r"^n is 1000000000000, wanted at most 10000000$"),
    "more tokens than memory": (lambda: mf.sample(LAW, HUGE, 0), r"^count is 1000.*0, wanted at most 100000000$"),
    "a mesh beyond memory": (lambda: mf.cubed_sphere(10**9), r"^n is 1000000000, wanted at most 1000$"),
    "endless Lloyd steps": (lambda: mf.voronoi(np.eye(3), 10**12), r"^lloyd_steps is 1000000000000, wanted at most 100000$"),
    "a dimension beyond memory": (lambda: mf.Uniform(HUGE), r"^d is 1000.*0, wanted at most 100000$"),
    "nan": (lambda: run(t_end=NAN), r"^t_end is nan, wanted a finite number$"),
    "infinity": (lambda: run(save_every=INF), r"^save_every is inf, wanted a finite number$"),
    "a negative count": (lambda: mf.sample(LAW, -5, 0), r"^count is -5, wanted an integer at least 1$"),
    "a broken count": (lambda: mf.sample(LAW, 2.5, 0), r"^count is 2.5, wanted an integer at least 1$"),
    "no seed": (lambda: mf.sample(LAW, 2, None), r"^seed is None, wanted an integer at least 0$"),
    "a list for a number": (lambda: mf.Moebius([[0.1, 0.2]]), r"^w has shape \(1, 2\), wanted \(d,\)$"),
    "a masked number": (lambda: mf.Attention(beta=np.ma.masked), r"^beta is masked, wanted a number$"),
    "a masked number in an array": (
        lambda: mf.Attention(beta=np.ma.array(1.0, mask=True)),
        r"^beta is masked_array\(.*\), wanted a number$",
    ),
    "a masked integer": (lambda: mf.circle(np.ma.masked), r"^n is masked, wanted an integer at least 3$"),
    # arrays that are none
    "a masked entry": (lambda: mf.Measure(np.ma.array(np.eye(2), mask=[[0, 0], [1, 0]])), r"^points\[1, 0\] is masked, wanted a number$"),
    "a masked entry in lists": (lambda: mf.Measure([[1.0, np.ma.masked]]), r"^points\[0, 1\] is masked, wanted a number$"),
    "masked rows in a list": (
        lambda: mf.Measure([np.ma.array([1.0, 0.0], mask=[0, 1])]),
        r"^points\[0, 1\] is masked, wanted a number$",
    ),
    "a masked entry among objects": (
        lambda: mf.Measure(np.array([[1.0, np.ma.masked]], dtype=object)),
        r"^points is not an array of numbers but array\(\[\[1.0, masked\]\]",
    ),
    "a masked number for an array": (
        lambda: mf.Measure(np.ma.masked),
        r"^points is not an array of numbers but masked, wanted shape \(n, d\)$",
    ),
    "masked queries": (
        lambda: SOFTMAX.velocity(np.ma.array(np.eye(3), mask=np.eye(3)), CORNERS),
        r"^points\[0, 0\] is masked, wanted a number$",
    ),
    "lists in lists for an array": (lambda: mf.Measure(nested(5000)), r"^points is not an array of numbers but \[\["),
    "strings for an array": (lambda: mf.Measure([["1", "0"]]), r"^points is not an array of numbers but \[\['1', '0'\]\]"),
    "truths for an array": (lambda: mf.Measure([[True, False]]), r"^points is not an array of numbers but \[\[True, False\]\]"),
    "complex numbers for an array": (lambda: mf.Measure([[1j, 0]]), r"^points is not an array of numbers but \[\[1j, 0\]\]"),
    "dates for an array": (lambda: run(save_at=np.array(["2020-01-01"], "M8[D]")), r"^save_at is not an array of numbers but array"),
    "None in an array": (lambda: mf.Measure([[1.0, None]]), r"^points is not an array of numbers but \[\[1\.0, None\]\]"),
    "None for an array": (lambda: mf.Measure(None), r"^points is not an array of numbers but None, wanted shape \(n, d\)$"),
    "numbers beyond floats in an array": (lambda: mf.Measure([[HUGE, 0]]), r"^points is not an array of numbers but \[\[1000"),
    "a generator for an array": (lambda: mf.Measure(x for x in range(3)), r"^points is not an array of numbers but <generator"),
    "rows of different lengths": (
        lambda: mf.voronoi([[1, 0, 0], [1, 0]]),
        r"^points is not an array of numbers but \[\[1, 0, 0\], \[1, 0\]\]",
    ),
    "a mesh for an array": (lambda: mf.Measure(MESH), r"^points is not an array of numbers but <SphereMesh "),
    "one point for many": (lambda: mf.voronoi([1.0, 0.0, 0.0]), r"^points has shape \(3,\), wanted \(n, d\)$"),
    "points of R^4": (lambda: mf.voronoi(np.eye(4)), r"^points has shape \(4, 4\), wanted \(n, 3\) or \(n, 2\)$"),
    "no points": (lambda: mf.voronoi(np.empty((0, 3))), r"^points has 0 rows, wanted at least 4$"),
    "nan in an array": (lambda: mf.voronoi([[1, 0, 0], [0, NAN, 0]]), r"^points\[1, 1\] is nan, wanted a finite number$"),
    "infinity in an array": (lambda: mf.State(changed(START, 3, INF)), r"^averages\[3\] is inf, wanted a finite number$"),
    "a negative entry": (lambda: mf.State(changed(START, 3, -1.0)), r"^averages\[3\] is -1, wanted a number >= 0$"),
    "off the sphere": (lambda: mf.Measure([[1, 0, 0], [0, 1.1, 0]]), r"^points\[1\] has length 1.1, wanted a point of the unit sphere"),
    "far off the sphere": (lambda: mf.Measure([[1e200, 1e200]]), r"^points\[0\] has length inf, wanted a point of the unit sphere"),
    "masses beyond floats": (lambda: mf.Measure(np.eye(2), [1e308, 1e308]), r"^masses sum to inf, wanted a finite mass$"),
    "points of a line": (lambda: mf.Measure([[1.0]]), r"^points has shape \(1, 1\), wanted d >= 2 coordinates in a row$"),
    "points without coordinates": (lambda: mf.Measure(np.empty((0, 0))), r"^points has shape \(0, 0\), wanted d >= 2"),
    "tokens of a line": (lambda: run(system=TOKENS, start=[[1.0], [-1.0]]), r"^start has shape \(2, 1\), wanted d >= 2"),
    "smoothed tokens of a line": (lambda: mf.Smoothed([[1.0]], 0.1), r"^tokens has shape \(1, 1\), wanted d >= 2"),
    "runs of tokens of a line": (lambda: mf.solve_ensemble(SOFTMAX, [[[1.0]]], [1]), r"^starts has shape \(1, 1, 1\), wanted d >= 2"),
    "a mass too few": (lambda: mf.Measure(np.eye(3), [0.5, 0.5]), r"^masses has shape \(2,\), wanted \(3,\)$"),
    "a negative mass": (lambda: mf.Measure(np.eye(2), [1.5, -0.5]), r"^masses\[1\] is -0.5, wanted a number >= 0$"),
    # objects of another kind
    "no mesh": (lambda: mf.MeanFieldPDE(None, SOFTMAX), r"^mesh is a NoneType, wanted a SphereMesh$"),
    "the name of a mesh": (lambda: mf.project("icosahedral", LAW), r"^mesh is a str, wanted a SphereMesh$"),
    "a measure for a mesh": (lambda: mf.bin_tokens(CORNERS, np.eye(3)), r"^mesh is a Measure, wanted a SphereMesh$"),
    "a system for a mesh": (lambda: mf.write_mesh("m.vtu", DENSITY), r"^mesh is a MeanFieldPDE, wanted a SphereMesh$"),
    "beta for a model": (
        lambda: mf.MeanFieldPDE(MESH, 4.0),
        r"^model is 4.0, wanted an Attention, another VelocityModel or an object with velocity",
    ),
    "a class for an attention": (lambda: mf.ParticleSystem(mf.Attention), r"^model is <class .*, wanted an Attention, another Velocity"),
    "no attention": (lambda: mf.ParticleSystem(None), r"^model is None, wanted an Attention, another VelocityModel or an object with vel"),
    "the contract for a model": (lambda: mf.MeanFieldPDE(MESH, mf.VelocityModel), r"^model is <class .*, wanted an Attention, another"),
    "a number for a velocity": (
        lambda: mf.ParticleSystem(SimpleNamespace(velocity=3)),
        r"^model.velocity is 3, wanted a function of \(points, measure, t\)$",
    ),
    "an attention for a system": (lambda: run(system=SOFTMAX), r"^system is Attention\(.*, wanted a MeanFieldPDE, a ParticleSystem"),
    "the name of a law": (lambda: mf.sample("uniform", 5, 0), r"^law is 'uniform', wanted a law, which can draw tokens$"),
    "a number for a law": (lambda: mf.project(MESH, 0.25), r"^law is 0.25, wanted a law or a function of points \(m, d\)$"),
    "a class for a law": (lambda: mf.project(MESH, mf.Uniform), r"^law is <class .*Uniform'>, wanted a law or a function"),
    "no list of laws": (lambda: mf.Mixture(LAW, [1.0]), r"^laws is VonMisesFisher\(.*, wanted a list of laws$"),
    "a number among laws": (lambda: mf.Mixture([LAW, 3], [0.5, 0.5]), r"^laws\[1\] is 3, wanted a law$"),
    "no laws": (lambda: mf.Mixture([], []), r"^laws is empty, wanted at least one law$"),
    "laws of two dimensions": (lambda: mf.Mixture([LAW, mf.Uniform(2)], [0.5, 0.5]), r"^laws have dimensions \[2, 3\], wanted one$"),
    "weights that sum to .9": (lambda: mf.Mixture([LAW, LAW], [0.5, 0.4]), r"^weights sum to 0.9, wanted 1$"),
    "modes that are none": (lambda: mf.PerturbedUniform(3, 2), r"^modes is 2, wanted rows \(degree, amplitude, axis\)$"),
    "a mode that is none": (lambda: mf.PerturbedUniform(3, [2]), r"^modes\[0\] is 2, wanted \(degree, amplitude, axis\)$"),
    "a mode of two entries": (
        lambda: mf.PerturbedUniform(3, [(2, 0.1)]),
        r"^modes\[0\] has 2 entries, wanted \(degree, amplitude, axis\)$",
    ),
    "a mode beyond any mesh": (
        lambda: mf.PerturbedUniform(3, [(10**9, 0.1, (0, 0, 1))]),
        r"^modes\[0\] degree is 1000000000, wanted at most",
    ),
    "a mode with an axis of R^2": (lambda: mf.PerturbedUniform(3, [(2, 0.1, (0, 1))]), r"^modes\[0\] axis has 2 coordinates, wanted 3$"),
    "an amplitude beyond sums": (lambda: mf.PerturbedUniform(3, [(2, 1e300, (0, 0, 1))]), r"^modes\[0\] amplitude is 1e\+300, wanted"),
    "noise beyond sums": (lambda: mf.PerturbedUniform(3, noise=1e300, seed=0), r"^noise is 1e\+300, wanted at most 1e\+06$"),
    "noise without a seed": (lambda: mf.PerturbedUniform(3, noise=0.1), r"^seed is None, wanted an integer: noise is drawn from it$"),
    "a law that is negative": (
        lambda: mf.PerturbedUniform(3, [(1, 2.0, (0, 0, 1))]),
        r"^modes and noise let the density fall to -1 times the uniform one",
    ),
    "a cap beyond digits": (lambda: mf.VonMisesFisher((0, 0, 1), 1e16), r"^kappa is 1e\+16, wanted at most 1e\+10$"),
    "a bandwidth beyond digits": (lambda: mf.Smoothed(np.eye(3), 1e-9), r"^bandwidth is 1e-09, wanted at least 1e-05$"),
    "a Moebius point far outside": (lambda: mf.Moebius((1e200, 0)), r"^w has 2 coordinates and length inf, wanted d >= 2 and length < 1$"),
    "tokens off the sphere": (lambda: mf.bin_tokens(MESH, 2 * np.eye(3)), r"^tokens\[0\] has length 2, wanted a point of the unit sphere"),
    "tokens of R^2": (lambda: mf.bin_tokens(MESH, np.eye(2)), r"^tokens lie in R\^2, wanted R\^3 like the mesh$"),
    "the law of another sphere": (lambda: mf.project(RING, LAW), r"^law lives in R\^3, wanted R\^2 like the mesh$"),
    "a law that returns a number": (lambda: mf.project(MESH, lambda x: 0.25), r"^law\(points\) has shape \(\), wanted \(3840,\)$"),
    "an average too few": (lambda: run(start=START[:-1]), r"^start has shape \(41,\), wanted \(42,\)$"),
    "a start without mass": (lambda: run(start=0 * START), r"^start has mass 0, wanted 1"),
    "a token start off the sphere": (lambda: run(system=TOKENS, start=2 * np.eye(3)), r"^start\[0\] has length 2, wanted a point"),
    "averages for tokens": (lambda: run(system=TOKENS, start=START), r"^start has shape \(42,\), wanted \(n, d\)$"),
    "no start": (lambda: run(start=None), r"^start is not an array of numbers but None, wanted shape \(42,\)$"),
    "a list for atoms": (lambda: mf.State(START, [[1, 0, 0]]), r"^atoms is a list, wanted a Measure$"),
    # choices and switches
    "1 for True": (lambda: mf.MeanFieldPDE(MESH, SOFTMAX, atoms=1), r"^atoms is 1, wanted True or False"),
    "an array for True": (
        lambda: mf.MeanFieldPDE(MESH, SOFTMAX, atoms=np.zeros((2, 2))),
        r"^atoms is array\(\[\[0., 0.\], \[0., 0.\]\]\), wanted",
    ),
    "'no' for False": (lambda: mf.project(MESH, LAW, normalise="no"), r"^normalise is 'no', wanted True or False$"),
    "'yes' for True": (lambda: run(progress="yes"), r"^progress is 'yes', wanted True or False$"),
    "None for a switch": (lambda: mf.read_tokens("t.csv", weighted=None), r"^weighted is None, wanted True or False$"),
    "a word that is no choice": (lambda: mf.icosahedral(1, "squares"), r"^cells is 'squares', wanted 'voronoi' or 'triangles'$"),
    "a list for a choice": (lambda: mf.icosahedral(1, ["voronoi"]), r"^cells is \['voronoi'\], wanted 'voronoi' or 'triangles'$"),
    "a method that is none": (lambda: mf.ParticleSystem(SOFTMAX, method=3), r"^method is 3, wanted 'auto' or 'direct' or 'spectral'$"),
    "the class of a method": (lambda: mf.ParticleSystem(SOFTMAX, method=mf.Direct), r"^method is <class .*Direct'>, wanted 'auto' or"),
    "the class of a method of a field": (lambda: SOFTMAX.field(CORNERS, method=mf.Auto), r"^method is <class .*Auto'>, wanted 'auto' or"),
    "an accuracy in words": (lambda: mf.Spectral("high"), r"^accuracy is 'high', wanted a number$"),
    "an accuracy beyond digits": (lambda: mf.Spectral(1e-16), r"^accuracy is 1e-16, wanted a number in \[1e-15, 0.01\]$"),
    "a band of 0": (lambda: mf.Spectral(band=0), r"^band is 0, wanted an integer at least 1$"),
    "transforms in R^4": (
        lambda: SOFTMAX.field(mf.Measure(np.eye(4)), method=mf.Spectral()),
        r"^method is 'spectral' in R\^4, wanted R\^2 or R\^3: there are no transforms beyond$",
    ),
    "an order between": (lambda: mf.MeanFieldPDE(MESH, SOFTMAX, order=1.5), r"^order is 1.5, wanted an integer in \[1, 2\]$"),
    "a tableau for a stepper": (
        lambda: run(stepper=mf.EULER),
        r"^stepper is Tableau\(.*, wanted euler, ssprk2, ssprk3, dop853, or an object",
    ),
    "a number for a stepper": (lambda: run(stepper=3), r"^stepper is 3, wanted euler, ssprk2, ssprk3, dop853, or an object such as SSP"),
    "the name of a tableau": (lambda: mf.SSP("euler"), r"^tableau is a str, wanted a Tableau$"),
    "a string for cfl": (lambda: run(cfl="0.5"), r"^cfl is '0.5', wanted a number$"),
    "cfl for tokens": (lambda: run(system=TOKENS, start=np.eye(3), cfl=0.5), r"^cfl is 0.5, wanted None with stepper 'dop853'"),
    "nan for the longest step": (lambda: mf.SSP(mf.EULER, dt_max=NAN), r"^dt_max is nan, wanted a finite number$"),
    "an array for the longest step": (lambda: mf.SSP(mf.EULER, dt_max=np.ones(2)), r"^dt_max is array\(\[1., 1.\]\), wanted a number$"),
    "a tolerance of 0": (lambda: mf.Adaptive(rtol=0), r"^rtol is 0, wanted a number in \[2.3e-14, 0.1\]$"),
    "no callbacks": (lambda: run(callbacks=None), r"^callbacks is None, wanted a list of functions of \(t, measure\)$"),
    "one callback for a list": (lambda: run(callbacks=print), r"^callbacks is <built-in function print>, wanted a list of functions"),
    "a word for callbacks": (lambda: run(callbacks="print"), r"^callbacks is 'print', wanted a list of functions"),
    "a number for a callback": (lambda: run(callbacks=[print, 3]), r"^callbacks\[1\] is 3, wanted a function of \(t, measure\)$"),
    "times that fall": (lambda: run(save_at=[0.01, 0.005]), r"^save_at\[1\] is 0.005 after 0.01, wanted increasing times$"),
    "times beyond the end": (lambda: run(save_at=[0.0, 0.5]), r"^save_at runs from 0 to 0.5, wanted times in \[0, 0.01\]$"),
    "no times": (lambda: run(save_at=[]), r"^save_at is empty, wanted at least one time$"),
    "endless outputs": (lambda: run(save_every=1e-300), r"^save_every is 1e-300, wanted at most 10000000 outputs"),
    # meshes by hand
    "a list for an array of a mesh": (lambda: cells(areas=[1.0]), r"^areas is a list, wanted a ndarray$"),
    "a flat list of vertices": (lambda: cells(vertices=np.ones(5)), r"^vertices has shape \(5,\), wanted \(n_vertices, 2\)"),
    "corners that are no points": (
        lambda: cells(cell_vertices=changed(MESH.cell_vertices, 7, 900)),
        r"^cell_vertices\[7\] is 900, wanted a",
    ),
    "cells that are none": (lambda: cells(face_cells=changed(MESH.face_cells, (5, 1), -1)), r"^face_cells\[5, 1\] is -1, wanted a number"),
    "floats for numbers of cells": (lambda: cells(face_cells=1.0 * MESH.face_cells), r"^face_cells has shape .* and type float64, wanted"),
    "offsets that fall": (lambda: cells(cell_offsets=changed(MESH.cell_offsets, 4, 0)), r"^cell_offsets run from 0 to \d+, wanted"),
    "an area too few": (lambda: cells(areas=MESH.areas[:-1]), r"^centers has shape \(42, 3\), wanted \(41, 3\)$"),
    "a face across itself": (
        lambda: cells(face_cells=MESH.face_cells[:, [0, 0]]),
        r"^face 0 between cells \d+ and \d+: wanted two different cells$",
    ),
    "a number for a mesh file": (lambda: mf.read_mesh(3), r"^path is 3, wanted the name of a file or folder$"),
    "nothing for a mesh file": (lambda: mf.read_mesh(""), r"^path is '', wanted the name of a file or folder$"),
    "a name with a zero byte": (lambda: mf.read_tokens("a\0.csv"), r"^path is 'a\\x00.csv', wanted the name of a file or folder$"),
    "no name for a mesh": (lambda: mf.write_mesh(None, MESH), r"^path is None, wanted the name of a file or folder$"),
    # attention
    "a matrix that is not square": (lambda: mf.Attention(1.0, query=np.ones((2, 3))), r"^query has shape \(2, 3\), wanted a square matrix"),
    "nan in a matrix": (lambda: mf.Attention(1.0, key=np.diag([1, NAN, 1])), r"^key\[1, 1\] is nan, wanted a finite number$"),
    "a number for a matrix": (lambda: mf.Attention(1.0, value=2.0), r"^value has shape \(\), wanted \(d, d\)$"),
    "an empty matrix": (lambda: mf.Attention(1.0, value=np.empty((0, 0))), r"^value has shape \(0, 0\), wanted a square matrix"),
    "matrices of two sizes": (lambda: mf.Attention(1.0, np.eye(2), np.eye(3)), r"^matrices have different sizes .*'query': 2, 'key': 3"),
    "1 for normalised": (lambda: mf.Attention(1.0, normalised=1), r"^normalised is 1, wanted True \(SA\) or False \(USA\)$"),
    "matrices of another sphere": (
        lambda: mf.MeanFieldPDE(RING, mf.Attention(1.0, np.eye(3))),
        r"^model has 3 x 3 matrices, wanted 2 x 2",
    ),
    # what a velocity model of one's own returns
    "one vector for all": (
        lambda: moved(lambda x: x[0]),
        r"^velocity of Answering has shape \(3,\), wanted \(120, 3\) like the points$",
    ),
    "one vector for all tokens": (
        lambda: moved_tokens(lambda x: x[0]),
        r"^velocity of Answering has shape \(3,\), wanted \(3, 3\) like the points$",
    ),
    "one vector for an atom": (lambda: moved_atom(lambda x: x[0]), r"^velocity of Answering has shape \(3,\), wanted \(1, 3\) like"),
    "a column for velocities": (lambda: moved(lambda x: x[:, :1]), r"^velocity of Answering has shape \(120, 1\), wanted \(120, 3\) like"),
    "a column for tokens": (lambda: moved_tokens(lambda x: x[:, :1]), r"^velocity of Answering has shape \(3, 1\), wanted \(3, 3\) like"),
    "complex velocities": (lambda: moved(lambda x: 1j * x), r"^velocity of Answering is not an array of numbers but array.*, wanted shape"),
    "complex velocities of tokens": (lambda: moved_tokens(lambda x: 1j * x), r"^velocity of Answering is not an array of numbers but arr"),
    "a number for velocities": (lambda: moved_tokens(lambda x: 0.0), r"^velocity of Answering has shape \(\), wanted \(3, 3\) like"),
    "no velocities": (
        lambda: moved(lambda x: None),
        r"^velocity of Answering is not an array of numbers but None, wanted shape \(120, 3\) like the points$",
    ),
    "truths for velocities": (lambda: moved_tokens(lambda x: x > 0), r"^velocity of Answering is not an array of numbers but array"),
    "masked velocities": (lambda: moved(lambda x: np.ma.masked_less(x, 2)), r"^velocity of Answering\[0, 0\] is masked, wanted a number$"),
    "velocities along the points": (
        lambda: moved_tokens(lambda x: x),
        r"^velocity of Answering has a radial part of 1 at point 0, wanted a tangent vector",
    ),
    "vectors for a potential": (
        lambda: sloped(lambda x: x),
        r"^potential of Still has shape \(42, 3\), wanted \(42,\) like the points$",
    ),
    "a number for a potential": (lambda: sloped(lambda x: 0.0), r"^potential of Still has shape \(\), wanted \(42,"),
    "a word for an energy": (
        lambda: mf.energy(Still(energy="much"), CORNERS),
        r"^energy of Still is not an array of numbers but 'much', wanted shape \(\)$",
    ),
    "energies for an energy": (
        lambda: run(system=mf.ParticleSystem(Still(energy=np.ones(3))), start=np.eye(3)),
        r"^energy of Still has shape \(3,\), wanted \(\)$",
    ),
    "the energy of a velocity": (
        lambda: mf.energy(Drifting(), CORNERS),
        r"^model is a Drifting without an energy, wanted a model that has one$",
    ),
    "the potential of a velocity": (
        lambda: Drifting().potential(np.eye(3), CORNERS),
        r"^Drifting has no potential, wanted a model that is a gradient$",
    ),
    "a word for the measure of a field": (lambda: SOFTMAX.field("north"), r"^measure is a str, wanted a Measure$"),
    "one vector to stop by": (
        lambda: mf.metastable(Answering(lambda x: x[0]), 0.1)(0.0, CORNERS),
        r"^velocity of Answering has shape \(3,\), wanted \(3, 3\) like the points$",
    ),
    # exact solutions
    "a dimension in words": (lambda: mf.exact.growth_rate("3", 1.0, 1), r"^d is '3', wanted an integer at least 2$"),
    "a radius outside the ball": (lambda: mf.exact.moebius(3, 1.5, 1.0), r"^r0 is 1.5, wanted a number in \[0, 1\]$"),
    "no beta": (lambda: mf.exact.dirac_rate(None), r"^beta is None, wanted a number$"),
    "a mean off the sphere": (
        lambda: mf.exact.von_mises_fisher_velocity(np.eye(3), (0, 0, 2), 1, 1),
        r"^mean\[0\] has length 2, wanted a point of the unit sphere",
    ),
    "one cluster on a ring": (lambda: mf.exact.ring_rate(1, 1.0), r"^k is 1, wanted an integer at least 2$"),
    # what is read off
    "an angle of 0": (lambda: mf.clusters(CORNERS, 0), r"^angle is 0, wanted a number > 0$"),
    "an angle of half a turn": (lambda: mf.clusters(CORNERS, np.pi), r"^angle is 3.141592653589793, wanted a number < pi$"),
    "a floor of 1": (lambda: mf.clusters(CORNERS, 0.1, floor=1), r"^floor is 1, wanted a number < 1$"),
    "the entropy of a negative density": (lambda: mf.entropy(MESH, -START), r"^averages\[0\] is -.*, wanted a number >= 0$"),
    "W_3": (lambda: mf.wasserstein(CORNERS, CORNERS, 3), r"^order is 3, wanted an integer in \[1, 2\]$"),
    "measures of two spheres": (lambda: mf.wasserstein(CORNERS, mf.Measure(np.eye(2))), r"^a lies in R\^3 and b in R\^2, wanted"),
    "targets off the sphere": (
        lambda: mf.aggregate(CORNERS, 2 * np.eye(3)),
        r"^targets\[0\] has length 2, wanted a point of the unit sphere",
    ),
    "a speed of 0": (lambda: mf.metastable(SOFTMAX, 0), r"^speed is 0, wanted a number > 0$"),
    "a potential where there is none": (
        lambda: mf.Attention(1.0, value=[[1, 1], [0, 1]]).potential(np.eye(2), mf.Measure(np.eye(2))),
        r"^the field of this attention has no potential, wanted V = c K\^T Q transposed",
    ),
    "a number for a model": (lambda: mf.metastable(3, 0.1), r"^model is 3, wanted an Attention"),
    "a class for a model": (lambda: mf.metastable(mf.Attention, 0.1), r"^model is <class"),
    "a number for an energy": (lambda: mf.energy(3, CORNERS), r"^model is 3, wanted"),
    "points for a measure": (lambda: mf.energy(SOFTMAX, np.eye(3)), r"^measure is a ndarray, wanted a Measure$"),
    "nothing for a measure": (lambda: mf.log_energy(SOFTMAX, None), r"^measure is a NoneType, wanted a Measure$"),
    "points for an order parameter": (lambda: mf.order_parameter(np.eye(3)), r"^measure is a ndarray, wanted a Measure$"),
    "points for clusters": (lambda: mf.clusters(np.eye(3), 0.1), r"^measure is a ndarray, wanted a Measure$"),
    "the entropy on no mesh": (lambda: mf.entropy(None, START), r"^mesh is None, wanted"),
    "points for a distance": (lambda: mf.wasserstein(np.eye(3), CORNERS), r"^a is a ndarray, wanted a Measure$"),
    "nothing for a distance": (lambda: mf.wasserstein(CORNERS, None), r"^b is a NoneType, wanted a Measure$"),
    "points to aggregate": (lambda: mf.aggregate(np.eye(3), np.eye(3)), r"^measure is a ndarray, wanted a Measure$"),
    "a number to compare": (lambda: mf.compare(3, 4), r"^a is a int, wanted a Solution$"),
    "the stages of nothing": (lambda: mf.stages(None), r"^solution is a NoneType, wanted a Solution$"),
    "nothing to save": (lambda: mf.save("run.vtkhdf", None), r"^solution is a NoneType, wanted a Solution$"),
    "no folder for VTK": (lambda: mf.write_vtk(None, solved()), r"^folder is None, wanted the name of a file or folder$"),
    "no name for a picture": (lambda: mf.overview(None, solved()), r"^path is None, wanted the name of a file or folder$"),
    "no axes for a state": (lambda: mf.state_panel(3, solved()), r"^axes is 3, wanted matplotlib axes$"),
    "no time for a state": (lambda: mf.state_panel(AXES, solved(), t="late"), r"^t is 'late', wanted a number$"),
    "no axes for an energy": (lambda: mf.energy_panel(None, solved()), r"^axes is None, wanted matplotlib axes$"),
    "no run for an order parameter": (lambda: mf.order_panel(AXES, 3), r"^solutions\[0\] is a int, wanted a Solution"),
    "no run for a stair": (lambda: mf.staircase_panel(AXES), r"^solutions is empty, wanted a density, tokens or both$"),
    "no axes for a stair": (lambda: mf.staircase_panel("here", solved()), r"^axes is 'here', wanted matplotlib axes$"),
    "no run for a figure": (lambda: mf.overview_figure(), r"^solutions is empty, wanted a density, tokens or both$"),
    "a mesh for a figure": (lambda: mf.staircase_figure(MESH), r"^solutions\[0\] is a SphereMesh, wanted a Solution"),
    "no study for a figure": (lambda: mf.study_figure("study", 3), r"^study is a str, wanted a Study$"),
    "no table for a panel": (lambda: mf.convergence_panel(AXES, [1], "w1"), r"^table is a list, wanted a Table$"),
    "no name for a staircase": (lambda: mf.staircase(3, solved()), r"^path is 3, wanted the name of a file or folder$"),
    "a mesh for float32": (lambda: mf.write_vtk("out", solved(), float32=MESH), r"^float32 is <SphereMesh .*, wanted True or False$"),
    "a mesh for normalised": (lambda: mf.Attention(1.0, normalised=MESH), r"^normalised is <SphereMesh .*, wanted True \(SA\)"),
    "words for queries": (lambda: SOFTMAX.velocity("north", CORNERS), r"^points is not an array of numbers but 'north'"),
    "points for a field": (lambda: SOFTMAX.velocity(np.eye(3), np.eye(3)), r"^measure is a ndarray, wanted a Measure$"),
    "a string for a checkpoint": (lambda: run(checkpoint="run.vtkhdf"), r"^checkpoint is a str, wanted a Checkpoint$"),
    "a number for a record": (lambda: run(record=3), r"^record is "),
    "no file for a checkpoint": (lambda: mf.Checkpoint(None), r"^path is None, wanted the name of a file or folder$"),
    "a number for a case": (lambda: mf.run(3, "out"), r"^case is 3, wanted the path of a TOML file, its tables as nested plain values, or"),
    "a number for kinds of a case": (lambda: mf.run(TABLES, "out", kinds=3), r"^kinds is 3, wanted a list of classes$"),
    "a class for kinds of a case": (lambda: mf.run(TABLES, "out", kinds=Still), r"^kinds is <class .*Still'>, wanted a list of classes$"),
    "an object for kinds of a case": (lambda: mf.run(TABLES, "out", kinds=[Still, Still()]), r"^kinds\[1\] is <.*, wanted a class$"),
    "a kind that nobody named": (
        lambda: mf.run(TABLES | {"attention": {"kind": "Drifting"}}, "out", kinds=[Still]),
        r"^attention.kind is 'Drifting', wanted 'softmax' or 'Still'$",
    ),
    "an argument that a kind has not": (
        lambda: mf.run(TABLES | {"attention": {"kind": "Drifting", "beta": 1.0}}, "out", kinds=[Drifting]),
        r"^attention: unknown key 'beta'; known: $",
    ),
    "a kind that is no model": (
        lambda: mf.run(TABLES | {"attention": {"kind": "Uniform", "d": 2}}, "out", kinds=[mf.Uniform]),
        r"^attention is Uniform\(d=2\), wanted an Attention, another VelocityModel or an object with velocity",
    ),
    "a number for kinds of a file": (lambda: mf.load("run.vtkhdf", kinds=3), r"^kinds is 3, wanted a list of classes$"),
    "a name for kinds of a file": (lambda: mf.load("run.vtkhdf", kinds=["Still"]), r"^kinds\[0\] is 'Still', wanted a class$"),
    "a number for kinds of a checkpoint": (lambda: mf.resume("run.vtkhdf", kinds=3), r"^kinds is 3, wanted a list of classes$"),
    "a number for kinds of a folder": (lambda: mf.resume(".", kinds=3), r"^kinds is 3, wanted a list of classes$"),
    "a number for kinds of a study": (lambda: mf.study({}, "out", kinds=3), r"^kinds is 3, wanted a list of classes$"),
    "no file to resume": (lambda: mf.resume(3), r"^path is 3, wanted the name of a file or folder$"),
    "no file to load": (lambda: mf.load(None), r"^path is None, wanted the name of a file or folder$"),
    "tokens for runs": (lambda: mf.solve_ensemble(SOFTMAX, np.eye(3), [0, 1]), r"^starts has shape \(3, 3\), wanted \(R, n, d\)$"),
    "the name of a law to stratify": (lambda: mf.stratified("uniform", 5, 0), r"^law is 'uniform', wanted"),
    "points for a kernel distance": (lambda: mf.mmd(np.eye(3), CORNERS, 1.0), r"^a is a ndarray, wanted a Measure$"),
    "a negative kernel": (lambda: mf.mmd(CORNERS, CORNERS, -1), r"^beta is -1, wanted a number in \[0, 100000\]$"),
    "points for close pairs": (lambda: mf.close_pairs(np.eye(3), 0.5), r"^measure is a ndarray, wanted a Measure$"),
    "a cosine in words": (lambda: mf.close_pairs(CORNERS, "near"), r"^cosine is 'near', wanted a number$"),
    "one edge for many": (lambda: mf.inner_products(CORNERS, 0.5), r"^edges has shape \(\), wanted \(n_edges,\)$"),
    "a film of nothing": (lambda: mf.film("film.gif", 3), r"^solutions\[0\] is a int, wanted a Solution"),
    "no name for a film": (lambda: mf.film(None, solved()), r"^path is None, wanted the name of a file or folder$"),
    "boxes on a circle": (lambda: mf.lat_long(RING, np.ones(8)), r"^mesh lies in R\^2, wanted R\^3"),
    "values off the sphere": (lambda: mf.density_at(MESH, START, 2 * np.eye(3)), r"^points\[0\] has length 2, wanted a point of the unit"),
    "an empty study": (lambda: mf.study({}, "out"), r"^study: times is missing$"),
    "a number for a study": (lambda: mf.study(3, "out"), r"^asked is 3, wanted"),
    "no name of a study": (lambda: mf.read_study(3), r"^path is 3, wanted the name of a file or folder$"),
    "matrices beyond floats": (lambda: mf.Attention(1.0, 1e200 * np.eye(3), 1e200 * np.eye(3)), r"^K\^T Q "),
}

NUMBERS = (4, np.int8(4), np.float32(4), np.array(4.0), Fraction(4), Decimal(4))
RESULTS = {
    "Comparison",
    "Ensemble",
    "EULER",
    "PinnedWarning",
    "SSPRK2",
    "SSPRK3",
    "Solution",
    "SolveError",
    "Stage",
    "Study",
    "StudyResult",
}
"""Public names that take no input of a user's."""


@pytest.mark.parametrize("four", NUMBERS)
def test_numbers_of_every_kind_are_the_same_number(four):
    """The control, and D4."""
    assert mf.Attention(four) == mf.Attention(4.0) and type(mf.Attention(four).beta) is float
    assert mf.circle(four) == mf.circle(4)
    assert mf.Measure(np.array([[four, 0]], dtype=object) / 4).points.tolist() == [[1.0, 0.0]]
    assert mf.SSP(mf.EULER, cfl=four) == mf.SSP(mf.EULER, cfl=4.0) and mf.Adaptive(atol=four) == mf.Adaptive(atol=4.0)


ABOVE_1 = 1 + 2**-52
NEARLY = {
    "a cosine above 1": (lambda: mf.close_pairs(CORNERS, ABOVE_1), "cosine is 1.0000000000000002, wanted a number in [-1, 1]"),
    "an edge above 1": (lambda: mf.inner_products(CORNERS, [0, ABOVE_1]), "edges[1] is 1.0000000000000002, wanted a number in [-1, 1]"),
    "edges that fall": (
        lambda: mf.inner_products(CORNERS, [0.3 + 2**-54, 0.3]),
        "edges[1] is 0.3 after 0.30000000000000004, wanted increasing edges",
    ),
    "a radius above 1": (lambda: mf.exact.moebius(3, ABOVE_1, 1.0), "r0 is 1.0000000000000002, wanted a number in [0, 1]"),
    "radii above 1": (lambda: mf.exact.moebius_mean(3, [0.5, ABOVE_1]), "r[1] is 1.0000000000000002, wanted a number in [0, 1]"),
    "an angle above pi": (
        lambda: mf.exact.two_cluster_rate(1.0, 3.1415926535897936),
        "theta is 3.1415926535897936, wanted a number in [0, 3.141592653589793]",
    ),
    "an angle above the first": (
        lambda: mf.exact.two_cluster_time(1.0, 0.3, 0.3 + 2**-54),
        "theta1 is 0.30000000000000004, wanted an angle in (0, theta0 = 0.3]",
    ),
    "an inner product of 1": (
        lambda: mf.exact.equiangular(4, 1.0, -1 / 3, 1.0),
        "g0 is -0.3333333333333333, wanted a number in (-1/(n-1), 1) = (-0.3333333333333333, 1)",
    ),
    "a tolerance below": (lambda: mf.Adaptive(rtol=2.29999999e-14), "rtol is 2.29999999e-14, wanted a number in [2.3e-14, 0.1]"),
    "a bandwidth above pi": (
        lambda: mf.Smoothed(np.eye(3), 3.1415927),
        "bandwidth is 3.1415927, wanted a number in (0, 3.141592653589793]",
    ),
    "a bandwidth of 0": (lambda: mf.Smoothed(np.eye(3), 0), "bandwidth is 0, wanted a number in (0, 3.141592653589793]"),
    "a bandwidth below": (lambda: mf.Smoothed(np.eye(3), 9.9999999e-6), "bandwidth is 9.9999999e-06, wanted at least 1e-05"),
    "kappa above": (lambda: mf.VonMisesFisher((0, 0, 1), 1e10 + 1), "kappa is 10000000001.0, wanted at most 1e+10"),
    "a plan above": (
        lambda: mf.wasserstein(CORNERS, CORNERS, max_bytes=395.9999999),
        "needs about 3.96e-07 GB, more than max_bytes = 3.959999999e-07 GB",
    ),
}
"""Values whose first six digits are those of what is wanted."""


@pytest.mark.parametrize("name", NEARLY)
def test_a_refused_value_does_not_look_like_what_is_wanted(name):
    call, sentence = NEARLY[name]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        call()


def test_python_refuses_unknown_arguments():
    with pytest.raises(TypeError, match="betta"):
        mf.Attention(betta=1.0)
    with pytest.raises(TypeError, match="save_evry"):
        run(save_evry=0.1)
    for method in (lambda: mf.Auto(accuracy=1e-9), lambda: mf.Direct(accuracy=1e-9)):
        with pytest.raises(TypeError, match="accuracy"):
            method()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: mf.VelocityModel(), r"^VelocityModel defines neither field nor velocity, wanted a class of one's own that does$"),
        (lambda: type("Empty", (mf.VelocityModel,), {}), r"^Empty defines neither field nor velocity, wanted one of them$"),
        (lambda: mf.Field(), r"^Can't instantiate abstract class Field"),
        (lambda: type("Empty", (mf.Field,), {})(), r"^Can't instantiate abstract class Empty"),
    ],
)
def test_python_refuses_models_and_fields_that_give_no_velocity(make, sentence):
    one_sentence(make, sentence, TypeError)
    assert Still().velocity(np.eye(3), CORNERS).shape == (3, 3)  # the control


def test_densities_in_high_dimension_are_refused_where_no_float_holds_them():
    for law in (mf.Uniform(1000), mf.VonMisesFisher(np.eye(1000)[0], 5.0), mf.Moebius(0.1 * np.eye(1000)[0]), mf.PerturbedUniform(1000)):
        with pytest.raises(OverflowError, match=r"^the density in dimension 1000 is more than a float can hold"):
            law(np.eye(1000)[:2])
        assert mf.sample(law, 2, 0).shape == (2, 1000)  # tokens it has


def test_every_public_name_is_asked():
    source = Path(__file__).read_text()
    asked = {name for name in mf.__all__ if re.search(rf"mf\.{name}\(", source)} | {"SphereMesh", "exact"}
    assert set(mf.__all__) - RESULTS <= asked, set(mf.__all__) - RESULTS - asked


def one_sentence(call, sentence, kind):
    started = time.perf_counter()
    with pytest.raises(kind, match=sentence) as error:
        call()
    assert time.perf_counter() - started < 1
    text = str(error.value)
    assert text.isprintable() and len(text) <= 300 and error.type in (kind, FileNotFoundError)


@pytest.mark.parametrize("name", PYTHON)
def test_python(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one_sentence(*PYTHON[name], ValueError)
    assert not list(tmp_path.iterdir())


# -- the command line: (what is changed in the case, to what, what the line says)

CASE = """
t_end = 0.4
save_every = 0.1
[mesh]
kind = "circle"
n = 12
[attention]
beta = 4.0
[start]
kind = "von_mises_fisher"
mean = [0.6, 0.8]
kappa = 2.0
[particles]
count = 6
seed = 5
"""
START_TABLE = CASE[CASE.index("[start]") : CASE.index("[particles]")]


def starts(text):
    return (START_TABLE, f"[start]\n{text}\n", r"")[:2]


CASES = {
    # the file
    "empty": (CASE, "", r"case: t_end is missing"),
    "text of Windows": (
        CASE,
        "\udcff\udcfe",
        r"case.toml is not TOML: it begins with the byte-order mark of UTF-16, wanted text in UTF-8$",
    ),
    "no text": (CASE, "\udcfa\udcfe", r"case.toml is not TOML: 'utf-8' codec can't decode"),
    "another format": (CASE, '{"t_end": 0.4}', r"case.toml is not TOML: "),
    "a key given twice": ("t_end = 0.4", "t_end = 0.4\nt_end = 0.5", r"case.toml is not TOML: Cannot overwrite a value"),
    "a table given twice": ("[attention]", "[mesh]\n[attention]", r"case.toml is not TOML: Cannot declare"),
    "a list of tables": ("[mesh]", "[[mesh]]", r"case: mesh is \[\{.*\}\], wanted a table \[mesh\]"),
    "a table for a number": ("t_end = 0.4", "[t_end]\nvalue = 0.4\n[other]", r"case: unknown key 'other'"),
    "lists in lists": ("t_end = 0.4", f"t_end = {'[' * 3000}{']' * 3000}", r"case.toml"),
    "a number of 5 000 digits": ("t_end = 0.4", f"t_end = {'9' * 5000}", r"case.toml"),
    # times
    "a string for a time": ("t_end = 0.4", 't_end = "0.4"', r"t_end is '0.4', wanted a number$"),
    "true for a time": ("t_end = 0.4", "t_end = true", r"t_end is True, wanted a number$"),
    "nan for a time": ("t_end = 0.4", "t_end = nan", r"t_end is nan, wanted a finite number$"),
    "infinite time": ("t_end = 0.4", "t_end = inf", r"t_end is inf, wanted a finite number$"),
    "a date for a time": ("t_end = 0.4", "t_end = 2020-01-01", r"t_end is datetime.date\(2020, 1, 1\), wanted a number$"),
    "outputs never": ("save_every = 0.1", "save_every = 0", r"save_every is 0, wanted a number > 0$"),
    "outputs for ever": ("save_every = 0.1", "save_every = 1e-12", r"save_every is 1e-12, wanted at most 10000000 outputs"),
    "outputs in words": ("save_every = 0.1", 'save_every = "often"', r"save_every is 'often', wanted a number$"),
    "output times in words": ("save_every = 0.1", 'save_at = ["0"]', r"save_at is not an array of numbers but \['0'\]"),
    "output times that fall": ("save_every = 0.1", "save_at = [0.2, 0.1]", r"save_at\[1\] is 0.1 after 0.2, wanted increasing times$"),
    "output times after the end": (
        "save_every = 0.1",
        "save_at = [0.2, 0.5]",
        r"save_at runs from 0.2 to 0.5, wanted times in \[0, 0.4\]$",
    ),
    "no output times": ("save_every = 0.1", "save_at = []", r"save_at is empty, wanted at least one time$"),
    "a stop speed in words": ("save_every", 'stop_speed = "slow"\nsave_every', r"speed is 'slow', wanted a number$"),
    # the mesh
    "no kind of mesh": ('kind = "circle"\n', "", r"mesh.kind is None, wanted 'circle' or"),
    "a number for a kind of mesh": ('kind = "circle"', "kind = 3", r"mesh.kind is 3, wanted 'circle' or"),
    "cells in words": ("n = 12", 'n = "12"', r"mesh: n is '12', wanted an integer at least 3$"),
    "true for cells": ("n = 12", "n = true", r"mesh: n is True, wanted an integer at least 3$"),
    "cells beyond memory": ("n = 12", "n = 1000000000000", r"mesh: n is 1000000000000, wanted at most 10000000$"),
    "a level of another mesh": ("n = 12", "level = 12", r"mesh: unknown key 'level'.* known: n$"),
    "a mesh file and a kind": ("n = 12", 'file = "m.vtu"', r"mesh: unknown key"),
    "no mesh file": ('kind = "circle"\nn = 12', 'file = "m.vtu"', r"m.vtu: there is no such file, wanted a mesh file$"),
    "a folder for a mesh file": ('kind = "circle"\nn = 12', 'file = "folder.vtu"', r"folder.vtu: it is not a file, wanted a mesh file$"),
    "a truncated mesh file": ('kind = "circle"\nn = 12', 'file = "cut.vtu"', r"cut.vtu: it is empty, truncated or no VTK XML file"),
    "a mesh file of another format": ('kind = "circle"\nn = 12', 'file = "m.msh"', r"m.msh: the name ends in '.msh', wanted .vtu"),
    "a mesh file with a hole": ('kind = "circle"\nn = 12', 'file = "hole.vtu"', r"hole.vtu: .* not closed .* 11 lines and 12 points"),
    "a mesh of another sphere": (
        'kind = "circle"\nn = 12',
        'kind = "icosahedral"\nlevel = 0',
        r"law lives in R\^2, wanted R\^3 like the mesh$",
    ),
    # attention
    "beta in words": ("beta = 4.0", 'beta = "4"', r"attention: beta is '4', wanted a number$"),
    "infinite beta": ("beta = 4.0", "beta = inf", r"attention: beta is inf, wanted a finite number$"),
    "a ragged matrix": ("beta = 4.0", "query = [[1, 0], [1]]", r"attention: query is not an array of numbers but \[\[1, 0\], \[1\]\]"),
    "a matrix of words": ("beta = 4.0", 'value = [["1", "0"], ["0", "1"]]', r"attention: value is not an array of numbers but"),
    "a matrix that is not square": ("beta = 4.0", "key = [[1, 0]]", r"attention: key has shape \(1, 2\), wanted a square matrix"),
    "nan in a matrix": ("beta = 4.0", "key = [[1, nan], [0, 1]]", r"attention: key\[0, 1\] is nan, wanted a finite number$"),
    "1 for normalised": ("beta = 4.0", "normalised = 1", r"attention: normalised is 1, wanted True \(SA\) or False \(USA\)$"),
    "a scale of SA": ("beta = 4.0", "log_scale = 4", r"attention: log_scale is 4 with normalised=True, wanted 0"),
    "matrices of another sphere": (
        "beta = 4.0",
        "key = [[1,0,0],[0,1,0],[0,0,1]]",
        r"model has 3 x 3 matrices, wanted 2 x 2 like the mesh$",
    ),
    # the start
    "no kind of start": (*starts("kappa = 2.0"), r"start.kind is None, wanted 'uniform' or"),
    "a list of kinds": (*starts('kind = ["uniform"]'), r"start.kind is \['uniform'\], wanted 'uniform' or"),
    "no mean": (*starts('kind = "von_mises_fisher"\nkappa = 2.0'), r"start: mean is missing$"),
    "kappa beyond digits": ("kappa = 2.0", "kappa = 1e300", r"start: kappa is 1e\+300, wanted at most 1e\+10$"),
    "words for a mean": ("mean = [0.6, 0.8]", 'mean = "north"', r"start: mean is not an array of numbers but 'north'"),
    "a mixture of no list": (*starts('kind = "mixture"\nweights = [1.0]\nlaws = 3'), r"start[:.] ?laws is 3, wanted"),
    "a mixture of numbers": (*starts('kind = "mixture"\nweights = [1.0]\nlaws = [3]'), r"start.laws\[0\] is 3, wanted"),
    "a mixture of nothing": (*starts('kind = "mixture"\nweights = []\nlaws = []'), r"start: laws is empty, wanted at least one law$"),
    "a part without a kind": (*starts('kind = "mixture"\nweights = [1.0]\nlaws = [{d = 2}]'), r"start.laws\[0\].kind is None, wanted"),
    "a part of another sphere": (
        *starts('kind = "mixture"\nweights = [0.5, 0.5]\nlaws = [{kind = "uniform", d = 2}, {kind = "uniform", d = 3}]'),
        r"start: laws have dimensions \[2, 3\], wanted one$",
    ),
    "weights of .9": (
        *starts('kind = "mixture"\nweights = [0.9]\nlaws = [{kind = "uniform", d = 2}]'),
        r"start: weights sum to 0.9, wanted 1$",
    ),
    "a point outside the ball": (*starts('kind = "moebius"\nw = [1.0, 0.0]'), r"start: w has 2 coordinates and length 1, wanted"),
    "a mode of one number": (*starts('kind = "perturbed_uniform"\nd = 2\nmodes = [2]'), r"start: modes\[0\] is 2, wanted \(degree"),
    "no token file": (*starts('kind = "tokens"'), r"start: file is missing$"),
    "a number for a token file": (*starts('kind = "tokens"\nfile = 3'), r"3 ends in '', wanted .npy or .csv$|start.file is 3"),
    "a missing token file": (*starts('kind = "tokens"\nfile = "t.csv"'), r"no token file .*t.csv, wanted a .npy or .csv file$"),
    "a token file of words": (
        *starts('kind = "tokens"\nfile = "words.csv"'),
        r"words.csv cannot be read: row 2, column 1 holds 'one', wanted a number",
    ),
    "tokens off the circle": (
        *starts('kind = "tokens"\nfile = "off.csv"'),
        r"off.csv\[1\] has length 2, wanted a point of the unit sphere",
    ),
    "1 for weighted": (*starts('kind = "tokens"\nfile = "off.csv"\nweighted = 1'), r"weighted is 1, wanted True or False$"),
    "a bandwidth of 0": (*starts('kind = "tokens"\nfile = "on.csv"\nbandwidth = 0'), r"bandwidth is 0, wanted a number > 0$"),
    # the rest
    "atoms of words": (
        "[particles]",
        '[atoms]\npoints = "north"\nmasses = [0.1]\n[particles]',
        r"atoms: points is not an array of numbers",
    ),
    "an atom too few": ("[particles]", "[atoms]\npoints = [[1, 0]]\nmasses = [0.1, 0.1]\n[particles]", r"atoms: masses has shape \(2,\)"),
    "a count in words": ("count = 6", 'count = "6"', r"count is '6', wanted an integer at least 1$"),
    "a count beyond memory": ("count = 6", "count = 1000000000000", r"count is 1000000000000, wanted at most 100000000$"),
    "a broken seed": ("seed = 5", "seed = 0.5", r"seed is 0.5, wanted an integer at least 0$"),
    "a tolerance in words": ("seed = 5", 'seed = 5\nrtol = "fine"', r"particles.rtol is 'fine', wanted a number$"),
    "a method that is none": ("seed = 5", 'seed = 5\nmethod = "fast"', r"method is 'fast', wanted 'auto' or 'direct' or 'spectral'$"),
    "a number for a stepper": ("[particles]", "[solver]\nstepper = 3\n[particles]", r"stepper is 3, wanted euler, ssprk2, ssprk3"),
    "cfl in words": ("[particles]", '[solver]\ncfl = "small"\n[particles]', r"cfl is 'small', wanted a number$"),
    "a negative cfl": ("[particles]", "[solver]\ncfl = -0.5\n[particles]", r"cfl is -0.5, wanted a number > 0$"),
    "atoms in words": ("[particles]", '[solver]\natoms = "no"\n[particles]', r"atoms is 'no', wanted True or False"),
}


@pytest.fixture
def meanfield(tmp_path, capsys, monkeypatch):
    """The command in a folder of good and bad files, which it must leave as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(CASE)
    (tmp_path / "folder.vtu").mkdir()
    mf.write_mesh(tmp_path / "good.vtu", mf.circle(12))
    whole = (tmp_path / "good.vtu").read_bytes()
    (tmp_path / "cut.vtu").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "hole.vtu").write_bytes(without_a_line())
    for name, text in {"words.csv": "1,0\none,two\n", "off.csv": "1,0\n0,2\n", "on.csv": "1,0\n0,1\n", "one.csv": "1,0\n"}.items():
        (tmp_path / name).write_text(text)
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)

    def call(arguments, sentence):
        held = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        capsys.readouterr()
        started = time.perf_counter()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert time.perf_counter() - started < 1
        out, err = capsys.readouterr()
        assert (end.value.code, out) == (2, ""), err
        assert err.startswith("meanfield-pde: ") and err.count("\n") == 1 and err[:-1].isprintable() and len(err) <= 400
        assert "Traceback" not in err and re.search(sentence, err[:-1]), err
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == held

    return call


def without_a_line():
    """The circle of `good.vtu` in text, one of its twelve lines left out."""
    angles = 2 * np.pi * np.arange(12) / 12
    points = " ".join(f"{np.cos(angle):.17g} {np.sin(angle):.17g} 0" for angle in angles)
    corners = " ".join(f"{k} {k + 1}" for k in range(11))
    arrays = {"connectivity": corners, "offsets": " ".join(str(2 * k) for k in range(1, 12)), "types": " ".join(["3"] * 11)}
    cells = "".join(f'<DataArray type="Int64" Name="{name}" format="ascii">{text}</DataArray>' for name, text in arrays.items())
    return (
        '<VTKFile type="UnstructuredGrid"><UnstructuredGrid><Piece NumberOfPoints="12" NumberOfCells="11"><Points>'
        f'<DataArray type="Float64" NumberOfComponents="3">{points}</DataArray></Points><Cells>{cells}</Cells>'
        "</Piece></UnstructuredGrid></VTKFile>"
    ).encode()


@pytest.mark.parametrize("name", CASES)
def test_cases(name, meanfield, tmp_path):
    old, new, sentence = CASES[name]
    assert old in CASE
    (tmp_path / "case.toml").write_text(CASE.replace(old, new, 1), encoding="utf-8", errors="surrogateescape")
    meanfield(["run", "case.toml", "--out", "out"], sentence)


COMMANDS = {
    "no command": (["walk"], r'Unknown command "walk"'),
    "an option that is none": (["run", "case.toml", "--outt", "out"], r"unknown key 'outt'; known: atoms,"),
    "an out that is no UTF-8": (["run", "case.toml", "--out", "o\udcff"], r"pde: out is 'o\\udcff', wanted .* in UTF-8$"),
    "a mesh that is no UTF-8": (["info", "m\udcff.vtu"], r"pde: path is 'm\\udcff.vtu', wanted the name of a file or folder in UTF-8$"),
    "no out": (["run", "case.toml"], r"--out is missing, wanted a folder"),
    "a folder for a case": (["run", "folder.vtu", "--out", "out"], r"no case file folder.vtu"),
    "a mesh for a case": (["run", "good.vtu", "--out", "out"], r"good.vtu is not TOML"),
    "no cells": (["mesh", "circle", "-o", "m.vtu"], r"parameter --n requires an argument"),
    "cells in words": (["mesh", "circle", "--n", "twelve", "-o", "m.vtu"], r'Invalid value for --n: unable to convert "twelve" into int'),
    "half a cell": (["mesh", "circle", "--n", "12.5", "-o", "m.vtu"], r"12\.5"),
    "two cells": (["mesh", "cubed-sphere", "--n", "1", "-o", "m.vtu"], r"n is 1, wanted an integer at least 2$"),
    "cells beyond memory": (["mesh", "cubed-sphere", "--n", "100000", "-o", "m.vtu"], r"n is 100000, wanted at most 1000$"),
    "a level of ten": (["mesh", "icosahedral", "--level", "10", "-o", "m.vtu"], r"level is 10, wanted an integer in \[0, 9\]$"),
    "a level below": (["mesh", "icosahedral", "--level", "-1", "-o", "m.vtu"], r"level is -1, wanted an integer in \[0, 9\]$"),
    "squares": (["mesh", "icosahedral", "--level", "1", "--cells", "squares", "-o", "m.vtu"], r"cells is 'squares', wanted"),
    "a mesh of another format": (["mesh", "circle", "--n", "9", "-o", "m.stl"], r"path is 'm.stl', wanted a name that ends in .vtu$"),
    "a mesh without a name": (["mesh", "circle", "--n", "9"], r"parameter --out requires an argument"),
    "a mesh kind that is none": (["mesh", "torus", "-o", "m.vtu"], r'Unknown command "torus"'),
    "generators that are missing": (["mesh", "voronoi", "--points", "p.csv", "-o", "m.vtu"], r"no token file p.csv"),
    "generators of words": (["mesh", "voronoi", "--points", "words.csv", "-o", "m.vtu"], r"words.csv cannot be read"),
    "generators off the circle": (["mesh", "voronoi", "--points", "off.csv", "-o", "m.vtu"], r"off.csv\[1\] has length 2"),
    "one generator": (["mesh", "voronoi", "--points", "one.csv", "-o", "m.vtu"], r"points has 1 rows, wanted at least 2$"),
    "generators in pickles": (
        ["mesh", "voronoi", "--points", "objects.npy", "-o", "m.vtu"],
        r"objects.npy cannot be read: it has .* type object",
    ),
    "Lloyd steps below 0": (
        ["mesh", "voronoi", "--points", "on.csv", "--lloyd-steps", "-3", "-o", "m.vtu"],
        r"lloyd_steps is -3, wanted an integer at least 0$",
    ),
    "endless Lloyd steps": (
        ["mesh", "voronoi", "--points", "on.csv", "--lloyd-steps", "1000000000", "-o", "m.vtu"],
        r"lloyd_steps is 1000000000, wanted at most 100000$",
    ),
    "frames in seconds": (["film", "folder.vtu", "--frames", "-5s"], r'Invalid value for --frames: unable to convert "-5s" into int'),
    "info of nothing": (["info"], r"PATH requires an argument"),
    "info of a table": (["info", "on.csv"], r"on.csv: the name ends in '.csv', wanted .vtu"),
    "info of a truncated mesh": (["info", "cut.vtu"], r"cut.vtu: it is empty, truncated or no VTK XML file"),
    "info of a mesh with a hole": (["info", "hole.vtu"], r"hole.vtu: the circle is not closed"),
    "info of an empty folder": (["info", "folder.vtu"], r"folder.vtu holds no run"),
    "compare of a file": (["compare", "case.toml"], r"no folder case.toml"),
    "compare of an empty folder": (["compare", "folder.vtu"], r"folder.vtu holds no run"),
    "plot of nothing": (["plot", "nowhere"], r"no folder nowhere"),
    "export of nothing": (["export", "nowhere"], r"no folder nowhere"),
    "stages of nothing": (["stages", "nowhere"], r"no folder nowhere"),
    "a switch with a word": (
        ["export", "folder.vtu", "--float32=maybe"],
        r'Invalid value for --float32: unable to convert "maybe" into bool',
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name, meanfield):
    meanfield(*COMMANDS[name])
