"""What MirrorStack computes in the browser, against mon_lib in float64."""

import json
import math

import pytest
import torch

from mon_lib.reflections import HouseholderProduct, householder

F64 = torch.float64
STATES = [([-0.5, 1.1], 40.0, 2), ([0.3, -2.0], 17.0, 5), ([1.0, 0.0], 90.0, 1), ([1.2, 0.7], 0.0, 3), ([-1.0, -1.0], 36.0, 8)]


def stack(v, theta, k):
    """The normals of the mirrors in the order in which they act."""
    start = math.atan2(v[1], v[0])
    angles = torch.tensor([start + math.radians(theta) * i for i in range(k)], dtype=F64)
    return torch.stack([angles.cos(), angles.sin()], -1)


@pytest.mark.parametrize(("v", "theta", "k"), STATES)
def test_every_stage_is_one_more_reflection(node, v, theta, k):
    flag, shown = node("mirror_stack.maths.js", f"[flagAt([1.5, 0.5]), stages(normals({v}, {theta}, {k}), flagAt([1.5, 0.5]))]")
    points = torch.tensor(flag, dtype=F64)
    for mirror, found in zip([None, *stack(v, theta, k)], shown, strict=True):
        points = points if mirror is None else householder(mirror, points)
        torch.testing.assert_close(torch.tensor(found, dtype=F64), points, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("v", "theta", "k"), STATES)
def test_the_product_and_what_it_is(node, v, theta, k):
    U, what = node(
        "mirror_stack.maths.js", f"(() => {{ const U = product(normals({v}, {theta}, {k})); return [U, classify(U)]; }})()"
    )
    f = HouseholderProduct(2, k, dtype=F64)
    with torch.no_grad():
        f.vectors.copy_(stack(v, theta, k).flip(0))  # the first to act is the last factor
    U, dense = torch.tensor(U, dtype=F64), f.to_dense().detach()
    torch.testing.assert_close(U, dense, rtol=0, atol=1e-12)
    assert what["determinant"] == f.determinant()
    least = HouseholderProduct.from_orthogonal(dense)
    assert what["fewest"] == int((least.vectors != 0).any(1).sum())
    if k % 2:
        x = torch.tensor([0.8, -1.7], dtype=F64)
        torch.testing.assert_close(householder(torch.tensor(what["normal"], dtype=F64), x), dense @ x, rtol=0, atol=1e-12)
    else:
        turn = math.radians(what["angle"])
        assert math.cos(turn) == pytest.approx(float(dense[0, 0]), abs=1e-12)
        assert math.sin(turn) == pytest.approx(float(dense[1, 0]), abs=1e-12)
        assert math.cos(math.radians(k * theta) - turn) == pytest.approx(1.0, abs=1e-12)


def test_special_products(node):
    words = [node("mirror_stack.maths.js", f"classify(product(normals([0.2, 1], {theta}, {k})))") for theta, k in
             ((45, 8), (90, 2), (12, 0), (60, 3))]  # fmt: skip
    assert [word["fewest"] for word in words] == [0, 2, 0, 1]
    assert words[1]["angle"] == pytest.approx(180.0, abs=1e-9)


def test_no_mirror_for_the_zero_vector_and_the_arc_ends_at_the_image(node):
    assert node("mirror_stack.maths.js", "householder([0, 0], [3, 4])") == [3, 4]
    points = torch.tensor(node("mirror_stack.maths.js", "arc([1.5, 0.5], 80)"), dtype=F64)
    turn = math.radians(80)
    U = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]], dtype=F64)
    torch.testing.assert_close(points[-1], U @ points[0])
    assert (points.norm(dim=1) - points[0].norm()).abs().max() < 1e-12
    assert json.dumps(points[0].tolist()) == "[1.5, 0.5]"
