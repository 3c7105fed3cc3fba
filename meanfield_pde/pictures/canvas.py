"""What all pictures and films share: style and colours, which runs and outputs are shown, the scale of densities, saving.

Data in: solutions and times. Data out: `States` to draw, blank figures, files. matplotlib is imported when a function needs it, and
pyplot never is, so no figure or setting of the caller changes.
"""

import textwrap
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.files.replacing import replacing
from meanfield_pde.kinds import in_words
from meanfield_pde.measure import Measure
from meanfield_pde.models.velocity import VelocityModel
from meanfield_pde.solution import Solution, quantities
from meanfield_pde.sphere import FloatArray, IntArray, normalise

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import SubFigure as SubFigure
else:
    Axes = Figure = SubFigure = Any

SUFFIXES = (".png", ".pdf", ".svg")
FONTS: Any = {"pdf.fonttype": 42, "svg.fonttype": "none"}
"""TrueType fonts, and texts that stay texts."""
STYLE: Any = {"axes.linewidth": 0.8, "lines.linewidth": 1.5, "mathtext.fontset": "dejavusans"}
STYLE |= dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 9)
STYLE |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8)
STYLE |= dict.fromkeys(("legend.frameon", "axes.spines.top", "axes.spines.right"), False)
DPI, HTML_DPI, WIDTH = 300, 130, 4.8
"""The width, in inches, is such that texts can be read where a picture becomes one column of a journal (3.35 inches)."""
SMALL, GREY = 7, "0.3"
"""Size, in points, and colour of captions and notes."""
COLOURS = {"density": "#8C2981", "tokens": "#00A08A", "atoms": "#1F5FD0"}
STYLES: dict[str, Any] = {"density": "-", "tokens": (0, (4, 1.5))}
"""Line styles by kind of run."""
COLOUR_MAP, TIME_MAP = "magma_r", "viridis"
MOST_STATES = 4
"""States in one picture."""
APART = 0.2
"""Of an axis, between the numbers at two ticks."""
DECADES, LINEAR = 4, 5.0
"""Densities are shown over at most so many powers of ten; the scale is linear if they vary by less than this factor."""


def mpl() -> Any:
    """matplotlib, imported when it is needed."""
    import matplotlib.backends.backend_agg
    import matplotlib.figure

    return matplotlib


def blank_figure(height: float, width: float = WIDTH) -> "Figure":
    figure: Figure = mpl().figure.Figure(figsize=(width, height), layout="constrained", facecolor="white")
    mpl().backends.backend_agg.FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.07, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    return figure


def save_figure(figure: "Figure", path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl().rc_context(FONTS), replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=DPI)
    return path


def as_html(make: Callable[[], "Figure"], text: str) -> str:
    """A text above a picture, for notebooks; the text alone if there is no picture of what it is about."""
    shown = f"<pre>{escape(text)}</pre>"
    try:
        figure = make()
    except Exception:  # whatever is odd about a result, a notebook shows its text
        return shown
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=HTML_DPI)
    return f'{shown}<img alt="picture" src="data:image/png;base64,{b64encode(stream.getvalue()).decode()}">'


def handle(label: str, **look: Any) -> Any:
    """A line of a legend that stands for nothing in particular in the picture."""
    return mpl().lines.Line2D([], [], label=label, **look)


def halo(width: float) -> list[Any]:
    """A white edge of so many points around lines, which keeps them visible on dark and on grey."""
    from matplotlib import patheffects

    return [patheffects.withStroke(linewidth=width, foreground="white")]


def plain(value: float, style: str) -> str:
    """A number in a text: with a minus sign, and never as -0."""
    text = f"{value:{style}}"
    return (text.removeprefix("-") if float(text) == 0 else text).replace("-", "\N{MINUS SIGN}")


