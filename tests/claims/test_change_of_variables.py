"""Chapter 21: the change of variables with one preimage and with several, couplings without a derivative, noise on pixels.

Inverses and determinants of the transforms themselves are in tests/flows.
"""

import math

import numpy as np
import pytest
import torch

from mon_lib.flows import transforms as T
from mon_lib.reflections import AuxiliaryReflection

F64 = torch.float64
MEAN, SIGMA = torch.tensor([0.5, 1.3], dtype=F64), 0.45


def reflection(*eigenvalues):
    f = AuxiliaryReflection(len(eigenvalues), dtype=F64).requires_grad_(False)
    f.weight.copy_(torch.diag(torch.tensor(eigenvalues, dtype=F64)))
    return f


def circle(angle):
    angle = torch.as_tensor(angle, dtype=F64)
    return torch.stack([angle.cos(), angle.sin()], -1)


def half_width(kappa):
    """Half of the angle about the second axis in which W = diag(1, kappa) gives three preimages; 0 up to kappa = 2."""
    if kappa <= 2:
        return 0.0
    fold = math.asin(math.sqrt((2 * kappa - 1) / (kappa**2 - 1)))
    y = reflection(1, kappa)(circle([fold]))[0]
    return math.pi / 2 + float(torch.atan2(y[1], y[0]))


def along(x):
    """The mass of the Gaussian on the rays of unit vectors x, for each angle."""
    r = torch.linspace(0, 6, 1001, dtype=F64)
    p = (-((r[:, None, None] * x - MEAN) ** 2).sum(2) / (2 * SIGMA**2)).exp() / (2 * math.pi * SIGMA**2)
    return torch.trapezoid(p * r[:, None], r, dim=0)


@pytest.mark.parametrize("kappa", [1.5, 1.8, 2.3, 2.7, 3.0])
def test_the_density_of_the_image_is_the_sum_over_preimages(kappa):
    """Its mass is one; that of the largest term is not, once there are several. f(rx) = r f(x), so rays will do."""
    f, w = reflection(1, kappa), half_width(kappa)
    node, size = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(60))
    phi = (node + 1) * math.pi / 2  # the density is infinite at the end of an arc, and its product with sin(phi) is not
    whole = largest = 0.0
    for quarter, half in enumerate([math.pi / 2 - w, w] * 2 if w else [math.pi / 4] * 4):
        middle = quarter if w else quarter + 0.5  # with the nodes dense where the density is large
        targets = circle(middle * math.pi / 2 - half * phi.cos())
        for weight, x in zip(half * phi.sin() * size * math.pi / 2, f.preimages(targets), strict=True):
            terms = along(x) / f.forward_and_ladj(x)[1].exp()
            whole, largest = whole + float(weight * terms.sum()), largest + float(weight * terms.max())
            assert len(x) == (3 if w and half == w else 1)
    assert abs(whole - 1) < 1e-6
    assert largest < 0.95 if w else abs(largest - whole) < 1e-12


@pytest.mark.parametrize("kappa", [1.5, 2.0, 2.2, 2.7, 6.0])
def test_the_mass_of_a_flow_that_folds_is_the_mean_number_of_preimages(kappa):
    f, w = reflection(1, kappa), half_width(kappa)
    angle = (torch.arange(100_000, dtype=F64) + 0.5) * (2 * math.pi / 100_000)
    mass = float(f.forward_and_ladj(circle(angle))[1].exp().mean())
    covered = 1 + 4 * w / math.pi  # two wedges of half-width w hold two more preimages
    assert abs(mass - covered) < 1e-8
    counts = [len(x) for x in f.preimages(circle((torch.arange(400, dtype=F64) + 0.5) * (2 * math.pi / 400)))]
    assert set(counts) == ({1, 3} if kappa > 2 else {1})
    assert abs(np.mean(counts) - covered) < 8 * 2 / 400  # four ends of wedges, each known to one target in 400
    assert (mass > 1 + 1e-3) == (kappa > 2)


class Steps(torch.nn.Module):
    """Scale and shift that jump: nothing that has a derivative."""

    def forward(self, x1):
        return torch.cat([4 * torch.sign(torch.sin(9 * x1)) - 2, torch.floor(3 * x1)], 1)


def test_a_coupling_needs_no_derivative():
    coupling = T.AffineCoupling(2, 1).double()
    coupling.network = Steps()
    x1 = torch.linspace(-1.9, 1.95, 7, dtype=F64)
    wide = torch.linspace(-600, 600, 120_001, dtype=F64)  # the smallest scale is sigmoid(-4)
    for one in x1.tolist():
        x = torch.stack([torch.full_like(wide, one), wide], 1)[:, :, None, None]
        y, ladj = coupling.forward_and_ladj(x)
        assert (coupling.inverse(y) - x).abs().max() < 1e-9
        density = (ladj - 0.5 * y[:, 1, 0, 0] ** 2).exp() / math.sqrt(2 * math.pi)
        assert abs(float(torch.trapezoid(density, wide)) - 1) < 1e-9
    assert len({round(float(v), 9) for v in coupling.forward_and_ladj(x1.repeat(2, 1).T[:, :, None, None])[1]}) == 2


def test_noise_on_pixels_gives_a_bound_on_their_probability():
    levels, n = 5, 40_000
    step, q = T.Dequantisation(levels), torch.distributions.Normal(torch.tensor(0.1, dtype=F64), 0.3)
    edges = torch.arange(levels + 1, dtype=F64) / levels - 0.5
    P = q.cdf(edges).diff()
    assert 0.8 < float(P.sum()) < 1  # the rest of the density is where no pixels are
    torch.manual_seed(0)
    for k in range(levels):
        y, ladj = step.forward_and_ladj(torch.full((n, 1, 1, 1), k / (levels - 1), dtype=F64))
        bound = q.log_prob(y).flatten() + ladj
        gap = float(P[k].log() - bound.mean())
        assert gap > 5 * float(bound.std()) / math.sqrt(n)  # strict: the normal density is constant on no cube
        # and averaging the density itself gives the probability
        assert abs(float(bound.exp().mean() / P[k]) - 1) < 5 * float(bound.exp().std() / P[k]) / math.sqrt(n)


def test_a_density_that_is_constant_on_each_cube_pays_nothing_for_the_noise():
    levels = 4
    step, P = T.Dequantisation(levels), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64)
    k = torch.arange(levels).repeat(50)
    y, ladj = step.forward_and_ladj((k.double() / (levels - 1)).reshape(-1, 1, 1, 1))
    q = P[((y.flatten() + 0.5) * levels).long()] * levels
    assert (q.log() + ladj - P[k].log()).abs().max() < 1e-12
