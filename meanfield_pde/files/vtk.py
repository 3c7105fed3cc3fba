"""VTK data sets of meshes, written whole or not at all, and VTK's messages as text. pyvista and vtk are imported when called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meanfield_pde.files.contents import LINE, POLYGON, QUAD, TRIANGLE
from meanfield_pde.files.replacing import replacing
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.sphere import FloatArray

if TYPE_CHECKING:
    import pyvista


def grid(mesh: SphereMesh) -> "pyvista.UnstructuredGrid":
    """The cells as VTK triangles, quadrilaterals and polygons, or as lines in the plane z = 0; float64 points, no arrays."""
    import pyvista

    sizes = np.diff(mesh.cell_offsets)
    types = np.select([sizes == 2, sizes == 3, sizes == 4], [LINE, TRIANGLE, QUAD], POLYGON).astype(np.uint8)
    cells = np.insert(mesh.cell_vertices, mesh.cell_offsets[:-1], sizes)
    return pyvista.UnstructuredGrid(cells, types, in_space(mesh.vertices))


def write_xml(path: str | os.PathLike[str], data: "pyvista.UnstructuredGrid | pyvista.PolyData") -> None:
    """Write a grid (.vtu) or points (.vtp), appended, compressed, with UInt64 headers and Int64 cells; replaces `path` in one move.

    Raises OSError if it cannot be written.
    """
    from pyvista import PolyData
    from vtkmodules.vtkCommonMisc import vtkErrorCode
    from vtkmodules.vtkIOXML import vtkXMLPolyDataWriter, vtkXMLUnstructuredGridWriter

    writer = vtkXMLPolyDataWriter() if isinstance(data, PolyData) else vtkXMLUnstructuredGridWriter()
    with replacing(Path(path)) as temporary:
        writer.SetInputData(data)
        writer.SetFileName(str(temporary))
        writer.SetDataModeToAppended()
        writer.EncodeAppendedDataOff()
        writer.SetCompressorTypeToZLib()
        writer.SetHeaderTypeToUInt64()
        writer.SetIdTypeToInt64()
        with vtk_messages() as messages:
            written = writer.Write()
        code = writer.GetErrorCode()
        if 0 < code < vtkErrorCode.FirstVTKErrorCode:
            raise OSError(code, os.strerror(code))
        if code or messages or not written:
            raise OSError(f"VTK says {vtkErrorCode.GetStringFromErrorCode(code) if code else ' '.join(messages)}")


@contextmanager
def vtk_messages() -> Iterator[list[str]]:
    """A list that at the end of the block holds the errors that VTK would have printed."""
    from vtkmodules.vtkCommonCore import vtkLogger, vtkOutputWindow, vtkStringOutputWindow

    messages: list[str] = []
    window, previous, verbosity = vtkStringOutputWindow(), vtkOutputWindow.GetInstance(), vtkLogger.GetCurrentVerbosityCutoff()
    vtkOutputWindow.SetInstance(window)
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_OFF)
    try:
        yield messages
    finally:
        vtkLogger.SetStderrVerbosity(verbosity)
        vtkOutputWindow.SetInstance(previous)
        messages += [line for line in window.GetOutput().splitlines() if line.strip() and not line.startswith(("ERROR: In", "Warning: In"))]


def in_space(points: FloatArray) -> FloatArray:
    """Points as VTK wants them, (n, 3)."""
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
