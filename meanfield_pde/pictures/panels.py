"""What pictures and films have in one panel: states of runs on S^1 over the angle, and beside it a diagram over angle and time; states
in d > 3 over inner products; energies and order parameters |int x dmu| over time.

On S^1 densities are curves, tokens histograms, atoms stems; in the middle is the angle where the last state has its mass. In d > 3 it is
shown how much of the mass of all pairs of tokens has which inner product <x_i, x_j>.

Data in: `States`, or runs. Data out: states, on S^1 all outputs of their runs over time, and curves, one per run, drawn into panels.
"""

from typing import Any

import numpy as np

from meanfield_pde.diagnostics.measures import inner_products, order_parameter
from meanfield_pde.measure import Measure
from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.models.velocity import energy_of
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import COLOURS, STYLES, Axes, States, SubFigure, handle
from meanfield_pde.solution import Solution
from meanfield_pde.sphere import FloatArray, IntArray, distance

ANGLE_PIXELS, TIME_PIXELS, MOST_PATHS = 720, 500, 40
"""Of the diagram over angle and time: its resolution, and how many tokens have their paths drawn."""
FILL = 0.25
"""Opacity of the area below a density."""
MOST_PAIRED = 1000
"""Tokens whose inner products with one another are drawn."""
EDGES = np.linspace(-1, 1, 81)
LINEAR_ENERGY = 100.0
"""Energies that vary by less than this factor, and stay below its square, have a linear scale."""
SMALLEST_SPAN = 1e-3
"""Energies (relative) and order parameters that vary by less are drawn flat, not magnified to their rounding errors."""
MARKERS = {"density": "o", "tokens": "s"}
"""On curves of three points or fewer, by kind of run."""


