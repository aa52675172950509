"""What ThreeSheets computes in the browser, against mon_lib in float64."""

import math

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection

F64 = torch.float64
MODULE = "three_sheets.maths.js"
T = [-1.0, -0.3, -0.01, 0.01, 0.2, 0.7, 0.99, 1.2, 2.0]
ANGLES = [0.3, 1.1, 1.57, 2.2, 3.0, -0.4, -1.5, -2.9]


def reflection(t, d):
    f = AuxiliaryReflection(d, dtype=F64).requires_grad_(False)
    f.weight.copy_(torch.diag(torch.tensor([t] + [2.0] * (d - 1), dtype=F64)))
    return f


def points(d, n=300):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(d), dtype=F64)
    return x / x.norm(dim=1, keepdim=True)


def sections(x):
    return torch.stack([x[:, 0], x[:, 1:].norm(dim=1)], 1)


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("t", T)
def test_reflection_and_determinant(node, t, d):
    x = points(d, 40)
    f = reflection(t, d)
    rows = sections(x).tolist()
    images = node(MODULE, f"{rows}.map((x) => reflect({t}, x))")
    dets = node(MODULE, f"{rows}.map((x) => determinant({t}, {d}, x))")
    y = f(x)
    along = (y[:, 1:] * x[:, 1:]).sum(1) / x[:, 1:].norm(dim=1)
    torch.testing.assert_close(torch.tensor(images, dtype=F64), torch.stack([y[:, 0], along], 1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.tensor(dets, dtype=F64), torch.linalg.det(f.jacobian(x)), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("t", T)
def test_every_preimage(node, t):
    targets = [[math.cos(a), math.sin(a)] for a in [*ANGLES, math.pi / 2 + 1e-9]]
    found = node(MODULE, f"{targets}.map((y) => preimages({t}, y))")
    expected = reflection(t, 2).preimages(torch.tensor(targets, dtype=F64))
    for here, there in zip(found, expected, strict=True):
        assert len(here) == len(there)
        here = torch.tensor(here, dtype=F64)
        assert torch.cdist(there, here).min(1).values.max() < 1e-8
    assert t > 0 or {len(here) for here in found} == {3}
    assert t < 1 or {len(here) for here in found} == {1}


def test_at_the_singular_matrix_it_is_the_orthogonal_one(node):
    assert node(MODULE, "[reflect(0, [0.6, 0.8]), ...preimages(0, [0.6, 0.8])]") == [[0.6, -0.8], [0.6, -0.8]]
    assert node(MODULE, "[determinant(0, 4, [0.6, 0.8]), determinant(0, 5, [0.6, 0.8]), mass(0, 5)]") == [-1, 1, 1]


@pytest.mark.parametrize("t", [-0.5, 0.3, 0.8])
def test_the_border_is_where_the_sheets_meet(node, t):
    angle = node(MODULE, f"border({t})")
    x = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=F64)
    f = reflection(t, 2)
    if t < 0:
        torch.testing.assert_close(f(x).abs(), torch.tensor([[1.0, 0.0]], dtype=F64), atol=1e-9, rtol=0)
    else:
        assert abs(float(torch.linalg.det(f.jacobian(x)))) < 1e-9
    assert node(MODULE, "[border(0), border(1), border(1.5)]") == [0, 0, 0]


@pytest.mark.parametrize(("t", "d"), [(-0.2, 2), (-0.2, 5), (0.1, 2), (0.5, 3), (0.5, 4), (0.9, 6), (1.1, 4)])
def test_the_mass_is_the_mean_number_of_preimages(node, t, d):
    """Both estimates, and the count by the library, within five standard errors."""
    exact, plain, weighted = node(
        MODULE,
        f"(() => {{ const p = sphere({d}, 20000, 5); const end = (v) => running(v).at(-1);"
        f" return [mass({t}, {d}), end(plain({t}, {d}, p)), end(weighted({t}, {d}, p))]; }})()",
    )
    assert weighted[0] == plain[0] == 20000
    assert abs(weighted[1] - exact) < 2.5 * weighted[2] + 1e-9  # twice the standard error is what is returned
    counts = torch.tensor([float(len(x)) for x in reflection(t, d).preimages(points(d))])
    assert abs(counts.mean() - exact) < 5 * counts.std() / len(counts) ** 0.5 + 1e-9
    if t > 0.4:
        assert abs(plain[1] - exact) < 2.5 * plain[2] + 1e-9


def test_uniform_samples_miss_the_mass(node):
    plain, weighted = node(MODULE, "[plain, weighted].map((values) => running(values(-0.02, 6, sphere(6, 8000, 5))).at(-1))")
    assert plain[1] + plain[2] < 1.1 and abs(weighted[1] - 3) < weighted[2] < 0.1


@pytest.mark.parametrize("d", [2, 3, 9])
def test_the_points_are_uniform_and_the_running_mean_is_a_mean(node, d):
    rows, curve = node(MODULE, f"(() => {{ const p = sphere({d}, 5000, 3); return [p, running(p.map((x) => x[0] * x[0]))]; }})()")
    x = torch.tensor(rows, dtype=F64)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(5000, dtype=F64))
    assert (x[:, 1] >= 0).all() and abs(x[:, 0].mean()) < 5 / (5000 * d) ** 0.5
    squares = x[:, 0].square()
    assert abs(squares.mean() - 1 / d) < 5 * squares.std() / 5000**0.5
    for k, mean, error in curve:
        assert mean == pytest.approx(squares[:k].mean().item(), abs=1e-9)
        assert error == pytest.approx(2 * squares[:k].std().item() / k**0.5, rel=1e-6)
    assert curve[0][0] == 10 and curve[-1][0] == 5000 and len(curve) == 41
