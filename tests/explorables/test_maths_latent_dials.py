"""What LatentDials computes in the browser, against numpy on the images themselves."""

import base64
import json

import numpy as np
import pytest
from explorables.samples import dials, state

from mon_lib.explorables import LatentDials

MATHS = "latent_dials.maths.js"
COUNT = len(LatentDials.FACTORS)


def images(n=3, side=4, seed=0):
    """Random bytes: frames (6, 6, n, 3, side, side), and two originals."""
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(COUNT, COUNT, n, 3, side, side)), rng.integers(256, size=(2, 3, side, side))


def texts(n=3, side=4):
    frames, originals = images(n, side)
    widget = LatentDials(frames / 255, originals / 255, [f"image {k}" for k in range(n)])
    return frames, originals, json.dumps(widget.images), json.dumps(widget.originals)


def test_the_factors_are_those_of_the_class(node):
    assert node(MATHS, "FACTORS") == list(LatentDials.FACTORS)
    assert node(MATHS, "[-1, 0.09, 0.11, 0.6, 0.71, 1, 9].map(nearest)") == [0, 0, 1, 3, 4, 5, 5]


@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 4), (5, 2)])
def test_a_frame_is_the_image_at_these_factors(node, i, j):
    frames, _, text, _ = texts()
    found = node(MATHS, f"Array.from(frame(bytes({text}[2]), {i}, {j}))")
    np.testing.assert_array_equal(found, np.moveaxis(frames[i, j, 2], 0, -1).flatten())


@pytest.mark.parametrize("i", [0, 3])
def test_differences_are_those_of_the_pixels(node, i):
    frames, originals, text, sources = texts()
    found = node(MATHS, f"differences({text}, {sources}, {i})")
    expected = np.abs(frames[i, :, :2] - originals).mean((2, 3, 4)).T
    np.testing.assert_allclose([[d for _, d in curve] for curve in found], expected, rtol=1e-12)
    assert [[s for s, _ in curve] for curve in found] == [list(LatentDials.FACTORS)] * 2
    everywhere = np.abs(frames[:, :, :2] - originals).mean((3, 4, 5)).max()
    assert node(MATHS, f"largest({text}, {sources})") == pytest.approx(everywhere, rel=1e-12)


def test_a_comparison_counts_what_differs(node):
    frames, originals, text, sources = texts()
    gap = np.abs(frames[1, 2, 0] - originals[0])
    found = node(MATHS, f"compare(frame(bytes({text}[0]), 1, 2), bytes({sources}[0]))")
    assert (found["differ"], found["most"]) == ((gap > 0).sum(), gap.max()) and found["mean"] == pytest.approx(gap.mean())
    same = node(MATHS, f"compare(bytes({sources}[0]), bytes({sources}[0]))")
    assert same == {"differ": 0, "most": 0, "mean": 0}


def test_a_canvas_gets_a_fourth_colour(node):
    assert node(MATHS, "Array.from(withAlpha([1, 2, 3, 4, 5, 6]))") == [1, 2, 3, 255, 4, 5, 6, 255]


def test_pixels_come_as_whole_numbers_with_the_colours_last():
    widget = dials()
    first = np.frombuffer(base64.b64decode(widget.originals[0]), np.uint8).reshape(2, 3, 3)
    np.testing.assert_array_equal(first, np.moveaxis(np.arange(18).reshape(3, 2, 3), 0, -1))
    assert widget.size == [2, 3] and len(base64.b64decode(widget.images[0])) == COUNT**2 * 18


def test_at_its_largest_it_is_under_a_megabyte():
    widget = LatentDials(np.zeros((COUNT, COUNT, 6, 3, 16, 16)), np.zeros((3, 3, 16, 16)), list("abcdef"))
    assert len(json.dumps(state(widget))) < 250_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((5, 6, 2, 3, 4, 4))}, r"images \(5, 6, 2, 3, 4, 4\)"),
        ({"images": np.zeros((6, 6, 2, 1, 4, 4))}, "do not belong together"),
        ({"originals": np.zeros((1, 3, 4, 5))}, "do not belong together"),
        ({"originals": np.zeros((3, 3, 4, 4))}, "with k up to n"),
        ({"labels": ["a"]}, "1 labels"),
        ({"images": np.full((6, 6, 2, 3, 4, 4), 1.5)}, "images must be values from 0 to 1"),
        ({"originals": np.full((1, 3, 4, 4), np.nan)}, "originals must be values from 0 to 1"),
        ({"originals": np.zeros((0, 3, 4, 4))}, "at least one"),
        ({"images": np.zeros((6, 6, 2, 3, 4, 40)), "originals": np.zeros((1, 3, 4, 40))}, "too much for one page"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, message):
    arguments = {"images": np.zeros((6, 6, 2, 3, 4, 4)), "originals": np.zeros((1, 3, 4, 4)), "labels": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        LatentDials(**arguments | change)
