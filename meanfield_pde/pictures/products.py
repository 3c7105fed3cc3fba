"""States of tokens in d > 3: how much of the mass of all pairs has which inner product <x_i, x_j>.

Data in: `States` of tokens. Data out: histograms drawn into a panel.
"""

from typing import Any

import numpy as np

from meanfield_pde.diagnostics.measures import inner_products
from meanfield_pde.measure import Measure
from meanfield_pde.pictures.canvas import COLOURS, Axes, States, spaced
from meanfield_pde.sphere import FloatArray

MOST_PAIRED = 1000
"""Tokens whose inner products with one another are drawn."""
EDGES = np.linspace(-1, 1, 81)


class Products:
    """A panel of histograms, empty at first, with fixed scales."""

    def __init__(self, panel: Axes, states: States) -> None:
        n, d = len(states.cloud(0)), states.dimension
        if n < 2:
            raise ValueError(f"solutions[0] has {n} token in dimension {d}, wanted at least 2, whose inner products are drawn")
        self.panel, self.shares = panel, np.stack([product_shares(states.cloud(k)) for k in range(len(states))])
        low, top = float(self.shares[self.shares > 0].min()), float(self.shares.max())
        panel.set(yscale="log", xlim=(-1.02, 1.02), ylim=(low / 1.5, 1.5 * top), ylabel="share of pairs")
        panel.set(xticks=[-1, -0.5, 0, 0.5, 1], xlabel="inner product $\\langle x_i, x_j\\rangle$ of two tokens")

    def draw(self, k: int, colour: Any = None, rank: int = 1) -> list[Any]:
        """State k, and what it is drawn with: a line if a colour is given, as for states that share the panel, or else a filled area."""
        look: Any = {"fill": True, "color": COLOURS["tokens"], "alpha": 0.8} if colour is None else {"color": colour, "linewidth": 1.3}
        return [self.panel.stairs(self.shares[k], EDGES, baseline=self.panel.get_ylim()[0], **look)]


def product_shares(measure: Measure) -> FloatArray:
    """Shares of pairs of tokens over EDGES."""
    chosen = spaced(len(measure), MOST_PAIRED)
    return inner_products(Measure.trusted(measure.points[chosen], measure.masses[chosen]), EDGES, self_pairs=False)
