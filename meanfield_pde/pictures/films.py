"""Films of a run: its states one after the other, over its energy with a mark that moves; scales and the map stay the same throughout.

Data in: a density, tokens, or both. Data out: a .gif or .mp4. Each frame is an output and shows the model's time. States are drawn as in
`pictures`: on S^2 an equal-area map, on S^1 the density over the angle with a tick above it for each token, in d > 3 the histogram of the
tokens' inner products. matplotlib, Pillow and ffmpeg load when called, and no figure or setting of the caller's changes.
Source: Snyder, Map Projections, USGS Professional Paper 1395 (1987), p. 251 (map).
"""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import replacing
from meanfield_pde.measure import Measure
from meanfield_pde.pictures import pictures
from meanfield_pde.pictures.pictures import COLOURS
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D
    from PIL.Image import Image

MOST_FRAMES = 300
FASTEST = 50.0
"""Frames per second: viewers slow down a .gif with shorter frames."""
HOLD = 1000
"""Milliseconds more that a .gif shows its last frame, before it begins again."""
HEIGHTS = (3.2, 1.3)
"""Inches, of the state and of the energy below it."""
GIF_DPI, MP4_DPI = 120, 200
"""864 x 540 and 1440 x 900 pixels."""
GIF_COLOURS, SAMPLED = 255, 8
"""Colours of a .gif, which leave one of 256 for "unchanged", and the number of frames they are chosen from."""
PLAIN, CLOSE = 4, 8
"""The most frequent colours, which are kept; levels within which Pillow may take another for the nearest."""
LONGEST_TIME = 7
"""Characters of a time that is shown with a fixed number of decimals."""
TITLE_PAD = 14.0
"""Points, between an axis and a title with tokens' ticks between them."""
LATE = 10.0
"""The time axis is logarithmic if half of the frames lie before this fraction of the end."""
FILL, TOKEN_AREA = 0.25, 2.5
"""Opacity of the area below a density; the areas of tokens' dots over those of `pictures`, whose maps are smaller."""
MARKS = (7.0, 4.5)
"""Points, of the dots on the first and second curve: one is seen around the other."""

Show = Callable[[int], object]
"""Puts frame k into a figure."""


def film(path: str | os.PathLike[str], *solutions: Solution, fps: float = 15, frames: int | None = None) -> Path:
    """Write the evolution of a density, of tokens, or of both over each other (.gif or .mp4); returns the path. Missing folders are made.

    fps: frames per second, 1 to 50. frames: how many outputs are shown at most, 2 to 300 (default 300), evenly spaced over those of the
    density (or of tokens alone) within both runs; the outputs of tokens nearest to them go with them, and titles tell the times apart.
    A .gif has 864 x 540 pixels and stays on its last frame for a second, an .mp4 (H.264) has 1440 x 900.

    Raises ValueError for a name without .gif or .mp4, .mp4 without the extra `film`, no solution, two of one kind, solutions on different
    spheres, fewer than two outputs in common, or fps or frames out of range; OSError if the file cannot be written.
    """
    from matplotlib import rc_context

    path = inputs.file_path("path", path, (".gif", ".mp4"))
    fps = inputs.number("fps", fps, low=1, high=FASTEST)
    most = MOST_FRAMES if frames is None else inputs.integer("frames", frames, low=2, high=MOST_FRAMES)
    runs = pictures.by_kind(solutions)
    states, titles = _frames(runs, most)
    write = _write_gif if path.suffix == ".gif" else partial(_write_mp4, _ffmpeg(path))
    with rc_context(pictures.STYLE):
        figure, show = _screen(runs, states, titles)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            write(figure, show, len(titles), temporary, fps)
    return path


def _frames(runs: dict[str, Solution], most: int) -> tuple[dict[str, list[int]], list[str]]:
    """Of each frame the numbers of the outputs and the title."""
    shown = pictures.even_times(runs, most)
    if len(shown) < 2:
        raise ValueError(f"solutions have {len(shown)} output in common, wanted at least 2")
    states = pictures.nearest_outputs(runs, shown)
    times = np.stack([run.times[states[kind]] for kind, run in runs.items()])
    return states, pictures.state_titles(runs, states, _time_style(times))


