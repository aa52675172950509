"""What ConvolutionSolve computes in the browser, and how the states of a network get there."""

import json

import numpy as np
import pytest
from explorables.samples import channels, state

from mon_lib.explorables import ConvolutionSolve

MODULE = "convolution_solve.maths.js"


def test_distance_is_that_of_numpy(node):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, (2, 30))
    found = node(MODULE, f"[distance({a.tolist()}, {b.tolist()}), distance([0, 3], [0, 0]), distance([0, 0], [0, 0])]")
    assert found == [pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-12), 1, 0]


@pytest.mark.parametrize("shift", [(0, 0), (2, 1), (-1, 3), (1, -2), (-3, -3), (5, 0), (0, -9)])
def test_translated_is_that_of_numpy(node, shift):
    height, width = 5, 7
    values = np.arange(1, 1 + height * width).reshape(height, width)
    large = np.zeros((height + 40, width + 40), int)
    large[20 + shift[0] : 20 + shift[0] + height, 20 + shift[1] : 20 + shift[1] + width] = values
    found = node(MODULE, f"translated({values.flatten().tolist()}, [{height}, {width}], {list(shift)})")
    assert np.array_equal(np.reshape(found, (height, width)), large[20:-20, 20:-20])


def arrays(n=2, frames=3, count=4, border=1, seed=0):
    rng = np.random.default_rng(seed)
    states = np.zeros((n, 2, frames, count, 5 + 2 * border, 6 + 2 * border))
    states[..., border : 5 + border, border : 6 + border] = rng.random((n, 2, frames, count, 5, 6)) * 7.0
    return {
        "images": rng.normal(size=(n, 2, 5, 6)),
        "states": states,
        "probabilities": rng.dirichlet(np.ones(10), (n, 2, frames)),
        "bounds": rng.random((n, 2, frames)),
        "labels": list(range(n)),
        "steps": [1, 2, 5][:frames],
        "border": border,
        "shift": (1, -2),
    }


def test_states_survive_the_journey_with_one_scale_a_channel(node):
    given = arrays()
    given["states"][:, :, :, 2] *= 0.01  # a faint channel is as visible as the others
    widget = ConvolutionSolve(**given)
    found = np.array(node("digit_solve.maths.js", f"{json.dumps(widget.states)}.flat(3).map((t) => [...bytes(t)])"))
    found = found.reshape(given["states"].shape)
    top = given["states"].max(axis=(0, 1, 2, 4, 5), keepdims=True)
    assert np.abs(found / 255 - given["states"] / top).max() <= 0.5 / 255 + 1e-12
    assert found.max(axis=(0, 1, 2, 4, 5)).tolist() == [255] * 4
    assert not found[..., 0, :].any() and not found[..., -1].any()
    assert widget.size == [5, 6]
    image = np.array(node("digit_solve.maths.js", f"[...bytes({widget.images[1][0]!r})]"))
    x = given["images"][1, 0].flatten()
    assert image.tolist() == np.rint(255 * (x - x.min()) / (x.max() - x.min())).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((2, 2, 4, 6))}, "do not describe two positions"),
        ({"images": np.zeros((2, 5, 6))}, "six axes, images and probabilities four"),
        ({"probabilities": np.ones((2, 2, 4, 10))}, "do not describe"),
        ({"bounds": np.full((2, 2, 3), np.inf)}, "finite"),
        ({"labels": [1]}, r"labels must be \(2,\)"),
        ({"steps": [1, 3, 3]}, "increasing"),
        ({"border": 0}, "do not describe"),
        ({"digit": 2}, "digit = 2"),
        ({"channel": 4}, "channel = 4"),
        ({"frame": -1}, "frame = -1"),
        ({"states": arrays()["states"] - 0.1}, "at least 0"),
        ({"states": arrays()["states"] + 0.1}, "zero on their border"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        ConvolutionSolve(**arrays() | change)


def test_too_much_for_a_page_is_refused():
    ConvolutionSolve(**arrays(n=100))
    with pytest.raises(ValueError, match="a page affords 200000: fewer digits, frames or channels"):
        ConvolutionSolve(**arrays(n=120))
    assert len(json.dumps(state(ConvolutionSolve(**arrays(n=100))))) < 400_000


def test_the_sample_shows_a_channel_that_moves_with_its_digit(node):
    widget = channels()
    expression = (
        f"(() => {{ const [here, there] = {json.dumps(widget.states[0])}.map((frames) => bytes(frames[1][0])); "
        f"return [distance(here, there), distance(translated([...here], [6, 6], {widget.shift}), there)]; }})()"
    )
    found = node("convolution_solve.js", expression)
    assert found[0] > 0.5
    assert found[1] == 0
