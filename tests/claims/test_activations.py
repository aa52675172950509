"""Chapter 8: which activations are proximal, built from the proof and not from the library's formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mon_lib import operators, prox
from mon_lib.errors import NotProximalError
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford

F64 = torch.float64


class PiecewiseLinear:
    """sigma with given slopes on the unit intervals of [-n, n], and the end slopes beyond."""

    def __init__(self, slopes):
        self.slopes = slopes.double()
        self.left = torch.arange(len(slopes), dtype=F64) - len(slopes) // 2
        self.values = torch.cat([torch.zeros(1, dtype=F64), self.slopes.cumsum(0)[:-1]])
        self.values = self.values - self.values[len(slopes) // 2] + 0.4

    def __call__(self, x):
        k = (x.detach().floor() - self.left[0]).long().clamp(0, len(self.slopes) - 1)
        return self.values[k] + self.slopes[k] * (x - self.left[k])


@pytest.mark.claim("NEW-PROX")
@pytest.mark.parametrize("seed", range(5))
def test_slopes_in_the_unit_interval_make_a_prox(seed):
    """f(p) = sup_s Psi(p + s) - s^2/2 is convex, and sigma(x) minimises f(p) + (x - p)^2/2."""
    slopes = (1.6 * torch.rand(12, generator=torch.Generator().manual_seed(seed)) - 0.3).clamp(0, 1)
    sigma = PiecewiseLinear(slopes)
    t = torch.linspace(-8, 8, 8001, dtype=F64)
    area = torch.cumulative_trapezoid(sigma(t), t)
    Phi = torch.cat([torch.zeros(1, dtype=F64), area])
    p = torch.linspace(sigma(t[250]).item(), sigma(t[-250]).item(), 801, dtype=F64)  # inside the range
    f = (0.5 * t**2 - Phi - 0.5 * (t - p[:, None]) ** 2).max(1).values
    second = f[40:] - 2 * f[20:-20] + f[:-40]
    assert (second > -1e-5).all()  # the grid of t adds at most its squared step
    s = prox.from_callable(sigma, "piecewise linear")
    x = torch.linspace(-6, 6, 49, dtype=F64)
    spacing = (p[1] - p[0]).item()
    for alpha in (0.3, 1.0, 4.0):
        inside = (s.prox(x, alpha) > p[0]) & (s.prox(x, alpha) < p[-1])
        brute = p[(0.5 * (x[:, None] - p) ** 2 + alpha * f).argmin(1)]
        assert inside.sum() > 10
        assert (s.prox(x, alpha) - brute)[inside].abs().max() <= 2 * spacing


@pytest.mark.claim("NEW-PROX")
@pytest.mark.parametrize("bad", [-0.02, 1.02])
def test_one_slope_out_of_range_is_found_and_loses_uniqueness(bad):
    """The necessity proof: W = 1/r and b = x - W sigma(x) give two equilibria although 1 - W > 0."""
    slopes = torch.full((12,), 0.5)
    slopes[7] = bad
    sigma = PiecewiseLinear(slopes)
    with pytest.raises(NotProximalError, match="nondecreasing" if bad < 0 else "nonexpansive"):
        prox.from_callable(sigma, "piecewise linear")
    x, y = torch.tensor([1.2, 1.8], dtype=F64)
    w = (x - y) / (sigma(x) - sigma(y))
    b = x - w * sigma(x)
    assert w < 1
    for z in (sigma(x), sigma(y)):
        assert (z - sigma(w * z + b)).abs() < 1e-12
    assert sigma(x) != sigma(y)


@pytest.mark.claim("NEW-PROX")
@pytest.mark.parametrize(("fn", "x", "y"), [(F.silu, -2.5, -2.3), (F.gelu, 1.3, 1.5), (F.mish, -2.3, -2.2), (F.selu, 1.0, 2.0)])
def test_popular_activations_lose_uniqueness(fn, x, y):
    x, y = torch.tensor([x, y], dtype=F64)
    w = (x - y) / (fn(x) - fn(y))
    b = x - w * fn(x)
    assert w < 1
    for z in (fn(x), fn(y)):
        assert (z - fn(w * z + b)).abs() < 1e-12


@pytest.mark.claim("NEW-PROX")
def test_prox_of_a_random_convex_function_has_slopes_in_the_unit_interval():
    rng = np.random.default_rng(0)
    grid, x = np.linspace(-6, 6, 24001), np.linspace(-3, 3, 61)
    for _ in range(5):
        planes = rng.standard_normal((6, 2))
        f = (planes[:, :1] * grid + planes[:, 1:]).max(0) + rng.random() * np.abs(grid) ** 3
        p = grid[(0.5 * (x[:, None] - grid) ** 2 + f).argmin(1)]
        quotient = np.diff(p) / np.diff(x)
        assert quotient.min() >= -0.01 and quotient.max() <= 1.01 and quotient.max() > 0.1


@pytest.mark.claim("NEW-PROX")
@pytest.mark.parametrize(
    "s",
    [
        prox.ReLU(), prox.LeakyReLU(0.2), prox.Clip(), prox.SoftThreshold(0.3), prox.Tanh(), prox.Sigmoid(), prox.Softplus(),
        prox.ELU(), prox.Softsign(), prox.Arctan(), prox.from_callable(F.tanhshrink),
    ],
    ids=repr,
)  # fmt: skip
def test_every_step_of_every_splitting_solves_the_same_network(s):
    """prox_{alpha f}, and not sigma, makes the equilibrium independent of alpha."""
    torch.manual_seed(0)
    W, bias = operators.Dense(9, m=0.7, dtype=F64), torch.randn(4, 9, dtype=F64)
    slow = 0.5 * W.m / W.lipschitz() ** 2
    for solver in (
        PeacemanRachford(alpha=0.2, tol=1e-9, max_steps=5000),
        PeacemanRachford(alpha=3.0, tol=1e-9, max_steps=5000),
        DouglasRachford(alpha=1.7, tol=1e-9, max_steps=5000),
        ForwardBackward(alpha=slow, tol=1e-9, max_steps=5000),
    ):
        z = solver.solve(W, bias, s).z
        assert (z - s(W(z) + bias)).abs().max() < 1e-7 * max(1.0, z.abs().max().item())
