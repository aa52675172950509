"""Chapter 2: monotone operators, their resolvents and Cayley operators (MON appendix A)."""

from __future__ import annotations

import pytest
import torch

from mon_lib.errors import NotMonotoneError
from mon_lib.operators import Dense
from mon_lib.prox import Clip, ReLU, SoftThreshold

SIZES = (1, 2, 7, 24)
ALPHAS = (0.05, 0.7, 1.0, 12.0)
TIGHT = ((1.0, 1.0, 0.5), (1.0, 2.0, 0.5), (0.1, 5.0, 0.2), (2.0, 9.0, 10.0))  # m, L, alpha


def generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(sum(1000**i * k for i, k in enumerate(key)))


def random_matrix(n: int, seed: int, m: float = 0.3, skew: float = 1.0) -> torch.Tensor:
    """A random G whose symmetric part is at least mI."""
    g = generator(n, seed)
    P, S = (torch.randn(n, n, generator=g, dtype=torch.float64) for _ in range(2))
    return m * torch.eye(n, dtype=torch.float64) + P @ P.T / n + skew * (S - S.T)


def rotation(m: float, L: float) -> torch.Tensor:
    s = (L**2 - m**2) ** 0.5
    return torch.tensor([[m, -s], [s, m]], dtype=torch.float64)


def dense(G: torch.Tensor, m: float) -> Dense:
    return Dense.from_matrix(torch.eye(len(G), dtype=G.dtype) - G, m)


def cayley_factor(alpha: float, m: float, L: float) -> float:
    return (1.0 - 4.0 * alpha * m / (1.0 + 2.0 * alpha * m + alpha**2 * L**2)) ** 0.5


@pytest.mark.claim("MON-A1D")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", SIZES)
def test_resolvent_of_an_affine_operator(n, alpha):
    G, g = random_matrix(n, 1), generator(n)
    x, h = torch.randn(5, n, generator=g, dtype=torch.float64), torch.randn(n, generator=g, dtype=torch.float64)
    p = dense(G, 0.3).resolvent(alpha)(x - alpha * h)  # MON A6
    torch.testing.assert_close(p + alpha * (p @ G.T + h), x, rtol=1e-10, atol=1e-10)


@pytest.mark.claim("MON-A1D")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(
    ("activation", "f"),
    [
        (ReLU(), lambda z: torch.where(z >= 0, 0.0, torch.inf)),
        (Clip(-0.5, 2.0), lambda z: torch.where((z >= -0.5) & (z <= 2.0), 0.0, torch.inf)),
        (SoftThreshold(1.0), torch.abs),
    ],
    ids=["relu", "clip", "soft-threshold"],
)
def test_resolvent_of_a_subdifferential_is_the_proximal_operator(activation, f, alpha):
    x = torch.linspace(-3, 3, 41, dtype=torch.float64)
    grid = torch.arange(-4000, 4001, dtype=torch.float64) / 1000
    brute = grid[((x[:, None] - grid).square() / 2 + alpha * f(grid)).argmin(1)]
    z = activation.prox(x, alpha)
    assert (z - brute).abs().max() <= 0.51e-3  # half a grid step
    # (x - z)/alpha is a subgradient at z: f(y) >= f(z) + (x - z)(y - z)/alpha for every y.
    below = f(z)[:, None] + (x - z)[:, None] * (grid - z[:, None]) / alpha
    assert bool((f(grid) >= below - 1e-9).all())


@pytest.mark.claim("MON-A1D")
@pytest.mark.parametrize("n", SIZES)
def test_strong_monotonicity_bounds_the_distance_to_the_zero(n):
    G, g = random_matrix(n, 2), generator(n, 2)
    m = dense(G, 0.3).monotonicity()
    h = torch.randn(n, generator=g, dtype=torch.float64)
    zero = torch.linalg.solve(G, -h)
    x = zero + torch.randn(2000, n, generator=g, dtype=torch.float64)
    u = x @ G.T + h
    assert bool(((x - zero).norm(dim=1) <= u.norm(dim=1) / m * (1 + 1e-12)).all())
    assert torch.linalg.matrix_norm(torch.linalg.inv(G), 2) <= (1 + 1e-12) / m  # the inverse is 1/m-Lipschitz


@pytest.mark.claim("MON-A2D")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", SIZES)
def test_strong_monotonicity_is_the_symmetric_part(n, seed):
    G, g = random_matrix(n, seed), generator(n, seed, 3)
    m = dense(G, 0.3).monotonicity()
    directions = torch.randn(5000, n, generator=g, dtype=torch.float64)
    worst = torch.linalg.eigh((G + G.T) / 2).eigenvectors[:, 0]
    quotient = lambda d: ((d @ G.T) * d).sum(-1) / d.square().sum(-1)  # noqa: E731
    assert quotient(directions).min() >= m - 1e-12
    assert abs(quotient(worst).item() - m) < 1e-10
    assert torch.linalg.eigvalsh(G + G.T - 2 * m * torch.eye(n, dtype=G.dtype))[0] >= -1e-10
    dense(G, m * (1 - 1e-9))
    with pytest.raises(NotMonotoneError, match="smallest eigenvalue"):
        dense(G, m + 1e-6)


