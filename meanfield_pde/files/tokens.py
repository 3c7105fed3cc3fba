"""Tokens of one's own: a `.npy` or `.csv` file of n rows becomes a measure.

Data in: n rows of d coordinates, optionally a last column of weights. Data out: `Measure` of mass 1.
Source of `.npy`: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
"""

import io
import math
import os
import re
import warnings
from pathlib import Path

import numpy as np

from meanfield_pde import inputs
from meanfield_pde.measure import Measure
from meanfield_pde.sphere import FloatArray
from meanfield_pde.sphere import normalise as to_sphere

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_tokens(path: str | os.PathLike[str], weighted: bool = False, normalise: bool = False) -> Measure:
    """Tokens from a file with n rows: d coordinates, and with `weighted` a weight as last column (masses are weights over their sum).

    Rows must have length 1 (within 1e-8; in a `.npy` of float32 within its rounding); `normalise` divides each by its length instead. A
    `.csv` may start with a header line, in which every column has a name that begins with a letter.
    Raises FileNotFoundError, or ValueError naming the first bad row.
    """
    file = inputs.file_path("path", path)
    weighted, normalise = inputs.flag("weighted", weighted), inputs.flag("normalise", normalise)
    stored = _rows(file)
    rows = inputs.array(str(file), stored, ("n", "d"))
    least = 3 if weighted else 2
    if not len(rows) or rows.shape[1] < least:
        raise ValueError(f"{file} has shape {rows.shape}, wanted n >= 1 rows of at least {least} columns")
    points, weights = (rows[:, :-1], rows[:, -1]) if weighted else (rows, np.ones(len(rows)))
    if normalise:
        largest = np.abs(points).max(axis=1)
        if not largest.all():
            raise ValueError(f"{file}: row {int(largest.argmin())} is zero, wanted a direction")
        points = to_sphere(points / largest[:, None])
    else:
        try:
            points = inputs.unit_rows(str(file), points, stored)
        except ValueError as error:
            raise ValueError(f"{error}, or normalise = True") from None
    inputs.non_negative(f"weights of {file}", weights)
    if not weights.any():
        raise ValueError(f"weights of {file} are all zero, wanted a positive sum")
    shares = weights / weights.max()
    return Measure(points, shares / shares.sum())


def _rows(file: Path) -> np.ndarray:
    if file.suffix not in (".npy", ".csv"):
        raise ValueError(f"{file} ends in {file.suffix!r}, wanted .npy or .csv")
    if not file.is_file():
        raise FileNotFoundError(f"no token file {file}, wanted a .npy or .csv file")
    try:
        return _stored(file) if file.suffix == ".npy" else _written(file)
    except Exception as error:  # numpy's readers of headers and tables raise many kinds of errors
        said = " ".join(str(error).partition("; use `usecols`")[0].split())  # without numpy's advice to who called it
        if found := re.fullmatch(r"could not convert string (.*) to float64 at row (\d+), column (\d+)\.", said):
            said = (
                f"row {int(found[2]) + 1}, column {found[3]} holds {found[1]}, wanted a number"  # numpy counts rows from 0, columns from 1
            )
        raise ValueError(f"{file} cannot be read: {said[:120] or type(error).__name__}") from None


def _stored(file: Path) -> np.ndarray:
    """The array of a `.npy` file; memory is taken only if the file has the size that its header says."""
    with file.open("rb") as stream:
        version = np.lib.format.read_magic(stream)
        if version not in HEADERS:
            raise ValueError(f"it has version {version} of the format, wanted {' or '.join(map(str, HEADERS))}")
        shape, by_columns, kind = HEADERS[version](stream)
        if kind.kind not in inputs.NUMERIC or len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"it has shape {shape} and type {kind}, wanted (n, d) numbers")
        size, wanted = os.fstat(stream.fileno()).st_size - stream.tell(), math.prod(shape) * kind.itemsize
        if size != wanted:
            raise ValueError(f"it has {size} bytes of values, wanted {wanted} for shape {shape} and type {kind}")
        return np.frombuffer(stream.read(), dtype=kind).reshape(shape, order="F" if by_columns else "C")


def _written(file: Path) -> FloatArray:
    lines = io.StringIO(inputs.decoded(file.read_bytes()), newline=None)
    before, first = next(((i, line) for i, line in enumerate(lines) if line.split("#")[0].strip()), (0, ""))
    header_lines = before + 1 if all(map(_is_name, first.split("#")[0].split(","))) else before
    lines.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty table is refused by its shape
        return np.loadtxt(lines, delimiter=",", ndmin=2, skiprows=header_lines)


def _is_name(entry: str) -> bool:
    """Whether an entry of a first line is the name of a column: what only looks like a number ("O", "1 000", "") must not cost a token."""
    word = entry.strip().strip("\"'")
    return word[:1].isalpha() and word.lower() not in ("nan", "inf", "infinity")
