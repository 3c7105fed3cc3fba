"""What broke in other programs, tried here: each test names the report (list "Met since")."""

import hashlib

import numpy as np
import pytest

import meanfield_pde as mf
from meanfield_pde import inputs


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- another file under the same name: phaseField 145 (a restart accepts another mesh) ---


@pytest.mark.parametrize("kind", ["mesh", "start"])
def test_a_run_does_not_go_on_with_another_file_of_the_same_name(kind, tmp_path):
    """The control: the same case and the same bytes in another folder."""
    tables = 't_end = 20.0\nmesh = {file = "mesh.vtu"}\nstart = {kind = "tokens", file = "start.csv"}\n'
    here, there, same = (tmp_path / name for name in ("here", "there", "same"))
    for folder in (here, there, same):
        mf.write_mesh(folder / "mesh.vtu", mf.circle(13 if kind == "mesh" and folder == there else 12))
        (folder / "start.csv").write_text("0.6,0.8\n" if kind == "start" and folder == there else "1,0\n")
        (folder / "case.toml").write_text(tables)
    mf.run(here / "case.toml", tmp_path / "out", wall_time=1e-9)
    name = {"mesh": "mesh.vtu", "start": "start.csv"}[kind]
    with pytest.raises(ValueError, match=rf"^{name} has SHA-256 {sha256(there / name)}, wanted {sha256(here / name)}: that of the file"):
        mf.resume(tmp_path / "out", case=there / "case.toml")
    before = mf.load(tmp_path / "out/limit.vtkhdf").times[-1]
    (limit,) = mf.resume(tmp_path / "out", case=same / "case.toml", wall_time=1e-9)
    assert limit.times[-1] > before


# --- unit vectors of fewer digits: geomstats 585 (float32 points are told to be off the sphere) ---


def directions(d, kind, n=40):
    """x / |x|, computed in this type."""
    x = np.random.default_rng(d).normal(size=(n, d)).astype(kind)
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("d", [2, 3, 1024])
def test_unit_vectors_in_float32_are_points_of_the_sphere(d, kind):
    """Controls: the same numbers as float64, and rows that are farther off than rounding takes them."""
    x = directions(d, kind)
    points = mf.Measure(x).points
    assert points.dtype == np.float64 and np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 4e-16
    assert np.abs(points - x).max() <= 4 * np.finfo(kind).eps
    assert np.array_equal(mf.Measure(list(x)).points, points)
    for off in (x.astype(np.float64), x * kind(1 + (d + 8) * np.finfo(kind).eps)):
        with pytest.raises(ValueError, match="wanted a point of the unit sphere"):
            mf.Measure(off)
    exact = directions(d, np.float64)
    assert np.array_equal(mf.Measure(exact).points, exact)


UNIT = {
    "a measure": lambda x: mf.Measure(x).points,
    "tokens": lambda x: mf.ParticleSystem(mf.Attention()).begin(x).measure.points,
    "generators": lambda x: mf.voronoi(x).centers,
    "atoms": lambda x: mf.State(np.ones(8) / 4 / np.pi, mf.Measure(x, np.full(len(x), 0.5 / len(x)))).atoms.points,
    "binned tokens": lambda x: mf.bin_tokens(mf.icosahedral(1), x),
    "smoothed tokens": lambda x: mf.Smoothed(x, 0.1).tokens.points,
    "queries": lambda x: mf.exact.von_mises_fisher_velocity(x, x[0], 1.0, 1.0),
    "places": lambda x: mf.density_at(mf.icosahedral(0), np.arange(12), x),
    "targets": lambda x: mf.aggregate(mf.Measure(x), x)[0].points,
}


@pytest.mark.parametrize("name", UNIT)
def test_unit_vectors_in_float32_are_taken_everywhere(name):
    x = directions(3, np.float32)
    assert np.abs(UNIT[name](x) - UNIT[name](inputs.points("x", x))).max() <= 1e-15


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_files_of_float32(suffix, tmp_path):
    """Text has no type: there the remedy is named."""
    path, x = tmp_path / f"tokens{suffix}", directions(3, np.float32)
    if suffix == ".npy":
        for given in (x, x.astype(">f4"), np.hstack([x, x[:, :1] ** 2])):
            np.save(path, given)
            points = mf.read_tokens(path, weighted=given.shape[1] > 3).points
            assert np.abs(points - x).max() <= 2e-7 and np.abs(np.linalg.norm(points, axis=1) - 1).max() <= 4e-16
    else:
        np.savetxt(path, x, delimiter=",")
        with pytest.raises(
            ValueError, match=r"tokens.csv\[\d+\] has length .*, wanted a point of the unit sphere \(length 1\), or normalise = True$"
        ):
            mf.read_tokens(path)
        assert np.abs(mf.read_tokens(path, normalise=True).points - x).max() <= 2e-7


# --- meshes: trimesh 2556 (OBJ with faces between points), trimesh 1402 (rounded text), scipy 13412 (Voronoi cells of lattices) ---


