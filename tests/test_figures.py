"""The style: readable, distinguishable, and silent until asked for."""

import itertools
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from mon_lib import figures

mpl.use("Agg")

METHODS = ["forward-backward", "peaceman-rachford", "douglas-rachford", "newton", "anderson"]
METHODS += ["naive", "paper", "ours", "reference", "muted"]
PALETTES = {"light": (figures.COLOURS, figures.GROUND), "dark": (figures.COLOURS_DARK, figures.GROUND_DARK)}

# Machado, Oliveira and Fernandes (2009), severity 1: what a dichromat sees, in linear RGB.
VISION = {
    "trichromat": np.eye(3),
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanope": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.fixture
def axes():
    with mpl.rc_context():
        figures.use_style()
        fig, ax = figures.new()
        yield ax
        mpl.pyplot.close(fig)


def linear_rgb(colour):
    c = np.array(mpl.colors.to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a, b):
    lo, hi = sorted(linear_rgb(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b))
    return (hi + 0.05) / (lo + 0.05)


@pytest.mark.parametrize("theme", PALETTES)
def test_every_colour_is_readable_text_on_its_ground(theme):
    palette, ground = PALETTES[theme]
    assert list(palette) == METHODS
    assert {k: contrast(c, ground) for k, c in palette.items() if contrast(c, ground) < 4.5} == {}


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", PALETTES)
def test_any_two_colours_stay_apart(theme, vision):
    seen = {k: lab(np.array(VISION[vision]) @ linear_rgb(c)) for k, c in PALETTES[theme][0].items()}
    apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2)}
    assert {pair: distance for pair, distance in apart.items() if distance < 11} == {}


def test_dashes_and_markers_cover_the_methods():
    assert list(figures.DASHES) == list(figures.MARKERS) == METHODS


def test_the_palette_cannot_be_changed_by_a_chapter():
    with pytest.raises(TypeError):
        figures.COLOURS["ours"] = "#ff0000"


def test_import_changes_nothing_and_use_style_does():
    code = (
        "import matplotlib as mpl; before = dict(mpl.rcParams); import mon_lib.figures as f;"
        "assert dict(mpl.rcParams) == before; f.use_style(); assert mpl.rcParams['font.size'] == 13"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_text_is_at_least_twelve_points_and_the_ground_is_opaque(axes):
    axes.set(title="t", xlabel="x", ylabel="y")
    figures.label_line(axes, 0.5, 0.5, "here", figures.COLOURS["ours"])
    axes.figure.canvas.draw()
    sizes = [t.get_fontsize() for t in axes.findobj(mpl.text.Text) if t.get_text()]
    assert min(sizes) >= 12
    assert axes.figure.get_facecolor() == (1, 1, 1, 1)
    assert tuple(axes.figure.get_size_inches()) == (6.4, 4.0)


@pytest.mark.parametrize(("columns", "rows", "shape"), [(2, 1, (2,)), (1, 3, (3,)), (2, 2, (2, 2))])
def test_new_opens_panels(columns, rows, shape):
    with mpl.rc_context():
        figures.use_style()
        fig, axes = figures.new(columns=columns, rows=rows, sharex=True)
        assert axes.shape == shape
        mpl.pyplot.close(fig)


def test_mean_and_spread(axes):
    runs = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 0.0]])
    line = figures.mean_and_spread(axes, [0, 1, 2], runs, figures.COLOURS["paper"], "as printed")
    assert line.get_ydata().tolist() == [2, 2, 2]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    assert [corners[:, 1].min(), corners[:, 1].max()] == [0, 4]
    (label,) = axes.texts
    assert (label.get_text(), label.get_color()) == ("as printed", figures.COLOURS["paper"])


@pytest.mark.parametrize(
    ("runs", "message"),
    [([[1, 2, 3]], "one seed"), ([[1, 2], [3, 4]], r"\(seeds, 3\)"), ([[1, 2, 3], [1, float("nan"), 3]], "NaN")],
)
def test_mean_and_spread_refuses(axes, runs, message):
    with pytest.raises(ValueError, match=message):
        figures.mean_and_spread(axes, [0, 1, 2], runs, "#000000")


def test_log_axis(axes):
    figures.log_axis(axes, "y", "error")
    assert (axes.get_yscale(), axes.get_xscale(), axes.get_ylabel()) == ("log", "linear", "error (log scale)")
    with pytest.raises(ValueError, match="'z'"):
        figures.log_axis(axes, "z", "error")


def test_a_label_at_a_lines_end_stays_inside_the_picture(axes):
    axes.plot([0, 1], [0, 1])
    label = figures.end_label(axes, 1, 1, "a fairly long label", figures.COLOURS["ours"])
    axes.figure.canvas.draw()
    assert label.get_window_extent().x1 <= axes.figure.bbox.x1 + 1
