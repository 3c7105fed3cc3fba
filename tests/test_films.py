"""Films: frames and durations of the files, times in titles, that frames show their outputs on fixed scales, what is refused or fails."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib._pylab_helpers import Gcf
from matplotlib.colors import LogNorm
from matplotlib.patches import StepPatch
from PIL import Image
from test_pictures import MASSES, atoms_at, overlapping, texts

import meanfield_pde as mf
from meanfield_pde.pictures import canvas, films, maps
from meanfield_pde.pictures.films import film

TIMES = np.arange(7.0)
ENERGIES = "energy $E$", "log energy, $\\log E$"


def run(start, system, times=TIMES):
    return mf.solve(system, start, t_end=times[-1], save_at=times)


@pytest.fixture(scope="module")
def runs():
    """Densities that form atoms by the end, tokens of the same laws (at other times on S^1), starts that are only atoms."""
    attention, found = mf.Attention(beta=9.0), {"d=8 tokens": run(mf.sample(mf.Uniform(8), 60, 0), mf.ParticleSystem(mf.Attention(4.0)))}
    for name, mesh, width in (("S1", mf.circle(96), 8.0), ("S2", mf.icosahedral(2), 20.0)):
        places = atoms_at(mesh.dimension)
        law = mf.Mixture([mf.VonMisesFisher(place, width) for place in places.points], MASSES)
        limit, particles = mf.MeanFieldPDE(mesh, attention), mf.ParticleSystem(attention)
        found[f"{name} density"] = run(mf.project(mesh, law), limit, TIMES)
        found[f"{name} tokens"] = run(mf.sample(law, 100, 0), particles, TIMES if name == "S2" else np.arange(6) * 1.3)
        found[f"{name} atoms"] = run(mf.State(np.zeros(mesh.n_cells), places), limit, TIMES)
    return found


CASES = {
    "S2, both": ["S2 density", "S2 tokens"],
    "S2, density": ["S2 density"],
    "S2, tokens": ["S2 tokens"],
    "S2, atoms": ["S2 atoms"],
    "S1, both": ["S1 tokens", "S1 density"],
    "S1, density": ["S1 density"],
    "S1, tokens": ["S1 tokens"],
    "S1, atoms": ["S1 atoms"],
    "S1, atoms and tokens": ["S1 atoms", "S1 tokens"],
    "d=8": ["d=8 tokens"],
}


def screen(*solutions, frames=300):
    """The figure of a film, what puts frame k into it, the outputs and the titles."""
    states = films._frames(canvas.checked_runs(solutions), frames)
    with rc_context(canvas.STYLE):
        figure, show = films._screen(states)
    return figure, show, states.outputs, titles_of(states)


def titles_of(states):
    return states.titles(films._time_style(states.times))


@pytest.fixture
def style():
    """Ticks are chosen when a figure is drawn, which `film` does in its style."""
    with rc_context(canvas.STYLE):
        yield


def opened(path):
    """Frames (n, height, width, 3) and durations in milliseconds."""
    with Image.open(path) as image:
        frames, durations = [], []
        for k in range(image.n_frames):
            image.seek(k)
            durations.append(image.info["duration"])
            frames.append(np.asarray(image.convert("RGB")))
        return np.stack(frames), durations


# -- files


@pytest.mark.parametrize("case", ["S2, both", "S1, both", "d=8"])
def test_gif(tmp_path, runs, case):
    """One frame per output, all of the promised size, on pure white, with every panel filled; nothing else is left in the folder."""
    path = tmp_path / "new" / "film.gif"
    assert film(path, *(runs[name] for name in CASES[case])) == path and list(path.parent.iterdir()) == [path]
    frames, durations = opened(path)
    assert frames.shape == (len(runs[CASES[case][-1]].times), 540, 864, 3)
    assert sum(durations) - films.HOLD == round(len(frames) * 100 / 15) * 10 and set(durations[:-1]) == {60, 70}
    assert (frames[0] != frames[-1]).any(axis=2).mean() > 0.01
    assert all((one != other).any() for one, other in pairwise(frames))
    for edge in (frames[:, :2], frames[:, -2:], frames[:, :, :2], frames[:, :, -2:]):
        assert (edge == 255).all()
    for part in (frames[:, :380], frames[:, 380:]):
        assert part.std() > 20


@pytest.mark.parametrize("fps", [7.5, 50])
def test_durations(tmp_path, runs, fps):
    """A .gif counts hundredths of a second: each frame is off by less than one, and their sum too."""
    _, durations = opened(film(tmp_path / "a.gif", runs["S1 density"], fps=fps, frames=4))
    durations[-1] -= films.HOLD
    assert len(durations) == 4 and np.abs(np.array(durations) - 1000 / fps).max() < 10 and abs(sum(durations) - 4000 / fps) < 10


@pytest.mark.slow
def test_one_palette(tmp_path, runs):
    """Frequent colours are exact, others nearer, what does not change does not flicker, and the file is small.

    The controls are Pillow's own palettes: one for all frames as it comes, and one for each frame, which flickers.
    """
    solutions = runs["S1 density"], runs["S1 tokens"]
    figure, show, *_ = screen(*solutions, frames=3)
    figure.set_dpi(films.GIF_DPI)
    images = [films._pixels(figure, show, k) for k in range(3)]
    kept, _ = opened(film(tmp_path / "a.gif", *solutions, frames=3))
    true = np.stack([np.asarray(image) for image in images])
    together = Image.fromarray(true.reshape(-1, 864, 3))
    palette = together.quantize(255)
    usual = np.stack([np.asarray(image.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB")) for image in images])
    images[0].save(tmp_path / "b.gif", save_all=True, append_images=images[1:], duration=60)
    apart, _ = opened(tmp_path / "b.gif")
    frequent = [(true == colour).all(axis=3) for _, colour in sorted(together.getcolors(true.size), reverse=True)[:4]]
    off, usually_off = (np.abs(pixels.astype(int) - true) for pixels in (kept, usual))
    assert not any(off[plain].any() for plain in frequent) and any(usually_off[plain].any() for plain in frequent)
    for line in ([255, 255, 255], [0, 0, 0], [0, 160, 138]):
        assert (true == line).all(axis=3).any() and (kept[(true == line).all(axis=3)] == line).all()
    assert off.mean() < 0.1 * usually_off.mean()
    same = (true[0] == true[1]).all(axis=2)
    assert (kept[0] == kept[1])[same].all() and not (apart[0] == apart[1])[same].all()
    assert (tmp_path / "a.gif").stat().st_size < 0.8 * (tmp_path / "b.gif").stat().st_size


def test_mp4(tmp_path, runs):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    before = dict(matplotlib.rcParams)
    path = film(tmp_path / "new" / "a.mp4", runs["S1 density"], runs["S1 tokens"], fps=5, frames=4)
    assert list(path.parent.iterdir()) == [path] and dict(matplotlib.rcParams) == before and not Gcf.figs
    command = [ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    frames = np.frombuffer(read.stdout, np.uint8).reshape(-1, 900, 1440).astype(int)
    about = read.stderr.decode()
    assert all(word in about for word in ("Video: h264", "yuv420p", "1440x900", " 5 fps", "Duration: 00:00:00.80"))
    assert len(frames) == 4 and (np.abs(frames[0] - frames[-1]) > 30).mean() > 0.01


def test_no_side_effects(tmp_path, runs):
    before = dict(matplotlib.rcParams)
    film(tmp_path / "a.gif", runs["S1 density"], frames=2)
    assert dict(matplotlib.rcParams) == before and not Gcf.figs


# -- which outputs, and what the titles say


def test_frames_are_evenly_spaced_outputs(tmp_path, runs):
    solutions = runs["S2 density"], runs["S2 tokens"]
    for frames, wanted in ((2, [0, 6]), (4, [0, 2, 4, 6]), (7, list(range(7))), (100, list(range(7)))):
        states = films._frames(canvas.checked_runs(solutions), frames)
        assert states.outputs == [wanted, wanted] and titles_of(states) == [f"$t$ = {k}" for k in wanted]
    assert len(opened(film(tmp_path / "a.gif", runs["S1 density"], frames=4))[0]) == 4


def test_outputs_at_other_times(runs):
    """The nearest output of the tokens, whose time the title gives where it is another; none after the shorter run's end."""
    states = films._frames(canvas.checked_runs((runs["S1 tokens"], runs["S1 density"])), 300)
    assert states.runs == [runs["S1 density"], runs["S1 tokens"]] and states.outputs == [list(range(7)), [0, 1, 2, 2, 3, 4, 5]]
    assert titles_of(states)[:3] == ["$t$ = 0.0", "$t$ = 1.0 (tokens 1.3)", "$t$ = 2.0 (tokens 2.6)"]
    tokens = runs["S1 tokens"]
    short = replace(tokens, times=tokens.times[:3], columns={name: rows[:3] for name, rows in tokens.columns.items()})
    assert films._frames(canvas.checked_runs((runs["S1 density"], short)), 300).outputs == [[0, 1, 2], [0, 1, 2]]


