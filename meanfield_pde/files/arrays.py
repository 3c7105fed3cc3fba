"""Arrays by name in an HDF5 file in which damage is always seen: its values and its structures have checksums.

Data in: arrays of at least one axis. Data out: the same, bit for bit. h5py is imported when called.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from meanfield_pde.files.replacing import durable
from meanfield_pde.files.vtkhdf import create, open_file, put


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Replace a file in one move, once the new one is whole and on the disk. Raises OSError if it cannot be written."""
    with durable(path) as temporary, create(temporary) as file:
        for name, values in arrays.items():
            put(file, name, values)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file. Raises OSError if it cannot be read, ValueError that says in a sentence how it is damaged."""
    try:
        with open_file(path) as file:
            return {name: file[name][:] for name in file}
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise ValueError(str(error)) from None
