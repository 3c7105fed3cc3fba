"""Tokens of one's own: files of rows, normalised or refused, weights optional."""

import numpy as np
import pytest

import meanfield_pde as mf

POINTS = np.array([[0.6, 0.8, 0.0], [0.0, 1.0, 0.0], [0.0, 0.6, -0.8]])


def written(path, rows):
    if path.suffix == ".npy":
        np.save(path, rows)
    else:
        np.savetxt(path, rows, delimiter=",", fmt="%.17g")
    return path


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_rows_come_back(suffix, tmp_path):
    measure = mf.read_tokens(written(tmp_path / f"tokens{suffix}", POINTS))
    assert np.array_equal(measure.points, POINTS)
    assert np.allclose(measure.masses, 1 / 3, rtol=1e-15)


def test_header_and_weights(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text("x,y,z,weight\n" + "\n".join(f"{a},{b},{c},{w}" for (a, b, c), w in zip(POINTS, (1, 1e-10, 3), strict=True)))
    measure = mf.read_tokens(path, weighted=True)
    assert measure.masses == pytest.approx(np.array([1, 1e-10, 3]) / (4 + 1e-10), rel=1e-14)


def test_rows_off_the_sphere_are_refused_or_normalised(tmp_path):
    path = written(tmp_path / "tokens.npy", POINTS * np.array([[1.0], [2.0], [1.0]]))
    with pytest.raises(ValueError, match=r"tokens.npy\[1\] has length 2"):
        mf.read_tokens(path)
    assert np.allclose(mf.read_tokens(path, normalise=True).points, POINTS, atol=1e-15)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (np.array([[1.0, 0.0], [np.nan, 1.0]]), {}, r"\[1, 0\] is nan"),
        (np.zeros((1, 3)), {"normalise": True}, "row 0 is zero"),
        (np.ones(4), {}, "has shape"),
        (np.zeros((0, 3)), {}, "wanted n >= 1 rows"),
        (np.array([[1.0, 0.0, -1.0]]), {"weighted": True}, r"weights of .*\[0\] is -1"),
        (np.array([[1.0, 0.0, 0.0]]), {"weighted": True}, "all zero"),
    ],
)
def test_bad_rows(rows, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        mf.read_tokens(written(tmp_path / "tokens.npy", rows), **options)


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no token file"):
        mf.read_tokens(tmp_path / "missing.csv")
    (tmp_path / "tokens.txt").write_text("1,0")
    with pytest.raises(ValueError, match=r"wanted .npy or .csv"):
        mf.read_tokens(tmp_path / "tokens.txt")
    (tmp_path / "tokens.csv").write_text("1,0\n1,zero\n")
    with pytest.raises(ValueError, match="cannot be read"):
        mf.read_tokens(tmp_path / "tokens.csv")
    (tmp_path / "tokens.npy").write_bytes(b"not numpy")
    with pytest.raises(ValueError, match="cannot be read"):
        mf.read_tokens(tmp_path / "tokens.npy")
