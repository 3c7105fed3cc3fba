"""Broken files: a mesh or token file that was cut, changed or made up is read as what it then says, or refused in one sentence.

Files are mutated from good ones of every encoding and read in a process of its own, with 2 s for each file and 512 MB for all: nothing but
a ValueError, FileNotFoundError or OSError of one line may come of it. What can be promised: whatever loads is a closed surface that covers
the sphere once, whose cells, faces, areas and centres fit together (`closed`, made from other formulas than the reader's), and a run can
begin on it. What cannot: formats without checksums (all but zlib and lzma) do not tell a changed digit from another mesh, and extra text
around the arrays that a mesh is made of is not looked at. VTK's own readers, which pass a good share of such files to their
callers as zeros and end the process on others, take no part in reading: lz4 blocks alone are decoded by VTK, into a buffer made here.

1 000 mesh files and 500 token files; `HYPOTHESIS_PROFILE=nightly pytest tests/test_fuzz.py` reads 100 000 and 25 000. File k of a kind is
always the same: `python tests/test_fuzz.py mesh K K+1 FOLDER` makes and reads it alone.
"""

import io
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fields
import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde.files.meshes import read_mesh, write_mesh
from meanfield_pde.files.vtk import grid, in_space
from meanfield_pde.sphere import distance, normalise, surface_area, triangle_area

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MESH_FILES, TOKEN_FILES = (100_000, 25_000) if NIGHTLY else (1_000, 500)
MEMORY = 512 << 20
SECONDS = 2.0
LONGEST_SENTENCE = 600

Files = dict[str, tuple[str, bytes]]
"""Name of a good file: its suffix and content."""


# -- good files


def good_meshes() -> dict[str, mf.SphereMesh]:
    triangles = mf.icosahedral(0, cells="triangles")
    return {"triangles": triangles, "hexagons": mf.icosahedral(1), "quads": mf.cubed_sphere(2), "circle": mf.circle(7)}


def mesh_files() -> Files:
    meshes = good_meshes()
    files: Files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, mesh in meshes.items():
            files[f"write_mesh {name}"] = _saved(folder, ".vtu", lambda path, mesh=mesh: write_mesh(path, mesh))
            files[f"by hand {name}"] = (".vtu", by_hand(mesh))
        cells = grid(meshes["hexagons"])
        cells.cell_data["center"], cells.cell_data["cell_area"] = meshes["hexagons"].centers, meshes["hexagons"].areas
        surface = grid(meshes["triangles"]).extract_surface(algorithm="dataset_surface")
        for binary in (True, False):
            files[f"pyvista .vtu {binary}"] = _saved(folder, ".vtu", lambda path, binary=binary: cells.save(path, binary=binary))
            files[f"pyvista .vtp {binary}"] = _saved(folder, ".vtp", lambda path, binary=binary: surface.save(path, binary=binary))
            files[f"pyvista .stl {binary}"] = _saved(folder, ".stl", lambda path, binary=binary: surface.save(path, binary=binary))
        files["pyvista .obj"] = _saved(folder, ".obj", surface.save)
        for settings in SETTINGS:
            files[f"VTK .vtu {settings}"] = _saved(folder, ".vtu", lambda path, settings=settings: _by_vtk(path, cells, *settings))
        for settings in SETTINGS[::3]:
            files[f"VTK .vtp {settings}"] = _saved(folder, ".vtp", lambda path, settings=settings: _by_vtk(path, surface, *settings))
    return files


SETTINGS = [("Ascii", False, "None", 64, "LittleEndian", 64)] + [
    (mode, in_letters, compressor, *sizes)
    for mode, in_letters in (("Binary", False), ("Appended", False), ("Appended", True))
    for compressor in ("None", "ZLib", "LZ4", "LZMA")
    for sizes in ((64, "LittleEndian", 64), (32, "BigEndian", 32))
]
"""Mode, base64 where appended, compressor, bits of headers, byte order, bits of integers."""


def _by_vtk(path, data, mode, in_letters, compressor, header, order, ids):
    from vtkmodules.vtkIOXML import vtkXMLPolyDataWriter, vtkXMLUnstructuredGridWriter

    writer = vtkXMLUnstructuredGridWriter() if path.suffix == ".vtu" else vtkXMLPolyDataWriter()
    writer.SetInputData(data)
    writer.SetFileName(str(path))
    writer.SetEncodeAppendedData(in_letters)
    for setting in (
        f"DataModeTo{mode}",
        f"CompressorTypeTo{compressor}",
        f"HeaderTypeToUInt{header}",
        f"ByteOrderTo{order}",
        f"IdTypeToInt{ids}",
    ):
        getattr(writer, f"Set{setting}")()
    writer.SetBlockSize(1024)
    assert writer.Write()


