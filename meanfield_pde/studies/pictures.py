"""Pictures of studies: one figure for each kind.

| kind | figure |
|---|---|
| convergence | each quantity over n, log-log, with standard errors, fitted slopes and the limit's own error |
| phase | shares of pairs that have met and numbers of clusters over (t, beta), with the fronts of limit and tokens on each other |
| clusters | how many runs form how many clusters first, limit beside tokens |
| inner_products | histograms at a few times, and the mean over time beside the equiangular law |

Data in: a table. Data out: a picture, or a matplotlib Figure. matplotlib is imported when called.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.tables import Table, named
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import COLOURS, STYLES, Axes, Figure, handle, time_colours
from meanfield_pde.studies.convergence import Convergence
from meanfield_pde.studies.first_clusters import FirstClusters
from meanfield_pde.studies.inner_products import InnerProducts
from meanfield_pde.studies.jobs import Kind
from meanfield_pde.studies.phase import Phase

COLUMNS, PANEL_HEIGHT = 3, 2.3
NAMES = {
    "w1": "$W_1$ (rad)",
    "w2": "$W_2$ (rad)",
    "mmd": "MMD",
    "energy": "$|E_n/E - 1|$",
    "order": "$|R_n - R|$",
    "clusters": "clusters of the tokens",
}
SHARES_MAP, COUNTS_MAP = "magma_r", "viridis_r"
MOST_COUNTED = 8
"""Numbers of clusters beyond it have one colour."""


def draw(path: str | os.PathLike[str], kind: Kind, table: Table) -> Path:
    """Write the picture (.png at 200 dpi, or .pdf) of a study's table; returns its path."""
    path = inputs.file_path("path", path, canvas.SUFFIXES)
    return canvas.save_figure(study_figure(kind, table), path)


def study_figure(kind: Kind, table: Table) -> Figure:
    """The picture of `draw` as a matplotlib Figure."""
    figures: dict[type, Any] = {Convergence: _convergence, Phase: _phase, FirstClusters: _first_clusters, InnerProducts: _inner_products}
    with canvas.mpl().rc_context(canvas.STYLE):
        return figures[type(kind)](kind, table)


def _figure_of_sets(kind: Kind, table: Table, margin: float, height: float) -> tuple[Figure, list[tuple[Any, Table]]]:
    """A figure (inches) with a part for each parameter set, whose values are its title, and the rows of that set."""
    names = table.names[: table.names.index(kind.first_column)]
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


def _convergence(kind: Convergence, table: Table) -> Figure:
    rows, columns = -(-len(kind.quantities) // COLUMNS), min(COLUMNS, len(kind.quantities))
    figure, parts = _figure_of_sets(kind, table, 0.5, PANEL_HEIGHT * rows)
    empty: list[Any] = []
    for part, chosen in parts:
        panels = list(part.subplots(rows, columns, squeeze=False).flat)
        for panel, quantity in zip(panels, kind.quantities, strict=False):
            _over_counts(panel, chosen.where(quantity=quantity), quantity)
        empty += panels[len(kind.quantities) :]
    for panel in empty:
        panel.axis("off")
    dot: Any = {"marker": "o", "markersize": 4}
    handles = [handle(f"$t$ = {t:g}", color=colour, **dot) for t, colour in _coloured_times(table)]
    handles.append(handle("the limit's own error", color="0.4", linestyle=":"))
    handles.append(handle("flagged, not fitted", color="0.4", markerfacecolor="white", linestyle="", **dot))
    if empty:
        empty[0].legend(handles=handles, loc="center")
    else:
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _over_counts(panel: Axes, table: Table, quantity: str) -> None:
    slopes = []
    for t, colour in _coloured_times(table):
        part = table.where(t=t)
        n, mean, error = (part.column(name).astype(float) for name in ("n", "mean", "standard_error"))
        flagged = part.column("mesh_limited") | part.column("below_validity")
        panel.errorbar(n, mean, np.nan_to_num(error), fmt="none", ecolor=colour, elinewidth=1)
        for chosen, face in ((flagged, "white"), (~flagged, colour)):
            panel.plot(n[chosen], mean[chosen], "o", color=colour, markerfacecolor=face, markersize=4)
        if quantity == "clusters":
            panel.axhline(part.column("limit")[0], color=colour, linestyle=":", linewidth=1)
            continue
        panel.plot(n, part.column("limit_error").astype(float), ":", color=colour, linewidth=1)
        slope, low, high, factor = (float(part.column(name)[0]) for name in ("slope", "slope_low", "slope_high", "factor"))
        if np.isfinite(slope):
            panel.plot(n, factor * n**slope, "-", color=colour, linewidth=1)
            slopes.append((f"{slope:.2f}" + (f" $\\pm$ {(high - low) / 2:.2f}" if np.isfinite(low) else ""), colour))
    panel.set(xscale="log", xlabel="tokens $n$", ylabel=NAMES[quantity])
    if quantity == "clusters":
        panel.set_ylim(0, max(1.1, 1.1 * float(table.column("mean").max())))
        return
    means, errors = (table.column(name).astype(float) for name in ("mean", "limit_error"))
    if (means > 0).any():  # down to the limit's own error, where that is not far below the means
        low = means[means > 0].min()
        panel.set_yscale("log")
        panel.set_ylim(min(low / 2, max(low / 20, errors.max() / 2)), means.max() * 4)
    for k, (text, colour) in enumerate(slopes):
        panel.text(0.98, 0.98 - 0.09 * k, text, color=colour, transform=panel.transAxes, ha="right", va="top", fontsize=7)


def _phase(kind: Phase, table: Table) -> Figure:
    arrays = kind.arrays(table)
    names = [name.removeprefix("share_") for name in arrays if name.startswith("share_")]
    titles = {name: "limit" if name == "limit" else f"tokens, $n$ = {name}" for name in names}
    figure = canvas.blank_figure(5.2)
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True, sharey=True)
    t, beta = arrays["t"], arrays["beta"]
    for name, (top, bottom) in zip(names, axes.T, strict=True):
        shares = top.pcolormesh(t, beta, arrays[f"share_{name}"], cmap=SHARES_MAP, vmin=0, vmax=1, rasterized=True, shading="nearest")
        counts = np.ma.masked_less(np.minimum(arrays[f"clusters_{name}"], MOST_COUNTED), 1e-9)
        clusters = bottom.pcolormesh(t, beta, counts, cmap=COUNTS_MAP, vmin=1, vmax=MOST_COUNTED, rasterized=True, shading="nearest")
        top.set_title(titles[name])
        bottom.set_xlabel("time $t$")
    for panel in axes[:, 0]:
        panel.set_ylabel(r"inverse temperature $\beta$")
    figure.colorbar(shares, ax=axes[0], label="share of pairs that have met", aspect=15)
    figure.colorbar(clusters, ax=axes[1], label="clusters (8: or more)", aspect=15)
    handles: list[Any] = []
    for name, title in titles.items():
        colour, style = _FRONTS[name == "limit"]
        handles.append(handle(f"{kind.front:.0%} of the pairs have met: {title}", color=colour, linestyle=style))
        share = arrays[f"share_{name}"]
        if share.min() < kind.front < share.max():
            for panel in axes.flat:
                panel.contour(t, beta, share, [kind.front], colors=[colour], linestyles=[style], linewidths=1.6)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(names))
    return figure