def test_titles_tell_times_apart_in_one_width():
    for times, wanted in (
        (np.arange(5) * 0.25, ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        (np.arange(3) * 2.0, ["0", "2", "4"]),
        (np.arange(4) * 10 / 3, ["0.0", "3.3", "6.7", "10.0"]),
        (np.arange(3) * 1e-3, ["0.000", "0.001", "0.002"]),
        (np.array([0, 0.001, 1.0, 1e4]), ["0", "0.001", "1", "1e+04"]),
    ):
        assert [f"{t:{films._time_style(times[None])}}" for t in times] == wanted
    apart = np.array([[0, 1.0], [0, 0.96]])
    assert [f"{t:{films._time_style(apart)}}" for t in apart[:, 1]] == ["1.00", "0.96"]
    rounded = np.array([[0, 1.0], [0, 1 + 1e-15]])
    assert films._time_style(rounded) == ".0f"


# -- what the frames show


@pytest.mark.parametrize("case", CASES)
def test_screen(runs, style, case):
    """Labelled, filled, without texts that overlap, at the first and the last frame; axes, scales and their labels never move."""
    names = CASES[case]
    figure, show, _, titles = screen(*(runs[name] for name in names))
    fixed = [(panel.get_position().bounds, panel.get_xlim(), panel.get_ylim()) for panel in figure.axes]
    shown = texts(figure) - set(titles)
    for k in (0, len(titles) - 1):
        show(k)
        assert not overlapping(figure)
        assert texts(figure) == shown | {titles[k]} and "time $t$" in shown and shown & set(ENERGIES)
        assert [(panel.get_position().bounds, panel.get_xlim(), panel.get_ylim()) for panel in figure.axes] == fixed
    assert all(panel.has_data() for panel in figure.axes)
    assert min(bounds[2] * bounds[3] for bounds, *_ in fixed) > 0.01 and max(bounds[2] * bounds[3] for bounds, *_ in fixed) > 0.35
    assert any(text.startswith("softmax") for text in shown), "a caption names the model"
    assert ("density $\\rho$ (1/sr)" in shown) == (case in ("S2, both", "S2, density"))
    assert ("atom mass (stems)" in shown) == (case.startswith("S1") and names != ["S1 tokens"])
    assert ("atom of mass 0.1" in shown) == (case.startswith("S2") and names != ["S2 tokens"])
    assert ("equal-area (Mollweide) map\ncentre (1, 0, 0), up (0, 0, 1)" in shown) == case.startswith("S2")


def test_maps_show_their_outputs(runs):
    density, tokens = runs["S2 density"], runs["S2 tokens"]
    figure, show, *_ = screen(density, tokens)
    panel = figure.axes[0]
    norm = panel.images[0].norm
    assert isinstance(norm, LogNorm) and norm.vmax == density.averages.max()
    frame = maps.map_frame(canvas.main_direction([density]))
    for k in (6, 0, 3):
        show(k)
        (image,), (*heavy, dots) = panel.images, panel.collections
        assert set(np.unique(np.ma.masked_invalid(image.get_array()).compressed())) == set(np.unique(density.averages[k]))
        assert (np.asarray(dots.get_offsets()) == np.stack(maps.mollweide(tokens.tokens[k] @ frame.T), axis=1)).all()
        held = density.atoms(k)
        assert len(heavy) == (len(held) > 0)
        for atoms in heavy:
            assert (np.asarray(atoms.get_offsets()) == np.stack(maps.mollweide(held.points @ frame.T), axis=1)).all()
            assert (atoms.get_sizes() == maps.DOT_AREA * held.masses).all()
        assert image.norm is norm and norm.vmax == density.averages.max()
    assert len(density.atoms(6)) > len(density.atoms(0)) == 0


def test_curves_show_their_outputs(runs):
    density, tokens = runs["S1 density"], runs["S1 tokens"]
    figure, show, outputs, _ = screen(density, tokens)
    panel, right = (
        (figure.axes[k] for k in (0, 1)) if figure.axes[1].get_ylabel().startswith("atom mass") else (figure.axes[0], figure.axes[-1])
    )
    for k in (6, 0, 3):
        show(k)
        curve, ticks = panel.lines
        (steps,) = [patch for patch in panel.patches if isinstance(patch, StepPatch)]
        (area,) = [patch for patch in panel.patches if not isinstance(patch, StepPatch)]
        angles, values = curve.get_data()
        nearest = (np.stack([np.cos(angles), np.sin(angles)], axis=1) @ density.mesh.centers.T).argmax(axis=1)
        assert (values == density.averages[k][nearest]).all() and set(values) <= set(area.get_xy()[:, 1])
        points = tokens.tokens[outputs[1][k]]
        assert np.abs(np.stack([np.cos(ticks.get_xdata()), np.sin(ticks.get_xdata())], axis=1) - points).max() <= 1e-12
        counts, edges, _ = steps.get_data()
        assert abs(counts @ np.diff(edges) - 1) <= 1e-12
        assert np.abs(counts - np.histogram(ticks.get_xdata(), edges)[0] / 100 / np.diff(edges)).max() <= 1e-12
        held = density.atoms(k)
        assert len(right.collections) == len(right.lines) == (len(held) > 0)
        for stems, heads in zip(right.collections, right.lines, strict=True):
            angles, masses = heads.get_data()
            assert (masses == held.masses).all()
            assert [segment.tolist() for segment in stems.get_segments()] == [[[x, 0], [x, y]] for x, y in zip(angles, masses, strict=True)]
            assert np.abs(np.stack([np.cos(angles), np.sin(angles)], axis=1) - held.points).max() <= 1e-12
    assert len(density.atoms(6)) > len(density.atoms(0)) == 0


def test_inner_products_show_their_outputs(runs):
    tokens = runs["d=8 tokens"]
    figure, show, *_ = screen(tokens)
    low, high = figure.axes[0].get_ylim()
    for k in range(7):
        show(k)
        (steps,) = figure.axes[0].patches
        shares, edges, baseline = steps.get_data()
        products = (tokens.tokens[k] @ tokens.tokens[k].T)[np.triu_indices(60, 1)]
        assert np.abs(shares - np.histogram(np.clip(products, -1, 1), edges)[0] / len(products)).max() <= 1e-12
        assert baseline == low and low < shares[shares > 0].min() and shares.max() < high


def test_marks_are_on_the_curves(runs):
    density, tokens = runs["S1 density"], runs["S1 tokens"]
    figure, show, *_ = screen(density, tokens)
    (panel,) = [panel for panel in figure.axes if panel.get_xlabel() == "time $t$"]
    *marks, now = panel.lines[2:]
    for k in range(7):
        show(k)
        assert now.get_xdata() == [density.times[k]]
        for mark, solution in zip(marks, (density, tokens), strict=True):
            (t,), (value,) = mark.get_data()
            assert t == density.times[k]
            after = np.searchsorted(solution.history.t, t)
            around = [mf.energy(solution.model, solution.measure(0)), *solution.history.energy][max(after, 0) : after + 2]
            assert min(around) * (1 - 1e-12) <= value <= max(around) * (1 + 1e-12)


def test_time_axis_follows_the_outputs(runs):
    """Outputs spread over decades have a logarithmic axis, and the line moves evenly; even ones a linear axis."""
    start = mf.State(np.zeros(96), atoms_at(2))
    times = np.concatenate([[0], np.geomspace(0.1, 1000, 9)])
    for times_shown, scale in ((times, "log"), (times[-1] / 9 * np.arange(10), "linear")):
        figure, show, *_ = screen(run(start, runs["S1 atoms"].system, times_shown))
        (panel,) = [panel for panel in figure.axes if panel.get_xlabel() == "time $t$"]
        assert panel.get_xscale() == scale
        places = []
        for k in range(10):
            show(k)
            places.append(panel.transData.transform((panel.lines[-1].get_xdata()[0], panel.get_ylim()[0]))[0])
        moves = np.diff(places)
        assert np.ptp(moves[scale == "log" :]) < 1e-6 * moves[-1]


def test_a_model_without_energy_shows_the_order_parameter(runs, style):
    class Swirl:
        def velocity(self, points, measure, t=0.0):
            return points @ [[0.0, 1.0], [-1.0, 0.0]]

    figure, *_ = screen(run(mf.sample(mf.Uniform(2), 20, 0), mf.ParticleSystem(Swirl())))
    assert "$|\\int x\\,d\\mu|$" in texts(figure) and not texts(figure) & set(ENERGIES) and not overlapping(figure)


# -- refused, failed


def test_without_ffmpeg(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    path = tmp_path / "new" / "a.mp4"
    with pytest.raises(ValueError, match=r"a\.mp4'.*pip install 'meanfield-pde\[film\]'.*\.gif") as error:
        film(path, runs["S1 density"])
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())
    assert film(path.with_suffix(".gif"), runs["S1 density"], frames=2).exists()


def test_failures_leave_the_old_file(tmp_path, runs, monkeypatch):
    """And no other: when a frame fails, and when ffmpeg does."""
    gif, mp4 = tmp_path / "a.gif", tmp_path / "a.mp4"
    for path in (gif, mp4):
        path.write_text("old")
    pixels = films._pixels

    def failing(figure, show, k):
        if k == 3:
            raise KeyboardInterrupt
        return pixels(figure, show, k)

    monkeypatch.setattr(films, "_pixels", failing)
    with pytest.raises(KeyboardInterrupt):
        film(gif, runs["S1 density"])
    pytest.importorskip("imageio_ffmpeg")
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(films, "_ffmpeg", lambda path: str(broken))
    with pytest.raises(OSError, match="ffmpeg did not write the film: no space left"):
        film(mp4, runs["S1 density"])
    assert sorted(tmp_path.iterdir()) == [gif, mp4, broken] and gif.read_text() == mp4.read_text() == "old"


def test_bad_input(tmp_path, runs):
    density, tokens, far = runs["S2 density"], runs["S2 tokens"], runs["S1 tokens"]
    lonely = run(mf.sample(mf.Uniform(5), 1, 0), mf.ParticleSystem(mf.Attention(1.0)))
    later = replace(tokens, times=tokens.times + 6)
    for name, solutions, options, sentence in (
        ("a.avi", (density,), {}, r"path is '.*a\.avi', wanted a name that ends in \.gif or \.mp4"),
        ("a.gif", (), {}, "solutions is empty, wanted a density, tokens or both"),
        ("a.gif", (density, 3), {}, r"solutions\[1\] is a int, wanted a Solution"),
        ("a.gif", (density, tokens, density), {}, r"solutions\[2\] is a second run of kind 'density'"),
        ("a.gif", (density, far), {}, "solutions lie in dimensions 3 and 2, wanted one sphere"),
        ("a.gif", (lonely,), {}, r"solutions\[0\] has 1 token in dimension 5, wanted at least 2"),
        ("a.gif", (density, later), {}, "solutions have 1 output in common, wanted at least 2"),
        ("a.gif", (density, replace(tokens, times=tokens.times + 7)), {}, "one run begins at t = 7 and the other ends at 6"),
        ("a.gif", (density,), {"fps": 0.5}, r"fps is 0\.5, wanted a number in \[1, 50\]"),
        ("a.gif", (density,), {"fps": 60}, r"fps is 60, wanted a number in \[1, 50\]"),
        ("a.gif", (density,), {"frames": 1}, r"frames is 1, wanted an integer in \[2, 300\]"),
        ("a.gif", (density,), {"frames": 301}, r"frames is 301, wanted an integer in \[2, 300\]"),
    ):
        with pytest.raises(ValueError, match=sentence) as error:
            film(tmp_path / "out" / name, *solutions, **options)
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())
