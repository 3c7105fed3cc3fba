"""Pictures: what they show (labels, times, data, atoms, stages), that nothing overlaps or is blank, what is refused, no side effects."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import StepPatch
from matplotlib.text import Text

import meanfield_pde as mf
from meanfield_pde.pictures.canvas import plain
from meanfield_pde.pictures.maps import Maps, map_cells, map_frame, mollweide
from meanfield_pde.pictures.overview import overview, overview_figure
from meanfield_pde.pictures.staircase import staircase, staircase_figure
from meanfield_pde.sphere import normalise

TIMES = np.arange(7) * 0.5


def run_density(mesh, attention, law, t_end=3.0):
    return mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=t_end, save_every=0.5)


def with_columns(solution, **columns):
    return replace(solution, columns={**solution.columns, **columns})


def first_outputs(solution, count):
    columns = solution.system.columns([solution.stored(k) for k in range(count)])
    return replace(solution, times=solution.times[:count], columns=columns)


def without_atoms(solution):
    """The masses of the cells, and no atoms in any output nor events of them."""
    return with_columns(replace(solution, events=solution.events[:0]), atom_offsets=np.zeros_like(solution.columns["atom_offsets"]))


def run_tokens(attention, law, count=150, t_end=3.0):
    return mf.solve(mf.ParticleSystem(attention), mf.sample(law, count, 0), t_end=t_end, save_every=0.5)


@pytest.fixture(scope="module")
def runs():
    attention = mf.Attention(beta=4.0)
    cap, arc = mf.VonMisesFisher([0.3, -0.2, 1.0], 2.0), mf.VonMisesFisher([-1.0, 0.1], 1.0)
    return {
        "S2 density": run_density(mf.icosahedral(2), attention, cap),
        "S2 tokens": run_tokens(attention, cap),
        "S1 density": run_density(mf.circle(64), attention, arc),
        "S1 tokens": run_tokens(attention, arc),
        "d=8 tokens": run_tokens(attention, mf.Uniform(8)),
    }


PLACES = {2: [-2.0, -0.6, 0.6, 2.2], 3: [[1, 0.2, 0.3], [-0.2, 1, -0.2], [0.1, -0.9, 0.6], [-0.5, -0.1, 0.9]]}
MASSES = [0.3, 0.25, 0.25, 0.2]


def atoms_at(d):
    angles = np.array(PLACES[2])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) if d == 2 else normalise(np.array(PLACES[3]))
    return mf.Measure(points, MASSES)


@pytest.fixture(scope="module")
def atom_runs():
    """Densities that form atoms and end as atoms alone, tokens of the same laws, and starts that are only atoms."""
    attention, found = mf.Attention(beta=9.0), {}
    for name, mesh, width in (("S1", mf.circle(96), 8.0), ("S2", mf.icosahedral(2), 20.0)):
        places = atoms_at(mesh.dimension)
        law = mf.Mixture([mf.VonMisesFisher(place, width) for place in places.points], MASSES)
        found[f"{name} density"] = mf.solve(mf.MeanFieldPDE(mesh, attention), mf.project(mesh, law), t_end=30.0, save_every=1.0)
        found[f"{name} tokens"] = mf.solve(mf.ParticleSystem(attention), mf.sample(law, 100, 0), t_end=30.0, save_every=1.0)
        start = mf.State(np.zeros(mesh.n_cells), places)
        found[f"{name} atoms"] = mf.solve(mf.MeanFieldPDE(mesh, attention), start, t_end=400.0, save_every=20.0)
    return found


CASES = {
    "S2, both": ["S2 density", "S2 tokens"],
    "S2, density": ["S2 density"],
    "S2, tokens": ["S2 tokens"],
    "S1, both": ["S1 tokens", "S1 density"],
    "S1, density": ["S1 density"],
    "S1, tokens": ["S1 tokens"],
    "d=8": ["d=8 tokens"],
}
ENERGY, ORDER = "energy $E$", "order $|\\int x\\,d\\mu|$"


def texts(figure):
    return {text.get_text() for text in figure.findobj(Text)} - {""}


def boxes(figure):
    """Window boxes of every text that is drawn: titles, labels, legends and the ticks inside their axes."""
    figure.canvas.draw()
    ticks, hidden = {}, set()
    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                hidden |= {tick.label1, tick.label2}
                if panel.axison and tick.label1.get_visible() and low <= tick.get_loc() <= high:
                    ticks |= {tick.label1: None}
                if panel.axison and tick.label2.get_visible() and low <= tick.get_loc() <= high:
                    ticks |= {tick.label2: None}
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and (text not in hidden or text in ticks)]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


def overlapping(figure):
    drawn = boxes(figure)
    return [(a, b) for i, (a, one) in enumerate(drawn) for b, other in drawn[i + 1 :] if one.padded(-1).overlaps(other.padded(-1))]


# -- every kind of picture


@pytest.mark.parametrize("case", CASES)
def test_file(tmp_path, runs, case):
    """A PNG of the promised size, without temporary files, with all four sides free and every panel filled."""
    path = tmp_path / "new" / "overview.png"
    assert overview(path, *(runs[name] for name in CASES[case])) == path
    assert list(path.parent.iterdir()) == [path] and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    pixels = imread(path)[:, :, :3]
    assert pixels.shape[1] == 1440 and pixels.shape[0] >= 900
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 1).all()
    for half in (pixels[: len(pixels) // 2], pixels[len(pixels) // 2 :]):
        for part in (half[:, :700], half[:, 740:]):
            assert part.std() > 0.03


@pytest.mark.parametrize("case", CASES)
def test_labels(runs, case):
    names = CASES[case]
    figure = overview_figure(*(runs[name] for name in names))
    wanted = {"$t$ = 0", "$t$ = 1", "$t$ = 2", "$t$ = 3", "time $t$", ENERGY, ORDER}
    if any("density" in name for name in names):
        wanted |= {"density $\\rho$ (1/sr)", "density (162 cells)"} if "S2" in case else {"density $\\rho$ (1/rad)", "density (64 cells)"}
    if any("tokens" in name for name in names):
        wanted |= {"tokens ($n$ = 150)"}
    if "S1" in case:
        wanted |= {"angle $\\theta$ (rad)", "density $\\rho$ (1/rad)", "$\\pi$", "$\\pi/2$"}
    if "d=8" in case:
        wanted |= {"share of pairs", "inner product $\\langle x_i, x_j\\rangle$", "two tokens (bins 0.025)"}
    if case == "S1, tokens":
        wanted |= {"tokens (bins 0.26 rad)", "40 of the 150 tokens"}
    assert wanted <= texts(figure)
    assert all(panel.has_data() for panel in figure.axes)
    assert not overlapping(figure)


def test_overlap_is_seen(runs):
    """The control of the check above: a title moved onto its neighbour's is found."""
    figure = overview_figure(runs["S2 density"])
    figure.canvas.draw()
    figure.axes[0].set_title("a title that is far too long for the map below it, and ends on the next map")
    assert overlapping(figure)


