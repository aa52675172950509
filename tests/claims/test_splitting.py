"""Chapter 3: forward-backward, Peaceman-Rachford and Douglas-Rachford (MON section 3.4, appendix A)."""

from __future__ import annotations

import cmath
import math

import pytest
import torch

from mon_lib.operators import Dense
from mon_lib.operators.dense import FrozenDense
from mon_lib.prox import Clip, ReLU, SoftThreshold, Tanh
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford, Problem, Status

ACTIVATIONS = [ReLU(), SoftThreshold(0.5), Clip(-1.0, 1.0), Tanh()]
TIGHT = ((1.0, 1.5, 0.3), (0.5, 3.0, 1.0), (0.1, 10.0, 0.1), (2.0, 2.5, 20.0))  # m, L, alpha
EYE = torch.eye(2, dtype=torch.float64)
NAIVE = torch.tensor([[0.0, -3.0], [3.0, 0.0]], dtype=torch.float64)


class Linear:
    """The B that multiplies by a matrix; a monotone one stands for no activation, and needs none of its methods."""

    def __init__(self, matrix: torch.Tensor):
        self.matrix = matrix

    def prox(self, u, alpha):
        return torch.linalg.solve(torch.eye(len(self.matrix), dtype=u.dtype) + alpha * self.matrix, u.T).T


NOTHING = Linear(0 * EYE)


def generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(sum(1000**i * k for i, k in enumerate(key)))


def random_matrix(n: int, seed: int, m: float = 0.3, skew: float = 1.0) -> torch.Tensor:
    g = generator(n, seed)
    P, S = (torch.randn(n, n, generator=g, dtype=torch.float64) for _ in range(2))
    return m * torch.eye(n, dtype=torch.float64) + P @ P.T / n + skew * (S - S.T)


def dense(G: torch.Tensor, m: float) -> Dense:
    return Dense.from_matrix(torch.eye(len(G), dtype=G.dtype) - G, m)


def times(number: complex) -> torch.Tensor:
    """Multiplication by a complex number, as a real matrix."""
    return torch.tensor([[number.real, -number.imag], [number.imag, number.real]], dtype=torch.float64)


def worst(m: float, L: float) -> complex:
    return complex(m, (L**2 - m**2) ** 0.5)


def q(alpha: float, m: float, L: float) -> float:
    return (1 - 2 * alpha * m + alpha**2 * L**2) ** 0.5


def c(alpha: float, m: float, L: float) -> float:
    return (1 - 4 * alpha * m / (1 + 2 * alpha * m + alpha**2 * L**2)) ** 0.5


def run(solver, problem: Problem, z0: torch.Tensor, steps: int) -> torch.Tensor:
    u = solver.start(problem, z0)
    for _ in range(steps):
        u, _, _ = solver.step(problem, u)
    return u