def _time_style(times: FloatArray) -> str:
    """As many decimals as tell all times (runs, frames) apart, so that titles do not jump; four digits where that is too long."""
    gaps = np.abs(np.concatenate([np.diff(times).ravel(), times[-1] - times[0]]))
    error = gaps[gaps > 1e-9 * times.max()].min() / 10
    decimals = next((n for n in range(LONGEST_TIME) if np.abs(times.round(n) - times).max() <= error), LONGEST_TIME)
    return f".{decimals}f" if len(f"{times.max():.{decimals}f}") <= LONGEST_TIME else ".4g"


def _screen(runs: dict[str, Solution], states: dict[str, list[int]], titles: list[str]) -> tuple["Figure", Show]:
    """The figure, laid out for good, and what shows a frame in it."""
    dimension = pictures.drawn_dimension(runs)
    draw = {2: _circle, 3: _map}.get(dimension, _inner_products)
    samples = pictures.atom_samples() if dimension == 3 and _atoms(runs, states) else []
    figure = pictures.blank_figure(sum(HEIGHTS))
    parts: Any = figure.subfigures(2, 1, height_ratios=HEIGHTS)
    shows = [draw(parts[0], runs, states), _history(parts[1], runs, states, samples)]
    title = figure.axes[0].set_title(titles[-1], loc="left", fontsize=11, pad=TITLE_PAD if dimension == 2 else None)
    shows.append(lambda k: title.set_text(titles[k]))
    show = _together(shows)
    show(0)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure, show


def _together(shows: list[Show]) -> Show:
    return lambda k: [show(k) for show in shows]


def _atoms(runs: dict[str, Solution], states: dict[str, list[int]]) -> list[Measure]:
    """Of each frame; empty if no frame has any."""
    atoms = [runs["density"].atoms(k) for k in states["density"]] if "density" in runs else []
    return atoms if any(map(len, atoms)) else []


def _extremes(runs: dict[str, Solution], states: dict[str, list[int]]) -> FloatArray:
    """Smallest, smallest positive and largest density of each frame, all that a scale depends on; empty if there is none in any."""
    if "density" not in runs:
        return np.array([])
    run = runs["density"]
    densities = (pictures.density_at(run, k) for k in states["density"] if run.masses[k].any())
    return np.array([value for density in densities for value in (density.min(), density[density > 0].min(), density.max())])


# -- S^2


