"""Chapter 5: the parameterisation, both ways (MON-P1), and weight normalisation (MON-WN)."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from quantecon.optimize import lcp_lemke

from mon_lib import NotMonotoneError, operators

DOUBLE = torch.float64


def least(W):
    """The smallest eigenvalue of the symmetric part of I - W."""
    return float(torch.linalg.eigvalsh(torch.eye(len(W), dtype=W.dtype) - (W + W.T) / 2)[0])


def randn(*shape, seed):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def dense(n, m, *, normalised, seed=0, scale=1.0):
    torch.manual_seed(seed)
    operator = operators.Dense(n, m, normalised=normalised, dtype=DOUBLE)
    with torch.no_grad():
        operator.A.mul_(scale)
        operator.B.mul_(scale)
    return operator


@pytest.mark.claim("MON-P1")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("m", [0.05, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_every_value_is_monotone(n, m, normalised, scale):
    W = dense(n, m, normalised=normalised, scale=scale).to_dense().detach()
    assert least(W) >= m - 1e-12 * max(1.0, float(W.norm()))


@pytest.mark.claim("MON-P1")
@pytest.mark.parametrize("m", [0.05, 1.0])
def test_the_constant_is_exact_where_A_is_singular(m):
    operator = dense(7, m, normalised=False, scale=5.0)
    with torch.no_grad():
        operator.A[0] = 0.0
    assert least(operator.to_dense().detach()) == pytest.approx(m, abs=1e-12)


MATRICES = {
    "random": lambda n: 3 * randn(n, n, seed=n),
    "symmetric": lambda n: randn(n, n, seed=n) + randn(n, n, seed=n).T,
    "skew": lambda n: 10 * (randn(n, n, seed=n) - randn(n, n, seed=n).T),
    "nilpotent": lambda n: torch.diag(torch.full((n - 1,), 4.0, dtype=DOUBLE), 1),
    "zero": lambda n: torch.zeros(n, n, dtype=DOUBLE),
}


@pytest.mark.claim("MON-P1")
@pytest.mark.parametrize("spare", [0.0, 0.5], ids=["boundary", "inside"])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [1, 2, 8])
def test_every_monotone_matrix_is_a_value(n, name, spare):
    m = 0.3
    W = MATRICES[name](n)
    W = W + (least(W) - m - spare) * torch.eye(n, dtype=DOUBLE)
    found = operators.Dense.from_matrix(W, m)
    assert found.m == m
    torch.testing.assert_close(found.to_dense().detach(), W, rtol=1e-12, atol=1e-12)
    A, B = found.A.detach(), found.B.detach()
    torch.testing.assert_close((1 - m) * torch.eye(n, dtype=DOUBLE) - A.T @ A + B - B.T, W, rtol=1e-12, atol=1e-12)


@pytest.mark.claim("MON-P1")
def test_from_matrix_keeps_float32():
    W = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    W = W + (least(W) - 1.0) * torch.eye(20)
    found = operators.Dense.from_matrix(W, 1.0)
    assert found.A.dtype == torch.float32
    torch.testing.assert_close(found.to_dense().detach(), W, rtol=0, atol=1e-4)


@pytest.mark.claim("MON-P1")
@pytest.mark.parametrize("name", ["random", "symmetric", "skew", "nilpotent"])
def test_a_matrix_outside_is_refused_by_its_eigenvalue(name):
    W = MATRICES[name](5)
    smallest = least(W)
    with pytest.raises(NotMonotoneError) as caught:
        operators.Dense.from_matrix(W, smallest + 0.1 if smallest > 0 else 0.1)
    named = float(re.search(r"smallest eigenvalue .* is (\S+),", str(caught.value))[1])
    assert named == pytest.approx(smallest, rel=1e-5)


@pytest.mark.claim("MON-P1")
def test_refusal_starts_at_the_boundary():
    W = randn(6, 6, seed=3)
    W = W + (least(W) - 0.5) * torch.eye(6, dtype=DOUBLE)
    operators.Dense.from_matrix(W, 0.5)
    with pytest.raises(NotMonotoneError):
        operators.Dense.from_matrix(W, 0.5 + 1e-9)


@pytest.mark.claim("MON-P1")
def test_what_is_not_unique():
    """A -> QA and B -> B + symmetric change nothing; anything else does. n^2 of 2n^2 directions are free."""
    operator = dense(6, 0.4, normalised=False, scale=3.0)
    W = operator.to_dense().detach()
    Q, S = torch.linalg.qr(randn(6, 6, seed=1)).Q, randn(6, 6, seed=2)
    with torch.no_grad():
        operator.A.copy_(Q @ operator.A)
        operator.B.add_(S + S.T)
    torch.testing.assert_close(operator.to_dense().detach(), W, rtol=0, atol=1e-12)
    with torch.no_grad():
        operator.A.copy_(operator.A @ Q)
    assert (operator.to_dense().detach() - W).abs().max() > 1e-3

    def entries(parameters):
        A, B = parameters.reshape(2, 4, 4)
        return (-A.T @ A + B - B.T).flatten()

    jacobian = torch.autograd.functional.jacobian(entries, randn(32, seed=4))
    assert torch.linalg.matrix_rank(jacobian) == 16


@pytest.mark.claim("MON-P1")
def test_numerical_range_reaches_exactly_one_minus_the_least_eigenvalue():
    """Re v*Wv over complex unit vectors is at most 1 - lambda_min(sym(I - W)), attained; eigenvalues of W say less."""
    W = 2 * randn(5, 5, seed=6)
    v = torch.complex(randn(20000, 5, seed=7), randn(20000, 5, seed=8))
    v = v / v.norm(dim=1, keepdim=True)
    right = (v.conj() * (v @ W.T.to(v.dtype))).sum(1).real.max()
    edge = torch.linalg.eigh((W + W.T) / 2).eigenvectors[:, -1]
    assert right <= 1 - least(W) + 1e-12
    assert float(edge @ W @ edge) == pytest.approx(1 - least(W), abs=1e-12)
    assert torch.linalg.eigvals(W).real.max() < 1 - least(W)
    nilpotent = torch.tensor([[0.0, 4.0], [0.0, 0.0]], dtype=DOUBLE)
    assert not torch.linalg.eigvals(nilpotent).abs().any()
    assert least(nilpotent) == pytest.approx(-1.0, abs=1e-12)


def set_scalars(operator, g_raw, h):
    with torch.no_grad():
        operator.g_raw.fill_(g_raw)
        operator.h.fill_(h)
    return operator


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("g_raw", [-1000.0, -20.0, 0.0, 50.0])
@pytest.mark.parametrize("h", [-7.0, 0.0, 7.0])
def test_no_value_of_the_scalars_breaks_it(g_raw, h):
    operator = set_scalars(dense(6, 0.3, normalised=True), g_raw, h)
    assert operator.g.item() >= 0
    assert operator.g.item() > 0 or g_raw == -1000.0
    assert least(operator.to_dense().detach()) >= 0.3 - 1e-12
    assert operator.monotonicity() >= 0.3 - 1e-12


@pytest.mark.claim("MON-WN")
def test_no_gradient_step_breaks_it():
    """A hundred reckless steps that reward a small lambda_min(sym(I - W))."""
    operator = dense(5, 0.3, normalised=True)
    optimiser = torch.optim.SGD(operator.parameters(), lr=5.0)
    for _ in range(100):
        W = operator.to_dense()
        loss = torch.linalg.eigvalsh(torch.eye(5, dtype=DOUBLE) - (W + W.T) / 2)[0] - operator.h
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert least(operator.to_dense().detach()) >= 0.3 - 1e-11 * (1 + abs(operator.h.item()))


def free(A, B, m, g, h):
    """The printed normalisation, with g of either sign."""
    eye = torch.eye(len(A), dtype=DOUBLE)
    return (1 - m) * eye - g * A.T @ A / A.norm() ** 2 + h * (B - B.T) / B.norm()


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("g", [-0.01, -1.0, -30.0])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_negative_g_breaks_it_by_exactly_this_much(n, g):
    A, B = randn(n, n, seed=n), randn(n, n, seed=n + 1)
    W = free(A, B, 0.5, g, 2.0)
    predicted = 0.5 + g * float(torch.linalg.matrix_norm(A, 2) ** 2 / A.norm() ** 2)
    assert least(W) == pytest.approx(predicted, abs=1e-11)
    with pytest.raises(NotMonotoneError):
        operators.Dense.from_matrix(W, 0.5)


@pytest.mark.claim("MON-WN")
def test_positive_g_and_library_agree():
    operator = set_scalars(dense(6, 0.7, normalised=True, seed=3), 1.2, -2.5)
    W = free(operator.A.detach(), operator.B.detach(), 0.7, math.log1p(math.exp(1.2)), -2.5)
    torch.testing.assert_close(operator.to_dense().detach(), W, rtol=0, atol=1e-14)


@pytest.mark.claim("MON-WN")
def test_a_free_g_trains_itself_out_of_its_equilibrium():
    """Descent on g for a loss that asks for large states: it turns negative, and then no equilibrium exists."""
    A, B = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=DOUBLE), torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=DOUBLE)
    c, g, counts = torch.tensor([1.0, 0.8], dtype=DOUBLE), torch.tensor(1.0, dtype=DOUBLE, requires_grad=True), []
    for _ in range(40):
        G, found = torch.eye(2, dtype=DOUBLE) - free(A, B, 0.5, g, 0.3), []
        for active in itertools.product([False, True], repeat=2):
            S = torch.tensor(active)
            z = torch.zeros(2, dtype=DOUBLE).masked_scatter(S, torch.linalg.solve(G[S][:, S], c[S]))
            if (z[S] > 0).all() and ((G @ z - c)[~S] >= 0).all():
                found.append(z)
        counts.append(len(found))
        if counts[-1] != 1:
            break
        (slope,) = torch.autograd.grad((found[0].sum() - 6) ** 2 / 2, g)
        g = (g - 0.05 * slope).detach().requires_grad_()
    assert counts[0] == 1
    assert counts[-1] == 0
    assert g.item() < 0
    assert not lcp_lemke(G.detach().numpy(), -c.numpy()).success


def norm_bound(m, g, h):
    return g / 2 + math.sqrt((m + g / 2) ** 2 + 2 * h**2)


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_closed_form_bound_on_the_lipschitz_constant(n):
    rng = np.random.default_rng(n)
    for seed in range(40):
        m = 0.05 + rng.random()
        operator = set_scalars(dense(n, m, normalised=True, seed=seed), 4 * rng.normal(), 4 * rng.normal())
        if seed % 2 and n > 1:
            with torch.no_grad():  # towards the extreme case: A of rank one, B skew
                operator.A[1:] = 0.0
                operator.B.copy_(operator.B - operator.B.T)
        g, h = operator.g.item(), operator.h.item()
        bound = norm_bound(m, g, h)
        assert operator.lipschitz() <= bound * (1 + 1e-12)
        assert bound <= (m + g + math.sqrt(2) * abs(h)) * (1 + 1e-12)


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("h", [-3.0, 0.4])
def test_the_bound_is_attained(n, h):
    operator = set_scalars(dense(n, 0.7, normalised=True), 1.0, h)
    with torch.no_grad():
        operator.A.zero_()[0, 0] = 1.0
        operator.B.zero_()[0, 1] = 1.0
        operator.B[1, 0] = -1.0
    assert operator.lipschitz() == pytest.approx(norm_bound(0.7, operator.g.item(), h), rel=1e-13)