# -- what is drawn is the data


def test_maps_show_the_density_at_their_times(runs):
    solution = runs["S2 density"]
    figure = overview_figure(solution, runs["S2 tokens"], times=[0.5, 1.1, 2.9])
    maps = [panel for panel in figure.axes if panel.images]
    assert [panel.get_title() for panel in maps] == ["$t$ = 0.5", "$t$ = 1", "$t$ = 3"]
    for panel, k in zip(maps, (1, 2, 6), strict=True):
        drawn = np.ma.masked_invalid(panel.images[0].get_array()).compressed()
        assert set(np.unique(drawn)) == set(np.unique(solution.averages[k]))
        assert len(panel.collections[-1].get_offsets()) == 150
        assert panel.images[0].norm is maps[0].images[0].norm
    norm = maps[0].images[0].norm
    assert isinstance(norm, LogNorm) and norm.vmax == solution.averages[[1, 2, 6]].max() and norm.vmax / norm.vmin <= 1.0001e4


def test_map_puts_every_cell_in_its_place(runs):
    """Each cell's centre falls on a pixel of that cell, and a cell has its share of the pixels: the map is equal-area."""
    solution = runs["S2 density"]
    mesh = solution.mesh
    for centre in ([1.0, 0, 0], [0, 0, -1.0], normalise(np.array([0.3, -0.5, 0.2]))):
        frame = map_frame(np.asarray(centre))
        assert np.abs(frame @ frame.T - np.eye(3)).max() <= 1e-15 and abs(np.linalg.det(frame) - 1) <= 1e-15
        cells = map_cells(mesh, frame)
        x, y = mollweide(mesh.centers @ frame.T)
        scale = cells.shape[1] / 4
        column, row = (np.minimum(((z + size) * scale).astype(int), 2 * size * int(scale) - 1) for z, size in ((x, 2), (y, 1)))
        edge = (np.abs(x / 2) ** 2 + y**2) > 0.995
        assert (cells[row, column] == np.arange(mesh.n_cells))[~edge].all() and edge.sum() < 20
        shares = np.bincount(cells[cells >= 0], minlength=mesh.n_cells) / (cells >= 0).sum()
        assert np.abs(shares / (mesh.areas / mesh.areas.sum()) - 1).max() <= 0.03


