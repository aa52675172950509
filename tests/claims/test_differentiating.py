"""Chapter 7: MON Theorems 2 and 3, Algorithms 3 and 4, on the objects of the library."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

import mon_lib
from mon_lib import operators, prox
from mon_lib.acceleration import Anderson, Newton
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford

F64 = torch.float64
EXACT = PeacemanRachford(alpha=1.0, tol=1e-12, max_steps=20_000)  # at alpha = 1 the prox is sigma itself: cheap

# Every activation with its kinks.
ACTIVATIONS = {
    "relu": (prox.ReLU(), (0.0,)),
    "leaky-relu": (prox.LeakyReLU(0.1), (0.0,)),
    "clip": (prox.Clip(-0.5, 0.75), (-0.5, 0.75)),
    "soft-threshold": (prox.SoftThreshold(0.3), (-0.3, 0.3)),
    "tanh": (prox.Tanh(), ()),
    "sigmoid": (prox.Sigmoid(), ()),
    "softplus": (prox.Softplus(), ()),
    "elu": (prox.ELU(), ()),
    "softsign": (prox.Softsign(), ()),
    "arctan": (prox.Arctan(), ()),
}
activations = pytest.mark.parametrize(("s", "kinks"), ACTIVATIONS.values(), ids=list(ACTIVATIONS))
sizes = pytest.mark.parametrize("n", [1, 2, 7, 30])
constants = pytest.mark.parametrize("m", [0.05, 1.0, 4.0])


def draw(n, m, seed, batch=3):
    """W with lambda_min(sym(I - W)) = m exactly, and J in [0, 1] of shape (batch, n) with exact zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    S, K = torch.randn(2, n, n, generator=generator, dtype=F64)
    gram = S.T @ S / n
    gram = gram - torch.linalg.eigvalsh(gram)[0] * torch.eye(n, dtype=F64)
    W = (1.0 - m) * torch.eye(n, dtype=F64) - gram + (K - K.T) / n**0.5
    J = (3.0 * torch.rand(batch, n, generator=generator, dtype=F64) - 1.0).clamp(0.0, 1.0)
    v = torch.randn(batch, n, generator=generator, dtype=F64)
    return W, J, v


def equilibrium_away_from_kinks(W, s, kinks, seed, batch=3):
    """A bias and its equilibrium, found without a solver: every p is the pre-activation of c = p - W sigma(p)."""
    n = W.shape[0]
    p = 1.5 * torch.randn(batch, n, generator=torch.Generator().manual_seed(seed), dtype=F64)
    for kink in kinks:
        near = (p - kink).abs() < 0.02
        p = torch.where(near, torch.full_like(p, kink - 0.05), p)
    z = s(p)
    return p, z, p - z @ W.T


def backward_vector(W, J, v):
    """u~ = J (I - W'J)^-1 v, sample by sample, by dense solves."""
    eye = torch.eye(W.shape[0], dtype=F64)
    return J * torch.linalg.solve(eye - W.T @ torch.diag_embed(J), v.unsqueeze(2)).squeeze(2)


def relative(a, b):
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


# --- Theorem 2


@pytest.mark.claim("MON-T2")
@sizes
@constants
def test_the_two_forms_share_their_eigenvalues_and_the_bound(n, m):
    eye = torch.eye(n, dtype=F64)
    for seed in range(5):
        W, J, _ = draw(n, m, seed)
        for diagonal in (J[0], (J[0] > 0.5).to(F64), torch.zeros(n, dtype=F64), torch.ones(n, dtype=F64)):
            left = torch.linalg.eigvals(eye - torch.diag(diagonal) @ W)
            root = torch.diag(diagonal.sqrt())
            right = torch.linalg.eigvals(eye - root @ W @ root)
            distance = (left[:, None] - right[None, :]).abs()
            assert max(distance.amin(0).max(), distance.amin(1).max()) < 1e-7
            assert left.real.min() >= min(1.0, m) - 1e-9


@pytest.mark.claim("MON-T2")
@constants
def test_the_eigenvalue_bound_is_attained(m):
    n = 5
    W = operators.Dense.from_matrix((1.0 - m) * torch.eye(n, dtype=F64), m).to_dense().detach()
    smallest = min(float(torch.linalg.eigvals(torch.eye(n, dtype=F64) - J * W).real.min()) for J in (0.0, 1.0))
    assert smallest == pytest.approx(min(1.0, m), abs=1e-12)


