"""The energy of a run over time above its stages: long times during which its clusters stay the same.

Data in: a density, tokens, or both. Data out: a .png, .pdf or .svg, a matplotlib Figure, or curves in axes of one's own.
"""

import os
from pathlib import Path

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.diagnostics.stages import Stage, stages
from meanfield_pde.pictures.canvas import (
    STYLE,
    SUFFIXES,
    Axes,
    Figure,
    blank_figure,
    caption,
    checked_axes,
    checked_runs,
    described_runs,
    mpl,
    save_figure,
)
from meanfield_pde.pictures.panels import energy_curves, refuse_without_energy
from meanfield_pde.solution import Solution

STAGE_SHADES = ("0.93", "0.83")
LONG_RUN = 100.0
"""Runs longer than this many times what came before their first stage have a logarithmic time axis."""


def staircase(path: str | os.PathLike[str], *solutions: Solution) -> Path:
    """Write the energy over time (.png at 300 dpi, .pdf or .svg) of a density, of tokens, or of both; returns the path.

    The stages (`stages`) of the density, or of the tokens if it has none, are shaded, with their numbers of clusters where there is room.
    Time is logarithmic if the run is over 100 times as long as it took to the first stage, or 10 times as the first stage if that begins
    at t = 0. Missing folders are made.

    Raises ValueError for a name without .png, .pdf or .svg, no solution, two of one kind, solutions on different spheres, or runs without
    energies; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, SUFFIXES)
    return save_figure(staircase_figure(*solutions), path)


def staircase_figure(*solutions: Solution) -> Figure:
    """The picture of `staircase` as a matplotlib Figure, to change or to save in other ways."""
    with mpl().rc_context(STYLE):
        figure = blank_figure(2.6)
        panel = staircase_panel(figure.subplots(), *solutions)
        handles, labels = panel.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        caption(figure, described_runs(checked_runs(solutions)))
    return figure


def staircase_panel(axes: Axes, *solutions: Solution) -> Axes:
    """The same in axes of one's own, without legend and caption, in their style; returns the axes. Raises ValueError as `staircase`."""
    axes, runs = checked_axes(axes), checked_runs(solutions)
    refuse_without_energy(runs)
    kind, found = next(((run.kind, found) for run in runs if (found := _stages(run))), ("", []))
    energy_curves(axes, runs)
    _time_axis(axes, runs, found)
    _shade(axes, found, f"stages of the {kind} (alternating greys)")
    return axes


def _stages(run: Solution) -> list[Stage]:
    """Those of some length; a density without atoms has none."""
    found = stages(run) if run.kind == "tokens" or run.system.atoms else []  # type: ignore[attr-defined]
    return [stage for stage in found if stage.t_end > stage.t_start]


def _time_axis(panel: Axes, runs: list[Solution], found: list[Stage]) -> None:
    end = max(float(run.times[-1]) for run in runs)
    start = min((stage.t_start for stage in found if stage.t_start > 0), default=np.inf)
    if np.isfinite(start) and end > start * (LONG_RUN if start == found[0].t_start else LONG_RUN / 10):
        first = min(float(run.history.t[0]) for run in runs)
        panel.set(xscale="log", xlim=(max(first, start / LONG_RUN), end))
    else:
        panel.set_xlim(min(float(run.times[0]) for run in runs), end)
    panel.set_xlabel("time $t$")


def _shade(panel: Axes, found: list[Stage], label: str) -> None:
    """Stages, with what fits above them: "3 clusters", "3" or nothing."""
    edge, width = panel.get_xlim()[0], panel.bbox.width / panel.figure.dpi
    for k, stage in enumerate(found):
        start = max(stage.t_start, edge)
        panel.axvspan(start, stage.t_end, color=STAGE_SHADES[k % 2], linewidth=0, zorder=0, label="" if k else label)
        left, right = panel.transAxes.inverted().transform(panel.transData.transform([(start, 1), (stage.t_end, 1)]))[:, 0]
        long = f"{stage.clusters} cluster" + ("s" if stage.clusters > 1 else "")
        text = next((text for text in (long, str(stage.clusters)) if (right - left) * width > 0.08 * len(text)), None)
        if text:
            panel.text((left + right) / 2, 1.02, text, transform=panel.transAxes, ha="center", va="bottom", fontsize=8)