def test_curves_are_those_of_the_runs(runs):
    solutions = runs["S1 density"], runs["S1 tokens"]
    figure = overview_figure(*solutions)
    panels = {panel.get_ylabel(): panel for panel in figure.axes}
    for line, solution in zip(panels[ORDER].lines, solutions, strict=False):
        assert (line.get_xdata() == solution.times).all()
        assert (line.get_ydata() == [mf.order_parameter(solution.measure(k)) for k in range(7)]).all()
    for line, solution in zip(panels[ENERGY].lines, solutions, strict=False):
        assert (line.get_xdata()[1:] == solution.history.t).all() and (line.get_ydata()[1:] == solution.history.energy).all()
        assert line.get_xdata()[0] == 0 and line.get_ydata()[0] == mf.energy(solution.model, solution.measure(0))
    curve = figure.axes[0].lines[0]
    angles, values = curve.get_data()
    assert (np.diff(angles) > 0).all() and angles[0] <= 0 < 2 * np.pi <= angles[-1]  # the mass lies about pi
    nearest = (np.stack([np.cos(angles), np.sin(angles)], axis=1) @ solutions[0].mesh.centers.T).argmax(axis=1)
    assert (values == solutions[0].averages[0][nearest]).all()


def test_histograms_hold_all_mass(runs):
    masses = np.linspace(1, 2, 150)
    weighted = with_columns(runs["S1 tokens"], masses=np.tile(masses / masses.sum(), (7, 1)))
    for solution in (runs["S1 tokens"], weighted):
        patches = [patch for patch in overview_figure(solution).axes[0].patches if isinstance(patch, StepPatch)]
        assert len(patches) == 4
        for patch in patches:
            values, edges, _ = patch.get_data()
            assert abs(values @ np.diff(edges) - 1) <= 1e-12
    for patch in overview_figure(runs["d=8 tokens"]).axes[0].patches:
        assert abs(patch.get_data().values.sum() - 1) <= 1e-12


# -- atoms


@pytest.mark.parametrize("sphere", ["S1", "S2"])
@pytest.mark.parametrize("kinds", ["density", "density tokens", "atoms", "atoms tokens"])
def test_pictures_with_atoms(atom_runs, sphere, kinds):
    solutions = [atom_runs[f"{sphere} {kind}"] for kind in kinds.split()]
    times = [10, 20] if "atoms" in kinds else [0, 2, 5, 30]
    figure = overview_figure(*solutions, times=times if len(solutions) == 2 or "atoms" not in kinds else None)
    shown = texts(figure)
    assert {"atoms (width: mass)", "atom mass (stems)"} <= shown if sphere == "S1" else {"atom of mass 0.1", "0.5", "1"} <= shown
    assert any(panel.get_label() == "<colorbar>" for panel in figure.axes) == ("density" in kinds)
    assert all(panel.has_data() for panel in figure.axes)
    assert not overlapping(figure)


def test_no_atom_no_legend(runs):
    for name in ("S1 density", "S2 density"):
        assert not any("atom" in text for text in texts(overview_figure(without_atoms(runs[name]))))


def test_dots_are_the_atoms(atom_runs):
    """In their places, with areas in proportion to mass, and none where there is no atom yet."""
    for name, outputs in (("S2 density", [0, 5, 30]), ("S2 atoms", [0, 1, 20])):
        solution = atom_runs[name]
        figure = overview_figure(solution, times=solution.times[outputs])
        mean = solution.measure(-1).mean()
        frame = map_frame(np.eye(3)[0] if np.linalg.norm(mean) < 0.5 else normalise(mean))
        areas, masses = [], []
        for panel, k in zip([panel for panel in figure.axes if panel.get_title()], outputs, strict=True):
            atoms = solution.atoms(k)
            assert len(panel.collections) == (len(atoms) > 0)
            for dots in panel.collections:
                assert (np.asarray(dots.get_offsets()) == np.stack(mollweide(atoms.points @ frame.T), axis=1)).all()
                areas += dots.get_sizes().tolist()
                masses += atoms.masses.tolist()
        assert np.ptp(np.array(areas) / masses) <= 1e-9 * max(areas)
        assert name == "S2 density" or max(masses) > 1.5 * min(masses)


