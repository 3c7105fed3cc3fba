"""Pictures of a run: its states, energy and order parameter |int x dmu| (`overview`), or its stages (`staircase`).

Data in: a density, tokens, or both. Data out: a .png or .pdf, or a matplotlib Figure. On S^2 states are equal-area (Mollweide) maps

    x = (2/pi) lambda cos(a),   y = sin(a),   2 a + sin(2 a) = pi sin(phi)        (longitude lambda, latitude phi)

centred where the last state has its mass; on S^1 curves over the angle and a space-time diagram; in d > 3 histograms of the tokens'
inner products. Atoms are dots whose area is their mass (S^2), stems and paths (S^1). matplotlib is imported when called, and pyplot
never is, so that no figure or setting of the caller's changes.
Source: Snyder, Map Projections, USGS Professional Paper 1395 (1987), p. 251.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from meanfield_pde import inputs
from meanfield_pde.diagnostics.measures import order_parameter
from meanfield_pde.diagnostics.stages import Stage, stages
from meanfield_pde.files.replacing import replacing
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.models.velocity import energy_of
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray, IntArray, distance, normalise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Ellipse

SUFFIXES = (".png", ".pdf")
MOST_STATES = 4
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.5,
    "mathtext.fontset": "dejavusans",
}
DPI = 200
WIDTH, HISTORY_HEIGHT, CIRCLE_HEIGHT, PRODUCTS_HEIGHT, STAIRCASE_HEIGHT = 7.2, 2.5, 3.0, 2.6, 2.8
"""Inches; the width is two columns of a journal."""
MAP_GRIDS = {1: (1, 1, 3.5), 2: (1, 2, 2.1), 3: (1, 3, 1.6), 4: (2, 2, 3.9)}
"""Rows, columns and height in inches for a number of maps."""
COLOURS = {"density": "#8C2981", "tokens": "#00A08A", "atoms": "#1F5FD0"}
STYLES: dict[str, Any] = {"density": "-", "tokens": (0, (4, 1.5))}
COLOUR_MAP, TIME_MAP = "magma_r", "viridis"
DECADES = 4
"""Densities are shown over at most this many powers of ten below the largest."""
LINEAR = 5.0
"""Densities that vary by less than this factor have a linear scale."""
LINEAR_ENERGY = 100.0
"""Energies that vary by less than this factor, and stay below its square, have a linear scale."""
SMALLEST_SPAN = 1e-3
"""Energies (relative) and order parameters that vary by less are drawn flat, not magnified to their rounding errors."""
MAP_PIXELS, ANGLE_PIXELS, TIME_PIXELS = 1200, 720, 500
MOST_PATHS, MOST_PAIRED = 150, 1000
"""Tokens whose paths, and whose inner products with one another, are drawn."""
DOT_AREA, DOTS_SHOWN = 160.0, (0.1, 0.5, 1.0)
"""Points squared, of the dot of an atom of mass 1; masses whose dots the legend has."""
_DOT: Any = {"color": COLOURS["atoms"], "edgecolors": "white", "linewidths": 0.6, "clip_on": False}
STAGE_SHADES = ("0.94", "0.87")
LONG_RUN = 100.0
"""Runs longer than this many times what came before their first stage have a logarithmic time axis."""


def overview(path: str | os.PathLike[str], *solutions: Solution, times: ArrayLike | None = None) -> Path:
    """Write one picture (.png at 200 dpi, or .pdf) of a density, of tokens, or of both; returns its path. Missing folders are made.

    times: at most four, increasing; the outputs nearest to them are shown, and titles give their own times. Default: four outputs, evenly
    spaced from the first to the last. Colours cover at most four decades of density. At most 150 paths of tokens are drawn (S^1), and
    inner products of at most 1000 tokens (d > 3).

    Raises ValueError for a name without .png or .pdf, no solution, two of one kind, solutions on different spheres, or times outside
    the runs; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, SUFFIXES)
    return save_figure(overview_figure(*solutions, times=times), path)