_FRONTS = (COLOURS["tokens"], STYLES["tokens"]), ("#1F5FD0", STYLES["density"])
"""Colours and line styles of the fronts of tokens and of the limit."""


def _first_clusters(kind: FirstClusters, table: Table) -> Figure:
    figure, parts = _figure_of_sets(kind, table, 0.3, PANEL_HEIGHT)
    for part, chosen in parts:
        panel = part.subplots()
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
        panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(sources))
    return figure


_LINES: dict[str, Any] = {"tokens": STYLES["density"], "limit": STYLES["tokens"]}
"""Here the tokens are the curve and the limit is drawn over it."""


def _inner_products(kind: InnerProducts, table: Table) -> Figure:
    figure, parts = _figure_of_sets(kind, table, 0.5, 2.6)
    for part, chosen in parts:
        left, right = part.subplots(1, 2, width_ratios=[1.6, 1])
        _histograms(left, chosen)
        _means(right, chosen)
    return figure


def _histograms(panel: Axes, table: Table) -> None:
    sources = _sources(table)
    for t, colour in _coloured_times(table, canvas.MOST_STATES):
        panel.plot([], [], color=colour, label=f"$t$ = {t:g}")
        for source, n in sources:
            part = table.where(t=t, source=source, n=n)
            edges = np.append(part.column("low"), part.column("high")[-1])
            panel.stairs(part.column("share"), edges, color=colour, linestyle=_LINES[source], linewidth=1.2)
            if np.isfinite(part.column("equiangular")[0]):
                panel.axvline(part.column("equiangular")[0], color=colour, linestyle=":", linewidth=1)
    if ("limit", 0) in sources and len(sources) > 1:
        panel.plot([], [], color="0.3", linestyle=_LINES["limit"], label="limit")
    if np.isfinite(table.column("equiangular")).any():
        panel.plot([], [], color="0.3", linestyle=":", label="equiangular law")
    panel.set(yscale="log", xlim=(-1.02, 1.02), xlabel="inner product $\\langle x, y\\rangle$ of two tokens", ylabel="share of pairs")
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, handlelength=1.2, columnspacing=1.0)


def _means(panel: Axes, table: Table) -> None:
    for source, n in _sources(table):
        part = table.where(source=source, n=n)
        t, first = np.unique(part.column("t"), return_index=True)
        mean, law = part.column("mean")[first], part.column("equiangular")[first]
        if source == "limit":
            panel.plot(t, mean, linestyle=_LINES["limit"], color=COLOURS["density"], label="limit")
            continue
        panel.plot(t, mean, "o", color=COLOURS["tokens"], markersize=3, label=f"{n} tokens")
        if np.isfinite(law).all():
            panel.plot(t, law, "-", color="0.3", linewidth=1, label="equiangular law", zorder=0)
    panel.set(xlabel="time $t$", ylabel="mean inner product")
    panel.legend(loc="best")