def bias_for(G: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """The bias that makes a positive z the equilibrium of a ReLU network."""
    return z @ G.T


# --- forward-backward


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize("share", (0.1, 0.5, 0.95, 1.0, 1.5))
@pytest.mark.parametrize("n", (1, 2, 6, 20))
def test_forward_step_is_bounded_by_q(n, share):
    W = dense(random_matrix(n, 1), 0.3)
    m, L = W.monotonicity(), W.lipschitz()
    alpha = share * 2 * m / L**2
    assert W.forward_norm(alpha) <= q(alpha, m, L) + 1e-12
    assert (q(alpha, m, L) < 1 - 1e-12) == (share < 1)


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize(("m", "L", "alpha"), TIGHT)
def test_forward_bound_is_attained_and_best_at_m_over_L2(m, L, alpha):
    W = dense(times(worst(m, L)), m)
    assert W.forward_norm(alpha) == pytest.approx(q(alpha, m, L), abs=1e-12)
    best = W.forward_norm(m / L**2)
    assert best == pytest.approx((1 - m**2 / L**2) ** 0.5, abs=1e-12)
    assert best < min(W.forward_norm(0.9 * m / L**2), W.forward_norm(1.1 * m / L**2))


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
@pytest.mark.parametrize("share", (0.2, 0.5, 0.9))
def test_forward_backward_converges_at_the_guaranteed_rate(activation, share):
    W = dense(random_matrix(8, 2), 0.3)
    m, L = W.monotonicity(), W.lipschitz()
    bias = torch.randn(5, 8, generator=generator(2), dtype=torch.float64)
    solution = PeacemanRachford(alpha=1 / L, tol=1e-10, max_steps=5000).solve(W, bias, activation).z
    alpha = share * 2 * m / L**2
    problem = Problem(W.frozen(), bias, activation, alpha)
    z, start = torch.zeros_like(bias), solution.norm(dim=1)
    for k in range(1, 200):
        z, _, _ = ForwardBackward().step(problem, z)
        assert bool(((z - solution).norm(dim=1) <= q(alpha, m, L) ** k * start + 1e-8).all())


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize(("m", "L"), [(1.0, 2.0), (0.2, 1.0), (1.0, 1.0)])
def test_equality_in_the_bound_stalls_in_a_relu_network(m, L):
    """At alpha = 2m/L^2 the iterates stay on a circle about an equilibrium inside the orthant; the inequality is strict."""
    G = times(worst(m, L))
    z_star = torch.tensor([[10.0, 10.0]], dtype=torch.float64)
    W, bias = dense(G, m), bias_for(G, z_star)
    start = z_star + torch.tensor([[0.6, -0.8]], dtype=torch.float64)
    for share in (0.9, 1.0, 1.002):
        alpha = share * 2 * m / L**2
        z = run(ForwardBackward(), Problem(W.frozen(), bias, ReLU(), alpha), start, 200)
        expected = q(alpha, m, L) ** 200  # the orthant's boundary is never reached, so every step multiplies by q
        assert (z - z_star).norm().item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert (expected < 0.999, expected > 1.001) == (share < 1, share > 1)
    limit = ForwardBackward(alpha=2 * m / L**2, tol=1e-6, max_steps=2000).solve(W, bias, ReLU(), z0=start, throw=False)
    assert limit.status is Status.MAX_STEPS
    inside = ForwardBackward(alpha=1.8 * m / L**2, tol=1e-6, max_steps=2000).solve(W, bias, ReLU(), z0=start)
    assert (inside.z - z_star).norm() <= inside.error_bound.item()


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize("seed", range(3))
def test_symmetric_operators_allow_steps_up_to_two_over_L(seed):
    W = dense(random_matrix(10, seed, skew=0.0), 0.3)
    m, L = W.monotonicity(), W.lipschitz()
    assert 2 * m / L**2 < 1.9 / L
    assert W.forward_norm(1.999 / L) < 1 < W.forward_norm(2.001 / L)
    assert W.forward_norm(2 / (m + L)) == pytest.approx((L - m) / (L + m), abs=1e-12)
    bias = torch.randn(3, 10, generator=generator(seed), dtype=torch.float64)
    sol = ForwardBackward(alpha=1.9 / L, tol=1e-9, max_steps=5000).solve(W, bias, ReLU())
    other = PeacemanRachford(alpha=1.0, tol=1e-9, max_steps=5000).solve(W, bias, ReLU())
    assert bool(((sol.z - other.z).norm(dim=1) <= sol.error_bound + other.error_bound).all())


@pytest.mark.claim("MON-STEP")
def test_the_naive_iteration_cycles_where_the_splittings_converge():
    bias = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    z, path = torch.zeros(1, 2, dtype=torch.float64), []
    for _ in range(8):
        path.append(z[0].tolist())
        z = (z @ NAIVE.T + bias).relu()
    assert path[:4] == [[0, 0], [1, 0], [1, 3], [0, 3]]
    assert path[4:] == path[:4]
    W = Dense.from_matrix(NAIVE, 1.0)
    assert W.lipschitz() == pytest.approx(10**0.5)
    for solver in (ForwardBackward(alpha=0.1, tol=1e-8), PeacemanRachford(tol=1e-8), DouglasRachford(tol=1e-8)):
        sol = solver.solve(W, bias, ReLU())
        torch.testing.assert_close(sol.z, torch.tensor([[0.1, 0.3]], dtype=torch.float64), rtol=0, atol=1e-8)
    one = ForwardBackward(alpha=1.0, tol=1e-8).solve(W, bias, ReLU(), throw=False)  # the naive iteration
    assert one.status is Status.MAX_STEPS


# --- Peaceman-Rachford and Douglas-Rachford


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("alpha", (0.01, 0.3, 1.0, 30.0))
@pytest.mark.parametrize("n", (1, 2, 6, 20))
def test_cayley_norm_is_bounded_by_c(n, alpha):
    W = dense(random_matrix(n, 4), 0.3)
    m, L = W.monotonicity(), W.lipschitz()
    assert W.cayley_norm(alpha) <= c(alpha, m, L) + 1e-12
    assert c(alpha, m, L) < 1
    assert c(1 / L, m, L) == pytest.approx(((L - m) / (L + m)) ** 0.5, abs=1e-7)
    assert c(1 / L, m, L) <= min(c(alpha, m, L), c(0.9 / L, m, L), c(1.1 / L, m, L)) + 1e-12


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("alpha", (0.05, 1.0, 8.0))
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_one_step_contracts_by_the_guaranteed_factor(activation, alpha):
    W = dense(random_matrix(8, 5), 0.3)
    factor = W.cayley_norm(alpha)
    bias = torch.randn(1, 8, generator=generator(5), dtype=torch.float64).expand(500, 8)
    problem = Problem(W.frozen(), bias, activation, alpha)
    u, v = 3 * torch.randn(2, 500, 8, generator=generator(6), dtype=torch.float64)
    before = (u - v).norm(dim=1)
    for solver, bound in ((PeacemanRachford(), factor), (DouglasRachford(), (1 + factor) / 2)):
        after = (solver.step(problem, u)[0] - solver.step(problem, v)[0]).norm(dim=1)
        assert bool((after <= bound * before + 1e-12).all())


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize(("m", "L", "alpha"), TIGHT)
def test_both_factors_are_attained_in_the_plane(m, L, alpha):
    lam = worst(m, L)
    turn = (1 - alpha * lam) / (1 + alpha * lam)
    skew = times(1j * math.tan(cmath.phase(turn) / 2) / alpha)  # its Cayley operator undoes the turn
    bias, u = torch.zeros(4, 2, dtype=torch.float64), torch.randn(4, 2, generator=generator(7), dtype=torch.float64)
    frozen = FrozenDense(EYE - times(lam), m)
    for solver, B, factor in (
        (PeacemanRachford(), NOTHING, c(alpha, m, L)),
        (DouglasRachford(), Linear(skew), (1 + c(alpha, m, L)) / 2),
    ):
        after = solver.step(Problem(frozen, bias, B, alpha), u)[0]
        torch.testing.assert_close(after.norm(dim=1), factor * u.norm(dim=1), rtol=1e-10, atol=0)


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("seed", range(3))
def test_symmetric_operators_have_the_best_step_one_over_root_mL(seed):
    W = dense(random_matrix(10, seed, skew=0.0), 0.3)
    m, L = W.monotonicity(), W.lipschitz()
    alpha = (m * L) ** -0.5
    best = (L**0.5 - m**0.5) / (L**0.5 + m**0.5)
    assert W.cayley_norm(alpha) == pytest.approx(best, abs=1e-12)
    assert best < min(W.cayley_norm(0.9 * alpha), W.cayley_norm(1.1 * alpha))


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_every_step_size_finds_the_same_zero(activation):
    W = dense(random_matrix(8, 9), 0.3)
    bias = torch.randn(4, 8, generator=generator(9), dtype=torch.float64)
    # The error of a first solve is known: z is a zero to rounding, tested by the fixed-point equation z = sigma(Wz + bias).
    first = PeacemanRachford(alpha=0.2, tol=1e-10, max_steps=5000).solve(W, bias, activation)
    torch.testing.assert_close(activation(W(first.z) + bias), first.z, rtol=0, atol=1e-8)
    for method in (PeacemanRachford, DouglasRachford):
        for alpha in (0.05, 1.0, 10.0):
            sol = method(alpha=alpha, tol=1e-7, max_steps=5000).solve(W, bias, activation)
            error = (sol.z - first.z).norm(dim=1)
            assert bool((error <= sol.error_bound + first.error_bound).all()), (method, alpha)
            assert bool((sol.error_bound <= 1e-7 * sol.z.norm(dim=1)).all())


@pytest.mark.claim("MON-PR")
def test_forward_backward_and_peaceman_rachford_share_their_zeros():
    """u* = z* - alpha A(z*) is the fixed point that belongs to the zero z*, for every alpha."""
    W = dense(random_matrix(6, 10), 0.3)
    bias = torch.randn(3, 6, generator=generator(10), dtype=torch.float64)
    z = PeacemanRachford(alpha=0.3, tol=1e-12, max_steps=5000).solve(W, bias, ReLU()).z
    for alpha in (0.1, 1.0, 5.0):
        problem = Problem(W.frozen(), bias, ReLU(), alpha)
        for solver in (ForwardBackward(), PeacemanRachford(), DouglasRachford()):
            u = solver.start(problem, z)
            torch.testing.assert_close(solver.step(problem, u)[0], u, rtol=0, atol=1e-9)


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("alpha", (0.1, 1.0, 10.0))
def test_without_strong_monotonicity_only_averaging_converges(alpha):
    frozen = FrozenDense(EYE - times(1j), 1.0)  # G turns by a right angle: monotone, m = 0
    problem = Problem(frozen, torch.zeros(1, 2, dtype=torch.float64), NOTHING, alpha)
    start = torch.tensor([[0.6, -0.8]], dtype=torch.float64)
    ends = {s: run(s, problem, start, 100) for s in (ForwardBackward(), PeacemanRachford(), DouglasRachford())}
    distance = {type(s).__name__: u.norm().item() for s, u in ends.items()}
    initial = PeacemanRachford().start(problem, start).norm().item()
    assert distance["ForwardBackward"] == pytest.approx((1 + alpha**2) ** 50, rel=1e-9)
    assert distance["PeacemanRachford"] == pytest.approx(initial, rel=1e-9)
    assert distance["DouglasRachford"] == pytest.approx(initial * abs(1 / (1 + 1j * alpha)) ** 100, rel=1e-6, abs=1e-15)


@pytest.mark.claim("MON-PR")
@pytest.mark.parametrize("seed", range(4))
def test_averaging_approaches_every_fixed_point_without_strong_monotonicity(seed):
    """The inequality behind the convergence of Douglas-Rachford for merely monotone A, at every step."""
    g = generator(12, seed)
    S = torch.randn(12, 12, generator=g, dtype=torch.float64)
    G, alpha = S - S.T, 0.3
    z_star = torch.randn(12, generator=g, dtype=torch.float64).relu()
    slack = torch.rand(12, generator=g, dtype=torch.float64)
    bias = (G @ z_star - torch.where(z_star > 0, 0.0, slack))[None]  # z_star is a zero, by complementarity
    problem = Problem(FrozenDense(torch.eye(12, dtype=G.dtype) - G, 1.0), bias, ReLU(), alpha)
    fixed = z_star - alpha * (G @ z_star - bias)
    u, total = 3 * torch.randn(1, 12, generator=g, dtype=torch.float64), 0.0
    allowed = 4 * (u - fixed).square().sum()
    for _ in range(500):
        after, jump = DouglasRachford().step(problem, u)[0], PeacemanRachford().step(problem, u)[0] - u
        lost = (u - fixed).square().sum() - (after - fixed).square().sum()
        assert lost >= jump.square().sum() / 4 - 1e-10
        u, total = after, total + jump.square().sum()
    assert 0 < total <= allowed