def _saved(folder: str, suffix: str, save: Callable[[Path], object]) -> tuple[str, bytes]:
    path = Path(folder) / f"good{suffix}"
    save(path)
    return suffix, path.read_bytes()


def by_hand(mesh: mf.SphereMesh) -> bytes:
    """The plainest .vtu: text, every number for itself."""

    def array(kind, values, name="", columns=1):
        numbers = " ".join(map(repr, np.ravel(values).tolist()))
        return f'<DataArray type="{kind}" Name="{name}" NumberOfComponents="{columns}" format="ascii">{numbers}</DataArray>\n'

    types = [{2: 3, 3: 5, 4: 9}.get(size, 7) for size in np.diff(mesh.cell_offsets).tolist()]
    return (
        '<VTKFile type="UnstructuredGrid" version="1.0"><UnstructuredGrid>\n'
        f'<Piece NumberOfPoints="{len(mesh.vertices)}" NumberOfCells="{mesh.n_cells}">\n'
        f"<Points>\n{array('Float64', in_space(mesh.vertices), columns=3)}</Points>\n<Cells>\n"
        f"{array('Int64', mesh.cell_vertices, 'connectivity')}{array('Int64', mesh.cell_offsets[1:], 'offsets')}"
        f"{array('UInt8', types, 'types')}</Cells>\n<CellData>\n{array('Float64', in_space(mesh.centers), 'center', 3)}"
        f"{array('Float64', mesh.areas, 'cell_area')}</CellData>\n"
        "</Piece>\n</UnstructuredGrid></VTKFile>\n"
    ).encode()


def token_files() -> Files:
    tokens = mf.sample(mf.Uniform(3), 12, seed=0)
    table = "\n".join(",".join(map(repr, row)) for row in tokens.tolist())
    weighted = np.column_stack([tokens, np.arange(12.0)])
    arrays = {
        "plain": tokens,
        "by columns": np.asfortranarray(tokens),
        "weighted": weighted,
        "single": np.eye(4, dtype="f4"),
        "integers": np.eye(3, dtype=">i2"),
    }
    files: Files = {f".npy {name}": (".npy", _npy(array)) for name, array in arrays.items()}
    files["version 2"] = (".npy", _npy(tokens, (2, 0)))
    return files | {".csv": (".csv", table.encode()), ".csv with a header": (".csv", f"x,y,z\n{table}\n".encode())}


def _npy(array, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    return stream.getvalue()


# -- broken files

NUMBERS = """
-1 0 1 2 3 7 255 256 100000 2147483648 4294967295 9223372036854775807 -9223372036854775808 18446744073709551616 1000000000000
nan -nan inf -inf 1e300 1e-320 0.5 x 1e 0x10 1_0 \u0663
"""
WORDS = """
Float64 Float32 Int8 UInt8 Int16 Int32 UInt32 Int64 UInt64 String Bit vtkIdType ascii binary appended raw base64 connectivity offsets
types faces center cell_area name vtkLZ4DataCompressor vtkZLibDataCompressor vtkLZMADataCompressor BigEndian LittleEndian
UnstructuredGrid PolyData ImageData 0.1 2.2 99.0 <f8 >f4 |O |S1000000000 <U3 <c16 |b1 <M8[s] True False None () (3,) (-1,3)
(1000000000000,3) [('x','<f8')] __import__('os')
"""
NUMBERS, WORDS = [*NUMBERS.split(), "", "1 2", "9" * 40, "9" * 5000], [*WORDS.split(), "", "-" * 500 + "1", "(" * 500, "[" * 90]
TAGS = ("a", "DataArray", "Piece", "Cells", "UnstructuredGrid", "InformationKey", "Points", "CellData", "FieldData", "AppendedData")
SIZES = (*range(4), 1000, *(2**k - less for k in (15, 31, 32, 40, 63, 64) for less in (0, 1)), 0x7FF8 << 48, 1 + (0x7FF << 52))
"""Words of 4 or 8 bytes, the last two of them numbers that are none."""


def cut(rng, content):
    at = int(rng.integers(len(content) + 1))
    return content[:at] if rng.random() < 0.8 else content[at:]


def hole(rng, content):
    at = int(rng.integers(len(content) + 1))
    return content[:at] + content[at + int(rng.integers(1, 200)) :]


def bits(rng, content):
    changed = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 20])) if content else 0):
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def letters(rng, content):
    changed = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 2, 8])) if content else 0):
        changed[int(rng.integers(len(changed)))] = int(rng.choice([0, 255, *b' "<>09-,;\n', int(rng.integers(256))]))
    return bytes(changed)