@pytest.mark.claim("MON-A2D")
@pytest.mark.parametrize("n", SIZES)
def test_mI_in_place_of_2mI_is_refuted_by_half_the_identity(n):
    G, m = torch.eye(n, dtype=torch.float64) / 2, 1.0
    assert torch.linalg.eigvalsh(G + G.T - m * torch.eye(n, dtype=G.dtype))[0] >= 0  # what the bound with mI asks for
    with pytest.raises(NotMonotoneError, match=r"0\.5"):
        dense(G, m)
    assert dense(G, m / 2).monotonicity() == pytest.approx(m / 2, abs=1e-14)


@pytest.mark.claim("MON-A2D")
def test_the_skew_part_is_free():
    calm, wild = (dense(random_matrix(9, 4, skew=skew), 0.3) for skew in (0.0, 50.0))
    assert wild.monotonicity() == pytest.approx(calm.monotonicity(), rel=1e-9)
    assert wild.lipschitz() > 20 * calm.lipschitz()


@pytest.mark.claim("MON-A5")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", SIZES)
def test_resolvent_is_firmly_nonexpansive_and_contracts(n, alpha):
    G, g = random_matrix(n, 5), generator(n, 5)
    W = dense(G, 0.3)
    R, m = W.resolvent(alpha), W.monotonicity()
    x, y = torch.randn(2, 500, n, generator=g, dtype=torch.float64)
    d = R(x) - R(y)
    assert bool((d.square().sum(1) <= ((x - y) * d).sum(1) * (1 + 1e-12)).all())
    assert bool((d.norm(dim=1) <= (x - y).norm(dim=1) / (1 + alpha * m) * (1 + 1e-12)).all())
    c = cayley_factor(alpha, m, W.lipschitz())
    assert c < 1
    assert W.cayley_norm(alpha) <= c + 1e-12
    assert bool(((2 * d - (x - y)).norm(dim=1) <= c * (x - y).norm(dim=1) + 1e-12).all())


@pytest.mark.claim("MON-A5")
@pytest.mark.parametrize(("m", "L", "alpha"), TIGHT)
def test_both_factors_are_attained(m, L, alpha):
    multiple = dense(m * torch.eye(3, dtype=torch.float64), m)
    x = torch.ones(1, 3, dtype=torch.float64)
    torch.testing.assert_close(multiple.resolvent(alpha)(x), x / (1 + alpha * m), rtol=1e-13, atol=0)
    assert dense(rotation(m, L), m).cayley_norm(alpha) == pytest.approx(cayley_factor(alpha, m, L), abs=1e-7)


@pytest.mark.claim("MON-A5")
@pytest.mark.parametrize("wanted", (0.9, 0.999, 1 - 1e-6))
def test_strong_monotonicity_alone_gives_no_factor_for_the_cayley_operator(wanted):
    """The claim after A5, as printed: multiples of I approach the normal cone of {0}, whose Cayley operator is -I."""
    large = 2.0 / (1.0 - wanted)
    W = dense(large * torch.eye(2, dtype=torch.float64), 1.0)
    assert W.monotonicity() >= 1.0
    assert wanted < W.cayley_norm(1.0) < 1.0
    x = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    image = 2 * W.resolvent(1.0)(x) - x
    torch.testing.assert_close(image, -x, rtol=1.1 * (1 - wanted), atol=0)


@pytest.mark.claim("MON-A5")
def test_a_lipschitz_condition_alone_gives_no_factor_either():
    assert dense(rotation(1e-9, 1.0), 1e-9).cayley_norm(1.0) > 1 - 1e-8


@pytest.mark.claim("MON-A5")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_resolvent_and_cayley_iterations_find_the_zero(alpha):
    G, g = random_matrix(6, 8), generator(8)
    W, h = dense(G, 0.3), torch.randn(6, generator=g, dtype=torch.float64)
    zero = torch.linalg.solve(G, -h)
    R, m, L = W.resolvent(alpha), W.monotonicity(), W.lipschitz()
    z = y = torch.zeros(1, 6, dtype=torch.float64)
    for k in range(1, 60):
        z, y = R(z - alpha * h), 2 * R(y - alpha * h) - y
        assert (z - zero).norm() <= (1 + alpha * m) ** -k * zero.norm() + 1e-10
        assert (y - zero).norm() <= cayley_factor(alpha, m, L) ** k * zero.norm() + 1e-10
