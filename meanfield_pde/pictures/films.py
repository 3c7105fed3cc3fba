"""Films of a run: its states one after the other, over its energy with a mark that moves; scales and the map stay the same throughout.

Data in: a density, tokens, or both. Data out: a .gif or .mp4. Each frame is an output and shows the model's time; states are drawn as in
an overview. matplotlib, Pillow and ffmpeg load when called, and no figure or setting of the caller's changes.
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
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import Figure, States, SubFigure
from meanfield_pde.pictures.maps import Maps
from meanfield_pde.pictures.panels import Circle, Products, energy_curves, has_energy, order_curves
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_FRAMES = 300
FASTEST, HOLD = 50.0, 1000
"""Frames per second, as viewers slow down a .gif with shorter frames; milliseconds more that a .gif shows its last frame."""
WIDTH, HEIGHTS = 7.2, (3.2, 1.3)
"""Inches, the heights of the state and of the energy below it."""
GIF_DPI, MP4_DPI = 120, 200
"""864 x 540 and 1440 x 900 pixels."""
GIF_COLOURS, SAMPLED = 255, 8
"""Colours of a .gif, which leave one of 256 for "unchanged", and the number of frames from which they are chosen."""
LONGEST_TIME = 7
"""Characters of a time that is shown with a fixed number of decimals."""
LATE = 10.0
"""The time axis is logarithmic if half of the frames lie before the end divided by this."""
TOKEN_AREA = 2.5
"""The area of a token's dot over that in an overview, whose maps are smaller."""
MARKS = (7.0, 4.5)
"""Points, of the dots on the first and second curve: one is seen around the other."""

Show = Callable[[int], object]
"""Puts frame k into a figure, in place of the one before."""


def film(path: str | os.PathLike[str], *solutions: Solution, fps: float = 15, frames: int | None = None) -> Path:
    """Write the evolution of a density, of tokens, or of both over each other (.gif or .mp4); returns the path. Missing folders are made.

    fps: frames per second, 1 to 50. frames: how many outputs are shown at most, 2 to 300 (default 300), evenly spaced over those of the
    density (or of tokens alone) within both runs; the outputs of tokens nearest to them go with them, and titles tell the times apart.
    A .gif has 864 x 540 pixels and stays on its last frame for a second, an .mp4 (H.264) has 1440 x 900.

    Raises ValueError for a name without .gif or .mp4, .mp4 without the extra `film`, no solution, two of one kind, solutions on different
    spheres, fewer than two outputs in common, or fps or frames out of range; OSError if the file cannot be written.
    """
    path = inputs.file_path("path", path, (".gif", ".mp4"))
    fps = inputs.number("fps", fps, low=1, high=FASTEST)
    most = MOST_FRAMES if frames is None else inputs.integer("frames", frames, low=2, high=MOST_FRAMES)
    states = _frames(canvas.checked_runs(solutions), most)
    write, style = _write_gif, canvas.STYLE
    if path.suffix == ".mp4":
        write, style = _write_mp4, style | {"animation.ffmpeg_path": _ffmpeg(path)}
    with canvas.mpl().rc_context(style):
        figure, show = _screen(states)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            write(figure, show, len(states), temporary, fps)
    return path


def _frames(runs: list[Solution], most: int) -> States:
    shown = canvas.even_times(runs, most)
    if len(shown) < 2:
        raise ValueError(f"solutions have {len(shown)} output in common, wanted at least 2")
    return States(runs, shown)


def _time_style(times: FloatArray) -> str:
    """As many decimals as tell all times (runs, frames) apart, so that titles do not jump; four digits where that is too long."""
    gaps = np.abs(np.concatenate([np.diff(times).ravel(), times[-1] - times[0]]))
    error = gaps[gaps > 1e-9 * times.max()].min() / 10
    decimals = next((n for n in range(LONGEST_TIME) if np.abs(times.round(n) - times).max() <= error), LONGEST_TIME)
    return f".{decimals}f" if len(f"{times.max():.{decimals}f}") <= LONGEST_TIME else ".4g"


def _screen(states: States) -> tuple[Figure, Show]:
    """The figure, laid out for good, and what shows a frame in it."""
    titles = states.titles(_time_style(states.times))
    figure = canvas.blank_figure(sum(HEIGHTS), WIDTH)
    parts: Any = figure.subfigures(2, 1, height_ratios=HEIGHTS)
    panel, samples, drawn = parts[0].subplots(), list[Any](), list[Any]()
    draw: Callable[[int], list[Any]]
    if states.dimension == 3:
        maps = Maps(parts[0], panel, states)
        draw, samples = partial(maps.draw, panel=panel, token_area=TOKEN_AREA), maps.samples()
        parts[0].text(0.01, 0.02, maps.note("map").replace(", ", "\n", 1), fontsize=7, color="0.35")
    else:
        scene = (Circle if states.dimension == 2 else Products)(panel, states)
        draw, samples = scene.draw, [sample for sample in scene.samples() if sample.get_label() != "density"]  # has its colour below
    show_time = _history(parts[1], states, samples)
    canvas.caption(parts[1], canvas.described_runs(list(states.runs)))
    pad = 14.0 if states.dimension == 2 else None  # there are tokens' ticks between the axis and the title
    title = panel.set_title(titles[-1], loc="left", fontsize=11, pad=pad)

    def show(k: int) -> None:
        for artist in drawn:
            artist.remove()
        drawn[:] = draw(k)
        show_time(k)
        title.set_text(titles[k])

    show(0)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure, show