def overview_figure(*solutions: Solution, times: ArrayLike | None = None) -> "Figure":
    """The picture of `overview` as a matplotlib Figure, to change or to save in other ways."""
    from matplotlib import rc_context

    runs = by_kind(solutions)
    d = drawn_dimension(runs)
    states = _states(runs, times)
    n = len(next(iter(states.values())))
    draw, height = {2: (_circle, CIRCLE_HEIGHT), 3: (_maps, MAP_GRIDS[n][2])}.get(d, (_inner_products, PRODUCTS_HEIGHT))
    with rc_context(STYLE):
        figure = blank_figure(height + HISTORY_HEIGHT)
        parts: Any = figure.subfigures(2, 1, height_ratios=[height, HISTORY_HEIGHT])
        draw(parts[0], runs, states)
        _histories(parts[1], runs, states)
    return figure


def staircase(path: str | os.PathLike[str], *solutions: Solution) -> Path:
    """Write the energy over time (.png at 200 dpi, or .pdf) of a density, of tokens, or of both; returns the path.

    The stages (`stages`) of the density, or of the tokens if it has none, are shaded, with their numbers of clusters where there is room.
    Time is logarithmic if the run is over 100 times as long as it took to the first stage, or 10 times as the first stage if that begins
    at t = 0. Missing folders are made.

    Raises ValueError for a name without .png or .pdf, no solution, two of one kind, solutions on different spheres, or runs without
    energies; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, SUFFIXES)
    return save_figure(staircase_figure(*solutions), path)


def staircase_figure(*solutions: Solution) -> "Figure":
    """The picture of `staircase` as a matplotlib Figure, to change or to save in other ways."""
    from matplotlib import rc_context

    runs = by_kind(solutions)
    for kind, run in runs.items():
        if np.isnan(run.history.energy).all():
            raise ValueError(f"the run of kind {kind!r} has no energies, wanted steps of a model with one")
    found = next((found for run in runs.values() if (found := _stages(run))), [])
    with rc_context(STYLE):
        figure = blank_figure(STAIRCASE_HEIGHT)
        panel = figure.subplots()
        energy_curves(panel, runs)
        _time_axis(panel, runs, found)
        _shade(panel, found)
        handles, labels = panel.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def blank_figure(height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    return figure


def save_figure(figure: "Figure", path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=DPI)
    return path


def by_kind(solutions: tuple[Solution, ...]) -> dict[str, Solution]:
    """The runs, the density first."""
    if not solutions:
        raise ValueError("solutions is empty, wanted a density, tokens or both")
    runs: dict[str, Solution] = {}
    for index, solution in enumerate(solutions):
        if not isinstance(solution, Solution):
            raise ValueError(f"solutions[{index}] is a {type(solution).__name__}, wanted a Solution as `solve` returns it")
        if solution.kind in runs:
            raise ValueError(f"solutions[{index}] is a second run of kind {solution.kind!r}, wanted at most one density and one of tokens")
        runs[solution.kind] = solution
    dimensions = [run.measure(0).dimension for run in runs.values()]
    if len(set(dimensions)) > 1:
        raise ValueError(f"solutions lie in dimensions {dimensions[0]} and {dimensions[1]}, wanted one sphere")
    return dict(sorted(runs.items()))


def _states(runs: dict[str, Solution], times: ArrayLike | None) -> dict[str, list[int]]:
    """Numbers of the outputs to show, of each run."""
    first, last = _common(runs)
    if times is None:
        wanted = even_times(runs, MOST_STATES)
    else:
        wanted = inputs.array("times", times, ("n_times",))
        if not 1 <= len(wanted) <= MOST_STATES:
            raise ValueError(f"times has {len(wanted)} entries, wanted 1 to {MOST_STATES}")
        bad = (wanted < first) | (wanted > last)
        if bad.any():
            (index,) = inputs.first_index(bad)
            raise ValueError(f"times[{index}] is {wanted[index]:g}, wanted a time in [{first:g}, {last:g}]")
        if (np.diff(wanted) <= 0).any():
            (index,) = inputs.first_index(np.diff(wanted) <= 0)
            raise ValueError(f"times[{index + 1}] is {wanted[index + 1]:g} after {wanted[index]:g}, wanted increasing times")
    return nearest_outputs(runs, wanted)


def drawn_dimension(runs: dict[str, Solution]) -> int:
    first = next(iter(runs.values())).measure(0)
    if first.dimension > 3 and len(first) < 2:
        raise ValueError(f"solutions[0] has 1 token in dimension {first.dimension}, wanted at least 2, whose inner products are drawn")
    return first.dimension


def _common(runs: dict[str, Solution]) -> tuple[float, float]:
    first, last = max(float(run.times[0]) for run in runs.values()), min(float(run.times[-1]) for run in runs.values())
    if first > last:
        raise ValueError(f"one run begins at t = {first:g} and the other ends at {last:g}, wanted runs with times in common")
    return first, last


def spaced(count: int, most: int) -> IntArray:
    """Numbers below count, all or so many of them, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def even_times(runs: dict[str, Solution], most: int) -> FloatArray:
    """Times of outputs of the first run within the other, all or so many, evenly spaced over their numbers."""
    first, last = _common(runs)
    outputs = next(iter(runs.values())).times
    within = (outputs >= first) & (outputs <= last)
    outputs = outputs[within] if within.any() else np.array([first])
    return outputs[spaced(len(outputs), most)]