@pytest.mark.claim("MON-T2")
def test_without_strong_monotonicity_the_gradient_may_not_exist():
    W = torch.tensor([[1.0, 2.0], [-2.0, 1.0]], dtype=F64)  # m = 0
    assert abs(float(torch.linalg.det(torch.eye(2, dtype=F64) - torch.diag(torch.tensor([1.0, 0.0], dtype=F64)) @ W))) == 0.0
    with pytest.raises(mon_lib.errors.NotMonotoneError):
        operators.Dense.from_matrix(W, 1e-3)


@pytest.mark.claim("MON-T2")
@sizes
@constants
def test_no_gradient_is_larger_than_one_over_m(n, m):
    eye = torch.eye(n, dtype=F64)
    for seed in range(5):
        W, J, _ = draw(n, m, seed)
        for diagonal in J:
            jacobian = torch.linalg.solve(eye - diagonal[:, None] * W, torch.diag(diagonal))
            assert torch.linalg.matrix_norm(jacobian, 2) <= (1 + 1e-9) / m
    tight = torch.linalg.inv(eye - (1.0 - m) * eye)
    assert torch.linalg.matrix_norm(tight, 2) == pytest.approx(1.0 / m)


@pytest.mark.claim("MON-T2")
@activations
def test_the_formula_is_the_jacobian(s, kinks):
    W, _, _ = draw(6, 0.5, 11)
    operator = operators.Dense.from_matrix(W, 0.5)
    p, z, c = equilibrium_away_from_kinks(W, s, kinks, 12, batch=1)
    assert relative(EXACT.solve(operator, c, s).z, z) < 1e-11
    J = s.derivative(p)[0]
    formula = torch.linalg.solve(torch.eye(6, dtype=F64) - J[:, None] * W, torch.diag(J))
    h = 1e-5
    moved = h * torch.eye(6, dtype=F64)
    measured = (EXACT.solve(operator, c + moved, s).z - EXACT.solve(operator, c - moved, s).z).T / (2 * h)
    assert (formula - measured).abs().max() < 1e-6


@pytest.mark.claim("MON-T2")
@activations
def test_gradcheck_in_the_input_and_in_every_parameter(s, kinks):
    torch.manual_seed(5)
    W, inject = operators.Dense(4, m=0.5, dtype=F64), torch.nn.Linear(3, 4, dtype=F64)
    layer = mon_lib.Equilibrium(W, inject, s, EXACT)
    x = 2.0 * torch.randn(2, 3, dtype=F64)
    with torch.no_grad():
        z = layer(x)
        p = W(z) + inject(x)
    assert all((p - kink).abs().min() > 1e-3 for kink in kinks), "a kink is too close for finite differences: change the seed"
    names = [name for name, _ in layer.named_parameters()]

    def call(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    values = [value.detach().clone().requires_grad_() for value in layer.parameters()]
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), *values), atol=1e-6, rtol=1e-4)


@pytest.mark.claim("MON-T2")
def test_at_a_kink_the_gradient_is_a_limit_of_gradients():
    """Proposition differentiating-kinks: both one-sided choices at a ReLU's kink are limits, and the layer takes one."""
    s, n = prox.ReLU(), 5
    W, _, v = draw(n, 0.5, 21, batch=1)
    operator = operators.Dense.from_matrix(W, 0.5)
    p = torch.tensor([[0.7, 0.0, -0.4, 0.0, 1.2]], dtype=F64)
    chosen = {}
    for side in (-1.0, 1.0):
        J = torch.where(p == 0, float(side > 0), s.derivative(p))
        chosen[side] = backward_vector(W, J, v)
        near = torch.where(p == 0, side * 1e-7, p)
        c = near - s(near) @ W.T
        h = 1e-8 * torch.eye(n, dtype=F64)
        plus, minus = (EXACT.solve(operator, c + sign * h, s).z for sign in (1, -1))
        assert relative(((plus - minus) @ v[0] / 2e-8)[None], chosen[side]) < 1e-4
    assert relative(chosen[1.0], chosen[-1.0]) > 1e-2
    inject = torch.nn.Linear(n, n, dtype=F64)
    with torch.no_grad():
        inject.weight.zero_()
        inject.bias.copy_((p - s(p) @ W.T)[0])
    bias_only = mon_lib.Equilibrium(operator, inject, _StillAtTheKink(), EXACT)
    (gradient,) = torch.autograd.grad(bias_only(torch.zeros(1, n, dtype=F64)), inject.bias, v)
    assert relative(gradient[None], chosen[-1.0]) < 1e-9