def _history(part: SubFigure, states: States, samples: list[Any]) -> Show:
    """The energy, or else the order parameter; a line at the frame's time, dots where it meets the curves. samples: more for the legend."""
    panel = part.subplots()
    with_energy = [run for run in states.runs if has_energy(run)]
    if with_energy:
        energy_curves(panel, with_energy)
    else:
        order_curves(panel, states.runs, "$|\\int x\\,d\\mu|$")
    times = states.times[0]
    if np.median(times) * LATE < times[-1]:
        panel.set_xscale("log")
        times = np.maximum(times, times[1])
    panel.set(xlim=(times[0], times[-1]), xlabel="time $t$")
    lines = list(panel.lines)
    part.legend(handles=[*lines, *samples], loc="outside right center")
    curves = [np.array(line.get_data()) for line in lines]
    marks = [panel.plot([], [], "o", color=line.get_color(), ms=size, clip_on=False)[0] for line, size in zip(lines, MARKS, strict=False)]
    now = panel.axvline(times[0], color="0.6", linewidth=0.8, zorder=0)

    def show(k: int) -> None:
        now.set_xdata([times[k]])
        for mark, curve in zip(marks, curves, strict=True):
            mark.set_data([times[k]], [np.interp(times[k], *curve)])

    return show


def _write_gif(figure: Figure, show: Show, count: int, path: Path, fps: float) -> None:
    """One palette for all frames, and no dither: nothing flickers, and what does not change costs nothing."""
    from PIL import Image

    figure.set_dpi(GIF_DPI)
    some = [np.asarray(_pixels(figure, show, k))[::2, ::2] for k in canvas.spaced(count, SAMPLED).tolist()]
    sampled = Image.fromarray(np.concatenate(some))
    palette = sampled.quantize(GIF_COLOURS, kmeans=1)
    frames = [_pixels(figure, show, k).quantize(palette=palette, dither=Image.Dither.NONE) for k in range(count)]
    colours = _mean_colours(sampled, palette)
    for frame in frames:
        frame.putpalette(colours)
    ends = (100 / fps * np.arange(count + 1)).round().astype(int) * 10
    durations = np.diff(ends)
    durations[-1] += HOLD
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=durations.tolist(), loop=0)


def _mean_colours(image: "Image", palette: "Image") -> list[int]:
    """The palette with each colour replaced by the mean of the pixels it stands for: Pillow's are a few levels off, even for white."""
    from PIL.Image import Dither

    own: Any = np.reshape(np.array(palette.getpalette()), (-1, 3))
    numbers = np.asarray(image.quantize(palette=palette, dither=Dither.NONE)).ravel()
    sums = np.stack([np.bincount(numbers, channel, len(own)) for channel in np.asarray(image).reshape(-1, 3).T], axis=1)
    counts = np.bincount(numbers, minlength=len(own))[:, None]
    return np.where(counts, sums / np.maximum(counts, 1), own).round().astype(int).ravel().tolist()


def _pixels(figure: Figure, show: Show, k: int) -> "Image":
    from PIL import Image

    show(k)
    drawn: Any = figure.canvas
    drawn.draw()
    return Image.fromarray(np.ascontiguousarray(np.asarray(drawn.buffer_rgba())[..., :3]))


def _ffmpeg(path: Path) -> str:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        wanted = "pip install 'meanfield-pde[film]', or give a name that ends in .gif"
        raise ValueError(f"path is {str(path)!r}, and an .mp4 needs ffmpeg: {wanted}") from None


def _write_mp4(figure: Figure, show: Show, count: int, path: Path, fps: float) -> None:
    from matplotlib.animation import FFMpegWriter

    writer = FFMpegWriter(fps=fps, codec="h264", bitrate=-1, extra_args=["-f", "mp4", "-movflags", "+faststart"])  # type: ignore[arg-type]
    try:
        with writer.saving(figure, str(path), MP4_DPI):
            for k in range(count):
                show(k)
                writer.grab_frame()
    except subprocess.CalledProcessError as error:
        raise OSError(f"ffmpeg did not write the film: {error.stderr.strip()}") from None
