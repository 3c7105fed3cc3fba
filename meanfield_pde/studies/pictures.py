"""Pictures of studies: one figure for each kind.

| kind | figure |
|---|---|
| convergence | each quantity over n, log-log, with standard errors, fitted slopes, a guide of slope -1/2 and the limit's own error |
| phase | shares of pairs that have met and numbers of clusters over (t, beta), with the fronts of limit and tokens on each other |
| clusters | how many runs form how many clusters first, limit beside tokens |
| inner_products | histograms at a few times, and the mean over time beside the equiangular law |

Captions name model, mesh and numbers. Data in: a study and its table. Data out: a picture, a matplotlib Figure, or one panel in axes of
one's own. matplotlib is imported when called.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.tables import Table, named
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import COLOURS, STYLES, Axes, Figure, handle, plain, time_colours
from meanfield_pde.studies.convergence import Convergence
from meanfield_pde.studies.first_clusters import FirstClusters
from meanfield_pde.studies.inner_products import InnerProducts
from meanfield_pde.studies.phase import Phase
from meanfield_pde.studies.plan import Study

COLUMNS, PANEL_HEIGHT = 2, 1.75
NAMES = {
    "w1": "$W_1$ (rad)",
    "w2": "$W_2$ (rad)",
    "mmd": "MMD",
    "energy": "$|E_n/E - 1|$",
    "order": "$|R_n - R|$",
    "clusters": "clusters",
}
LINE = 0.11
"""Of a panel's height, that a slope in numbers takes."""
NEAR = 4.0
"""The limit's own error is drawn where it is at most this factor below all else."""
SHARES_MAP, COUNTS_MAP = "magma_r", "viridis_r"
MOST_COUNTED = 8
"""Numbers of clusters beyond it have one colour."""


def draw(path: str | os.PathLike[str], study: Study, table: Table) -> Path:
    """Write the picture (.png at 300 dpi, .pdf or .svg) of a study's table; returns its path."""
    path = inputs.file_path("path", path, canvas.SUFFIXES)
    return canvas.save_figure(study_figure(study, table), path)


def study_figure(study: Study, table: Table) -> Figure:
    """The picture of `draw` as a matplotlib Figure. study, table: those of a `StudyResult`."""
    inputs.instance("study", study, Study)
    inputs.instance("table", table, Table)
    figures: dict[type, Any] = {Convergence: _convergence, Phase: _phase, FirstClusters: _first_clusters, InnerProducts: _inner_products}
    with canvas.mpl().rc_context(canvas.STYLE):
        figure, panels = figures[type(study.kind)](study.kind, table)
        for index, panel in enumerate(panels if len(panels) > 1 else ()):
            canvas.letter(panel, index)
        canvas.caption(figure, _described(study))
    return figure


def _described(study: Study) -> str:
    """Model, mesh and numbers of tokens, for a caption; swept parameters stand elsewhere."""
    swept = [key.removeprefix("attention.") for key in study.sweep]
    words = [canvas.model_in_words(study.job(study.sets[0]).model(), without=swept)]
    if study.has_limit:
        words.append(
            "mesh " + ", ".join(f"{name} = {value}" if name != "kind" else str(value) for name, value in study.tables["mesh"].items())
        )
    if study.counts:
        sizes = ", ".join(map(str, study.counts)) if len(study.counts) <= 4 else f"{min(study.counts)} to {max(study.counts)}"
        words.append(f"{sizes} tokens, {study.runs} run" + ("s" if study.runs > 1 else ""))
    return "; ".join(words)


def _figure_of_sets(first_column: str, table: Table, margin: float, height: float) -> tuple[Figure, list[tuple[Any, Table]]]:
    """A figure (inches) with a part for each parameter set, whose values are its title, and the rows of that set."""
    names = table.names[: table.names.index(first_column)]
    sets = list(dict.fromkeys(row[: len(names)] for row in table.rows))
    figure = canvas.blank_figure(margin + height * len(sets))
    parts: Any = figure.subfigures(len(sets), 1, squeeze=False)[:, 0]
    if names:
        for part, values in zip(parts, sets, strict=True):
            part.suptitle(named(names, values), fontsize=9)
    return figure, [(part, table.where(**dict(zip(names, values, strict=True)))) for part, values in zip(parts, sets, strict=True)]