def nearest_outputs(runs: dict[str, Solution], wanted: FloatArray) -> dict[str, list[int]]:
    return {kind: [int(np.abs(run.times - t).argmin()) for t in wanted] for kind, run in runs.items()}


def state_titles(runs: dict[str, Solution], states: dict[str, list[int]], style: str = ".4g") -> list[str]:
    """Times of the states shown; where the nearest outputs of the two runs differ, both."""
    times = np.stack([run.times[states[kind]] for kind, run in runs.items()])
    apart = np.abs(times[-1] - times[0]) > 1e-9 * times.max(axis=0)
    texts = [f"$t$ = {t:{style}}" for t in times[0]]
    return [text + (f" (tokens {other:{style}})" if two else "") for text, other, two in zip(texts, times[-1], apart, strict=True)]


def main_direction(runs: dict[str, Solution]) -> FloatArray:
    """The direction of int x dmu of the last state if that is longer than 1/2, or e_1; snapped to an axis that is close."""
    mean = next(iter(runs.values())).measure(-1).mean()
    if np.linalg.norm(mean) < 0.5:
        return np.eye(len(mean))[0]
    centre, axis = normalise(mean), int(np.abs(mean).argmax())
    snapped = np.eye(len(mean))[axis] * np.sign(mean[axis])
    return snapped if np.linalg.norm(centre - snapped) < 0.1 else centre


def density_at(run: Solution, outputs: Any) -> FloatArray:
    """Cell averages at one or some outputs; `averages` would make them for all."""
    return run.masses[outputs] / run.mesh.areas


def density_scale(values: FloatArray) -> "Normalize":
    """Logarithmic over at most DECADES, linear where densities hardly vary."""
    from matplotlib.colors import LogNorm, Normalize

    top = float(values.max())
    low = max(float(values[values > 0].min()), top * 10.0**-DECADES)
    if top > LINEAR * low:
        return LogNorm(low, top, clip=True)
    return Normalize(low, top) if top - low > 1e-6 * top else Normalize(0, 2 * top)


def colour_bar(part: "SubFigure", image: Any, axes: Any, values: FloatArray) -> None:
    extend = "min" if values.min() < image.norm.vmin else "neither"
    part.colorbar(image, ax=axes, label="density $\\rho$", extend=extend, pad=0.02, aspect=25)


# -- S^2