def test_stems_are_the_atoms(atom_runs):
    solution = atom_runs["S1 density"]
    figure = overview_figure(solution, times=[0, 5, 30])
    (panel,) = [panel for panel in figure.axes if panel.get_ylabel() == "atom mass (stems)"]
    assert panel.get_ylim()[0] == 0
    for heads, stems, k in zip(panel.lines, panel.collections, (5, 30), strict=True):
        atoms = solution.atoms(k)
        angles, masses = heads.get_data()
        assert (masses == atoms.masses).all()
        assert np.abs(np.stack([np.cos(angles), np.sin(angles)], axis=1) - atoms.points).max() <= 1e-12
        assert [segment.tolist() for segment in stems.get_segments()] == [[[x, 0], [x, y]] for x, y in zip(angles, masses, strict=True)]


def test_paths_lead_from_atom_to_atom(atom_runs):
    """From every atom to one of the next output, also when two merge, and to every atom from somewhere."""
    for name in ("S1 atoms", "S1 density"):
        solution = atom_runs[name]
        counts = [len(solution.atoms(k)) for k in range(len(solution.times))]
        assert max(counts) > counts[-1] > 1
        figure = overview_figure(solution)
        (paths,) = [paths for panel in figure.axes for paths in panel.collections if paths.get_label() == "atoms (width: mass)"]
        starts, ends = defaultdict(list), defaultdict(list)
        for (t, angle), (later, after) in paths.get_segments():
            starts[t].append(angle)
            ends[later].append(after)
        for k, t in enumerate(solution.times.tolist()):
            angles = np.arctan2(*solution.atoms(k).points.T[::-1])
            assert k == len(counts) - 1 or np.abs(np.sort(starts[t]) - np.sort(angles)).max(initial=0) <= 1e-12
            assert k == 0 or np.abs(np.unique(np.round(ends[t], 9)) - np.sort(angles)).max(initial=0) <= 1e-8


# -- stages


def staircase_parts(figure):
    """The panel, and (start, end) of what is shaded."""
    (panel,) = figure.axes
    return panel, [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in panel.patches]


def test_staircase_shows_energy_and_stages(tmp_path, atom_runs):
    density, tokens = atom_runs["S1 density"], atom_runs["S1 tokens"]
    path = tmp_path / "new" / "staircase.png"
    assert staircase(path, tokens, density) == path and list(path.parent.iterdir()) == [path]
    assert imread(path).shape[1] == 1440
    figure = staircase_figure(tokens, density)
    panel, shaded = staircase_parts(figure)
    found = mf.stages(density)
    assert [stage.clusters for stage in found] == [4, 3]
    assert np.abs(np.array(shaded) - [(stage.t_start, stage.t_end) for stage in found]).max() <= 1e-12
    for line, solution in zip(panel.lines, (density, tokens), strict=True):
        assert (line.get_xdata()[1:] == solution.history.t).all() and (line.get_ydata()[1:] == solution.history.energy).all()
    assert {ENERGY, "time $t$", "4 clusters", "3 clusters", "density (96 cells)", "tokens ($n$ = 100)"} <= texts(figure)
    assert panel.get_xscale() == "linear" and panel.get_xlim() == (0, 30)
    assert not overlapping(figure)
    panel, shaded = staircase_parts(staircase_figure(tokens))
    assert np.abs(np.array(shaded[-1]) - (mf.stages(tokens)[-1].t_start, 30)).max() <= 1e-12


