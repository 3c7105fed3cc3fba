"""The commands `meanfield-pde mesh ...`: each makes a mesh and writes it as .vtu."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, Token

from meanfield_pde.files.meshes import write_mesh
from meanfield_pde.files.tokens import read_tokens
from meanfield_pde.mesh.families import circle, cubed_sphere, icosahedral
from meanfield_pde.mesh.record import SphereMesh
from meanfield_pde.mesh.voronoi import voronoi


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """An integer as it was typed: cyclopts itself would cut 12.5 to 12."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f'unable to convert "{tokens[0].value}" into int') from None


Whole = Annotated[int, Parameter(converter=_whole, allow_leading_hyphen=True)]
MeshFile = Annotated[Path, Parameter(name=["--out", "-o", "--output"], help="a name that ends in .vtu.")]

mesh_app = App(name="mesh", help="Make a mesh and write it as .vtu.")


@mesh_app.command(name="circle")
def mesh_circle(*, n: Annotated[Whole, Parameter(help="number of arcs.")], out: MeshFile) -> None:
    """n equal arcs of the circle."""
    _write(out, circle(n))


@mesh_app.command(name="icosahedral")
def mesh_icosahedral(*, level: Whole, cells: str = "voronoi", out: MeshFile) -> None:
    """Icosahedral Voronoi cells (10 * 4^level + 2) or triangles (20 * 4^level).

    Parameters
    ----------
    level
        how often the edges of the icosahedron are halved, 0 to 9.
    cells
        "voronoi" or "triangles".
    """
    _write(out, icosahedral(level, cells))


@mesh_app.command(name="cubed-sphere")
def mesh_cubed_sphere(*, n: Annotated[Whole, Parameter(help="cells along a side of the cube.")], out: MeshFile) -> None:
    """6 n^2 quadrilaterals of the equiangular cubed sphere."""
    _write(out, cubed_sphere(n))


@mesh_app.command(name="voronoi")
def mesh_voronoi(*, points: Path, normalise: bool = False, lloyd_steps: Whole = 0, out: MeshFile) -> None:
    """Voronoi cells of the points in a .npy or .csv file.

    Parameters
    ----------
    points
        the file, a point in each row.
    normalise
        divide each point by its length.
    lloyd_steps
        how often all points move to the centroids of their cells.
    """
    _write(out, voronoi(read_tokens(points, normalise=normalise).points, lloyd_steps))


def _write(output: Path, mesh: SphereMesh) -> None:
    write_mesh(output, mesh)
    print(f"{output}: {mesh.n_cells} cells, {mesh.n_faces} faces")