def obj_between(points, cells):
    """Each face follows its corners at once and counts them backwards, so that points are doubled."""
    for cell in cells:
        yield from (f"v {x:.17g} {y:.17g} {z:.17g}" for x, y, z in points[cell])
        yield "f " + " ".join(str(k - len(cell)) for k in range(len(cell)))


def test_faces_between_points_that_count_backwards(tmp_path):
    mesh = mf.icosahedral(1, cells="triangles")
    cells = mesh.cell_vertices.reshape(-1, 3)
    (tmp_path / "between.obj").write_text("\n".join(obj_between(mesh.vertices, cells)))
    read = mf.read_mesh(tmp_path / "between.obj")
    assert np.abs(read.areas - mesh.areas).max() <= 1e-15
    assert any(repair.startswith(f"merged {3 * len(cells) - 42} doubled points") for repair in read.repairs)
    wrong = [line.replace("f -3 -2 -1", "f 1 2 3") for line in obj_between(mesh.vertices, cells)]
    (tmp_path / "wrong.obj").write_text("\n".join(wrong))
    with pytest.raises(ValueError, match="have the same corners"):
        mf.read_mesh(tmp_path / "wrong.obj")


@pytest.mark.parametrize("suffix", [".obj", ".stl"])
def test_six_decimals_and_minus_zeros(suffix, tmp_path):
    """The octahedron, whose every corner is written with zeros of both signs."""
    corners = np.array([(x, y, z) for x in (1, -1) for y in (1, -1) for z in (1, -1)])
    lines = ["solid of six decimals"]
    for signs in corners:
        triangle = [" ".join(f"{s * u:.6f}" for s, u in zip(signs, unit, strict=True)) for unit in np.eye(3)]
        if suffix == ".obj":
            lines += [f"v {corner}" for corner in triangle] + ["f -3 -2 -1"]
        else:
            lines += ["facet normal -0. 0. 1.", "outer loop", *(f"vertex {corner}" for corner in triangle), "endloop", "endfacet"]
    path = tmp_path / f"octahedron{suffix}"
    path.write_text("\n".join([*(lines if suffix == ".stl" else lines[1:]), *["endsolid"] * (suffix == ".stl")]))
    assert "-0.000000" in path.read_text()
    mesh = mf.read_mesh(path)
    assert len(mesh.vertices) == 6 and np.abs(mesh.areas - np.pi / 2).max() <= 1e-15
    assert "turned 4 of 8 cells to run counter-clockwise seen from outside" in mesh.repairs
    assert suffix == ".stl" or any(repair.startswith("merged 18 doubled points") for repair in mesh.repairs)


def test_points_rounded_to_six_decimals(tmp_path):
    mesh = mf.icosahedral(2, cells="triangles")
    rounded = mesh.vertices.round(6)
    (tmp_path / "rounded.obj").write_text("\n".join(obj_between(rounded, mesh.cell_vertices.reshape(-1, 3))))
    read = mf.read_mesh(tmp_path / "rounded.obj")
    assert len(read.vertices) == 162 and np.abs(read.areas - mesh.areas).max() <= 1e-6
    assert [repair.split()[0] for repair in read.repairs] == ["moved", "merged"]


def test_voronoi_cells_of_lattice_directions():
    """26 directions, whose neighbours lie on common circles: corners coincide, and are one each."""
    lattice = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3), axis=-1).reshape(-1, 3)
    lattice = lattice[np.any(lattice != 0, axis=1)]
    mesh = mf.voronoi(lattice / np.linalg.norm(lattice, axis=1, keepdims=True))
    assert mesh.n_cells == 26 and abs(mesh.areas.sum() - 4 * np.pi) <= 1e-13
    for kind in (1, 2, 3):  # faces, edges and corners of the cube: cells of one kind are equal
        assert np.ptp(mesh.areas[np.abs(lattice).sum(axis=1) == kind]) <= 1e-14


# --- files that are read while they are replaced: h5py 1722 ---


def test_a_reader_keeps_the_file_that_it_opened(tmp_path):
    path = tmp_path / "run.vtkhdf"
    first, second = (mf.solve(mf.ParticleSystem(mf.Attention(beta)), np.eye(3), 1.0) for beta in (1.0, 2.0))
    mf.save(path, first)
    reader = mf.load(path)
    mf.save(path, second)
    assert np.array_equal(reader.tokens, first.tokens) and np.array_equal(mf.load(path).tokens, second.tokens)
    assert not np.array_equal(first.tokens, second.tokens)


# --- long runs: Parcels 256 (t_end = 1e9 with save_every) ---


def test_a_long_run_has_as_many_rows_as_asked():
    still = mf.ParticleSystem(mf.Attention(1.0, value=np.zeros((2, 2))))
    for count in (1, 7, 1000):
        run = mf.solve(still, np.eye(2), 1e9, save_every=1e9 / count)
        assert len(run.times) == count + 1 and run.times[-1] == 1e9
