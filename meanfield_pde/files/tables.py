"""Tables of results: named columns of equal length, written as CSV with all digits.

Data in: columns (n_rows,) of numbers or words. Data out: the file, complete or not at all.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meanfield_pde.files.replacing import replacing

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Table:
    """Rows of plain values under fixed names, one observation a row (tidy data)."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "Table":
        """The table of rows that have the same keys in the same order."""
        listed = list(rows)
        return cls(tuple(listed[0]) if listed else (), tuple(tuple(row.values()) for row in listed))

    def column(self, name: str) -> np.ndarray:
        """One column (n_rows,). Raises KeyError for an unknown name."""
        if name not in self.names:
            raise KeyError(f"no column {name!r}, wanted one of {', '.join(self.names)}")
        place = self.names.index(name)
        return np.array([row[place] for row in self.rows])

    def where(self, **values: Any) -> "Table":
        """The rows in which the named columns have these values."""
        places = {self.names.index(name): value for name, value in values.items()}
        return Table(self.names, tuple(row for row in self.rows if all(row[place] == value for place, value in places.items())))

    def __len__(self) -> int:
        return len(self.rows)


def data_frame(columns: Mapping[str, Any], known: Mapping[str, tuple[str, str]], **about: Any) -> "pandas.DataFrame":
    """Columns (n_rows,) as a pandas DataFrame. known: unit ("1": dimensionless) and name in words of columns, which become the attributes
    "units" and "long_name", tables by column. about: further attributes. Raises ValueError if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise ValueError("to_pandas needs pandas, which is not installed; wanted pip install 'meanfield-pde[tables]'") from None
    frame = pandas.DataFrame(dict(columns))
    found = {name: known[name] for name in columns if name in known}
    for k, attribute in enumerate(("units", "long_name")):
        frame.attrs[attribute] = {name: words[k] for name, words in found.items()}
    frame.attrs |= about
    return frame


def named(names: Iterable[str], values: Iterable[Any]) -> str:
    """ "beta = 2, n = 64": parameters and their values in words."""
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))


def write_csv(path: str | Path, names: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Rows with 17 digits, under a temporary name first; booleans are written as yes and no."""
    with replacing(Path(path)) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([_written(value) for value in row] for row in rows)


def _written(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return f"{value:.17g}" if isinstance(value, (float, np.floating)) else str(value)