def _maps(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> None:
    titles, frame = state_titles(runs, states), map_frame(main_direction(runs))
    rows, columns, _ = MAP_GRIDS[len(titles)]
    axes = part.subplots(rows, columns, squeeze=False)
    image, cells, shown = None, None, np.ones(1)
    if "density" in runs and runs["density"].masses[states["density"]].any():
        run = runs["density"]
        cells, shown = map_cells(run, frame), density_at(run, states["density"])
        norm = density_scale(shown)
    atoms = [runs["density"].atoms(k) for k in states["density"]] if "density" in runs else []
    for k, (panel, title) in enumerate(zip(axes.flat, titles, strict=True)):
        panel.set_title(title)
        outline = globe(panel, frame, cells is None)
        if cells is not None:
            image = painted(panel, outline, on_map(cells, shown[k]), norm)
        if atoms and len(atoms[k]):
            atom_dots(panel, frame, atoms[k])
        if "tokens" in runs:
            token_dots(panel, frame, runs["tokens"].tokens[states["tokens"][k]])
    if image is not None:
        colour_bar(part, image, axes, shown)
    note = map_note(frame)
    if any(map(len, atoms)):
        dots = atom_samples()
        legend = part.legend(handles=dots, loc="outside lower center", ncols=len(dots), title=note, title_fontsize=7, columnspacing=1.2)
        legend.get_title().set_color("0.35")
    else:
        part.supxlabel(note, fontsize=7, color="0.35")


def globe(panel: "Axes", frame: FloatArray, grey: bool) -> "Ellipse":
    """An empty map; its outline."""
    from matplotlib.patches import Ellipse

    outline = Ellipse((0, 0), 4, 2, facecolor="0.96" if grey else "none", edgecolor="0.25", linewidth=0.8)
    panel.add_patch(outline)
    for line in _graticule(frame):
        panel.plot(*line, color="0.5", linewidth=0.4, alpha=0.45)
    panel.set(xlim=(-2.02, 2.02), ylim=(-1.02, 1.02), aspect="equal")
    panel.axis("off")
    return outline


def on_map(cells: np.ndarray, values: FloatArray) -> FloatArray:
    return np.where(cells >= 0, values[cells], np.nan)


def painted(panel: "Axes", outline: "Ellipse", picture: FloatArray, norm: "Normalize") -> "AxesImage":
    image = panel.imshow(picture, extent=(-2, 2, -1, 1), origin="lower", cmap=COLOUR_MAP, norm=norm, interpolation="nearest")
    image.set_clip_path(outline)
    return image


def atom_dots(panel: "Axes", frame: FloatArray, atoms: Measure) -> "PathCollection":
    return panel.scatter(*mollweide(atoms.points @ frame.T), s=DOT_AREA * atoms.masses, **_DOT)


def token_dots(panel: "Axes", frame: FloatArray, tokens: FloatArray) -> "PathCollection":
    size, alpha = token_look(len(tokens))
    return panel.scatter(*mollweide(tokens @ frame.T), s=size, alpha=alpha, color=COLOURS["tokens"], linewidths=0, rasterized=True)


def atom_samples() -> "list[Line2D]":
    """For a legend."""
    from matplotlib.lines import Line2D

    labels = [f"{mass:g}" for mass in DOTS_SHOWN]
    labels[0] = f"atom of mass {labels[0]}"
    style: Any = {"linestyle": "", "marker": "o", "color": _DOT["color"], "markeredgecolor": "white", "markeredgewidth": _DOT["linewidths"]}
    sizes = np.sqrt(DOT_AREA * np.array(DOTS_SHOWN))
    return [Line2D([], [], markersize=size, label=label, **style) for size, label in zip(sizes, labels, strict=True)]


def map_note(frame: FloatArray, maps: str = "maps") -> str:
    centre, up = (", ".join(f"{x:.2f}".removesuffix(".00").replace("-", "\N{MINUS SIGN}") for x in frame[row] + 0.0) for row in (0, 2))
    return f"equal-area (Mollweide) {maps}, centre ({centre}), up ({up})"


def map_frame(centre: FloatArray) -> FloatArray:
    """Rows: towards the reader, to the right and upwards on the map; up is as near to +z, or else to +y, as it can be."""
    up = np.array([0.0, 0.0, 1.0]) - centre[2] * centre
    up = normalise(up) if np.linalg.norm(up) > 1e-6 else np.array([0.0, 1.0, 0.0])
    return np.stack([centre, np.cross(up, centre), up])


def mollweide(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Map coordinates in [-2, 2] x [-1, 1] of points (n, 3) of the map's frame; bisection, since Newton's method fails at the poles."""
    low, high = np.full(len(points), -np.pi / 2), np.full(len(points), np.pi / 2)
    for _ in range(50):
        middle = (low + high) / 2
        below = 2 * middle + np.sin(2 * middle) < np.pi * points[:, 2]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 2 / np.pi * np.arctan2(points[:, 1], points[:, 0]) * np.cos(low), np.sin(low)


def map_cells(run: Solution, frame: FloatArray) -> np.ndarray:
    """Number of the cell under each pixel of the map, -1 outside."""
    x, y = np.meshgrid((np.arange(MAP_PIXELS) + 0.5) * 4 / MAP_PIXELS - 2, (np.arange(MAP_PIXELS // 2) + 0.5) * 4 / MAP_PIXELS - 1)
    inside = (x / 2) ** 2 + y**2 < 1
    a = np.arcsin(y[inside])
    sine, longitude = (2 * a + np.sin(2 * a)) / np.pi, np.pi * x[inside] / (2 * np.cos(a))
    cosine = np.sqrt(1 - np.minimum(sine**2, 1))
    cells = np.full(x.shape, -1)
    cells[inside] = cell_of(run.mesh, normalise(np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), sine], axis=1) @ frame))
    return cells


def _graticule(frame: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Parallels every 30 and meridians every 45 degrees about the z axis, cut where they leave the map."""
    s = np.linspace(-np.pi, np.pi, 721)
    lines = [(s, np.full_like(s, latitude)) for latitude in np.arange(-2, 3) * np.pi / 6]
    lines += [(np.full_like(s, longitude), s / 2) for longitude in np.arange(8) * np.pi / 4]
    drawn = []
    for a, b in lines:
        x, y = mollweide(np.stack([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)], axis=1) @ frame.T)
        drawn.append((np.where(np.hypot(np.diff(x, prepend=x[0]), np.diff(y, prepend=y[0])) > 0.1, np.nan, x), y))
    return drawn


def token_look(n: int) -> tuple[float, float]:
    """Area (points squared) and opacity of a token's dot."""
    return float(np.clip(1800 / n, 0.5, 5.0)), float(np.clip(20 / np.sqrt(n), 0.2, 0.9))


# -- S^1


def _circle(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> None:
    middle = middle_angle(runs)
    several = max(len(run.times) for run in runs.values()) > 1
    axes = part.subplots(1, 2 if several else 1, squeeze=False)[0]
    _profiles(axes[0], runs, states, middle)
    if several:
        _space_time(part, axes[1], runs, middle)


def middle_angle(runs: dict[str, Solution]) -> float:
    """The angle, a multiple of pi/2, that is drawn in the middle."""
    centre = main_direction(runs)
    quarters = round(float(np.arctan2(centre[1], centre[0])) / (np.pi / 2))
    return (2 if quarters == -2 else quarters) * np.pi / 2


def angles_about(points: FloatArray, middle: float) -> FloatArray:
    """Angles (...) in [middle - pi, middle + pi)."""
    turned = np.arctan2(points[..., 1], points[..., 0]) - middle + np.pi
    return turned % (2 * np.pi) + middle - np.pi


def _angle_ticks(middle: float) -> tuple[list[float], list[str]]:
    quarters = [round(middle / (np.pi / 2)) + k for k in range(-2, 3)]
    names = {0: "0", 1: "\\pi/2", 2: "\\pi", 3: "3\\pi/2", 4: "2\\pi"}
    return [q * np.pi / 2 for q in quarters], [f"${'-' if q < 0 else ''}{names[abs(q)]}$" for q in quarters]


def _profiles(panel: "Axes", runs: dict[str, Solution], states: dict[str, list[int]], middle: float) -> None:
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    titles, both = state_titles(runs, states), len(runs) == 2
    colours = colormaps[TIME_MAP](np.linspace(0, 0.85, len(titles)))
    curves, dots, atoms = list[FloatArray](), list[FloatArray](), list[Measure]()
    for k, colour in enumerate(colours):
        if "density" in runs:
            run = runs["density"]
            atoms.append(run.atoms(states["density"][k]))
        if "density" in runs and run.masses[states["density"][k]].any():
            cells, angles = unrolled(run, middle)
            curves.append(density_at(run, states["density"][k])[cells])
            panel.plot(angles, curves[-1], color=colour)
        if "tokens" in runs:
            counts, edges = token_density(runs["tokens"].measure(states["tokens"][k]), middle)
            if both:
                panel.plot((edges[1:] + edges[:-1])[counts > 0] / 2, counts[counts > 0], ".", color=colour, markersize=3.5)
                dots.append(counts)
            else:
                curves.append(counts)
                panel.stairs(counts, edges, color=colour, linewidth=1.3)
    if shown := curves or dots:
        density_axis(panel, np.concatenate(shown), np.concatenate(dots) if dots else np.zeros(1))
    if any(map(len, atoms)):
        _stems(right_axis(panel) if shown else panel, atoms, colours, middle)
    handles = [Line2D([], [], color=colour, label=title) for colour, title in zip(colours, titles, strict=True)]
    if both:
        handles += [Line2D([], [], color="0.3", label="density")] if curves else []
        handles += [Line2D([], [], color="0.3", marker=".", linestyle="", label="tokens")]
    columns = 3 if both else 4
    panel.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, handlelength=1.2, columnspacing=1.2)
    angle_axis(panel, middle)


def unrolled(run: Solution, middle: float) -> tuple[IntArray, FloatArray]:
    """The cells by their angles, and the angles; the last cell once more before the first, and the first after the last."""
    angles = angles_about(run.mesh.centers, middle)
    cells = np.pad(np.argsort(angles), 1, mode="wrap")
    return cells, angles[cells] + 2 * np.pi * np.pad(np.zeros(len(angles)), 1, constant_values=(-1, 1))


def token_density(measure: Measure, middle: float) -> tuple[FloatArray, FloatArray]:
    """Histogram over the angle, and its edges."""
    edges = middle + np.linspace(-np.pi, np.pi, 1 + int(np.clip(2 * np.sqrt(len(measure)), 12, 72)))
    return np.histogram(angles_about(measure.points, middle), edges, weights=measure.masses)[0] / np.diff(edges), edges


def density_axis(panel: "Axes", shown: FloatArray, dots: FloatArray) -> None:
    """The scale of what is shown, high enough for the dots beside it."""
    scale = density_scale(shown)
    low, top = float(scale.vmin or 0), max(float(scale.vmax or 1), float(dots.max()))
    if top > LINEAR * low > 0:
        panel.set(yscale="log", ylim=(low / 1.5, top * 1.5))
    else:
        panel.set_ylim(0, None)
    panel.set_ylabel("density $\\rho$ (1/rad)")


def angle_axis(panel: "Axes", middle: float) -> None:
    ticks, names = _angle_ticks(middle)
    panel.set_xticks(ticks, names)
    panel.set(xlim=(middle - np.pi, middle + np.pi), xlabel="angle $\\theta$ (rad)")


def right_axis(panel: "Axes") -> "Axes":
    right = panel.twinx()
    right.spines["right"].set_visible(True)
    right.tick_params(bottom=False, labelbottom=False)
    return right


def _stems(panel: "Axes", atoms: list[Measure], colours: FloatArray, middle: float) -> None:
    """Later stems are thinner, so that they hide none of the same place and mass."""
    for k, (measure, colour) in enumerate(zip(atoms, colours, strict=True)):
        if len(measure):
            angles = angles_about(measure.points, middle)
            panel.vlines(angles, 0, measure.masses, colors=[colour], linewidth=3.4 - 0.8 * k, zorder=2 + k)
            panel.plot(angles, measure.masses, "o", color=colour, markersize=8 - 1.5 * k, zorder=2 + k, clip_on=False)
    mass_axis(panel, atoms)


def mass_axis(panel: "Axes", atoms: list[Measure]) -> None:
    panel.set_ylim(0, 1.1 * max(float(measure.masses.max(initial=0)) for measure in atoms))
    panel.set_ylabel("mass of an atom (stems)")


def _space_time(part: "SubFigure", panel: "Axes", runs: dict[str, Solution], middle: float) -> None:
    if "density" in runs:
        run = runs["density"]
        outputs = spaced(len(run.times), TIME_PIXELS)
        edges = middle + np.linspace(-np.pi, np.pi, ANGLE_PIXELS + 1)
        angles = (edges[1:] + edges[:-1]) / 2
        values = density_at(run, outputs)[:, cell_of(run.mesh, np.stack([np.cos(angles), np.sin(angles)], axis=1))]
        t = run.times[outputs]
        borders = np.concatenate([t[:1], (t[1:] + t[:-1]) / 2, t[-1:]])
        if values.any():
            image = panel.pcolormesh(borders, edges, values.T, norm=density_scale(values), cmap=COLOUR_MAP, rasterized=True)
            colour_bar(part, image, panel, values)
        _paths(panel, t, [run.atoms(k) for k in outputs.tolist()], middle)
    if "tokens" in runs:
        run = runs["tokens"]
        chosen = spaced(run.tokens.shape[1], MOST_PATHS)
        paths = angles_about(run.tokens[:, chosen], middle)
        jumps = np.abs(np.diff(paths, axis=0, prepend=paths[:1])) > np.pi
        alone = "density" not in runs
        panel.plot(run.times, np.where(jumps, np.nan, paths), color=COLOURS["tokens"], linewidth=0.5, alpha=0.8 if alone else 0.55)
    ticks, names = _angle_ticks(middle)
    panel.set_yticks(ticks, names)
    panel.set(ylim=(middle - np.pi, middle + np.pi), xlabel="time $t$", ylabel="angle $\\theta$ (rad)")
    panel.margins(x=0)


def _paths(panel: "Axes", t: FloatArray, atoms: list[Measure], middle: float) -> None:
    """Atoms from output to output; each goes on in the nearest that is not lighter, since atoms only gain mass."""
    from matplotlib.collections import LineCollection

    if not any(map(len, atoms)):
        return
    lines, widths = [], []
    for k in range(len(t) - 1):
        angles, later = (angles_about(measure.points, middle) for measure in atoms[k : k + 2])
        new = np.ones(len(later), dtype=np.bool_)
        for point, mass, angle in zip(atoms[k].points, atoms[k].masses, angles, strict=True):
            heavier = np.flatnonzero(atoms[k + 1].masses >= mass * (1 - 1e-9))
            if len(heavier):
                nearest = heavier[distance(atoms[k + 1].points[heavier], point).argmin()]
                new[nearest] = False
                if abs(later[nearest] - angle) < np.pi:
                    lines.append([(t[k], angle), (t[k + 1], later[nearest])])
                    widths.append(mass)
        lines += [[((t[k] + t[k + 1]) / 2, angle), (t[k + 1], angle)] for angle in later[new]]
        widths += atoms[k + 1].masses[new].tolist()
    paths = LineCollection(
        lines, colors=[COLOURS["atoms"]], linewidths=1 + 4 * np.array(widths), capstyle="round", label="atoms (width: mass)"
    )
    panel.add_collection(paths)
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1))


