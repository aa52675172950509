"""What ErrorRace computes in the browser: the seconds of an epoch as multiplications that mon_lib carries out, and the race."""

import math

import numpy as np
import pytest
import torch
from counting import WithSolves
from explorables.samples import race

from mon_lib.data import Images, batches
from mon_lib.explorables import ErrorRace
from mon_lib.networks import Cayley
from mon_lib.reflections import AuxiliaryReflection

MATHS = "error_race.maths.js"


@pytest.mark.parametrize(("images", "batch"), [(20, 8), (16, 8), (5, 8), (30, 9)])
@pytest.mark.parametrize(
    ("kind", "once"), [(Cayley, lambda d: 10 / 3 * d**3), (AuxiliaryReflection, lambda d: 0)], ids=["cayley", "aux"]
)
def test_an_epoch_costs_what_mon_lib_does_in_it(node, kind, once, images, batch):
    """With a multiplication for a second: every step pays once, every image pays for itself, and the last batch is short."""
    d = 6
    f, labels = kind(d), torch.zeros(images, dtype=torch.long)
    some = Images("some", torch.randn(images, 1, 1, d), labels, ("a",), torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    with WithSolves() as count:
        for x, _ in batches(some, batch):
            f(x.flatten(1).requires_grad_()).sum().backward()
    assert node(MATHS, f"epochSeconds({once(d)}, {3 * d * d}, {images}, {batch})") == pytest.approx(count.total, rel=1e-12)


def test_a_batch_is_rounded_as_it_is_shown(node):
    assert node(MATHS, "[7.6, 8, 8.4].map((N) => epochSeconds(1, 0, 80, N))") == [10, 10, 10]


@pytest.mark.parametrize(("a", "b"), [((0.01, 0.001), (1.0, 0.001)), ((0.0, 3.0), (100.0, 5.0)), ((1.0, 1.0), (1.5, 1.0))])
@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_within(node, a, b, factor):
    """At that batch the second takes at most so many times as long, and just below it does not."""
    found = node(MATHS, f"within({factor}, {a[0]}, {a[1]}, {b[0]}, {b[1]})")

    def ratio(N):
        return (b[0] + N * b[1]) / (a[0] + N * a[1])

    if found == math.inf:
        assert b[1] > factor * a[1]
        assert ratio(1e9) > factor
    else:
        assert ratio(found) <= factor + 1e-12
        assert found == 1 or ratio(found - 1) > factor


def test_no_batch_is_within_reach_of_a_worse_price_for_an_image(node):
    assert node(MATHS, "[within(2, 1, 1, 1, 3), within(2, 1, 1, 5, 2), within(2, 1, 1, 1, 2)]") == [math.inf, math.inf, 1]


def test_the_race(node):
    """After four seconds in batches of 128: the first has done all its epochs, the second none, whose epoch takes nine."""
    state = {name: getattr(race(), name) for name in ("errors", "once", "each", "images", "batch", "seconds")}
    one, many = node(MATHS, f"race({state})")
    assert one["perEpoch"] == pytest.approx(8 * 0.01 + 1) and many["perEpoch"] == pytest.approx(9)
    assert (one["epochs"], one["error"]) == (3, 9.0)
    assert (many["epochs"], many["error"]) == (0, None)
    np.testing.assert_allclose(many["points"], [[9, 30], [18, 14], [27, 8]])
    assert [runner["epochs"] for runner in node(MATHS, f"race({state | {'seconds': 18.0}})")] == [3, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["one"]}, "1 labels"),
        ({"errors": [1.0, 2.0]}, r"errors \(2,\)"),
        ({"errors": [[], []]}, r"errors \(2, 0\)"),
        ({"once": [1.0]}, r"once \(1,\)"),
        ({"colours": ["ours", "pink"]}, "'pink'; choose from"),
        ({"errors": [[1.0, 2.0], [3.0, 101.0]]}, "from 0 to 100"),
        ({"errors": [[1.0, 2.0], [3.0, math.nan]]}, "from 0 to 100"),
        ({"each": [1.0, 0.0]}, "must be positive seconds"),
        ({"once": [1.0, math.inf]}, "must be positive seconds"),
    ],
    ids=str,
)
def test_what_describes_no_race_is_refused(change, message):
    arguments = {
        "labels": ["one", "many"],
        "colours": ["ours", "paper"],
        "errors": [[1.0, 2.0], [3.0, 4.0]],
        "once": [1.0, 2.0],
        "each": [1.0, 2.0],
    }
    with pytest.raises(ValueError, match=message):
        ErrorRace(**arguments | change, images=10)
