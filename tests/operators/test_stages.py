"""Substitution: the tiers of a multi-tier operator one by one, as blocks and in a solve."""

from __future__ import annotations

import pytest
import torch

from mon_lib import Equilibrium, acceleration, operators, prox, splitting
from mon_lib.errors import ConvergenceError
from mon_lib.splitting import _stages

F64 = torch.float64
GEOMETRIES = {
    "plain": {"channels": (1, 2), "size": (6, 8)},
    "border": {"channels": (2, 3, 2), "size": (10, 14), "border": 1},
    "stride-3": {"channels": (2, 1), "size": (15, 9), "kernel_size": 5, "border": 3, "stride": 3},
}


@pytest.fixture(params=list(GEOMETRIES))
def geometry(request):
    return GEOMETRIES[request.param]


def make(transform=None, dtype=F64, m=0.7, **geometry):
    torch.manual_seed(3)
    W = operators.MultiTier(**geometry, m=m, transform=transform, dtype=dtype)
    with torch.no_grad():
        W.g_raw.fill_(3.0), W.down_g_raw.fill_(4.0), W.h.fill_(3.0)
    return W


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def close(a, b, tol=1e-10):
    assert float((a - b).abs().max()) <= tol * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("transform", [operators.FastTransform, operators.MatrixTransform])
@pytest.mark.parametrize("flipped", [False, True])
def test_stages_are_the_blocks_of_w(geometry, transform, flipped):
    W = make(transform, **geometry)
    frozen = W.frozen().T if flipped else W.frozen()
    dense, rest = frozen.to_dense(), frozen.to_dense().clone()
    before = None
    for stage in frozen.stages():
        rows, block = stage.entries, dense[stage.entries, stage.entries]
        close(stage.operator.to_dense(), block)
        close(stage.operator.T.to_dense(), block.T)
        rest[rows, rows] = 0.0
        n, alpha = len(block), 0.6
        eye = torch.eye(n, dtype=F64)
        resolvent = torch.linalg.inv(eye + alpha * (eye - block))
        close(stage.operator.resolvent(alpha)(eye).T, resolvent)
        close(stage.operator.resolvent(alpha).T(eye).T, resolvent.T)
        L = float(torch.linalg.matrix_norm(eye - block, 2))
        assert stage.operator.lipschitz() == pytest.approx(L, rel=1e-9)
        assert L * (1 - 1e-12) <= stage.operator.lipschitz_bound() <= 1.5 * L
        assert stage.operator.T.lipschitz_bound() == stage.operator.lipschitz_bound()
        assert stage.operator.forward_norm(0.3) == pytest.approx(float(torch.linalg.matrix_norm(eye - 0.3 * (eye - block), 2)))
        assert stage.operator.cayley_norm(alpha) == pytest.approx(float(torch.linalg.matrix_norm(2 * resolvent - eye, 2)))
        assert stage.operator.monotonicity() >= W.m - 1e-10
        if before is None:
            assert stage.coupling is None
        else:
            x = randn(3, before.stop - before.start)
            close(stage.coupling(x), x @ dense[rows, before].T)
            rest[rows, before] = 0.0
        before = rows
    close(rest, torch.zeros_like(rest))


def test_other_operators_have_no_stages():
    assert operators.Dense(3).frozen().stages() == [] == operators.Convolution(2, (4, 4)).frozen().stages()


ACTIVATIONS = {
    "relu": lambda W: prox.ReLU(),
    "tanh": lambda W: prox.Tanh(),
    "masked": lambda W: prox.Masked(prox.LeakyReLU(0.1), W.interior(1)),
    "mask of one": lambda W: prox.Masked(prox.ReLU(), torch.ones(1, dtype=torch.bool)),
    "diagonal": lambda W: prox.Diagonal((randn(5, W.state_size, seed=7) > 0).to(F64)),
    "diagonal, one for all": lambda W: prox.Diagonal(torch.rand(W.state_size, dtype=F64, generator=torch.Generator())),
}
SOLVERS = {
    "peaceman-rachford": splitting.PeacemanRachford(0.4, 1e-9, 2000),
    "douglas-rachford": splitting.DouglasRachford(0.4, 1e-9, 2000),
    "anderson": acceleration.Anderson(splitting.PeacemanRachford(0.4, 1e-9, 2000)),
    "newton": acceleration.Newton(splitting.PeacemanRachford(0.4, 1e-9, 2000)),
}


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_substitution_finds_the_equilibrium_and_certifies_it(monkeypatch, solver, activation, flipped):
    W, solver = make(**GEOMETRIES["border"]), SOLVERS[solver]
    operator, sigma, bias = W.T if flipped else W, ACTIVATIONS[activation](W), randn(5, W.state_size, seed=2)
    found = solver.solve(operator, bias, sigma)
    monkeypatch.setattr(_stages, "restricted", lambda *_: None)
    whole = splitting.PeacemanRachford(0.4, 1e-12, 4000).solve(operator, bias, sigma)
    error = (found.z - whole.z).norm(dim=1)
    assert bool((error <= found.error_bound + 1e-11).all())
    assert bool((found.error_bound <= 1e-9 * found.z.norm(dim=1)).all())
    assert torch.allclose(found.residuals[-1], found.error_bound / found.z.norm(dim=1), rtol=1.0)
    assert bool((found.sample_steps <= found.steps).all()) and found.steps == int(found.sample_steps.max())
    close(found.z, whole.z, 1e-8)