def chunks(rng, content):
    """Lines or elements swapped, doubled, left out, repeated."""
    head, rest = _head(content)
    parts = (re.split(rb"(?<=\n)", content) if rng.random() < 0.5 else [*re.split(rb"(?=<)", head), rest]) or [b""]
    i, j = (int(rng.integers(len(parts))) for _ in range(2))
    length, what = int(rng.integers(1, 4)), rng.integers(4)
    if what == 0:
        parts[i], parts[j] = parts[j], parts[i]
    elif what == 1:
        parts[i:i] = parts[j : j + length]
    elif what == 2:
        del parts[i : i + length]
    else:
        parts[i:i] = parts[i : i + length] * int(rng.choice([2, 50]))
    return b"".join(parts)


def numbers(rng, content):
    """A count, an offset or a value becomes another, or none."""
    in_attributes = rng.random() < 0.5
    found = re.compile(rb'(?<=")-?\d[\d.e+-]*(?=[" ])' if in_attributes else rb"(?<![\w.])-?\d[\d.e+-]*(?![\w.])")
    return _replaced(rng, content, found, NUMBERS)


def words(rng, content):
    return _replaced(rng, content, re.compile(rb"""(?<=["' (])[\w<>|.]+(?=["',)])"""), WORDS)


def attributes(rng, content):
    return _replaced(rng, content, re.compile(rb'\s\w+="[^"]*"'), [""])


def sizes(rng, content):
    """A word of the appended data or of a binary file, mostly one that gives a size."""
    head, rest = _head(content)
    start = len(head) + rest.find(b"_") + 1 if rest else 0
    offsets = [int(offset) for offset in re.findall(rb'offset="(\d{1,9})"', head)] or [0]
    at = start + int(rng.choice(offsets)) + int(rng.choice([4, 8])) * int(rng.integers(6))
    if rng.random() < 0.3:
        at = int(rng.integers(len(content) + 1))
    size = int(rng.choice([4, 8]))
    word = (int(SIZES[rng.integers(len(SIZES))]) % 2 ** (8 * size)).to_bytes(size, str(rng.choice(["little", "big"])))
    return content[:at] + word + content[at + size :]


def nests(rng, content):
    """Elements in elements, closed or not; entities that stand for many."""
    head, rest = _head(content)
    ends = [match.end() for match in re.finditer(rb">", head)] or [0]
    at = int(rng.choice(ends))
    if rng.random() < 0.2:
        entities = b"".join(b'<!ENTITY a%d "%s">' % (k + 1, b"&a%d;" % k * 10) for k in range(12))
        return b'<!DOCTYPE x [<!ENTITY a0 "ha">' + entities + b"]>" + head[:at] + b"&a12;" + head[at:] + rest
    depth, tag = int(rng.choice([1, 10, 1000, 20_000])), str(rng.choice(TAGS)).encode()
    return head[:at] + b"<%s>" % tag * depth + b"</%s>" % tag * int(depth * rng.choice([1, 1, 1, 0.5, 0])) + head[at:] + rest


def _head(content: bytes) -> tuple[bytes, bytes]:
    at = content.find(b"<AppendedData")
    return (content, b"") if at < 0 else (content[:at], content[at:])


def _replaced(rng, content, pattern, values):
    head, rest = _head(content)
    found = list(pattern.finditer(head))
    if not found:
        return bits(rng, content)
    match = found[int(rng.integers(len(found)))]
    return head[: match.start()] + values[int(rng.integers(len(values)))].encode() + head[match.end() :] + rest


MUTATIONS = (cut, hole, bits, letters, chunks, numbers, numbers, numbers, words, words, attributes, sizes, sizes, nests)


def broken(kind: str, files: Files, k: int) -> tuple[str, str, bytes]:
    """How file k of a kind was made, its suffix and content."""
    rng = np.random.default_rng([*kind.encode(), k])
    name = list(files)[int(rng.integers(len(files)))]
    suffix, content = files[name]
    chosen = [MUTATIONS[i] for i in rng.integers(len(MUTATIONS), size=int(rng.choice([1, 1, 2, 3])))]
    for mutation in chosen:
        content = mutation(rng, content)
    return f"{name}, {' '.join(mutation.__name__ for mutation in chosen)}", suffix, content


# -- what may come of them


