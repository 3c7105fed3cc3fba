"""One picture of a run: its states at a few times above its energy and its order parameter.

Data in: a density, tokens, or both. Data out: a .png, .pdf or .svg, or a matplotlib Figure. States are maps on S^2 (`maps`); curves above
a diagram over angle and time on S^1, histograms of inner products in d > 3 (`panels`). A caption names model, mesh and numbers.
"""

import os
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import MOST_STATES, Axes, Figure, States, SubFigure, handle
from meanfield_pde.pictures.maps import Maps
from meanfield_pde.pictures.panels import Circle, Products, energy_curves, has_energy, order_curves, space_time
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

GRIDS = {1: (1, 1), 2: (1, 2), 3: (2, 2), 4: (2, 2)}
"""Rows and columns for a number of states."""
MAP_HEIGHTS = {1: 2.7, 2: 1.7, 3: 2.9, 4: 2.9}
CIRCLE_HEIGHT, DIAGRAM_HEIGHT, PRODUCTS_HEIGHTS, HISTORY_HEIGHT = 2.3, 2.1, {1: 1.9, 2: 3.3}, 2.3
"""Inches; those of inner products by rows."""


def overview(path: str | os.PathLike[str], *solutions: Solution, times: ArrayLike | None = None) -> Path:
    """Write one picture (.png at 300 dpi, .pdf or .svg) of a density, of tokens, or of both; returns its path. Missing folders are made.

    times: at most four, increasing; the outputs nearest to them are shown, and titles give their own times. Default: four outputs, evenly
    spaced from the first to the last. Colours cover at most four decades of density. At most 40 paths of tokens are drawn (S^1), and
    inner products of at most 1000 tokens (d > 3).

    Raises ValueError for a name without .png, .pdf or .svg, no solution, two of one kind, solutions on different spheres, or times outside
    the runs; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, canvas.SUFFIXES)
    return canvas.save_figure(overview_figure(*solutions, times=times), path)


def overview_figure(*solutions: Solution, times: ArrayLike | None = None) -> Figure:
    """The picture of `overview` as a matplotlib Figure, to change or to save in other ways."""
    runs = canvas.checked_runs(solutions)
    states = States(runs, canvas.even_times(runs, MOST_STATES) if times is None else _checked_times(runs, times))
    several = max(len(run.times) for run in runs) > 1
    height = {2: CIRCLE_HEIGHT + DIAGRAM_HEIGHT * several, 3: MAP_HEIGHTS[len(states)]}.get(states.dimension)
    height = height or PRODUCTS_HEIGHTS[GRIDS[len(states)][0]]
    with canvas.mpl().rc_context(canvas.STYLE):
        figure = canvas.blank_figure(height + HISTORY_HEIGHT)
        parts: Any = figure.subfigures(2, 1, height_ratios=[height, HISTORY_HEIGHT])
        panels = _curves(parts[0], states, several) if states.dimension == 2 else _grid(parts[0], states)
        panels += _histories(parts[1], states)
        for index, panel in enumerate(panels):
            canvas.letter(panel, index)
        canvas.caption(parts[1], canvas.described_runs(runs))
    return figure


def overview_html(solution: Solution) -> str:
    """What notebooks show of a run: its text and this picture, inline."""
    return canvas.as_html(lambda: overview_figure(solution), repr(solution))


def _checked_times(runs: list[Solution], times: ArrayLike) -> FloatArray:
    first, last = canvas.common_times(runs)
    wanted = inputs.array("times", times, ("n_times",))
    if not 1 <= len(wanted) <= MOST_STATES:
        raise ValueError(f"times has {len(wanted)} entries, wanted 1 to {MOST_STATES}")
    outside = (wanted < first) | (wanted > last)
    inputs.refuse(outside, lambda k: f"times[{k}] is {wanted[k]:g}, wanted a time in [{first:g}, {last:g}]")
    inputs.increasing("times", wanted, "times")
    return wanted


def _grid(part: SubFigure, states: States) -> list[Axes]:
    """A panel for each state: maps, or histograms of inner products."""
    rows, columns = GRIDS[len(states)]
    axes = part.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for panel in axes.flat[len(states) :]:
        panel.remove()
    panels = axes.flat[: len(states)].tolist()
    scene = Maps(part, panels, states) if states.dimension == 3 else Products(panels, states)
    for k, (panel, title) in enumerate(zip(panels, states.titles(), strict=True)):
        scene.draw(k, panel)
        panel.set_title(title)
    if isinstance(scene, Maps):
        part.supxlabel(scene.note("maps"), fontsize=canvas.SMALL, color=canvas.GREY)
    else:
        for panel in panels:
            panel.label_outer()
    if samples := scene.samples():
        part.legend(handles=samples, loc="outside upper center", ncols=4, columnspacing=1.5)
    return panels


def _curves(part: SubFigure, states: States, several: bool) -> list[Axes]:
    """All states of S^1 in one panel, above a diagram over angle and time if there are several outputs."""
    heights = [CIRCLE_HEIGHT, DIAGRAM_HEIGHT] if several else [CIRCLE_HEIGHT]
    parts: Any = part.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    panels = [each.subplots() for each in parts]
    scene, handles = Circle(panels[0], states), []
    for k, (title, colour) in enumerate(zip(states.titles(), canvas.time_colours(len(states)), strict=True)):
        scene.draw(k, colour, rank=k)
        handles.append(handle(title, color=colour))
    handles += scene.samples(alone=False)
    parts[0].legend(handles=handles, loc="outside upper center", ncols=4, handlelength=1.2, columnspacing=1.0)
    for each, panel in zip(parts[1:], panels[1:], strict=True):
        space_time(each, panel, states)
    return panels


def _histories(part: SubFigure, states: States) -> list[Axes]:
    """Energy, if there is one, and order parameter; grey lines at the times of the states."""
    with_energy = [run for run in states.runs if has_energy(run)]
    axes = part.subplots(1, 2 if with_energy else 1, squeeze=False)[0]
    if with_energy:
        energy_curves(axes[0], with_energy)
    order_curves(axes[-1], states.runs)
    shown = {"color": "0.75", "linewidth": 0.8}
    part.legend(handles=[*axes[-1].lines, handle("times shown", **shown)], loc="outside upper center", ncols=3, columnspacing=1.5)
    for line in axes[-1].lines:
        line.set_clip_on(False)  # at 0 it would lose its lower half
    for panel in axes:
        for t in states.times[0]:
            panel.axvline(t, zorder=0, **shown)
    return list(axes)