def _map(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> Show:
    panel, frame = part.subplots(), pictures.map_frame(pictures.main_direction(runs))
    extremes, atoms, shows = _extremes(runs, states), _atoms(runs, states), list[Show]()
    outline = pictures.globe(panel, frame, not len(extremes))
    if len(extremes):
        density, outputs = runs["density"], states["density"]
        cells = pictures.map_cells(density, frame)

        def picture(k: int) -> FloatArray:
            return pictures.on_map(cells, pictures.density_at(density, outputs[k]))

        image = pictures.painted(panel, outline, picture(0), pictures.density_scale(extremes))
        pictures.colour_bar(part, image, panel, extremes)
        shows.append(lambda k: image.set_data(picture(k)))
    if atoms:
        heavy = pictures.atom_dots(panel, frame, atoms[0])
        shows.append(lambda k: heavy.set(offsets=_places(atoms[k].points, frame), sizes=pictures.DOT_AREA * atoms[k].masses))
    if "tokens" in runs:
        tokens, numbers = runs["tokens"].tokens, states["tokens"]
        dots = pictures.token_dots(panel, frame, tokens[numbers[0]])
        dots.set_sizes(TOKEN_AREA * dots.get_sizes())
        shows.append(lambda k: dots.set_offsets(_places(tokens[numbers[k]], frame)))
    part.text(0.01, 0.02, pictures.map_note(frame, "map").replace(", ", "\n", 1), fontsize=7, color="0.35")
    return _together(shows)


def _places(points: FloatArray, frame: FloatArray) -> FloatArray:
    return np.stack(pictures.mollweide(points @ frame.T), axis=1)


# -- S^1


def _circle(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> Show:
    panel, middle, shows = part.subplots(), pictures.middle_angle(runs), list[Show]()
    extremes, atoms, counts = _extremes(runs, states), _atoms(runs, states), np.zeros(1)
    if "tokens" in runs:
        tokens, numbers = runs["tokens"], states["tokens"]
        histograms = [pictures.token_density(tokens.measure(k), middle) for k in numbers]
        counts = np.stack([values for values, _ in histograms])
    pictures.angle_axis(panel, middle)
    if len(extremes) or "tokens" in runs:
        pictures.density_axis(panel, extremes if len(extremes) else counts, counts)
    if len(extremes):
        shows.append(_curve(panel, runs["density"], states["density"], middle))
    if "tokens" in runs:
        alone, colour = not len(extremes), COLOURS["tokens"]
        look: Any = {"fill": alone, "facecolor": (colour, FILL), "edgecolor": colour, "linewidth": 1.2}
        steps = panel.stairs(*histograms[0], baseline=panel.get_ylim()[0] if alone else None, **look)
        shows.append(lambda k: steps.set_data(counts[k]))
        shows.append(_ticks(panel, tokens.tokens[numbers], middle))
    if atoms:
        shows.append(_stems(pictures.right_axis(panel) if panel.has_data() else panel, atoms, middle))
    return _together(shows)


def _curve(panel: "Axes", run: Solution, outputs: list[int], middle: float) -> Show:
    cells, angles = pictures.unrolled(run, middle)
    (line,) = panel.plot(angles, np.ones(len(angles)), color=COLOURS["density"])
    (area,) = panel.fill(angles, np.ones(len(angles)), color=COLOURS["density"], alpha=FILL, linewidth=0)
    low = panel.get_ylim()[0]
    around = np.concatenate([angles[:1], angles, angles[-1:]])

    def show(k: int) -> None:
        values = pictures.density_at(run, outputs[k])[cells]
        line.set_ydata(values)
        area.set_xy(np.stack([around, np.pad(values, 1, constant_values=low)], axis=1))

    return show


def _ticks(panel: "Axes", tokens: FloatArray, middle: float) -> Show:
    """Above the panel, one per token."""
    alpha = pictures.token_look(tokens.shape[1])[1]
    height = np.full(tokens.shape[1], 1.03)
    (ticks,) = panel.plot(
        [],
        [],
        "|",
        color=COLOURS["tokens"],
        alpha=alpha,
        markersize=7,
        markeredgewidth=0.8,
        transform=panel.get_xaxis_transform(),
        clip_on=False,
    )
    return lambda k: ticks.set_data(pictures.angles_about(tokens[k], middle), height)


def _stems(panel: "Axes", atoms: list[Measure], middle: float) -> Show:
    stems = panel.vlines([], 0, [], colors=[COLOURS["atoms"]], linewidth=2.5)
    (heads,) = panel.plot([], [], "o", color=COLOURS["atoms"], markersize=7, clip_on=False, in_layout=False)
    pictures.mass_axis(panel, atoms)

    def show(k: int) -> None:
        angles, masses = pictures.angles_about(atoms[k].points, middle), atoms[k].masses
        stems.set_segments([[(angle, 0), (angle, mass)] for angle, mass in zip(angles, masses, strict=True)])
        heads.set_data(angles, masses)

    return show


# -- d > 3


def _inner_products(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]]) -> Show:
    panel = part.subplots()
    histograms = [pictures.product_shares(runs["tokens"], k) for k in states["tokens"]]
    shares = np.stack([values for values, _ in histograms])
    pictures.product_axes(panel)
    low = float(shares[shares > 0].min()) / 1.5
    panel.set_ylim(low, 1.5 * float(shares.max()))
    steps = panel.stairs(*histograms[0], baseline=low, fill=True, color=COLOURS["tokens"], alpha=0.8)
    return lambda k: steps.set_data(shares[k])


# -- energy