def closed(mesh: mf.SphereMesh) -> None:
    """AssertionError unless the cells cover the sphere once, every face lies between its two cells and every centre in its own."""
    start, following = mesh.cell_vertices, np.arange(1, len(mesh.cell_vertices) + 1)
    following[mesh.cell_offsets[1:] - 1] = mesh.cell_offsets[:-1]
    end, owner = mesh.cell_vertices[following], np.repeat(np.arange(mesh.n_cells), np.diff(mesh.cell_offsets))
    for points in (mesh.vertices, mesh.centers, mesh.centroids, mesh.face_midpoints, mesh.face_normals):
        assert np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 1e-8
    assert mesh.areas.min() > 0 and abs(mesh.areas.sum() - surface_area(mesh.dimension)) <= 1e-10
    if mesh.dimension == 2:
        _closed_circle(mesh)
        return
    edges = Counter(zip(start.tolist(), end.tolist(), strict=True))
    assert set(edges.values()) == {1} and all((b, a) in edges for a, b in edges)
    owners = dict(zip(zip(start.tolist(), end.tolist(), strict=True), owner.tolist(), strict=True))
    for (a, b), (left, right) in zip(mesh.face_vertices.tolist(), mesh.face_cells.tolist(), strict=True):
        assert {owners[a, b], owners[b, a]} == {left, right} and left != right
    a, b = mesh.vertices[mesh.face_vertices.T]
    assert np.allclose(mesh.face_lengths, distance(a, b), rtol=1e-6) and 2 * mesh.n_faces == len(start)
    assert len(mesh.vertices) - mesh.n_faces + mesh.n_cells == 2 and len(np.unique(start)) == len(mesh.vertices)
    assert triangle_area(mesh.centers[owner], mesh.vertices[start], mesh.vertices[end]).min() > 0
    corners = mesh.centroids[owner], mesh.vertices[start], mesh.vertices[end]
    inside = np.ones((40, len(owner)), dtype=bool)
    probes = normalise(np.random.default_rng(0).normal(size=(40, 3)))
    for one, other in zip(corners, (*corners[1:], corners[0]), strict=True):
        inside &= probes @ np.cross(one, other).T > 0
    assert (inside.sum(axis=1) == 1).all(), "a point lies in no cell or in two"


def _closed_circle(mesh: mf.SphereMesh) -> None:
    first, second = (np.arctan2(*mesh.vertices[mesh.cell_vertices[k::2]].T[::-1]) for k in (0, 1))
    turn = (second - first) % (2 * np.pi)
    if mesh.n_cells > 1:
        assert np.allclose(turn, mesh.areas, atol=1e-9)
    assert sorted(mesh.cell_vertices[::2].tolist()) == sorted(mesh.cell_vertices[1::2].tolist()) == list(range(mesh.n_cells))
    middle = (np.arctan2(*mesh.centers.T[::-1]) - first) % (2 * np.pi)
    assert (middle > 0).all() and (middle < mesh.areas).all()


def mesh_read(path: Path) -> None:
    mesh = read_mesh(path)
    closed(mesh)
    system = mf.MeanFieldPDE(mesh, mf.Attention(1.0), order=2)
    start = fields.state_of(system, mesh.areas / mesh.areas.sum())
    assert np.isfinite(system.rate(0.0, start).change).all()


def tokens_read(path: Path) -> None:
    options = {"weighted": path.stat().st_size % 2 == 0, "normalise": path.stat().st_size % 3 == 0}
    measure = mf.read_tokens(path, **options)
    assert abs(measure.total - 1) <= 1e-12 and measure.masses.min() >= 0
    assert np.abs(np.linalg.norm(measure.points, axis=1) - 1).max() <= 1e-8


def _stands_in(k: int, act: Callable[[], object]) -> Callable[[Path], None]:
    """A reader that is good for k files and then is not: what the harness must see."""
    paths: list[Path] = []

    def read(path: Path) -> None:
        paths.append(path)
        if len(paths) > k:
            act()

    return read


def _loops() -> None:
    while True:
        pass


def _raises(error: BaseException) -> None:
    raise error