class _StillAtTheKink(prox.ReLU):
    """ReLU that takes a pre-activation within rounding of zero for zero, so that the test sits on the kink itself."""

    def _derivative(self, x):
        return (x > 1e-9).to(x.dtype)


# --- Theorem 3

SOLVERS = {
    "peaceman-rachford": PeacemanRachford(tol=1e-11, max_steps=20_000),
    "douglas-rachford": DouglasRachford(tol=1e-11, max_steps=20_000),
    "forward-backward": ForwardBackward(tol=1e-11, max_steps=200_000),
    "newton": Newton(PeacemanRachford(tol=1e-11)),
    "anderson": Anderson(PeacemanRachford(tol=1e-11, max_steps=20_000)),
}
solvers = pytest.mark.parametrize("solver", SOLVERS.values(), ids=list(SOLVERS))


@pytest.mark.claim("MON-T3")
@solvers
@pytest.mark.parametrize("m", [0.3, 1.0, 3.0])
def test_the_backward_system_is_an_equilibrium(solver, m):
    W, J, v = draw(9, m, 31)
    assert bool((J == 0).any()) and bool((J == 1).any())
    operator = operators.Dense.from_matrix(W, m)
    solution = solver.solve(operator.T, v, prox.Diagonal(J))
    u = solution.z
    assert bool((u[J == 0] == 0).all())
    assert bool((u.norm(dim=1) <= (1 + 1e-9) * v.norm(dim=1) / m).all())
    assert relative(u, J * (u @ W + v)) < 1e-9
    eye = torch.eye(9, dtype=F64)
    ustar = torch.linalg.solve((eye - J.unsqueeze(2) * W).transpose(1, 2), v.unsqueeze(2)).squeeze(2)
    assert relative(v + u @ W, ustar) < 1e-9
    assert relative(u, J * ustar) < 1e-9
    assert bool(((u - J * ustar).norm(dim=1) <= solution.error_bound + 1e-13).all())


@pytest.mark.claim("MON-T3")
def test_the_zero_is_u_tilde_and_not_u_star():
    W, J, v = draw(9, 1.0, 32)
    J = J.clamp_min(0.1)
    u = backward_vector(W, J, v)
    ustar = v + u @ W

    def sum_of_operators(x):
        return x - x @ W + (1.0 / J - 1.0) * x - v

    assert sum_of_operators(u).abs().max() < 1e-12
    assert sum_of_operators(ustar).abs().max() > 0.1


@pytest.mark.claim("MON-T3")
@pytest.mark.parametrize("alpha", [1e-3, 0.4, 1.0, 7.0])
def test_the_resolvent_needs_no_limit(alpha):
    _, J, v = draw(12, 1.0, 33)
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(3), dtype=F64)
    w = prox.Diagonal(J).prox(x + alpha * v, alpha)
    zero = J == 0
    assert bool((w[zero] == 0).all())
    D = 1.0 / J[~zero] - 1.0
    assert relative(w[~zero] + alpha * (D * w[~zero] - v[~zero]), x[~zero]) < 1e-12


# --- Algorithms 3 and 4, line by line, with the denominator left open


def algorithm_3(W, J, v, alpha, denominator, steps):
    u = torch.zeros_like(v)
    for _ in range(steps):
        u = (1.0 - alpha) * u + alpha * (u @ W)
        u = torch.where(J > 0, (u + alpha * v) / denominator(alpha, 1.0 / J - 1.0), 0.0)
    return u


def algorithm_4(W, J, v, alpha, denominator, steps):
    eye = torch.eye(W.shape[0], dtype=F64)
    V = torch.linalg.inv(eye + alpha * (eye - W))
    z = u = torch.zeros_like(v)
    for _ in range(steps):
        before = 2.0 * z - u
        half = before @ V
        u = 2.0 * half - before
        z = torch.where(J > 0, (u + alpha * v) / denominator(alpha, 1.0 / J - 1.0), 0.0)
    return z


def repaired(alpha, D):
    return 1.0 + alpha * D


def printed(alpha, D):
    return 1.0 + alpha * (1.0 + D)


def other_system(W, J, v):
    """(2I + D - W')^-1 v on the units with J > 0, zero elsewhere."""
    out = torch.zeros_like(v)
    for k in range(len(v)):
        on = J[k] > 0
        D = torch.diag(1.0 / J[k, on] - 1.0)
        out[k, on] = torch.linalg.solve(2.0 * torch.eye(int(on.sum()), dtype=F64) + D - W.T[on][:, on], v[k, on])
    return out


