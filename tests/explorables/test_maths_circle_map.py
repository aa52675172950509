"""What CircleMap computes in the browser, against mon_lib in float64."""

import math

import numpy as np
import pytest
import torch

from mon_lib.reflections import householder

F64 = torch.float64
W = [(1.0, -1.0), (1.0, 1.5), (1.0, 3.0), (-0.7, -1.2), (2.0, -0.05), (0.05, 4.0), (1.0, 1.0)]


def image(l, angles):
    """f at these angles, as angles."""
    theta = torch.tensor(angles, dtype=F64)
    x = torch.stack([theta.cos(), theta.sin()], -1)
    y = householder(x * torch.tensor(l, dtype=F64), x)
    return torch.atan2(y[..., 1], y[..., 0])


def apart(a, b):
    return (a - b + math.pi).remainder(2 * math.pi) - math.pi


@pytest.mark.parametrize("l", [*W, (1.0, 0.0), (0.0, 0.0)])
def test_the_lift_is_the_angle_without_jumps(node, l):
    points = torch.tensor(node("circle_map.maths.js", f"lift({list(l)}, 1440)"), dtype=F64)
    assert points.shape == (1441, 2) and float(points[-1, 0]) == pytest.approx(2 * math.pi)
    inside = (points[:, 0] * 2 / math.pi).frac().abs() > 1e-6 if 0.0 in l else slice(None)  # not where Wx is rounding
    assert apart(image(l, points[:, 0].tolist()), points[:, 1])[inside].abs().max() < 1e-9
    assert points[:, 1].diff().abs().max() < 1.0
    winding = node("circle_map.maths.js", f"winding(lift({list(l)}))")
    assert winding == (2 * np.sign(l[0] * l[1]) - 1 if any(l) else 1)


@pytest.mark.parametrize("l", W)
def test_the_determinant_and_its_range(node, l):
    grid = np.linspace(0, 2 * math.pi, 721).tolist()
    values, (least, most) = node("circle_map.maths.js", f"[{grid}.map((t) => determinant({list(l)}, at(t))), range({list(l)})]")
    theta = torch.tensor(grid, dtype=F64)
    x = torch.stack([theta.cos(), theta.sin()], 1)
    weight = torch.tensor(l, dtype=F64)
    J = torch.func.vmap(torch.func.jacrev(lambda row: householder(weight * row, row)))(x)
    torch.testing.assert_close(torch.tensor(values, dtype=F64), torch.linalg.det(J), rtol=1e-9, atol=1e-9)
    assert (min(values), max(values)) == (pytest.approx(least), pytest.approx(most))


@pytest.mark.parametrize("l", W)
def test_every_preimage_is_found(node, l):
    targets = np.linspace(-3.1, 3.1, 14).tolist()
    found = node(
        "circle_map.maths.js",
        f"(() => {{ const p = lift({list(l)}); return {targets}.map((t) => preimages({list(l)}, p, t)); }})()",
    )
    fine = np.linspace(0, 2 * math.pi, 100_001)
    angles = np.unwrap(image(l, fine.tolist()).numpy())
    for target, angles_in in zip(targets, found, strict=True):
        assert apart(image(l, angles_in), torch.tensor(target, dtype=F64)).abs().max() < 1e-8
        turns = np.floor((angles - target) / (2 * math.pi))
        assert len(angles_in) == np.abs(np.diff(turns)).sum()
        assert len(set(np.round(angles_in, 6))) == len(angles_in)
    counts = {len(angles_in) for angles_in in found}
    ratio = max(map(abs, l)) / min(map(abs, l))
    assert counts == {3} if l[0] * l[1] < 0 else counts == {1} if ratio < 2 else max(counts) == 3


def test_the_example_beyond_two(node):
    found = node("circle_map.maths.js", "preimages([1, 3], lift([1, 3]), -Math.PI / 2)")
    expected = [math.pi / 6, math.pi / 2, 5 * math.pi / 6]  # heights 1/(kappa - 1) and 1
    assert sorted(found) == pytest.approx(expected, abs=1e-9)