KINDS: dict[str, tuple[Callable[[], Files], Callable[[Path], None]]] = {
    "mesh": (mesh_files, mesh_read),
    "tokens": (token_files, tokens_read),
    "crash": (token_files, _stands_in(5, os.abort)),
    "hang": (token_files, _stands_in(5, _loops)),
    "greed": (token_files, _stands_in(5, lambda: np.ones(MEMORY // 4))),
    "error": (token_files, _stands_in(5, lambda: _raises(KeyError("x")))),
    "essay": (token_files, _stands_in(5, lambda: _raises(ValueError("one\ntwo")))),
    "warning": (token_files, _stands_in(5, lambda: warnings.warn("overflow", RuntimeWarning, stacklevel=1))),
}


def read_broken_files(kind: str, first: int, last: int, folder: Path) -> None:
    """The process that reads: prints how often files were read and refused, or stops at the first that was answered otherwise."""
    make, read = KINDS[kind]
    files, counts = make(), Counter()
    for suffix, content in files.values():  # everything is loaded before memory is limited
        (folder / f"good{suffix}").write_bytes(content)
        read(folder / f"good{suffix}") if kind == "mesh" else None
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))
    at = os.open(folder / "at", os.O_CREAT | os.O_WRONLY)
    for k in range(first, last):
        made, suffix, content = broken(kind, files, k)
        path = folder / f"broken{suffix}"
        path.write_bytes(content)
        os.pwrite(at, f"{f'file {k}: {made}':<300}".encode(), 0)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time: a busy machine is no fault; the default action ends the process
        try:
            read(path)
            counts["read"] += 1
        except (ValueError, OSError) as error:
            text = str(error)
            assert text and text.isprintable() and len(text) <= LONGEST_SENTENCE, f"file {k} ({made}): {text[:1000]!r}"
            counts["refused"] += 1
        except BaseException as error:
            error.add_note(f"file {k}: {made}")
            raise
        signal.setitimer(signal.ITIMER_PROF, 0)
    print(counts["read"], counts["refused"])


def outcome(kind: str, number: int, folder: Path) -> tuple[int, int]:
    """How many of the first files of a kind were read and refused; AssertionError if one was answered otherwise."""
    command = [sys.executable, "-W", "error", __file__, kind, "0", str(number), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60 + number, check=False)
    reached = (folder / "at").read_text().strip() if (folder / "at").exists() else "no file"
    assert ended.returncode == 0 and not ended.stderr, f"{ended.returncode} at {reached}\n{ended.stderr[-3000:]}"
    read, refused = map(int, ended.stdout.split())
    return read, refused


def test_broken_mesh_files(tmp_path):
    read, refused = outcome("mesh", MESH_FILES, tmp_path)
    assert read + refused == MESH_FILES
    assert refused > 0.6 * MESH_FILES and read > 0.05 * MESH_FILES


def test_broken_token_files(tmp_path):
    """Few are read: a first row that is broken is no header."""
    read, refused = outcome("tokens", TOKEN_FILES, tmp_path)
    assert read + refused == TOKEN_FILES
    assert refused > 0.6 * TOKEN_FILES and read > 0.01 * TOKEN_FILES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("crash", f"-{signal.SIGABRT:d} at file 5: "),
        ("hang", f"-{signal.SIGPROF:d} at file 5: "),
        ("greed", "MemoryError"),
        ("error", "KeyError: 'x'"),
        ("essay", r"'one\\ntwo'"),
        ("warning", "RuntimeWarning: overflow"),
    ],
)
def test_the_harness_sees(kind, told, tmp_path):
    """The control: readers that do what none may do."""
    with pytest.raises(AssertionError, match=told):
        outcome(kind, 10, tmp_path)


def test_whole_files_give_the_mesh(tmp_path):
    """Every encoding that VTK and pyvista write, to the last bit where it holds float64; the control of everything above."""
    meshes = good_meshes()
    for name, (suffix, content) in mesh_files().items():
        path = tmp_path / f"good{suffix}"
        path.write_bytes(content)
        mesh, source = (
            read_mesh(path),
            meshes[next((word for word in name.split() if word in meshes), "hexagons" if suffix == ".vtu" else "triangles")],
        )
        closed(mesh)
        error = 0 if suffix in (".vtu", ".vtp") and mesh.dimension == 3 else 2e-15 if mesh.dimension == 2 else 1e-6
        assert mesh.centers.shape == source.centers.shape and np.abs(mesh.centers - source.centers).max() <= error, name
        assert mesh.name == (source.name if name.startswith("write_mesh") else path.name)


def test_a_surface_that_is_not_closed_is_seen():
    """The control of `closed`: two vertices that change places fold the cells around them, though every sum stays."""
    mesh = mf.icosahedral(1)
    vertices = np.array(mesh.vertices)
    vertices[[3, 4]] = vertices[[4, 3]]
    for changed in (
        replace(mesh, vertices=vertices),
        replace(
            mesh, face_cells=np.roll(mesh.face_cells, 1, axis=1), face_normals=-mesh.face_normals, centers=np.roll(mesh.centers, 1, axis=0)
        ),
        replace(mesh, cell_vertices=np.where(mesh.cell_vertices == 3, 4, mesh.cell_vertices)),
    ):
        with pytest.raises(AssertionError):
            closed(changed)


if __name__ == "__main__":
    read_broken_files(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
