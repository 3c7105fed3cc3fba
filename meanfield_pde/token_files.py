"""Tokens of one's own: a `.npy` or `.csv` file of n rows becomes a measure.

Data in: n rows of d coordinates, optionally a last column of weights. Data out: `Measure` of mass 1.
"""

from pathlib import Path

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray
from meanfield_pde.sphere import normalise as to_sphere


def read_tokens(path: str | Path, weighted: bool = False, normalise: bool = False) -> Measure:
    """Tokens from a file with n rows: d coordinates, and with `weighted` a weight as last column (masses are weights over their sum).

    Rows must have length 1 (within 1e-8); `normalise` divides each by its length instead. A `.csv` may start with a header line.
    Raises FileNotFoundError, or ValueError naming the first bad row.
    """
    file = Path(path)
    rows = inputs.array(str(file), _rows(file), ("n", "d"))
    least = 3 if weighted else 2
    if not len(rows) or rows.shape[1] < least:
        raise ValueError(f"{file} has shape {rows.shape}, wanted n >= 1 rows of at least {least} columns")
    points, weights = (rows[:, :-1], rows[:, -1]) if weighted else (rows, np.ones(len(rows)))
    if normalise:
        empty = ~points.any(axis=1)
        if empty.any():
            raise ValueError(f"{file}: row {int(empty.argmax())} is zero, wanted a direction")
        points = to_sphere(points)
    else:
        inputs.unit_rows(str(file), points)
    inputs.non_negative(f"weights of {file}", weights)
    if not weights.sum() > 0:
        raise ValueError(f"weights of {file} are all zero, wanted a positive sum")
    return Measure(points, weights / weights.sum())


def _rows(file: Path) -> FloatArray:
    if not file.is_file():
        raise FileNotFoundError(f"no token file {file}, wanted a .npy or .csv file")
    try:
        if file.suffix == ".npy":
            return np.load(file, allow_pickle=False)
        if file.suffix == ".csv":
            return np.loadtxt(file, delimiter=",", ndmin=2, skiprows=_header_lines(file))
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    raise ValueError(f"{file} ends in {file.suffix!r}, wanted .npy or .csv")


def _header_lines(file: Path) -> int:
    with file.open() as lines:
        first = next(lines, "").split(",")
    try:
        [float(entry) for entry in first]
    except ValueError:
        return 1
    return 0
