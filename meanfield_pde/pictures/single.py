"""One panel in axes of one's own, of any figure and in its style: a state, energies, order parameters.

Data in: matplotlib axes, and a density, tokens, or both. Data out: the axes, labelled, with a legend of what is drawn.
"""

from meanfield_pde import inputs
from meanfield_pde.pictures import canvas
from meanfield_pde.pictures.canvas import Axes, States
from meanfield_pde.pictures.maps import Maps
from meanfield_pde.pictures.panels import Circle, Products, energy_curves, order_curves, refuse_without_energy
from meanfield_pde.solution import Solution


def state_panel(axes: Axes, *solutions: Solution, t: float | None = None) -> Axes:
    """The state at the output nearest to t, by default the last: a map on S^2 with its colour bar, curves and stems on S^1, a histogram of
    inner products in d > 3. Raises ValueError as `overview`."""
    axes, runs = canvas.checked_axes(axes), canvas.checked_runs(solutions)
    first, last = canvas.common_times(runs)
    states = States(runs, [last if t is None else inputs.number("t", t, low=first, high=last)])
    scene: Maps | Circle | Products
    if states.dimension == 3:
        scene = Maps(axes.figure, axes, states)
        scene.draw(0, axes)
    else:
        scene = Circle(axes, states) if states.dimension == 2 else Products(axes, states)
        scene.draw(0)
    axes.set_title(states.titles()[0], loc="left", pad=14.0 if states.dimension == 2 else None)  # above the ticks of tokens
    if samples := scene.samples():
        axes.legend(handles=samples, loc="upper center", bbox_to_anchor=(0.5, 0.0 if states.dimension == 3 else -0.25), ncols=2)
    return axes


def energy_panel(axes: Axes, *solutions: Solution) -> Axes:
    """Energies over time, or their logarithms. Raises ValueError for runs without energies."""
    axes, runs = canvas.checked_axes(axes), canvas.checked_runs(solutions)
    refuse_without_energy(runs)
    energy_curves(axes, runs)
    axes.legend()
    return axes


def order_panel(axes: Axes, *solutions: Solution) -> Axes:
    """Order parameters |int x dmu| over time."""
    order_curves(canvas.checked_axes(axes), canvas.checked_runs(solutions))
    axes.legend()
    return axes