def _coloured_times(table: Table, most: int | None = None) -> list[tuple[float, Any]]:
    """The times of a table, or at most so many of them, evenly chosen, with their colours."""
    times = np.unique(table.column("t").astype(float))
    chosen = times[canvas.spaced(len(times), most or len(times))]
    return list(zip(chosen.tolist(), time_colours(len(chosen)), strict=True))


def _sources(table: Table) -> list[tuple[str, int]]:
    """ "limit" or "tokens", with the number of tokens, in the order of the table."""
    return list(dict.fromkeys(zip(table.column("source").tolist(), table.column("n").tolist(), strict=True)))


def _convergence(kind: Convergence, table: Table) -> tuple[Figure, list[Axes]]:
    rows, columns = -(-len(kind.quantities) // COLUMNS), min(COLUMNS, len(kind.quantities))
    figure, parts = _figure_of_sets(kind.first_column, table, 0.8, PANEL_HEIGHT * rows)
    drawn, marks, empty = list[Axes](), dict[str, Any](), list[Axes]()
    for part, chosen in parts:
        panels = list(part.subplots(rows, columns, squeeze=False).flat)
        for panel, quantity in zip(panels, kind.quantities, strict=False):
            convergence_panel(panel, chosen, quantity)
            drawn.append(panel)
            handles, labels = panel.get_legend_handles_labels()
            marks |= dict(zip(labels, handles, strict=True))
        empty += panels[len(kind.quantities) :]
    for panel in empty:
        panel.axis("off")
    if empty:
        empty[0].legend(marks.values(), marks.keys(), loc="center")
    else:
        figure.legend(marks.values(), marks.keys(), loc="outside upper center", ncols=3)
    return figure, drawn


def convergence_panel(axes: Axes, table: Table, quantity: str) -> Axes:
    """A quantity of a convergence study over n in axes of one's own, without legend; what is drawn has labels for one. Returns the axes.

    table: that of a `StudyResult`, the rows of one parameter set. quantity: "w1", "w2", "mmd", "energy", "order" or "clusters".
    Raises ValueError if the study has no such quantity.
    """
    canvas.checked_axes(axes)
    inputs.instance("table", table, Table)
    inputs.choice("quantity", quantity, dict.fromkeys(table.column("quantity").tolist()))
    table, slopes, flags = table.where(quantity=quantity), [], False
    for t, colour in _coloured_times(table):
        part = table.where(t=t)
        n, mean, error = (part.column(name).astype(float) for name in ("n", "mean", "standard_error"))
        flagged = part.column("mesh_limited") | part.column("below_validity")
        flags |= bool(flagged.any())
        axes.errorbar(n, mean, np.nan_to_num(error), fmt="none", ecolor=colour, elinewidth=1)
        for chosen, face in ((flagged, "white"), (~flagged, colour)):
            axes.plot(n[chosen], mean[chosen], "o", color=colour, markerfacecolor=face, markersize=4)
        axes.plot([], [], "o-", color=colour, markersize=4, linewidth=1, label=f"$t$ = {t:g}")
        if quantity == "clusters":
            axes.axhline(part.column("limit")[0], color=colour, linestyle=":", linewidth=1)
            continue
        slope, low, high, factor = (float(part.column(name)[0]) for name in ("slope", "slope_low", "slope_high", "factor"))
        if np.isfinite(slope):
            axes.plot(n, factor * n**slope, "-", color=colour, linewidth=1)
            slopes.append((plain(slope, ".2f") + (f" $\\pm$ {(high - low) / 2:.2f}" if np.isfinite(low) else ""), colour))
    if flags:
        axes.plot([], [], "o", color="0.4", markerfacecolor="white", markersize=4, label="flagged, not fitted")
    axes.set(xscale="log", xlabel="tokens $n$", ylabel=NAMES[quantity])
    sizes = np.unique(table.column("n"))
    canvas.few_ticks(axes.xaxis, sizes[0], sizes[-1], sizes)
    if quantity == "clusters":
        axes.plot([], [], ":", color="0.4", linewidth=1, label="clusters of the limit")
        top = max(1.1, 1.1 * float(np.nanmax(np.append(table.column("mean"), table.column("limit")))))
        axes.set_ylim(-0.05 * top, top)
    elif (table.column("mean") > 0).any():
        _scale(axes, table, len(slopes))
    for k, (text, colour) in enumerate(slopes):
        axes.text(0.99, 0.99 - LINE * k, text, color=colour, transform=axes.transAxes, ha="right", va="top", fontsize=7)
    return axes


def _scale(axes: Axes, table: Table, slopes: int) -> None:
    """A scale that the means fill, on the right below the slopes in numbers; a guide below them; the limit's own error if it is near."""
    n, mean, error = (table.column(name).astype(float) for name in ("n", "mean", "limit_error"))
    positive = mean > 0
    sizes = np.unique(n)
    guide = float((mean * np.sqrt(n))[positive].min()) / 1.5 / np.sqrt(sizes)
    low, high = min(float(guide.min()), float(mean[positive].min())), float(mean.max())
    if (error > low / NEAR).any():
        low = min(low, float(error[error > low / NEAR].min()))
        for t, colour in _coloured_times(table):
            part = table.where(t=t)
            axes.plot(part.column("n"), part.column("limit_error"), ":", color=colour, linewidth=1)
        axes.plot([], [], ":", color="0.4", linewidth=1, label="the limit's own error")
    axes.plot(sizes, guide, "-.", color="0.55", linewidth=1, label="slope \N{MINUS SIGN}1/2", zorder=1)
    low, right = low / 1.25, float(mean[n >= np.sqrt(sizes[0] * sizes[-1])].max()) * 1.3
    axes.set(yscale="log", ylim=(low, max(high * 1.3, low * (right / low) ** (1 / (1 - LINE * slopes)))))
    canvas.few_ticks(axes.yaxis, *axes.get_ylim())


def _phase(kind: Phase, table: Table) -> tuple[Figure, list[Axes]]:
    arrays = kind.arrays(table)
    names = [name.removeprefix("share_") for name in arrays if name.startswith("share_")]
    titles = {name: "limit" if name == "limit" else f"tokens, $n$ = {name}" for name in names}
    figure = canvas.blank_figure(4.4)
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True, sharey=True)
    t, beta = arrays["t"], arrays["beta"]
    empty = False
    for name, (top, bottom) in zip(names, axes.T, strict=True):
        shares = top.pcolormesh(t, beta, arrays[f"share_{name}"], cmap=SHARES_MAP, vmin=0, vmax=1, rasterized=True, shading="nearest")
        counts = np.ma.masked_less(np.minimum(arrays[f"clusters_{name}"], MOST_COUNTED), 1e-9)
        empty |= bool(np.ma.getmaskarray(counts).any())
        clusters = bottom.pcolormesh(t, beta, counts, cmap=COUNTS_MAP, vmin=1, vmax=MOST_COUNTED, rasterized=True, shading="nearest")
        top.set_title(titles[name])
        bottom.set_xlabel("time $t$")
    for panel in axes[:, 0]:
        panel.set_ylabel(r"$\beta$")
    percent = canvas.mpl().ticker.PercentFormatter(1, symbol="")
    figure.colorbar(shares, ax=axes[0], label="pairs that met (%)", aspect=15, format=percent)
    figure.colorbar(clusters, ax=axes[1], label="number of clusters\n(8: or more)", aspect=15)
    handles: list[Any] = []
    for name, title in titles.items():
        (colour, style), share = _FRONTS[name == "limit"], arrays[f"share_{name}"]
        if share.min() < kind.front < share.max():
            for panel in axes.flat:
                front = panel.contour(t, beta, share, [kind.front], colors=[colour], linestyles=[style], linewidths=1.6)
                front.set_path_effects(canvas.halo(3.0))
            handles.append(handle(f"{kind.front:.0%} of the pairs have met: {title}", color=colour, linestyle=style))
    if empty:
        look: Any = {"facecolor": "white", "edgecolor": "0.4", "linewidth": 0.8}
        handles.append(canvas.mpl().patches.Patch(**look, label="most of the mass is in no cluster yet"))
    if handles:
        figure.legend(handles=handles, loc="outside upper center")
    return figure, list(axes.flat)