def check_algorithm(algorithm, solver, alpha_of, m, steps):
    W, J, v = draw(8, m, 41)
    L = float(torch.linalg.matrix_norm(torch.eye(8, dtype=F64) - W, 2))
    alpha = alpha_of(m, L)
    true = backward_vector(W, J, v)
    assert relative(algorithm(W, J, v, alpha, repaired, steps), true) < 1e-9
    wrong = algorithm(W, J, v, alpha, printed, steps)
    assert relative(wrong, other_system(W, J, v)) < 1e-9
    assert relative(wrong, true) > 0.05
    library = solver(alpha=alpha, tol=1e-11, max_steps=200_000).solve(operators.Dense.from_matrix(W, m).T, v, prox.Diagonal(J))
    assert relative(library.z, true) < 1e-9


@pytest.mark.claim("MON-A3")
@pytest.mark.parametrize("m", [0.5, 1.0, 2.0])
def test_algorithm_3_repaired_and_as_printed(m):
    check_algorithm(algorithm_3, ForwardBackward, lambda m, L: m / L**2, m, 4_000)


@pytest.mark.claim("MON-A4")
@pytest.mark.parametrize("m", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_algorithm_4_repaired_and_as_printed(m, factor):
    check_algorithm(algorithm_4, PeacemanRachford, lambda m, L: factor / L, m, 1_500)


@pytest.mark.claim("MON-A4")
@activations
def test_the_vector_returned_takes_no_second_J(s, kinks):
    W, _, v = draw(6, 0.5, 51)
    p, _, c = equilibrium_away_from_kinks(W, s, kinks, 52)
    operator, J = operators.Dense.from_matrix(W, 0.5), s.derivative(p)
    inject = torch.nn.Linear(6, 6, dtype=F64)
    with torch.no_grad():
        inject.weight.copy_(torch.eye(6))
        inject.bias.zero_()
    x = c.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mon_lib.Equilibrium(operator, inject, s, EXACT)(x), x, v)
    u = backward_vector(W, J, v)
    assert relative(u, gradient) < 1e-8
    projector = bool(((J == 0) | (J == 1)).all())
    assert projector == (type(s) in (prox.ReLU, prox.Clip, prox.SoftThreshold))
    assert (relative(J * u, gradient) < 1e-8) == projector


@pytest.mark.claim("MON-A3", "MON-A4")
@pytest.mark.parametrize("backward", [None, *SOLVERS.values()], ids=["same", *SOLVERS])
def test_every_backward_solver_gives_the_unrolled_gradient(backward):
    torch.manual_seed(61)
    W, inject = operators.Dense(7, m=0.5, dtype=F64), torch.nn.Linear(5, 7, dtype=F64)
    parameters, x, v = [*W.parameters(), *inject.parameters()], torch.randn(4, 5, dtype=F64), torch.randn(4, 7, dtype=F64)
    for s in (prox.ReLU(), prox.Tanh()):
        layer = mon_lib.Equilibrium(W, inject, s, EXACT, backward)
        implicit = torch.autograd.grad(layer(x), parameters, v)
        matrix, bias = W.to_dense(), inject(x)
        z = u = torch.zeros(4, 7, dtype=F64)
        for _ in range(150):  # MON Algorithm 2 at alpha = 1
            half = torch.linalg.solve(2.0 * torch.eye(7, dtype=F64) - matrix, (2.0 * z - u + bias).T).T
            u = 2.0 * half - 2.0 * z + u
            z = s(u)
        for a, b in zip(implicit, torch.autograd.grad(z, parameters, v), strict=True):
            assert relative(a, b) < 1e-7


@pytest.mark.claim("MON-A4")
def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_steps():
    torch.manual_seed(71)
    W, inject = operators.Dense(30, dtype=F64), torch.nn.Linear(30, 30, dtype=F64)
    x, kept, steps = torch.randn(16, 30, dtype=F64), set(), []
    for tol in (1e-1, 1e-5, 1e-10):
        layer = mon_lib.Equilibrium(W, inject, prox.LeakyReLU(0.1), PeacemanRachford(alpha=0.05, tol=tol, max_steps=5_000))
        storages = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, s=storages: (s.__setitem__(t.untyped_storage().data_ptr(), t.untyped_storage()), t)[1], lambda t: t
        ):
            layer(x)
        kept.add(sum(storage.nbytes() for storage in storages.values()))
        steps.append(layer.forward_report.steps)
    assert steps[0] < steps[1] < steps[2]
    assert len(kept) == 1