def few_ticks(axis: Any, low: float, high: float, places: FloatArray | None = None) -> None:
    """On a logarithmic axis of less than two decades, ticks with numbers at 1, 2 and 5 times powers of ten, or at places that stand apart:
    between powers of ten matplotlib's own have no numbers, or more than fit."""
    ticker = mpl().ticker
    axis.set_minor_formatter(ticker.NullFormatter())
    if high >= 100 * low:
        return
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    if places is not None:
        apart = [float(places[0])]
        for place in places[1:].tolist():
            if place > apart[-1] * (high / low) ** APART:
                apart.append(place)
        axis.set_major_locator(ticker.FixedLocator(apart))


def letter(panel: "Axes", index: int) -> None:
    """(a), (b), .. above the upper left corner of a panel."""
    look: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "bottom", "fontweight": "bold"}
    panel.annotate(f"({'abcdefghijklmnopqrstuvwxyz'[index % 26]})", (0, 1), (-8, 3), fontsize=8, **look)


def caption(part: Any, text: str) -> None:
    """Small lines below all that a figure, or its last part, holds."""
    part.supxlabel("\n".join(textwrap.wrap(text, int(part.bbox.width / part.figure.dpi * 20))), fontsize=SMALL, color=GREY)


def model_in_words(model: VelocityModel, without: Collection[str] = ()) -> str:
    """As `kinds.in_words`, with a Greek beta."""
    return in_words(model, without).replace("beta", "\N{GREEK SMALL LETTER BETA}")


def described_runs(runs: list[Solution]) -> str:
    """Model, mesh and number of tokens, for a caption."""
    words = list(dict.fromkeys(model_in_words(run.model) for run in runs))
    sizes = [f"{run.masses.shape[1]} tokens" if run.system.mesh is None else f"{run.mesh.name}, {run.mesh.n_cells} cells" for run in runs]
    jumps = "; the energy jumps where an atom forms" if any((run.events.kind == "formed").any() for run in runs) else ""
    return "; ".join([*words, *sizes]) + jumps


def density_label(d: int) -> str:
    return f"density $\\rho$ ({quantities(d)['density'][0]})"


def time_colours(count: int) -> Any:
    """Colours (count, 4) of states that share a panel, from the first to the last."""
    return mpl().colormaps[TIME_MAP](np.linspace(0, 0.78, count))


def token_look(n: int) -> tuple[float, float, float]:
    """Area (points squared), opacity and width of the white edge (points) of the mark of one of n tokens."""
    return float(np.clip(1500 / n, 0.6, 6.0)), float(np.clip(40 / np.sqrt(n), 0.2, 1.0)), float(np.clip(150 / n, 0.1, 0.4))


def checked_runs(solutions: tuple[Solution, ...]) -> list[Solution]:
    """One or two runs of different kinds on one sphere, the density first."""
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
    return sorted(runs.values(), key=lambda run: run.kind == "tokens")


def checked_axes(axes: Any) -> "Axes":
    """Axes as they are. Raises ValueError for anything else."""
    inputs.having("axes", axes, "matplotlib axes", "get_xlim")
    return axes


def main_direction(runs: list[Solution]) -> FloatArray:
    """The direction of int x dmu of the last state, or of the axis close to it; e_1 if that mean is shorter than 1/2."""
    mean = runs[0].measure(-1).mean()
    if np.linalg.norm(mean) < 0.5:
        return np.eye(len(mean))[0]
    centre, axis = normalise(mean), int(np.abs(mean).argmax())
    snapped = np.eye(len(mean))[axis] * np.sign(mean[axis])
    return snapped if np.linalg.norm(centre - snapped) < 0.1 else centre


