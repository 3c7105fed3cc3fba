"""One picture of a run: its states at a few times above its energy and its order parameter.

Data in: a density, tokens, or both. Data out: a .png or .pdf, or a matplotlib Figure. States are maps on S^2 (`maps`); curves beside a
diagram over angle and time on S^1, histograms of inner products in d > 3 (`panels`).
"""

import os
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import MOST_STATES, Figure, States, SubFigure, handle
from meanfield_pde.pictures.maps import Maps
from meanfield_pde.pictures.panels import Circle, Products, energy_curves, has_energy, order_curves, space_time
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

MAP_GRIDS = {1: (1, 1, 3.5), 2: (1, 2, 2.1), 3: (1, 3, 1.6), 4: (2, 2, 3.9)}
"""Rows, columns and height in inches for a number of maps."""
CIRCLE_HEIGHT, PRODUCTS_HEIGHT, HISTORY_HEIGHT = 3.0, 2.6, 2.5
"""Inches."""


def overview(path: str | os.PathLike[str], *solutions: Solution, times: ArrayLike | None = None) -> Path:
    """Write one picture (.png at 200 dpi, or .pdf) of a density, of tokens, or of both; returns its path. Missing folders are made.

    times: at most four, increasing; the outputs nearest to them are shown, and titles give their own times. Default: four outputs, evenly
    spaced from the first to the last. Colours cover at most four decades of density. At most 150 paths of tokens are drawn (S^1), and
    inner products of at most 1000 tokens (d > 3).

    Raises ValueError for a name without .png or .pdf, no solution, two of one kind, solutions on different spheres, or times outside
    the runs; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, canvas.SUFFIXES)
    return canvas.save_figure(overview_figure(*solutions, times=times), path)


def overview_figure(*solutions: Solution, times: ArrayLike | None = None) -> Figure:
    """The picture of `overview` as a matplotlib Figure, to change or to save in other ways."""
    runs = canvas.checked_runs(solutions)
    states = States(runs, canvas.even_times(runs, MOST_STATES) if times is None else _checked_times(runs, times))
    height = {2: CIRCLE_HEIGHT, 3: MAP_GRIDS[len(states)][2]}.get(states.dimension, PRODUCTS_HEIGHT)
    with canvas.mpl().rc_context(canvas.STYLE):
        figure = canvas.blank_figure(height + HISTORY_HEIGHT)
        parts: Any = figure.subfigures(2, 1, height_ratios=[height, HISTORY_HEIGHT])
        samples = _maps(parts[0], states) if states.dimension == 3 else _curves(parts[0], states)
        _histories(parts[1], states, samples)
    return figure


def _checked_times(runs: list[Solution], times: ArrayLike) -> FloatArray:
    first, last = canvas.common_times(runs)
    wanted = inputs.array("times", times, ("n_times",))
    if not 1 <= len(wanted) <= MOST_STATES:
        raise ValueError(f"times has {len(wanted)} entries, wanted 1 to {MOST_STATES}")
    outside = (wanted < first) | (wanted > last)
    inputs.refuse(outside, lambda k: f"times[{k}] is {wanted[k]:g}, wanted a time in [{first:g}, {last:g}]")
    inputs.increasing("times", wanted, "times")
    return wanted


def _maps(part: SubFigure, states: States) -> list[Any]:
    rows, columns, _ = MAP_GRIDS[len(states)]
    axes = part.subplots(rows, columns, squeeze=False)
    scene = Maps(part, axes, states)
    for k, (panel, title) in enumerate(zip(axes.flat, states.titles(), strict=True)):
        scene.draw(k, panel)
        panel.set_title(title)
    part.supxlabel(scene.note("maps"), fontsize=7, color="0.35")
    return scene.samples()


def _curves(part: SubFigure, states: States) -> list[Any]:
    """All states in one panel; on S^1 beside a diagram over angle and time, if there is more than one output."""
    several = states.dimension == 2 and max(len(run.times) for run in states.runs) > 1
    panel, *others = part.subplots(1, 2 if several else 1, squeeze=False)[0]
    scene = Circle(panel, states) if states.dimension == 2 else Products(panel, states)
    handles = []
    for k, (title, colour) in enumerate(zip(states.titles(), canvas.time_colours(len(states)), strict=True)):
        scene.draw(k, colour, rank=k)
        handles.append(handle(title, color=colour))
    if states.density and states.tokens:
        handles += [handle("density", color="0.3")] if len(states.extremes()) else []
        handles += [handle("tokens", color="0.3", marker=".", linestyle="")]
    columns = 3 if len(handles) > MOST_STATES else MOST_STATES
    panel.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, handlelength=1.2, columnspacing=1.2)
    for other in others:
        space_time(part, other, states)
    return []


def _histories(part: SubFigure, states: States, samples: list[Any]) -> None:
    """Energy, if there is one, and order parameter; grey lines at the times of the states. samples: what else the legend has."""
    with_energy = [run for run in states.runs if has_energy(run)]
    axes = part.subplots(1, 2 if with_energy else 1, squeeze=False)[0]
    if with_energy:
        energy_curves(axes[0], with_energy)
    order_curves(axes[-1], states.runs)
    part.legend(handles=[*axes[-1].lines, *samples], loc="outside upper center", ncols=5, columnspacing=1.5)
    for line in axes[-1].lines:
        line.set_clip_on(False)  # at 0 it would lose its lower half
    for panel in axes:
        panel.set_xlabel("time $t$")
        for t in states.times[0]:
            panel.axvline(t, color="0.85", linewidth=0.8, zorder=0)
