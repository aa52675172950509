"""What FoldingGaussian computes in the browser, against mon_lib in float64."""

import math

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection

F64 = torch.float64
MODULE = "folding_gaussian.maths.js"
MEAN, SIGMA = [0.5, 1.3], 0.45


def reflection(kappa):
    f = AuxiliaryReflection(2, dtype=F64).requires_grad_(False)
    f.weight.copy_(torch.diag(torch.tensor([1.0, kappa], dtype=F64)))
    return f


def circle(angles, r=1.0):
    angles = torch.as_tensor(angles, dtype=F64)
    return r * torch.stack([angles.cos(), angles.sin()], -1)


def share(x):
    return (-(x - torch.tensor(MEAN, dtype=F64)).square().sum(-1) / (2 * SIGMA**2)).exp()


def test_the_cloud_is_standard_normal(node):
    points = torch.tensor(node(MODULE, "cloud(900)"), dtype=F64)
    # a lattice: far closer than the 0.03 of as many random points
    assert points.mean(0).abs().max() < 0.01
    assert (points.T @ points / 900 - torch.eye(2, dtype=F64)).abs().max() < 0.02
    inside = (points.norm(dim=1) < 1.0).double().mean()
    assert abs(float(inside) - (1 - math.exp(-0.5))) < 0.01


@pytest.mark.parametrize("kappa", [1.0, 1.9, 2.04, 2.7, 3.0])
def test_images_and_terms_are_those_of_all_preimages(node, kappa):
    targets = [*torch.linspace(-3.1, 3.13, 37, dtype=F64).tolist(), -1.6, -1.55, 1.5, 1.62]
    f, r = reflection(kappa), 1.4
    found = node(MODULE, f"{targets}.map((t) => terms({kappa}, {MEAN}, {SIGMA}, {r}, t))")
    expected = f.preimages(circle(targets, r))
    for target, terms, x in zip(targets, found, expected, strict=True):
        theta = torch.tensor([term["theta"] for term in terms], dtype=F64)
        assert len(terms) == len(x)
        torch.testing.assert_close(f(circle(theta, r)), circle(target, r).expand(len(x), 2), rtol=0, atol=1e-9)
        torch.testing.assert_close(theta.cos().sort().values, (x[:, 0] / r).sort().values, rtol=0, atol=1e-7)
        ladj = f.forward_and_ladj(circle(theta, r))[1]
        values = torch.tensor([term["value"] for term in terms], dtype=F64)
        torch.testing.assert_close(values, share(circle(theta, r)) / ladj.exp(), rtol=1e-7, atol=1e-12)
    assert {len(terms) for terms in found} == ({1} if kappa < 2 else {1, 3})
    images = node(MODULE, f"{circle(targets, r).tolist()}.map((x) => image({kappa}, x))")
    torch.testing.assert_close(torch.tensor(images, dtype=F64), f(circle(targets, r)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kappa", [2.04, 2.7, 3.0])
def test_folds_are_where_the_determinant_vanishes_and_rays_where_they_go(node, kappa):
    theta, w = node(MODULE, f"[fold({kappa}), wedge({kappa})]")
    f = reflection(kappa)
    assert abs(float(torch.linalg.det(f.jacobian(circle([theta]))[0]))) < 1e-12
    y = f(circle([theta]))[0]
    assert float(torch.atan2(y[1], y[0])) == pytest.approx(-math.pi / 2 + w, abs=1e-12)
    counts = [len(x) for x in f.preimages(circle([-math.pi / 2 + s * w for s in (-1.001, -0.999, 0.999, 1.001)]))]
    assert counts == [1, 3, 3, 1]
    assert node(MODULE, f"[{-math.pi / 2 + w}, {math.pi / 2 - w}].map(tilt)") == pytest.approx([w, w], abs=1e-12)


@pytest.mark.parametrize("kappa", [1.0, 1.9, 2.0, 2.5, 3.0])
def test_the_mass_is_the_mean_determinant(node, kappa):
    angles = (torch.arange(200_000, dtype=F64) + 0.5) * (2 * math.pi / 200_000)
    mean = reflection(kappa).forward_and_ladj(circle(angles))[1].exp().mean()
    assert node(MODULE, f"cover({kappa})") == pytest.approx(float(mean), abs=1e-8)
    assert node(MODULE, f"[fold({kappa}) === null, wedge({kappa}) === 0]") == [kappa <= 2, kappa <= 2]


def test_sheets_and_their_sum(node):
    kappa, r = 2.7, 1.4
    f = reflection(kappa)
    sheets = node(MODULE, f"sheets({kappa}, {MEAN}, {SIGMA}, {r}, -1)")
    assert [sheet["turned"] for sheet in sheets] == [True, False, True, False]
    for sheet in sheets:
        angle, value = torch.tensor(sheet["points"], dtype=F64).T
        assert ((angle.diff() < 0) == sheet["turned"]).all()  # a sheet is monotone, and a turned one runs backwards
        some = slice(40, 200, 20)
        for target, term in zip(angle[some].tolist(), value[some].tolist(), strict=True):
            x = f.preimages(circle([target], r))[0]
            terms = share(x) / f.forward_and_ladj(x)[1].exp()
            assert float((terms - term).abs().min()) < 1e-6 * term + 1e-12
    (one,) = node(MODULE, f"sheets(1.9, {MEAN}, {SIGMA}, {r}, -1)")
    assert not one["turned"]
    assert one["points"][-1][0] - one["points"][0][0] == pytest.approx(2 * math.pi, abs=1e-2)  # once round

    points = torch.tensor(node(MODULE, f"total({kappa}, {MEAN}, {SIGMA}, {r}, {-math.pi / 2})"), dtype=F64)
    for target, density in points[10:-10:10].tolist():
        x = f.preimages(circle([target], r))[0]
        assert density == pytest.approx(float((share(x) / f.forward_and_ladj(x)[1].exp()).sum()), rel=1e-6)
    assert node(MODULE, f"total(1.9, {MEAN}, {SIGMA}, {r}, 0)") == []
