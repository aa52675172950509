"""What OneMirror computes in the browser, against mon_lib in float64."""

import math

import pytest
import torch

from mon_lib.reflections import householder

F64 = torch.float64
CASES = [([1.4, 0.3], 100.0), ([-0.7, 1.9], -35.0), ([0.2, -0.1], 180.0), ([1e-3, 2e-3], 7.0)]


def rotation(degrees):
    t = math.radians(degrees)
    return torch.tensor([[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]], dtype=F64)


def with_epsilon(U, x, eps):
    v = x - x @ U.T
    return x - 2 * v * (v * x).sum(-1, keepdim=True) / (v.square().sum(-1, keepdim=True) + eps)


@pytest.mark.parametrize(("x", "angle"), CASES)
def test_without_epsilon_it_is_the_rotation_and_the_reflection_of_the_library(node, x, angle):
    setting = f"const U = rotation({angle}), x = {x};"
    shown = "normal(U, x), single(U, x), flag(x), flag(x).map((p) => single(U, p))"
    v, y, flag, turned = node("one_mirror.maths.js", f"(() => {{ {setting} return [{shown}]; }})()")
    U, x = rotation(angle), torch.tensor(x, dtype=F64)
    torch.testing.assert_close(torch.tensor(v, dtype=F64), x - U @ x, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.tensor(y, dtype=F64), householder(x - U @ x, x), rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.tensor(y, dtype=F64), U @ x, rtol=0, atol=1e-13)
    torch.testing.assert_close(torch.tensor(turned, dtype=F64), torch.tensor(flag, dtype=F64) @ U.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("x", "angle"), CASES)
@pytest.mark.parametrize("eps", [1e-6, 0.05, 2.0])
def test_with_epsilon_it_is_a_mean_of_x_and_its_image(node, x, angle, eps):
    setting = f"const U = rotation({angle}), x = {x}, eps = {eps};"
    y, s, bent = node("one_mirror.maths.js", f"(() => {{ {setting} return [single, share, ray].map((g) => g(U, x, eps)); }})()")
    U, x = rotation(angle), torch.tensor(x, dtype=F64)
    expected = with_epsilon(U, x, eps)
    torch.testing.assert_close(torch.tensor(y, dtype=F64), expected, rtol=0, atol=1e-13)
    torch.testing.assert_close((1 - s) * x + s * (U @ x), expected, rtol=0, atol=1e-13)
    points = torch.linspace(0, 1, len(bent), dtype=F64).square()[:, None] * 4 * x / x.norm()
    torch.testing.assert_close(torch.tensor(bent, dtype=F64), with_epsilon(U, points, eps), rtol=0, atol=1e-12)


def test_the_jacobian_at_zero_is_the_identity_for_every_epsilon(node):
    U = rotation(100.0)
    for eps in (1e-6, 0.05, 2.0):
        found = torch.tensor(node("one_mirror.maths.js", f"jacobian(rotation(100), [0, 0], {eps})"), dtype=F64)
        assert (found - torch.eye(2, dtype=F64)).abs().max() < 1e-5
    found = torch.tensor(node("one_mirror.maths.js", "jacobian(rotation(100), [0, 0], 0)"), dtype=F64)
    assert (found - U).abs().max() < 1e-9
    at = torch.tensor([0.3, -0.2], dtype=F64)
    found = torch.tensor(node("one_mirror.maths.js", "jacobian(rotation(100), [0.3, -0.2], 0.05)"), dtype=F64)
    assert (found - torch.func.jacrev(lambda x: with_epsilon(U, x, 0.05))(at)).abs().max() < 1e-8


def test_the_share_passes_one_half_where_the_normal_is_the_root_of_epsilon(node):
    curve = node("one_mirror.maths.js", "shares(rotation(60), 0.04, 1e-3, 4)")
    assert [curve[0][0], curve[-1][0]] == pytest.approx([1e-3, 4.0])
    # A turn by sixty degrees has ||Wx|| = ||x||, so the bend is at ||x|| = 0.2.
    below, above = ([s for size, s in curve if keep(size)] for keep in (lambda size: size < 0.2, lambda size: size > 0.2))
    assert max(below) < 0.5 < min(above)
    assert node("one_mirror.maths.js", "[share(rotation(0), [1, 1], 0), ray(rotation(20), [0, 0], 0.1)]") == [0, [[0, 0]]]