def test_staircase_of_long_runs(atom_runs):
    """Time is logarithmic once the first stage, from t = 0, is shorter than a tenth of the run; narrow stages have no label."""
    solution = atom_runs["S1 atoms"]
    first, second = mf.stages(solution)
    assert 10 * second.t_start < 400
    figure = staircase_figure(solution)
    panel, shaded = staircase_parts(figure)
    assert panel.get_xscale() == "log" and panel.get_xlim() == (max(solution.history.t[0], second.t_start / 100), 400)
    assert np.abs(np.array(shaded) - [(panel.get_xlim()[0], first.t_end), (second.t_start, 400)]).max() <= 1e-9
    assert {"4 clusters", "3 clusters"} <= texts(figure) and not overlapping(figure)
    for line in panel.lines:
        assert line.get_clip_on()
    shorter = replace(solution, times=solution.times[:2], history=solution.history[solution.history.t <= 20])
    assert staircase_parts(staircase_figure(shorter))[0].get_xscale() == "linear"


def test_staircase_without_stages(runs, atom_runs):
    """atoms=False has none, nor has a density that is still spread out: the tokens' are shown, or only the curve."""
    plain = run_density(mf.circle(48), mf.Attention(4.0), mf.VonMisesFisher([-1.0, 0.1], 1.0), 1.0)
    plain = replace(plain, system=replace(plain.system, atoms=False))
    for solution in (plain, run_density(mf.circle(48), mf.Attention(900.0), mf.VonMisesFisher([-1.0, 0.1], 1.0), 0.5)):
        figure = staircase_figure(solution)
        panel, shaded = staircase_parts(figure)
        assert not shaded and len(panel.lines) == 1 and not any("cluster" in text for text in texts(figure))
        assert panel.get_ylabel() == (ENERGY if solution is plain else "log energy, $\\log E$")
    tokens = atom_runs["S1 tokens"]
    assert staircase_parts(staircase_figure(plain, tokens))[1] == staircase_parts(staircase_figure(tokens))[1]
    assert staircase_figure(runs["d=8 tokens"]).axes[0].lines


# -- scales, odd runs


def test_energies_beyond_floats_are_logarithms():
    law = mf.VonMisesFisher([1.0, 0.0], 1.0)
    figure = overview_figure(run_tokens(mf.Attention(beta=900.0), law, 10, 1.0), times=[1.0])
    assert "log energy, $\\log E$" in texts(figure) and ENERGY not in texts(figure)


def test_uniform_density_has_a_linear_scale_and_flat_curves(runs):
    mesh = mf.icosahedral(1)
    averages = np.full(mesh.n_cells, 1 / (4 * np.pi))
    solution = mf.solve(mf.MeanFieldPDE(mesh, mf.Attention(1.0)), averages, t_end=0.1)
    figure = overview_figure(solution)
    norm = figure.axes[0].images[0].norm
    assert not isinstance(norm, LogNorm) and norm.vmin < 1 / (4 * np.pi) < norm.vmax
    panels = {panel.get_ylabel(): panel for panel in figure.axes}
    assert np.ptp(panels[ENERGY].get_ylim()) >= 1e-3 * mf.energy(solution.model, solution.measure(0))
    assert panels[ORDER].get_ylim()[1] >= 1e-3
    assert not overlapping(figure)


def test_empty_cells_and_times_apart(runs):
    """Cells without mass get the lowest colour; a run that stopped early limits the times; outputs apart are told."""
    density, tokens = runs["S2 density"], runs["S2 tokens"]
    masses = np.array(density.masses)
    masses[:, :40] = 0
    short = replace(first_outputs(tokens, 4), times=tokens.times[:4] * 0.9)
    figure = overview_figure(with_columns(density, masses=masses), short)
    assert [panel.get_title() for panel in figure.axes if panel.images] == ["$t$ = 0", "$t$ = 0.5 (tokens 0.45)", "$t$ = 1 (tokens 0.9)"]
    assert np.nanmin(figure.axes[0].images[0].get_array()) == 0
    assert not overlapping(figure)


def test_a_model_without_energy_and_a_run_without_steps(runs):
    class Swirl:
        def velocity(self, points, measure, t=0.0):
            return np.cross([0.0, 0.0, 1.0], points)

    for solution in (run_tokens(Swirl(), mf.Uniform(3), 20, 0.5), replace(runs["S1 density"], history=runs["S1 density"].history[:0])):
        figure = overview_figure(solution)
        assert ORDER in texts(figure) and ENERGY not in texts(figure) and all(panel.has_data() for panel in figure.axes)
    one = replace(first_outputs(runs["S1 density"], 1), history=runs["S1 density"].history[:0])
    assert len(overview_figure(one).axes) == 2