# -- d > 3


def _inner_products(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> None:
    from matplotlib import colormaps

    run, titles, panel = runs["tokens"], state_titles(runs, states), part.subplots()
    for k, title, colour in zip(states["tokens"], titles, colormaps[TIME_MAP](np.linspace(0, 0.85, len(titles))), strict=True):
        panel.stairs(*product_shares(run, k), color=colour, label=title, linewidth=1.3)
    product_axes(panel)
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(titles), handlelength=1.4)


def product_shares(run: Solution, k: int) -> tuple[FloatArray, FloatArray]:
    """Histogram of the inner products of pairs of tokens, weighted with their masses, and its edges."""
    chosen = spaced(run.tokens.shape[1], MOST_PAIRED)
    one, other = np.triu_indices(len(chosen), 1)
    points, masses = run.tokens[k][chosen], run.masses[k][chosen]
    products = np.clip((points @ points.T)[one, other], -1, 1)
    shares, edges = np.histogram(products, np.linspace(-1, 1, 81), weights=masses[one] * masses[other])
    return shares / shares.sum(), edges


def product_axes(panel: "Axes") -> None:
    panel.set(yscale="log", xlim=(-1.02, 1.02), xlabel="inner product $\\langle x_i, x_j\\rangle$ of two tokens", ylabel="share of pairs")
    panel.set_xticks([-1, -0.5, 0, 0.5, 1])