_FRONTS = (COLOURS["tokens"], STYLES["tokens"]), ("#1F5FD0", STYLES["density"])
"""Colours and line styles of the fronts of tokens and of the limit."""


def _first_clusters(kind: FirstClusters, table: Table) -> tuple[Figure, list[Axes]]:
    figure, parts = _figure_of_sets(kind.first_column, table, 0.6, PANEL_HEIGHT + 0.3)
    panels = []
    for part, chosen in parts:
        panel = part.subplots()
        panels.append(panel)
        sources = _sources(chosen)
        clusters = chosen.column("clusters")
        numbers = np.arange(max(clusters.min() - 1, 0), clusters.max() + 2)
        width = 0.8 / len(sources)
        for k, (source, n) in enumerate(sources):
            found = chosen.where(source=source, n=n).column("clusters")
            shares = [(found == number).mean() for number in numbers]
            colour = COLOURS["density" if source == "limit" else "tokens"]
            label = f"limit, {len(found)} starts" if source == "limit" else f"{len(found)} runs of {n} tokens"
            alpha = 1 - 0.25 * max(k - 1, 0)
            bars = panel.bar(numbers + (k - (len(sources) - 1) / 2) * width, shares, width * 0.94, color=colour, alpha=alpha, label=label)
            panel.bar_label(bars, [f"{share:.0%}" if share else "" for share in shares], fontsize=7)
        panel.set_xticks(numbers)
        panel.set(xlabel="clusters that form first", ylabel="share of runs")
        panel.margins(y=0.12)
        part.legend(loc="outside upper center", ncols=2)
    return figure, panels