def _history(part: "SubFigure", runs: dict[str, Solution], states: dict[str, list[int]], samples: "list[Line2D]") -> Show:
    """The energy, or the order parameter of a model without one; a line at the time of the frame, and dots where it meets the curves.

    samples: what the legend has beside the curves.
    """
    panel = part.subplots()
    with_energy = pictures.runs_with_energy(runs)
    if with_energy:
        pictures.energy_curves(panel, with_energy)
    else:
        pictures.order_curves(panel, runs)
        panel.set_ylabel("$|\\int x\\,d\\mu|$")
    times = next(iter(runs.values())).times[next(iter(states.values()))]
    if np.median(times) * LATE < times[-1]:
        panel.set_xscale("log")
        times = np.maximum(times, times[1])
    panel.set(xlim=(times[0], times[-1]), xlabel="time $t$")
    part.legend(handles=[*panel.lines, *samples], loc="outside right center")
    curves = [np.array(line.get_data()) for line in panel.lines]
    looks: Any = [{"color": line.get_color(), "markersize": size, "clip_on": False} for line, size in zip(panel.lines, MARKS, strict=False)]
    for line in panel.lines:
        line.set_clip_on(True)
    marks = [panel.plot(*curve[:, :1], "o", **look)[0] for curve, look in zip(curves, looks, strict=True)]
    now = panel.axvline(times[0], color="0.6", linewidth=0.8, zorder=0)

    def show(k: int) -> None:
        now.set_xdata([times[k]])
        for mark, curve in zip(marks, curves, strict=True):
            mark.set_data([times[k]], [np.interp(times[k], *curve)])

    return show


# -- files


def _write_gif(figure: "Figure", show: Show, count: int, path: Path, fps: float) -> None:
    """One palette for all frames, and no dither: what does not change costs nothing, and nothing flickers."""
    from PIL.Image import Dither

    figure.set_dpi(GIF_DPI)
    palette = _palette([_pixels(figure, show, k) for k in pictures.spaced(count, SAMPLED).tolist()])
    frames = [_pixels(figure, show, k).quantize(palette=palette, dither=Dither.NONE) for k in range(count)]
    ends = (100 / fps * np.arange(count + 1)).round().astype(int) * 10
    durations = np.diff(ends)
    durations[-1] += HOLD
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=durations.tolist(), loop=0)


def _pixels(figure: "Figure", show: Show, k: int) -> "Image":
    from PIL import Image

    show(k)
    canvas: Any = figure.canvas
    canvas.draw()
    return Image.fromarray(np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3]))


def _palette(images: list["Image"]) -> "Image":
    """The plain colours as they are, and the means of groups of those farther from them, rare ones as good as frequent ones."""
    from PIL import Image

    together = Image.fromarray(np.concatenate([np.asarray(image) for image in images]))
    counted: Any = sorted(together.getcolors(together.width * together.height) or [], reverse=True)
    colours = np.array([colour for _, colour in counted])
    apart = np.abs(colours[:, None] - colours[:PLAIN]).max(axis=2).min(axis=1) > CLOSE
    groups = Image.fromarray(colours[apart].astype(np.uint8)[None]).quantize(GIF_COLOURS - PLAIN, kmeans=1)
    palette = Image.new("P", (1, 1))
    palette.putpalette([*colours[:PLAIN].ravel().tolist(), *(groups.getpalette() or [])[: 3 * (GIF_COLOURS - PLAIN)]])
    return palette


def _ffmpeg(path: Path) -> str:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise ValueError(
            f"path is {str(path)!r}, and an .mp4 needs ffmpeg: pip install 'meanfield-pde[film]', or give a name that ends in .gif"
        ) from None


def _write_mp4(ffmpeg: str, figure: "Figure", show: Show, count: int, path: Path, fps: float) -> None:
    from matplotlib import rc_context
    from matplotlib.animation import FFMpegWriter

    writer = FFMpegWriter(fps=fps, codec="h264", bitrate=-1, extra_args=["-f", "mp4", "-movflags", "+faststart"])  # type: ignore[arg-type]
    try:
        with rc_context({"animation.ffmpeg_path": ffmpeg}), writer.saving(figure, str(path), MP4_DPI):
            for k in range(count):
                show(k)
                writer.grab_frame()
    except subprocess.CalledProcessError as error:
        raise OSError(f"ffmpeg did not write the film: {error.stderr.strip()}") from None
