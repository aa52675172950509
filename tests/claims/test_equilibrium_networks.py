"""Chapter 4: equilibria are zeros (MON-T1), linear complementarity (NEW-LCP), the Lipschitz constant (NEW-LIP)."""

import itertools

import numpy as np
import pytest
import torch
from quantecon.optimize import lcp_lemke

from mon_lib import data, operators, prox, splitting

DOUBLE = torch.float64
INF = float("inf")


def single(value):
    return value, value


# The least and the greatest subgradient of f at z, for sigma = prox_f, by hand.
SUBDIFFERENTIALS = {
    prox.ReLU(): lambda z: (torch.where(z > 0, 0.0, -INF), torch.zeros_like(z)),
    prox.LeakyReLU(slope=0.25): lambda z: single(torch.where(z >= 0, 0.0, 3.0 * z)),
    prox.Clip(): lambda z: (torch.where(z > 0, 0.0, -INF), torch.where(z < 1, 0.0, INF)),
    prox.SoftThreshold(): lambda z: (torch.where(z > 0, 1.0, -1.0), torch.where(z < 0, -1.0, 1.0)),
    prox.Tanh(): lambda z: single(torch.atanh(z) - z),
    prox.Sigmoid(): lambda z: single(torch.logit(z) - z),
    prox.Softplus(): lambda z: single(torch.log(torch.expm1(z)) - z),
    prox.ELU(): lambda z: single(torch.where(z >= 0, 0.0, torch.log1p(z.clamp_max(0.0)) - z)),
    prox.Softsign(): lambda z: single(z / (1 - z.abs()) - z),
    prox.Arctan(): lambda z: single(torch.tan(z) - z),
}
ACTIVATIONS = [pytest.param(s, id=type(s).__name__) for s in SUBDIFFERENTIALS]


def randn(*shape, seed):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def random_dense(n, m, seed, scale=1.0):
    """A Dense operator whose g and h are `scale` times larger than at the start of training."""
    torch.manual_seed(seed)
    operator = operators.Dense(n, m=m, normalised=False, dtype=DOUBLE)
    with torch.no_grad():
        operator.A.mul_(scale**0.5)
        operator.B.mul_(scale)
    return operator


def exact(operator, bias, activation, tol=1e-12):
    return splitting.PeacemanRachford(tol=tol, max_steps=20000).solve(operator, bias, activation).z


def equilibria(W, c):
    """Every z = relu(Wz + c) over the 2^n sets of active units, those with a singular block left out."""
    G, found = np.eye(len(c)) - W, []
    for active in itertools.product([False, True], repeat=len(c)):
        S, z = np.array(active), np.zeros(len(c))
        if S.any() and np.linalg.matrix_rank(G[np.ix_(S, S)]) < S.sum():
            continue
        z[S] = np.linalg.solve(G[np.ix_(S, S)], c[S])
        if (z[S] > 0).all() and ((G @ z - c)[~S] >= -1e-12).all():
            found.append(z)
    return found


def lemke(W, c):
    result = lcp_lemke(np.eye(len(c)) - W, -c)
    assert result.success
    return result.z


@pytest.mark.claim("MON-T1")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equilibrium_is_zero(activation):
    """z = sigma(Wz + c) implies -A(z) in df(z), for any W."""
    W, y = randn(6, 6, seed=1), 1.5 * randn(500, 6, seed=2)
    z = activation(y)
    c = y - z @ W.T
    minus_A = c - (z - z @ W.T)
    low, high = (bound.double() for bound in SUBDIFFERENTIALS[activation](z))
    assert (minus_A >= low - 1e-9).all()
    assert (minus_A <= high + 1e-9).all()