# -- energy and order parameter


def _histories(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> None:
    with_energy = runs_with_energy(runs)
    axes = part.subplots(1, 2 if with_energy else 1, squeeze=False)[0]
    if with_energy:
        energy_curves(axes[0], with_energy)
    order_curves(axes[-1], runs)
    shown = next(iter(runs.values())).times[next(iter(states.values()))]
    for panel in axes:
        for t in shown:
            panel.axvline(t, color="0.85", linewidth=0.8, zorder=0)
        panel.set_xlabel("time $t$")
    handles, labels = axes[-1].get_legend_handles_labels()
    part.legend(handles, labels, loc="outside upper center", ncols=2)


def runs_with_energy(runs: dict[str, Solution]) -> dict[str, Solution]:
    return {kind: run for kind, run in runs.items() if not np.isnan(run.history.energy).all()}


def order_curves(panel: "Axes", runs: dict[str, Solution]) -> None:
    top = SMALLEST_SPAN
    for kind, run in runs.items():
        values = np.array([order_parameter(run.measure(k)) for k in range(len(run.times))])
        _curve(panel, kind, run.times, values, _label(kind, run))
        top = max(top, float(values.max()))
    panel.set_ylim(0, 1.04 if top > 0.5 else 1.08 * top)
    panel.set_ylabel("order parameter $|\\int x\\,d\\mu|$")


def energy_curves(panel: "Axes", runs: dict[str, Solution]) -> None:
    values, logs = (np.concatenate([run.history[name] for run in runs.values()]) for name in ("energy", "log_energy"))
    linear = bool(np.isfinite(values).all()) and float(np.abs(values).max()) < LINEAR_ENERGY**2
    if np.isfinite(logs).all() and np.ptp(logs) > np.log(LINEAR_ENERGY):
        linear = False
    for kind, run in runs.items():
        start = energy_of(run.model, run.measure(0), float(run.times[0]))
        t = np.concatenate([run.times[:1], run.history.t])
        energies = [[start.value], run.history.energy] if linear else [[start.log], run.history.log_energy]
        _curve(panel, kind, t, np.concatenate(energies), _label(kind, run))
    low, high = panel.get_ylim()
    missing = SMALLEST_SPAN * (abs(high) if linear else 1.0) - (high - low)
    if missing > 0:
        panel.set_ylim(low - missing / 2, high + missing / 2)
    panel.ticklabel_format(axis="y", useOffset=False)
    panel.set_ylabel("energy $E$" if linear else "log energy, $\\log E$")


def _stages(run: Solution) -> list[Stage]:
    """Those of some length."""
    found = stages(run) if run.kind == "tokens" or run.system.atoms else []  # type: ignore[attr-defined]
    return [stage for stage in found if stage.t_end > stage.t_start]


def _time_axis(panel: "Axes", runs: dict[str, Solution], found: list[Stage]) -> None:
    end = max(float(run.times[-1]) for run in runs.values())
    start = min((stage.t_start for stage in found if stage.t_start > 0), default=np.inf)
    if np.isfinite(start) and end > start * (LONG_RUN if start == found[0].t_start else LONG_RUN / 10):
        first = min(float(run.history.t[0]) for run in runs.values())
        panel.set(xscale="log", xlim=(max(first, start / LONG_RUN), end))
    else:
        panel.set_xlim(min(float(run.times[0]) for run in runs.values()), end)
    for line in panel.lines:
        line.set_clip_on(True)
    panel.set_xlabel("time $t$")


def _shade(panel: "Axes", found: list[Stage]) -> None:
    """Stages, with what fits above them: "3 clusters", "3" or nothing."""
    edge, width = panel.get_xlim()[0], WIDTH * 0.85
    for k, stage in enumerate(found):
        start = max(stage.t_start, edge)
        panel.axvspan(start, stage.t_end, color=STAGE_SHADES[k % 2], linewidth=0, zorder=0)
        left, right = panel.transAxes.inverted().transform(panel.transData.transform([(start, 1), (stage.t_end, 1)]))[:, 0]
        long = f"{stage.clusters} cluster" + ("s" if stage.clusters > 1 else "")
        text = next((text for text in (long, str(stage.clusters)) if (right - left) * width > 0.08 * len(text)), None)
        if text:
            panel.text((left + right) / 2, 1.02, text, transform=panel.transAxes, ha="center", va="bottom", fontsize=8)


def _curve(panel: "Axes", kind: str, t: FloatArray, values: FloatArray, label: str) -> None:
    marker = {"density": "o", "tokens": "s"}[kind] if len(t) <= 3 else ""
    panel.plot(t, values, linestyle=STYLES[kind], color=COLOURS[kind], label=label, marker=marker, markersize=4, clip_on=False)


def _label(kind: str, run: Solution) -> str:
    return f"density ({run.mesh.n_cells} cells)" if kind == "density" else f"tokens ($n$ = {run.tokens.shape[1]})"