def test_pdf_and_no_side_effects(tmp_path, runs):
    before = dict(matplotlib.rcParams)
    overview(tmp_path / "a.pdf", runs["S2 density"], runs["S2 tokens"], times=[1])
    assert (tmp_path / "a.pdf").read_bytes()[:5] == b"%PDF-" and (tmp_path / "a.pdf").stat().st_size < 300_000
    assert dict(matplotlib.rcParams) == before and not Gcf.figs


# -- formats, captions, axes of one's own


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_texts_of_vector_pictures_can_be_edited(tmp_path, runs, suffix):
    """Texts are texts in .svg, and TrueType fonts in .pdf, without outlines (Type 3); whatever the caller's settings say."""
    path = tmp_path / f"a.{suffix}"
    with matplotlib.rc_context({"pdf.fonttype": 3, "svg.fonttype": "path"}):
        staircase(path, runs["S1 tokens"])
        staircase_figure(runs["S1 tokens"]).savefig(tmp_path / f"control.{suffix}")
    content, control = path.read_bytes(), (tmp_path / f"control.{suffix}").read_bytes()
    wanted = b">softmax, " if suffix == "svg" else b"/FontFile2"
    assert wanted in content and wanted not in control, "the control: matplotlib's own settings"


def test_captions_and_letters(runs, atom_runs):
    """Model, beta, mesh and number of tokens below each picture; letters in their order, and none for a single panel."""
    figure = overview_figure(runs["S1 density"], runs["S1 tokens"])
    shown = texts(figure)
    assert "softmax, \N{GREEK SMALL LETTER BETA} = 4; circle(64), 64 cells; 150 tokens" in {text.replace("\n", " ") for text in shown}
    assert {"(a)", "(b)", "(c)", "(d)"} <= shown and "(e)" not in shown
    assert "(a)" not in texts(staircase_figure(runs["S1 density"]))
    formed = any("energy jumps where an atom forms" in text.replace("\n", " ") for text in texts(overview_figure(atom_runs["S1 density"])))
    assert formed and not any("jumps" in text for text in texts(overview_figure(runs["S2 tokens"])))


def test_numbers_have_no_negative_zero():
    assert [plain(x, ".2f") for x in (-0.0, -0.001, -0.5, 0.25)] == ["0.00", "0.00", "\N{MINUS SIGN}0.50", "0.25"]
    assert f"{-0.001:.2f}" == "-0.00", "the control"
    frame = np.array([[-0.001, 1, 0], [-1, 0, 0], [0, -0.004, 1]])
    assert Maps.note(SimpleNamespace(frame=frame), "map") == "equal-area (Mollweide) map, centre (0, 1, 0), up (0, 0, 1)"


def test_dots_and_paths_have_a_white_edge(runs):
    """So that they are seen on the densest cells, and in grey."""
    figure = overview_figure(runs["S2 density"], runs["S2 tokens"], times=[0])
    dots = figure.axes[0].collections[-1]
    assert (dots.get_edgecolors()[:, :3] == 1).all() and dots.get_linewidths()[0] > 0 and (dots.get_facecolors()[:, :3] != 1).any()
    figure = overview_figure(runs["S1 density"], runs["S1 tokens"])
    paths = next(panel for panel in figure.axes if panel.get_xlabel() == "time $t$").lines
    assert len(paths) == 40 and all(line.get_path_effects() for line in paths)


def test_the_legend_has_what_is_drawn_and_nothing_else(atom_runs, runs):
    """An atom, a token or a density that no panel shows is in no legend."""
    for names, there, missing in (
        (["S1 atoms"], {"atom (stem)"}, {"density", "tokens (bins 0.31 rad)"}),
        (["S1 tokens"], {"tokens (bins 0.31 rad)", "40 of the 100 tokens"}, {"density", "atom (stem)", "atoms (width: mass)"}),
        (["S2 tokens"], {"token"}, {"atom of mass 0.1"}),
        (["S2 density"], {"atom of mass 0.1"}, {"token"}),
    ):
        shown = texts(overview_figure(*(atom_runs[name] for name in names)))
        assert there <= shown and not missing & shown
    label = "stages of the density (alternating greys)"
    assert label in texts(staircase_figure(atom_runs["S1 density"], atom_runs["S1 tokens"]))
    assert "stages of the tokens (alternating greys)" in texts(staircase_figure(atom_runs["S1 tokens"]))
    assert not any("stages" in text for text in texts(staircase_figure(runs["S1 density"])))