class Circle:
    """A panel, empty at first, over the angle, with fixed scales: of densities on the left, of the masses of atoms on the right."""

    def __init__(self, panel: Axes, states: States) -> None:
        self.panel, self.states, self.middle = panel, states, middle_angle(states.runs)
        extremes = states.extremes()
        self.has_curves = len(extremes) > 0
        self._histograms = [token_density(states.cloud(k), self.middle) for k in range(len(states))] if states.tokens else []
        counts = np.array([counts for counts, _ in self._histograms]).ravel()
        angle_axis(panel, "x", self.middle)
        if self.has_curves or states.tokens:
            scale = canvas.density_scale(extremes if self.has_curves else counts)
            low, top = float(scale.vmin or 0), max(float(scale.vmax or 1), float(counts.max(initial=0)))
            logarithmic = top > canvas.LINEAR * low > 0
            panel.set(yscale="log" if logarithmic else "linear", ylim=(low / 1.5, top * 1.5) if logarithmic else (0, 1.08 * top))
            panel.set_ylabel(canvas.density_label(2))
            if logarithmic:
                canvas.few_ticks(panel.yaxis, low / 1.5, top * 1.5)
        if any(map(len, states.atoms)):
            self._masses = panel.twinx() if self.has_curves or states.tokens else panel
            self._masses.spines["right"].set_visible(self._masses is not panel)
            self._masses.set_ylim(0, 1.1 * max(float(atoms.masses.max(initial=0)) for atoms in states.atoms))
            self._masses.set_ylabel("atom mass (stems)")

    def draw(self, k: int, colour: Any = None, rank: int = 1) -> list[Any]:
        """State k, and what it is drawn with.

        colour: of a state that shares the panel with others, rank: the number of states below it. Without a colour the state has the panel
        for itself: its parts have their own colours, areas are filled, and there is a tick above the panel for each token.
        """
        alone = colour is None
        colours = COLOURS if alone else dict.fromkeys(COLOURS, colour)
        drawn = self._curve(k, colours["density"], filled=alone) if self.has_curves and self.states.averages(k).any() else []
        if self.states.tokens and alone:
            drawn += self._steps(k, colours["tokens"], filled=not self.has_curves) + self._ticks(k)
        elif self.states.tokens:
            drawn += self._dots(k, colour) if self.states.density else self._steps(k, colour, filled=False)
        return drawn + self._stems(k, colours["atoms"], rank)

    def samples(self, alone: bool = True) -> list[Any]:
        """For a legend, of what is drawn; alone: of states that do not share the panel with others."""
        colours, found = COLOURS if alone else dict.fromkeys(COLOURS, canvas.GREY), []
        if self.has_curves:
            found.append(handle("density", color=colours["density"]))
        if self.states.tokens:
            width = np.diff(self._histograms[0][1])[0]
            look: Any = {} if alone or not self.has_curves else {"marker": ".", "linestyle": ""}
            found.append(handle(f"tokens (bins {width:.2g} rad)", color=colours["tokens"], **look))
            found += [handle("token", color=colours["tokens"], marker="|", linestyle="", markersize=7)] if alone else []
        if any(map(len, self.states.atoms)):
            found.append(handle("atom (stem)", color=colours["atoms"], marker="o", markersize=5, linewidth=2.5))
        return found

    def _curve(self, k: int, colour: Any, filled: bool) -> list[Any]:
        angles = angles_about(self.states.runs[0].mesh.centers, self.middle)
        cells = np.pad(np.argsort(angles), 1, mode="wrap")  # the last once more before the first, and the first after the last
        angles = angles[cells] + 2 * np.pi * np.pad(np.zeros(len(angles)), 1, constant_values=(-1, 1))
        values, low = self.states.averages(k)[cells], self.panel.get_ylim()[0]
        drawn: list[Any] = [*self.panel.plot(angles, values, color=colour)]
        if filled:
            around, values = np.pad(angles, 1, mode="edge"), np.pad(values, 1, constant_values=low)
            drawn += self.panel.fill(around, values, color=colour, alpha=FILL, linewidth=0)
        return drawn

    def _steps(self, k: int, colour: Any, filled: bool) -> list[Any]:
        """A histogram of tokens; its ends are open beside a curve."""
        low = None if self.has_curves else self.panel.get_ylim()[0]
        look: Any = {"edgecolor": colour, "facecolor": (colour, FILL), "linewidth": 1.3}
        return [self.panel.stairs(*self._histograms[k], baseline=low, fill=filled, **look)]

    def _dots(self, k: int, colour: Any) -> list[Any]:
        """A histogram of tokens as dots in the middles of its bins, which leave curves visible."""
        counts, edges = self._histograms[k]
        middles = (edges[1:] + edges[:-1]) / 2
        return [*self.panel.plot(middles[counts > 0], counts[counts > 0], ".", color=colour, markersize=3.5)]

    def _ticks(self, k: int) -> list[Any]:
        """Above the panel, one per token."""
        angles = angles_about(self.states.cloud(k).points, self.middle)
        look: Any = {"color": COLOURS["tokens"], "alpha": canvas.token_look(len(angles))[1], "markersize": 7, "markeredgewidth": 0.8}
        heights, transform = np.full(len(angles), 1.03), self.panel.get_xaxis_transform()
        return [*self.panel.plot(angles, heights, "|", transform=transform, clip_on=False, **look)]

    def _stems(self, k: int, colour: Any, rank: int) -> list[Any]:
        """Of atoms; the higher its rank the thinner a stem, so that it hides none of the same place and mass."""
        atoms = self.states.atoms[k]
        if not len(atoms):
            return []
        angles, look = angles_about(atoms.points, self.middle), {"color": colour, "zorder": 2 + rank}
        stems = self._masses.vlines(angles, 0, atoms.masses, linewidth=3.4 - 0.8 * rank, **look)
        heads = self._masses.plot(angles, atoms.masses, "o", markersize=8 - 1.5 * rank, clip_on=False, in_layout=False, **look)
        return [stems, *heads]


def middle_angle(runs: list[Solution]) -> float:
    """The angle, a multiple of pi/2, that is drawn in the middle."""
    centre = canvas.main_direction(runs)
    quarters = round(float(np.arctan2(centre[1], centre[0])) / (np.pi / 2))
    return (2 if quarters == -2 else quarters) * np.pi / 2


def angles_about(points: FloatArray, middle: float) -> FloatArray:
    """Angles (...) in [middle - pi, middle + pi) of points (..., 2)."""
    turned = np.arctan2(points[..., 1], points[..., 0]) - middle + np.pi
    return turned % (2 * np.pi) + middle - np.pi


