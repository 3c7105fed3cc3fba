"""The method for a name, at the edge, once."""

from typing import Any

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.stepping.adaptive import Adaptive
from meanfield_pde.stepping.phased import Phased
from meanfield_pde.stepping.ssp import SSP, TABLEAUS
from meanfield_pde.stepping.stepper import Stepper
from meanfield_pde.systems.system import System


def resolve_stepper(stepper: "str | Stepper | None", cfl: float | None, system: System[Any]) -> Stepper:
    """The stepper object for a name ("euler", "ssprk2", "ssprk3", "dop853"), an object, or None for the system's default.

    A stepper that was resolved before comes back as it is. Raises ValueError for an unknown name, a cfl that the method has no use for, or
    a method that cannot keep the system's masses >= 0.
    """
    method = _resolved(system.default_stepper if stepper is None else stepper, cfl, system.rate_accuracy)
    if cfl is not None and system.courant_limit == np.inf:
        raise ValueError(f"cfl is {inputs.shown(cfl)} for {system.kind}, wanted None: they have no cells; give SSP(tableau, dt_max=...)")
    if system.courant_limit == np.inf:
        return method
    phased = method if isinstance(method, Phased) else Phased(method)
    if isinstance(phased.first, Adaptive):
        raise ValueError(f"stepper is 'dop853' for a {system.kind}, wanted one of {', '.join(TABLEAUS)}: it keeps no mass positive")
    return phased


def _resolved(name: "str | Stepper", cfl: float | None, rate_accuracy: float) -> Stepper:
    if not isinstance(name, str):
        inputs.having("stepper", name, f"{', '.join(TABLEAUS)}, dop853, or an object such as SSP(SSPRK3)", "begin", "describe")
        if cfl is not None:
            raise ValueError(f"cfl is {inputs.shown(cfl)} beside a stepper object, wanted it in the object: SSP(tableau, cfl=...)")
        return name
    inputs.choice("stepper", name, [*TABLEAUS, "dop853"])
    if name in TABLEAUS:
        return SSP(TABLEAUS[name], cfl=cfl)
    if cfl is not None:
        raise ValueError(f"cfl is {inputs.shown(cfl)}, wanted None with stepper 'dop853', which controls its error instead")
    return Adaptive(rtol=max(Adaptive.rtol, 100 * rate_accuracy), atol=max(Adaptive.atol, 9 * rate_accuracy))
