"""States of runs on S^2 as maps: cells coloured by their density, atoms as dots whose area is their mass, tokens as small dots.

Data in: `States`. Data out: states drawn into panels. The maps are equal-area (Mollweide) ones

    x = (2/pi) lambda cos(a),   y = sin(a),   2 a + sin(2 a) = pi sin(phi)        (longitude lambda, latitude phi)

centred where the last state has its mass.
Source: Snyder, Map Projections, USGS Professional Paper 1395 (1987), p. 251.
"""

from typing import Any

import numpy as np

from meanfield_pde.mesh.locate import cell_of
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import COLOURS, Axes, States, handle
from meanfield_pde.sphere import FloatArray, IntArray, normalise

MAP_PIXELS = 1200
"""Width of a map; its height is half of that."""
DOT_AREA, DOT_EDGE, DOTS_SHOWN = 120.0, 0.6, (0.1, 0.5, 1.0)
"""Of the dot of an atom of mass 1 in points squared, of its white edge in points; masses whose dots the legend has."""


class Maps:
    """Maps on some axes of a part of a figure, empty at first, all in one frame (`map_frame`) and on one scale of colours."""

    def __init__(self, part: Any, axes: Any, states: States) -> None:
        self.states, self.frame = states, map_frame(canvas.main_direction(states.runs))
        extremes = states.extremes()
        self._norm = canvas.colour_bar(part, axes, extremes, 3) if len(extremes) else None
        self._cells = map_cells(states.runs[0].mesh, self.frame) if len(extremes) else None
        for panel in np.ravel(axes):
            _globe(panel, self.frame, grey=self._norm is None)

    def draw(self, k: int, panel: Axes, token_area: float = 1.0) -> list[Any]:
        """State k, and what it is drawn with. token_area: factor of the area of a token's dot."""
        drawn: list[Any] = []
        if self._cells is not None:
            values = np.where(self._cells >= 0, self.states.averages(k)[self._cells], np.nan)
            look: Any = {"extent": (-2, 2, -1, 1), "origin": "lower", "interpolation": "nearest", "clip_path": panel.patches[0]}
            drawn.append(panel.imshow(values, cmap=canvas.COLOUR_MAP, norm=self._norm, **look))
        if len(atoms := self.states.atoms[k]):
            look = {"color": COLOURS["atoms"], "edgecolors": "white", "linewidths": DOT_EDGE, "clip_on": False}
            drawn.append(panel.scatter(*mollweide(atoms.points @ self.frame.T), s=DOT_AREA * atoms.masses, **look))
        if self.states.tokens:
            tokens = self.states.cloud(k)
            area, alpha, edge = canvas.token_look(len(tokens))
            look = {"alpha": alpha, "color": COLOURS["tokens"], "edgecolors": "white", "linewidths": edge, "rasterized": True}
            drawn.append(panel.scatter(*mollweide(tokens.points @ self.frame.T), s=token_area * area, **look))
        return drawn

    def samples(self) -> list[Any]:
        """Dots of tokens and of atoms for a legend, of those that are drawn."""
        style: Any = {"linestyle": "", "marker": "o", "markeredgecolor": "white", "markeredgewidth": DOT_EDGE}
        found = [handle("token", color=COLOURS["tokens"], markersize=4, **style)] if self.states.tokens else []
        if not any(map(len, self.states.atoms)):
            return found
        style["color"] = COLOURS["atoms"]
        labels = [f"atom of mass {DOTS_SHOWN[0]:g}", *(f"{mass:g}" for mass in DOTS_SHOWN[1:])]
        return found + [handle(label, markersize=np.sqrt(DOT_AREA * m), **style) for m, label in zip(DOTS_SHOWN, labels, strict=True)]

    def note(self, maps: str) -> str:
        """What a reader must know of the projection. maps: "map" or "maps"."""
        centre, up = (", ".join(canvas.plain(x, ".2f").removesuffix(".00") for x in self.frame[k]) for k in (0, 2))
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


def map_cells(mesh: SphereMesh, frame: FloatArray) -> IntArray:
    """Number of the cell under each pixel of the map, -1 outside."""
    x, y = np.meshgrid((np.arange(MAP_PIXELS) + 0.5) * 4 / MAP_PIXELS - 2, (np.arange(MAP_PIXELS // 2) + 0.5) * 4 / MAP_PIXELS - 1)
    inside = (x / 2) ** 2 + y**2 < 1
    a = np.arcsin(y[inside])
    sine, longitude = (2 * a + np.sin(2 * a)) / np.pi, np.pi * x[inside] / (2 * np.cos(a))
    cosine = np.sqrt(1 - np.minimum(sine**2, 1))
    cells = np.full(x.shape, -1)
    cells[inside] = cell_of(mesh, normalise(np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), sine], axis=1) @ frame))
    return cells


def _globe(panel: Axes, frame: FloatArray, grey: bool) -> None:
    """An empty map, whose outline is the panel's first patch; parallels every 30 and meridians every 45 degrees about the z axis."""
    panel.add_patch(canvas.mpl().patches.Ellipse((0, 0), 4, 2, facecolor="0.96" if grey else "none", edgecolor="0.25", linewidth=0.8))
    s = np.linspace(-np.pi, np.pi, 721)
    lines = [(s, np.full_like(s, latitude)) for latitude in np.arange(-2, 3) * np.pi / 6]
    lines += [(np.full_like(s, longitude), s / 2) for longitude in np.arange(8) * np.pi / 4]
    for a, b in lines:
        x, y = mollweide(np.stack([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)], axis=1) @ frame.T)
        leaves = np.hypot(np.diff(x, prepend=x[0]), np.diff(y, prepend=y[0])) > 0.1
        panel.plot(np.where(leaves, np.nan, x), y, color="0.5", linewidth=0.4, alpha=0.45)
    panel.set(xlim=(-2.02, 2.02), ylim=(-1.02, 1.02), aspect="equal")
    panel.axis("off")
