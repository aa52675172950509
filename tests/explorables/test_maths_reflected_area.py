"""What ReflectedArea computes in the browser, against mon_lib in float64."""

import math

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection

F64 = torch.float64
CASES = [(2.6, 0.0), (1.0, 0.7), (-1.0, 0.0), (0.3, -1.6), (3.5, 0.4), (0.0, 0.0)]
POINTS = [[1.35, 1.05], [-0.4, 1.9], [0.8, -0.9], [-1.2, -0.3], [0.0, 1.0]]


def reflection(lam, s):
    f = AuxiliaryReflection(2, dtype=F64).requires_grad_(False)
    f.weight.copy_(torch.tensor([[1.0, -s], [s, lam]], dtype=F64))
    return f


@pytest.mark.parametrize("case", CASES)
def test_value_jacobian_and_factors(node, case):
    f, x = reflection(*case), torch.tensor(POINTS, dtype=F64)
    found = node(
        "reflected_area.maths.js",
        f"(() => {{ const W = matrix(...{list(case)}); "
        f"return {POINTS}.map((x) => [reflect(W, x), jacobian(W, x), det(jacobian(W, x)), factors(W, x)]); }})()",
    )
    y, J, det, factors = (torch.tensor(part, dtype=F64) for part in zip(*found, strict=True))
    torch.testing.assert_close(y, f(x), rtol=0, atol=1e-13)
    torch.testing.assert_close(J, f.jacobian(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(det.abs().log(), f.forward_and_ladj(x)[1], rtol=1e-10, atol=1e-10)
    regular = (x * (x @ f.weight.T)).sum(1).abs() > 1e-9
    torch.testing.assert_close(factors.prod(1)[regular], det[regular], rtol=1e-10, atol=1e-10)
    assert regular.sum() >= 4


@pytest.mark.parametrize(("lam", "s", "changes"), [(1.9, 0, 0), (2.1, 0, 4), (0.55, 0, 0), (0.45, 0, 4), (1, 1.5, 0), (-1, 0, 0)])
def test_sign_changes_appear_when_the_condition_number_passes_two(node, lam, s, changes):
    found = node("reflected_area.maths.js", f"curve(matrix({lam}, {s}))")
    assert found["changes"] == changes
    angle, det = torch.tensor(found["points"], dtype=F64).T
    x = torch.stack([torch.deg2rad(angle).cos(), torch.deg2rad(angle).sin()], 1)
    torch.testing.assert_close(det, torch.linalg.det(reflection(lam, s).jacobian(x)), rtol=1e-10, atol=1e-10)


def test_area_of_the_image_of_a_small_disc_is_the_determinant(node):
    for lam, s in CASES[:5]:
        share, det = node(
            "reflected_area.maths.js",
            f"(() => {{ const W = matrix({lam}, {s}), x = [1.3, 0.6], disc = circle(x, 0.001, 360); "
            "return [area(disc.map((p) => reflect(W, p))) / area(disc), det(jacobian(W, x))]; })()",
        )
        assert share == pytest.approx(det, rel=1e-4, abs=1e-4)
    assert node("reflected_area.maths.js", "area(circle([3, 1], 0.5, 2000))") == pytest.approx(0.25 * math.pi, rel=1e-5)
