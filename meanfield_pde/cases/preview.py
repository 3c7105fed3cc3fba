"""What a case would run, told before it is run: its parts, their sizes, and how far a trial of a second comes.

Data in: a plan. Data out: lines; no file is made.
"""

import time

from meanfield_pde.cases.case import Case, Run
from meanfield_pde.cases.runs import Plan
from meanfield_pde.cases.stopping import StopRequest
from meanfield_pde.measure import Measure
from meanfield_pde.solve import Callback, solve

TRIAL = 1.0
"""Seconds of each part's trial."""


def preview(plan: Plan) -> str:
    """Each part of a case with its sizes and the pace of a trial. Raises what `solve` raises for a start that cannot be run."""
    lines = [line for part in _parts(plan) for line in (*_sizes(plan.case, part), _pace(plan.case, part))]
    return "\n".join([*lines, f"would be written to {plan.folder}; nothing was"])


def sizes(plan: Plan) -> str:
    """Each part of a case that has not begun, with its model and its sizes."""
    return "\n".join(line for part in _parts(plan) for line in _sizes(plan.case, part))


def _parts(plan: Plan) -> list[Run]:
    return [part for part in (plan.case.limit, plan.case.tokens) if part is not None]


def _sizes(case: Case, part: Run) -> list[str]:
    outputs = f"{len(case.times)} outputs to t = {case.t_end:.6g}, {_size(8 * len(case.times) * _numbers(part))} before compression"
    return [f"{part.system.kind}: {_what(part)}", f"  {part.system.model}, {part.stepper.describe()}", f"  {outputs}"]


def _pace(case: Case, part: Run) -> str:
    begun = time.perf_counter()
    watchers: list[Callback] = [*case.callbacks, StopRequest(TRIAL)]
    solution = solve(part.system, part.start, case.t_end, save_at=case.times, stepper=part.stepper, callbacks=watchers)
    seconds, points = time.perf_counter() - begun, solution.record["points evaluated"]
    reached = f"t = {solution.times[-1]:.4g} in {len(solution.history)} steps, velocity at {points}"
    return f"  a trial of {seconds:.2g} s came to {reached} (loops compiled and tables made in it)"


def _what(part: Run) -> str:
    if isinstance(part.start, Measure):
        return f"{len(part.start.masses)} tokens in R^{part.start.dimension}"
    return f"{part.system.mesh!r}"


def _numbers(part: Run) -> int:
    """Numbers in one output."""
    return part.start.points.size if isinstance(part.start, Measure) else len(part.start.averages)


def _size(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