class States:
    """What is shown, at once in a picture or one after the other in a film: state k is output outputs[i][k] of each runs[i].

    runs: a density, tokens, or both in this order. Of each run the outputs nearest to some times (n_states,) are shown; times
    (n_runs, n_states) are their own. density, tokens: the run of that kind, or None. atoms: of the density in each state.
    """

    def __init__(self, runs: list[Solution], times: Iterable[float]) -> None:
        self.runs = runs
        self.density, self.tokens = (next((run for run in runs if run.kind == kind), None) for kind in ("density", "tokens"))
        chosen = list(times)
        self.outputs = [[int(np.abs(run.times - t).argmin()) for t in chosen] for run in runs]
        self.times = np.stack([run.times[outputs] for run, outputs in zip(runs, self.outputs, strict=True)])
        self.dimension = runs[0].measure(0).dimension
        none = Measure.trusted(np.zeros((0, self.dimension)), np.zeros(0))
        self.atoms = [self.density.atoms(k) if self.density else none for k in self.outputs[0]]

    def __len__(self) -> int:
        return len(self.outputs[0])

    def titles(self, style: str = ".4g") -> list[str]:
        """The time of each state; both times where the two runs differ."""
        apart = np.abs(self.times[-1] - self.times[0]) > 1e-9 * self.times.max(axis=0)
        others = [f" (tokens {t:{style}})" if two else "" for t, two in zip(self.times[-1], apart, strict=True)]
        return [f"$t$ = {t:{style}}{other}" for t, other in zip(self.times[0], others, strict=True)]

    def averages(self, k: int) -> FloatArray:
        """Cell averages (n_cells,) of the density, without its atoms; `Solution.averages` would compute those of all outputs."""
        return self.runs[0].masses[self.outputs[0][k]] / self.runs[0].mesh.areas

    def cloud(self, k: int) -> Measure:
        """The tokens."""
        return self.runs[-1].measure(self.outputs[-1][k])

    def extremes(self) -> FloatArray:
        """Smallest, smallest positive and largest average of each state, which set a scale; empty where cells never have mass."""
        if self.density is None:
            return np.array([])
        densities = (self.averages(k) for k in range(len(self)))
        return np.array([x for density in densities if density.any() for x in (density.min(), density[density > 0].min(), density.max())])


def spaced(count: int, most: int) -> IntArray:
    """Numbers below count, all of them or at most `most`, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def common_times(runs: list[Solution]) -> tuple[float, float]:
    """The first and the last time that all runs have."""
    first, last = max(float(run.times[0]) for run in runs), min(float(run.times[-1]) for run in runs)
    if first > last:
        raise ValueError(f"one run begins at t = {first:g} and the other ends at {last:g}, wanted runs with times in common")
    return first, last


def even_times(runs: list[Solution], most: int) -> FloatArray:
    """Times of outputs of the first run within the other, at most so many, evenly spaced over their numbers."""
    first, last = common_times(runs)
    within = [t for t in runs[0].times if first <= t <= last] or [first]
    return np.array(within)[spaced(len(within), most)]


def density_scale(values: FloatArray) -> "Normalize":
    """Logarithmic over at most DECADES, linear where densities hardly vary."""
    colors = mpl().colors
    top = float(values.max())
    low = max(float(values[values > 0].min()), top * 10.0**-DECADES)
    if top > LINEAR * low:
        return colors.LogNorm(low, top, clip=True)
    return colors.Normalize(low, top) if top - low > 1e-6 * top else colors.Normalize(0, 2 * top)


def colour_bar(part: Any, axes: Any, values: FloatArray, d: int) -> "Normalize":
    """The scale of densities on S^{d-1}, drawn beside axes with an arrow where values lie below it."""
    norm = density_scale(values)
    extend = "min" if values.min() < (norm.vmin or 0) else "neither"
    bar = part.colorbar(mpl().cm.ScalarMappable(norm, COLOUR_MAP), ax=axes, label=density_label(d), extend=extend, pad=0.02, aspect=25)
    if norm.vmin and isinstance(norm, mpl().colors.LogNorm):
        few_ticks(bar.ax.yaxis, norm.vmin, norm.vmax or 1.0)
    return norm
