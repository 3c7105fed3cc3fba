"""What broke in other programs, tried here: each test names the report (list "Met since")."""

import hashlib

import pytest

import meanfield_pde as mf


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