def test_the_certificate_is_one_of_the_whole_at_any_tolerance():
    """A loose tolerance leaves errors that the next block inherits; the bound still covers them."""
    W = make(**GEOMETRIES["border"])
    bias = randn(7, W.state_size)
    exact = splitting.PeacemanRachford(0.3, 1e-12, 4000).solve(W, bias, prox.ReLU()).z
    for tol in (0.3, 0.1, 1e-2, 1e-4):
        found = splitting.PeacemanRachford(0.3, tol, 4000).solve(W, bias, prox.ReLU())
        error = (found.z - exact).norm(dim=1)
        assert bool((error <= found.error_bound).all())
        assert bool((found.error_bound <= tol * found.z.norm(dim=1) * (1 + 1e-12)).all())


def test_what_a_solve_is_given_stays_as_it_was():
    W = make(**GEOMETRIES["border"])
    bias, z0 = randn(1, W.state_size), randn(1, W.state_size, seed=4)
    kept = bias.clone(), z0.clone()
    splitting.PeacemanRachford(0.4, 1e-6).solve(W, bias, prox.ReLU(), z0=z0)
    assert torch.equal(bias, kept[0]) and torch.equal(z0, kept[1])


def test_a_sample_alone_and_in_a_batch():
    W = make(**GEOMETRIES["border"])
    bias = randn(6, W.state_size) * torch.logspace(-3, 3, 6, dtype=F64)[:, None]
    solver = splitting.PeacemanRachford(0.4, 1e-6)
    together = solver.solve(W, bias, prox.Tanh())
    for k in range(6):
        alone = solver.solve(W, bias[k : k + 1], prox.Tanh())
        assert int(alone.sample_steps) == int(together.sample_steps[k])
        close(alone.z, together.z[k : k + 1], 1e-12)


def test_a_start_at_the_solution_and_nothing_to_solve():
    W, solver = make(**GEOMETRIES["border"]), splitting.PeacemanRachford(0.4, 1e-6)
    bias = randn(2, W.state_size)
    exact = splitting.PeacemanRachford(0.4, 1e-12, 4000).solve(W, bias, prox.ReLU()).z
    assert solver.solve(W, bias, prox.ReLU(), z0=exact).steps < solver.solve(W, bias, prox.ReLU()).steps
    bias[1] = 0.0
    found = solver.solve(W, bias, prox.ReLU())
    assert not bool(found.z[1].any()) and float(found.error_bound[1]) <= 1e-12
    assert solver.solve(W, bias[:0], prox.ReLU()).z.shape == (0, W.state_size)


def test_a_miss_is_told_with_the_stage_that_missed():
    W = make(**GEOMETRIES["border"])
    bias, solver = randn(2, W.state_size), splitting.PeacemanRachford(0.4, 1e-10, 3)
    with pytest.raises(ConvergenceError, match="2 of 2 samples did not reach tol"):
        solver.solve(W, bias, prox.ReLU())
    found = solver.solve(W, bias, prox.ReLU(), throw=False)
    assert found.status is splitting.Status.MAX_STEPS and not bool(found.converged.any())
    with torch.no_grad():
        W.A[1].fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN or an infinite entry"):
        solver.solve(W, bias, prox.ReLU())


def test_an_activation_of_unknown_reach_is_solved_as_one(monkeypatch):
    class Own(prox.ReLU):
        pass

    W, solver = make(**GEOMETRIES["plain"]), splitting.PeacemanRachford(0.4, 1e-9)
    assert _stages.restricted(Own(), slice(0, 2)) is None
    assert _stages.restricted(prox.Masked(Own(), torch.ones(4, dtype=torch.bool)), slice(0, 2)) is None
    bias = randn(3, W.state_size)
    close(solver.solve(W, bias, Own()).z, solver.solve(W, bias, prox.ReLU()).z, 1e-8)


def test_a_layer_solves_by_substitution_both_ways():
    W = make(**GEOMETRIES["border"])
    layer = Equilibrium(W, torch.nn.Identity(), prox.Softplus(), splitting.PeacemanRachford(0.4, 1e-12, 4000))
    bias = randn(2, W.state_size).requires_grad_()
    v = randn(2, W.state_size, seed=9)
    (found,) = torch.autograd.grad((layer(bias) * v).sum(), bias)
    z = layer.solve(bias).z
    J = prox.Softplus().derivative(z @ W.to_dense().detach().T + bias.detach())
    eye = torch.eye(W.state_size, dtype=F64)
    for k in range(2):
        exact = J[k] * torch.linalg.solve(eye - W.to_dense().detach().T * J[k], v[k])
        close(found[k], exact, 1e-8)