@pytest.mark.parametrize("sphere", ["S1", "S2", "d=8"])
def test_panels_in_axes_of_ones_own(runs, sphere):
    """In the caller's figure and style, labelled; the axes come back, and settings stay."""
    solutions = [run for name, run in runs.items() if name.startswith(sphere)]
    before = dict(matplotlib.rcParams)
    figure = Figure(layout="constrained")
    axes = figure.subplots(2, 2)
    assert mf.state_panel(axes[0, 0], *solutions, t=1.1) is axes[0, 0] and axes[0, 0].get_title(loc="left") == "$t$ = 1"
    assert mf.energy_panel(axes[0, 1], *solutions).get_ylabel() == ENERGY
    assert mf.order_panel(axes[1, 0], *solutions).get_ylabel() == ORDER
    assert mf.staircase_panel(axes[1, 1], *solutions).get_xlabel() == "time $t$"
    assert all(panel.has_data() for panel in axes.flat) and all(panel.get_legend() for panel in axes.flat[:3])
    assert dict(matplotlib.rcParams) == before and not Gcf.figs
    with pytest.raises(ValueError, match="t is 9, wanted a number in"):
        mf.state_panel(axes[0, 0], *solutions, t=9)


def test_notebooks_show_the_overview(runs):
    """Text and an inline picture; of what cannot be drawn the text alone."""
    html = runs["S1 density"]._repr_html_()
    assert html.startswith("<pre>&lt;Solution: density, done") and 'src="data:image/png;base64,iVBOR' in html
    lonely = run_tokens(mf.Attention(1.0), mf.Uniform(5), 1, 0.5)
    assert lonely._repr_html_().startswith("<pre>&lt;Solution: tokens") and "<img" not in lonely._repr_html_()


# -- refused


def test_bad_input(tmp_path, runs):
    density, tokens, far = runs["S2 density"], runs["S2 tokens"], runs["S1 tokens"]
    lonely = run_tokens(mf.Attention(1.0), mf.Uniform(5), 1, 0.5)
    later = replace(tokens, times=tokens.times + 10)
    for name, solutions, times, sentence in (
        ("a.jpg", (density,), None, r"path is '.*a\.jpg', wanted a name that ends in \.png or \.pdf or \.svg"),
        ("a.png", (), None, "solutions is empty, wanted a density, tokens or both"),
        ("a.png", (density, 3), None, r"solutions\[1\] is a int, wanted a Solution"),
        ("a.png", (density, tokens, density), None, r"solutions\[2\] is a second run of kind 'density'"),
        ("a.png", (density, far), None, "solutions lie in dimensions 3 and 2, wanted one sphere"),
        ("a.png", (lonely,), None, r"solutions\[0\] has 1 token in dimension 5, wanted at least 2"),
        ("a.png", (density, later), None, "one run begins at t = 10 and the other ends at 3"),
        ("a.png", (density,), [0, 4], r"times\[1\] is 4, wanted a time in \[0, 3\]"),
        ("a.png", (density,), [1, 0.5], r"times\[1\] is 0.5 after 1, wanted increasing times"),
        ("a.png", (density,), [], "times has 0 entries, wanted 1 to 4"),
        ("a.png", (density,), [0, 1, 2, 2.5, 3], "times has 5 entries, wanted 1 to 4"),
        ("a.png", (density,), 1.0, r"times has shape \(\), wanted \(n_times,\)"),
    ):
        with pytest.raises(ValueError, match=sentence) as error:
            overview(tmp_path / "out" / name, *solutions, times=times)
        assert "\n" not in str(error.value)
    nothing = replace(density, history=density.history[:0])
    for name, solutions, sentence in (
        ("a.jpg", (density,), r"path is '.*a\.jpg', wanted a name that ends in \.png or \.pdf or \.svg"),
        ("a.png", (), "solutions is empty, wanted a density, tokens or both"),
        ("a.png", (density, far), "solutions lie in dimensions 3 and 2, wanted one sphere"),
        ("a.png", (nothing,), "the run of kind 'density' has no energies, wanted steps of a model with one"),
    ):
        with pytest.raises(ValueError, match=sentence):
            staircase(tmp_path / "out" / name, *solutions)
    assert not list(tmp_path.iterdir())