def token_density(measure: Measure, middle: float) -> tuple[FloatArray, FloatArray]:
    """Histogram over the angle, and its edges."""
    edges = middle + np.linspace(-np.pi, np.pi, 1 + int(np.clip(2 * np.sqrt(len(measure)), 12, 72)))
    return np.histogram(angles_about(measure.points, middle), edges, weights=measure.masses)[0] / np.diff(edges), edges


def angle_axis(panel: Axes, axis: str, middle: float) -> None:
    """axis: "x" or "y"."""
    quarters = [round(middle / (np.pi / 2)) + k for k in range(-2, 3)]
    names = {0: "0", 1: "\\pi/2", 2: "\\pi", 3: "3\\pi/2", 4: "2\\pi"}
    panel.set(**{f"{axis}ticks": [q * np.pi / 2 for q in quarters], f"{axis}lim": (middle - np.pi, middle + np.pi)})
    labels = [f"${'-' if q < 0 else ''}{names[abs(q)]}$" for q in quarters]
    panel.set(**{f"{axis}ticklabels": labels, f"{axis}label": "angle $\\theta$ (rad)"})


def space_time(part: SubFigure, panel: Axes, states: States) -> None:
    """Every output of the runs, not only the states: the density in colours, paths of its atoms and of tokens."""
    middle, density, tokens = middle_angle(states.runs), states.density, states.tokens
    drawn: list[Any] = []
    if density is not None:
        outputs = canvas.spaced(len(density.times), TIME_PIXELS)
        _image(part, panel, density, outputs, middle)
        drawn += _atom_paths(panel, density.times[outputs], [density.atoms(k) for k in outputs.tolist()], middle)
    if tokens is not None:
        n = tokens.tokens.shape[1]
        chosen = canvas.spaced(n, MOST_PATHS)
        paths = angles_about(tokens.tokens[:, chosen], middle)
        jumps = np.abs(np.diff(paths, axis=0, prepend=paths[:1])) > np.pi
        look: Any = {"color": COLOURS["tokens"], "linewidth": 0.7, "path_effects": [] if density is None else canvas.halo(1.3)}
        panel.plot(tokens.times, np.where(jumps, np.nan, paths), **look)
        drawn.append(handle("tokens" if len(chosen) == n else f"{len(chosen)} of the {n} tokens", **look))
    angle_axis(panel, "y", middle)
    panel.set_xlabel("time $t$")
    panel.margins(x=0)
    if drawn:
        panel.legend(handles=drawn, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _image(part: SubFigure, panel: Axes, run: Solution, outputs: IntArray, middle: float) -> None:
    edges = middle + np.linspace(-np.pi, np.pi, ANGLE_PIXELS + 1)
    angles = (edges[1:] + edges[:-1]) / 2
    values = (run.masses[outputs] / run.mesh.areas)[:, cell_of(run.mesh, np.stack([np.cos(angles), np.sin(angles)], axis=1))]
    if values.any():
        t, norm = run.times[outputs], canvas.colour_bar(part, panel, values, 2)
        borders = np.concatenate([t[:1], (t[1:] + t[:-1]) / 2, t[-1:]])
        panel.pcolormesh(borders, edges, values.T, norm=norm, cmap=canvas.COLOUR_MAP, rasterized=True)


def _atom_paths(panel: Axes, t: FloatArray, atoms: list[Measure], middle: float) -> list[Any]:
    """Atoms from output to output, for the legend if there are any; each goes on in the nearest that is not lighter, since atoms only gain
    mass."""
    if not any(map(len, atoms)):
        return []
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
    look: Any = {"colors": [COLOURS["atoms"]], "capstyle": "round", "label": "atoms (width: mass)", "zorder": 3}
    paths = canvas.mpl().collections.LineCollection(lines, linewidths=1 + 4 * np.array(widths), **look)
    panel.add_collection(paths)
    return [paths]


class Products:
    """Panels of histograms, empty at first, with the same fixed scales."""

    def __init__(self, axes: Any, states: States) -> None:
        n, d = len(states.cloud(0)), states.dimension
        if n < 2:
            raise ValueError(f"solutions[0] has {n} token in dimension {d}, wanted at least 2, whose inner products are drawn")
        chosen, clouds = canvas.spaced(n, MOST_PAIRED), (states.cloud(k) for k in range(len(states)))
        tokens = [Measure.trusted(cloud.points[chosen], cloud.masses[chosen]) for cloud in clouds]
        self._panels: list[Axes] = np.ravel(axes).tolist()
        self.shares = np.stack([inner_products(measure, EDGES, self_pairs=False) for measure in tokens])
        low, top = float(self.shares[self.shares > 0].min()), float(self.shares.max())
        for panel in self._panels:
            panel.set(yscale="log", xlim=(-1.02, 1.02), ylim=(low / 1.5, 1.5 * top), ylabel="share of pairs")
            panel.set(xticks=[-1, -0.5, 0, 0.5, 1], xlabel="inner product $\\langle x_i, x_j\\rangle$")

    def draw(self, k: int, panel: Axes | None = None) -> list[Any]:
        """State k in one of the panels, by default the first, and what it is drawn with."""
        panel = panel or self._panels[0]
        return [panel.stairs(self.shares[k], EDGES, baseline=panel.get_ylim()[0], fill=True, color=COLOURS["tokens"], alpha=0.8)]

    def samples(self) -> list[Any]:
        """For a legend."""
        return [canvas.mpl().patches.Patch(color=COLOURS["tokens"], alpha=0.8, label=f"two tokens (bins {EDGES[1] - EDGES[0]:.3g})")]


def has_energy(run: Solution) -> bool:
    """Whether its steps have energies: a run without steps has none, nor has a model without an energy."""
    return not np.isnan(run.history.energy).all()


def refuse_without_energy(runs: list[Solution]) -> None:
    """ValueError naming the first run that has no energies."""
    for run in runs:
        if not has_energy(run):
            raise ValueError(f"the run of kind {run.kind!r} has no energies, wanted steps of a model with one")


def energy_curves(panel: Axes, runs: list[Solution]) -> None:
    """Energies of runs that have some (`has_energy`), or their logarithms where energies are too large or vary too much."""
    values, logs = (np.concatenate([run.history[name] for run in runs]) for name in ("energy", "log_energy"))
    linear = bool(np.isfinite(values).all()) and float(np.abs(values).max()) < LINEAR_ENERGY**2
    if np.isfinite(logs).all() and np.ptp(logs) > np.log(LINEAR_ENERGY):
        linear = False
    for run in runs:
        start = energy_of(run.model, run.measure(0), float(run.times[0]))  # the history begins after the first step
        energies = [[start.value], run.history.energy] if linear else [[start.log], run.history.log_energy]
        _curve(panel, run, np.concatenate([run.times[:1], run.history.t]), np.concatenate(energies))
    low, high = panel.get_ylim()
    missing = SMALLEST_SPAN * (abs(high) if linear else 1.0) - (high - low)
    if missing > 0:
        panel.set_ylim(low - missing / 2, high + missing / 2)
    panel.ticklabel_format(axis="y", useOffset=False)
    panel.set(xlabel="time $t$", ylabel="energy $E$" if linear else "log energy, $\\log E$")


def order_curves(panel: Axes, runs: list[Solution], label: str = "order $|\\int x\\,d\\mu|$") -> None:
    top = SMALLEST_SPAN
    for run in runs:
        values = np.array([order_parameter(run.measure(k)) for k in range(len(run.times))])
        _curve(panel, run, run.times, values)
        top = max(top, float(values.max()))
    panel.set_ylim(0, 1.04 if top > 0.5 else 1.08 * top)
    panel.set(xlabel="time $t$", ylabel=label)


def _curve(panel: Axes, run: Solution, t: FloatArray, values: FloatArray) -> None:
    label = f"tokens ($n$ = {run.tokens.shape[1]})" if run.kind == "tokens" else f"density ({run.mesh.n_cells} cells)"
    marker = MARKERS[run.kind] if len(t) <= 3 else ""
    panel.plot(t, values, label=label, linestyle=STYLES[run.kind], color=COLOURS[run.kind], marker=marker, markersize=4)
