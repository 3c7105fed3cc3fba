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


@pytest.mark.parametrize("first", ["x,y", '"x", "y"', "# tokens of run 3\nx1,x2", "\n\nbreite,höhe", "# x,y", ""])
def test_headers(first, tmp_path):
    """With or without a byte-order mark."""
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "tokens.csv").write_text(f"{first}\n1,0\n0,1\n", encoding=encoding)
        assert mf.read_tokens(tmp_path / "tokens.csv").points.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("first", ["O,1", "0,l", ",1", "1 000,0", "x,1", "x,", "1;0", "0,6;0,8", "\u22121,\u22120", '"1","0"'])
def test_a_row_that_is_no_number_is_not_taken_for_a_header(first, tmp_path):
    """A token would be lost without a word."""
    (tmp_path / "tokens.csv").write_text(f"{first}\n1,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot be read: row 1, column [12] holds .*, wanted a number"):
        mf.read_tokens(tmp_path / "tokens.csv")


def test_text_in_utf_16_is_named(tmp_path):
    (tmp_path / "tokens.csv").write_text("1,0\n", encoding="utf-16")
    with pytest.raises(ValueError, match="begins with the byte-order mark of UTF-16, wanted text in UTF-8"):
        mf.read_tokens(tmp_path / "tokens.csv")


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
        (np.array([[1j, 0]]), {}, "shape .1, 2. and type complex128, wanted .n, d. numbers"),
        (np.array([["1", "0"]]), {}, "type <U1, wanted .n, d. numbers"),
        (np.array([[True, False]]), {}, "type bool, wanted .n, d. numbers"),
        (np.array([[1e200, 1e200]]), {}, r"\[0\] has length inf"),
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
    (tmp_path / "tokens.csv").write_text("1,0\n0,1,0\n")
    with pytest.raises(ValueError, match=r"cannot be read: the number of columns changed from 2 to 3 at row 2$"):
        mf.read_tokens(tmp_path / "tokens.csv")
    (tmp_path / "tokens.npy").write_bytes(b"not numpy")
    with pytest.raises(ValueError, match="cannot be read"):
        mf.read_tokens(tmp_path / "tokens.npy")


def test_numbers_near_the_ends_of_the_range(tmp_path):
    """Lengths and weights whose squares or sums are no floats."""
    rows = np.array([[3e200, 4e200, 1e308], [0.0, 3e-320, 1.5e308], [-1.0, 0.0, 5e-324]])
    measure = mf.read_tokens(written(tmp_path / "tokens.npy", rows), weighted=True, normalise=True)
    assert np.allclose(measure.points, [[0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], atol=1e-15)
    assert measure.masses == pytest.approx(np.array([0.4, 0.6, 0.0]), rel=1e-15)


def test_a_header_is_not_believed_before_the_values_are_there(tmp_path):
    """Columns in Fortran's order; a shape of terabytes, or one that is too small; a later format."""
    path = tmp_path / "tokens.npy"
    np.save(path, np.asfortranarray(POINTS))
    whole = path.read_bytes()
    assert np.array_equal(mf.read_tokens(path).points, POINTS)
    for old, new, message in (
        (b"(3, 3)", b"(2, 3)", "has 72 bytes of values, wanted 48 for shape .2, 3."),
        (b"(3, 3)", b"(3, 9)", "has 72 bytes of values, wanted 216"),
        (b"'<f8'", b"'|O8'", "shape .3, 3. and type object"),
        (b"NUMPY\x01", b"NUMPY\x03", "version .3, 0. of the format, wanted"),
    ):
        path.write_bytes(whole.replace(old, new, 1))
        with pytest.raises(ValueError, match=message):
            mf.read_tokens(path)
    path.write_bytes(whole.replace(b"(3, 3), }" + 11 * b" ", b"(99999999999999, 3)}", 1))
    with pytest.raises(ValueError, match="has 72 bytes of values, wanted 2399999999999976"):
        mf.read_tokens(path)