@pytest.mark.claim("MON-T1")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_zero_is_equilibrium(activation):
    """0 in A(z) + df(z) implies z = sigma(Wz + c), for any W and any subgradient, at kinks too."""
    W, z = randn(6, 6, seed=3), activation(1.5 * randn(500, 6, seed=4))
    low, high = (bound.double().clamp(-9.0, 9.0) for bound in SUBDIFFERENTIALS[activation](z))
    subgradient = low + (high - low) * torch.rand(500, 6, dtype=DOUBLE, generator=torch.Generator().manual_seed(5))
    c = z - z @ W.T + subgradient
    torch.testing.assert_close(activation(z @ W.T + c), z, rtol=0, atol=1e-9)


@pytest.mark.claim("MON-T1")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_solver_returns_the_layers_fixed_point(activation):
    operator, bias = random_dense(12, 0.5, seed=6, scale=3.0), 2 * randn(4, 12, seed=7)
    z = exact(operator, bias, activation)
    W = operator.to_dense().detach()
    torch.testing.assert_close(activation(z @ W.T + bias), z, rtol=0, atol=1e-9)


@pytest.mark.claim("MON-T1")
@pytest.mark.parametrize("activation", [prox.ReLU(), prox.Tanh(), prox.SoftThreshold()], ids=repr)
@pytest.mark.parametrize("solver", [splitting.PeacemanRachford, splitting.ForwardBackward])
def test_one_equilibrium_from_every_start(activation, solver):
    operator, bias = random_dense(8, 1.0, seed=8), 3 * randn(5, 8, seed=9)
    first = exact(operator, bias, activation)
    for seed in (10, 11):
        other = solver(tol=1e-12, max_steps=20000).solve(operator, bias, activation, z0=10 * randn(5, 8, seed=seed)).z
        torch.testing.assert_close(other, first, rtol=0, atol=1e-9)


def test_without_strong_monotonicity():
    """One unit loses existence or uniqueness, two units that inhibit each other have three equilibria."""
    cases = [
        ([[1.0]], [1.0], 0),
        ([[2.0]], [1.0], 0),
        ([[2.0]], [-1.0], 2),
        ([[0.0, 2.0], [2.0, 0.0]], [1.0, 1.0], 0),
        ([[0.0, -2.0], [-2.0, 0.0]], [1.0, 1.0], 3),
    ]
    for W, c, count in cases:
        W, c = np.array(W), np.array(c)
        found = equilibria(W, c)
        assert len(found) == count
        assert np.linalg.eigvalsh(np.eye(len(c)) - (W + W.T) / 2)[0] <= 0
        assert all(np.allclose(np.maximum(W @ z + c, 0), z) for z in found)


def test_the_repeated_layer_cycles_beside_its_equilibrium():
    W, c = torch.tensor([[0.0, -3.0], [3.0, 0.0]], dtype=DOUBLE), torch.tensor([[4.0, 1.0]], dtype=DOUBLE)
    states = [torch.tensor([[1.0, 4.0]], dtype=DOUBLE)]
    for _ in range(8):
        states.append(torch.relu(states[-1] @ W.T + c))
    assert torch.equal(states[4], states[0])
    assert torch.equal(states[8], states[0])
    assert all(not torch.equal(states[k], states[0]) for k in (1, 2, 3))
    z = exact(operators.Dense.from_matrix(W, m=1.0), c, prox.ReLU())
    torch.testing.assert_close(z, torch.tensor([[0.1, 1.3]], dtype=DOUBLE), rtol=0, atol=1e-10)