def _inner_products(kind: InnerProducts, table: Table) -> tuple[Figure, list[Axes]]:
    rows = min(len(np.unique(table.column("t"))), canvas.MOST_STATES)
    figure, parts = _figure_of_sets(kind.first_column, table, 0.8, 0.6 + 0.7 * rows)
    panels = []
    for part, chosen in parts:
        left, right = part.subfigures(1, 2, width_ratios=[1.4, 1])
        panels.append(_histograms(left, chosen, rows))
        panels.append(right.subplots())
        _means(panels[-1], chosen)
    lasts, labels = panels[-1].get_legend_handles_labels()
    figure.legend(lasts, labels, loc="outside upper center", ncols=3)
    return figure, panels


_SOURCE: dict[str, Any] = {"limit": {"color": COLOURS["density"], "linewidth": 1.3}, "equiangular": {"color": "0.1", "linewidth": 0.9}}
_SOURCE["limit"]["linestyle"] = STYLES["tokens"]
"""Here the tokens are areas and dots, and the limit is drawn over them; law and limit are lines of two widths and styles."""


def _histograms(part: Any, table: Table, rows: int) -> Axes:
    """One above the other, so that none hides another: tokens as areas, paler for more of them, and the limit as a line over them."""
    axes = part.subplots(rows, 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    low, high = table.column("low"), table.column("high")
    for panel, (t, _) in zip(axes, _coloured_times(table, rows), strict=True):
        for k, (source, n) in enumerate(_sources(table)):
            chosen = table.where(t=t, source=source, n=n)
            edges = np.append(chosen.column("low"), chosen.column("high")[-1])
            look: Any = {"fill": True, "color": COLOURS["tokens"], "alpha": 0.75 / (1 + k)} if source == "tokens" else _SOURCE["limit"]
            panel.stairs(chosen.column("share"), edges, **look)
            if np.isfinite(chosen.column("equiangular")[0]):
                panel.axvline(chosen.column("equiangular")[0], **_SOURCE["equiangular"])
        panel.set(yscale="log", xlim=(-1.02, 1.02))
        panel.text(0.02, 0.95, f"$t$ = {t:g}", transform=panel.transAxes, ha="left", va="top", fontsize=8)
    axes[-1].set_xlabel(f"inner product $\\langle x, y\\rangle$ (bins {high[0] - low[0]:.3g})")
    part.supylabel("share of pairs", fontsize=9)
    return axes[0]


def _means(panel: Axes, table: Table) -> None:
    for k, (source, n) in enumerate(_sources(table)):
        part = table.where(source=source, n=n)
        t, first = np.unique(part.column("t"), return_index=True)
        mean, law = part.column("mean")[first], part.column("equiangular")[first]
        if source == "limit":
            panel.plot(t, mean, label="limit", **_SOURCE["limit"])
            continue
        look: Any = {"color": COLOURS["tokens"], "alpha": 1 / (1 + k), "markersize": 4}
        panel.plot(t, mean, "o", label=f"{n} tokens", **look)
        if np.isfinite(law).all():
            panel.plot(t, law, label="" if k else "equiangular law", **_SOURCE["equiangular"])
    panel.set(xlabel="time $t$", ylabel="mean inner product")