@pytest.mark.claim("NEW-LCP")
@pytest.mark.parametrize("m", [0.1, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_independent_solvers_agree(n, m):
    """Peaceman-Rachford, Lemke's pivoting and the enumeration of active sets."""
    operator, bias = random_dense(n, m, seed=n, scale=4.0), randn(6, n, seed=20 + n)
    W = operator.to_dense().detach().numpy()
    for z, c in zip(exact(operator, bias, prox.ReLU()).numpy(), bias.numpy(), strict=True):
        (listed,) = equilibria(W, c)
        assert abs(z - listed).max() < 1e-8
        assert abs(z - lemke(W, c)).max() < 1e-8


@pytest.mark.claim("NEW-LCP")
def test_lemke_agrees_on_digits():
    x = data.load("mnist-5k", train=False).images[:8].flatten(1).double()
    operator = random_dense(87, 1.0, seed=0, scale=2.0)
    bias = x @ randn(784, 87, seed=30) / 28
    W = operator.to_dense().detach().numpy()
    for z, c in zip(exact(operator, bias, prox.ReLU(), tol=1e-11).numpy(), bias.numpy(), strict=True):
        assert abs(z - lemke(W, c)).max() < 1e-8


@pytest.mark.claim("NEW-LCP")
def test_complementarity_is_the_equilibrium_condition():
    """z = relu(z - w) if and only if z, w >= 0 and zw = 0, on a grid with every sign pattern."""
    z, w = torch.meshgrid(torch.arange(-2.0, 3.0), torch.arange(-2.0, 3.0), indexing="ij")
    fixed = torch.relu(z - w) == z
    complementary = (z >= 0) & (w >= 0) & (z * w == 0)
    assert torch.equal(fixed, complementary)
    assert fixed.any()
    assert not fixed.all()


def principal_minors(G):
    n = len(G)
    sets = (list(S) for k in range(1, n + 1) for S in itertools.combinations(range(n), k))
    return [np.linalg.det(G[np.ix_(S, S)]) for S in sets]


@pytest.mark.claim("NEW-LCP")
@pytest.mark.parametrize("seed", range(4))
def test_monotone_implies_p_matrix(seed):
    G = np.eye(6) - random_dense(6, 0.05, seed=seed, scale=9.0).to_dense().detach().numpy()
    assert min(principal_minors(G)) > 0


@pytest.mark.claim("NEW-LCP")
def test_p_matrix_without_monotonicity_is_still_unique():
    G = np.array([[1.0, -4.0], [0.0, 1.0]])
    assert min(principal_minors(G)) > 0
    assert np.linalg.eigvalsh((G + G.T) / 2)[0] < 0
    counts = {len(equilibria(np.eye(2) - G, c)) for c in np.random.default_rng(0).normal(size=(200, 2))}
    assert counts == {1}


@pytest.mark.claim("NEW-LCP")
def test_lemke_ends_on_a_ray_where_nothing_is_there():
    assert not lcp_lemke(np.array([[1.0, -2.0], [-2.0, 1.0]]), np.array([-1.0, -1.0])).success


@pytest.mark.claim("NEW-LIP")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("m", [0.2, 1.0])
def test_lipschitz_bound(activation, m):
    """Random pairs, and pairs along U's top singular vector."""
    operator, U, x = random_dense(10, m, seed=40, scale=2.0), randn(10, 4, seed=41), randn(20, 4, seed=42)
    top = torch.linalg.svd(U).Vh[0]
    z, near, far = (exact(operator, p @ U.T, activation) for p in (x, x + 0.1 * top, x.flip(0) + 1.0))
    bound = float(torch.linalg.matrix_norm(U, 2)) / m
    assert ((z - near).norm(dim=1) <= bound * 0.1 + 1e-9).all()
    assert ((z - far).norm(dim=1) <= bound * (x - x.flip(0) - 1.0).norm(dim=1) + 1e-9).all()


@pytest.mark.claim("NEW-LIP")
@pytest.mark.parametrize("m", [0.1, 1.0, 3.0])
def test_lipschitz_bound_is_attained(m):
    operator = operators.Dense.from_matrix((1 - m) * torch.eye(10, dtype=DOUBLE), m)
    U, x = randn(10, 4, seed=43), randn(1, 4, seed=44)
    pair = torch.cat([x, x + torch.linalg.svd(U).Vh[:1]])
    z = exact(operator, pair @ U.T + 50.0, prox.ReLU())
    assert float((z[0] - z[1]).norm()) == pytest.approx(float(torch.linalg.matrix_norm(U, 2)) / m, rel=1e-9)
