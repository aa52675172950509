"""Anderson and Newton: the splitting's answer and certificate, sooner, and never at the price of its guarantee."""

import copy
import dataclasses
import math
import pickle

import pytest
import torch

from mon_lib import ConvergenceError, Equilibrium, acceleration, certificates, operators, prox
from mon_lib.acceleration import Anderson, Newton, newton_step
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford, Problem, Status
from tests.problems import ACTIVATIONS, F64, generator, random_bias, random_operator

GUARDS = {
    "forward-backward": ForwardBackward,
    "peaceman-rachford": PeacemanRachford,
    "douglas-rachford": DouglasRachford,
}
WRAPPERS = {"anderson": Anderson, "newton": Newton}


def reference(W, bias, activation) -> torch.Tensor:
    """Plain Peaceman-Rachford, which tests/test_splitting.py holds to a reference of its own, down to rounding."""
    z = PeacemanRachford(tol=1e-13, max_steps=20_000).solve(W, bias, activation).z
    torch.testing.assert_close(z, activation(W(z).detach() + bias), rtol=0, atol=1e-11)
    return z


def cycle() -> tuple[operators.Dense, torch.Tensor, torch.Tensor]:
    """NEW-NEWT: W = I - M with M = I + 1.5 P and P the 3-cycle, c = (1, 1, 1), z0 = (1, 0, 0)."""
    P = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=F64)
    return operators.Dense.from_matrix(-1.5 * P, 0.25), torch.ones(1, 3, dtype=F64), torch.eye(3, dtype=F64)[:1]


@pytest.fixture(params=[(w, g) for w in WRAPPERS for g in GUARDS], ids="-".join)
def solver(request):
    wrapper, guard = request.param
    return WRAPPERS[wrapper](GUARDS[guard](tol=1e-9, max_steps=20_000))


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_finds_the_equilibrium_and_bounds_its_error(solver, activation):
    W, bias = random_operator(), random_bias()
    exact = reference(W, bias, activation)
    solution = solver.solve(W, bias, activation)
    error, size = certificates.norm(solution.z - exact), certificates.norm(exact)
    assert solution.status is Status.CONVERGED
    assert bool((error <= solution.error_bound + 1e-12 * size).all())
    assert bool((error <= 1.01e-9 * size).all())
    assert solution.solver == type(solver).__name__ and solution.residuals.shape == (solution.steps, 5)


@pytest.mark.parametrize("alpha", [0.03, 0.4, 5.0])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_bound_holds_at_every_step(wrapper, alpha):
    W, bias = random_operator(skew=4.0, m=0.3), random_bias()
    exact = reference(W, bias, prox.ReLU())
    for guard in GUARDS.values():
        for steps in (1, 2, 3, 5, 20):
            solver = WRAPPERS[wrapper](guard(alpha=alpha, tol=1e-12, max_steps=steps))
            solution = solver.solve(W, bias, prox.ReLU(), throw=False)
            assert bool((certificates.norm(solution.z - exact) <= solution.error_bound * (1 + 1e-9)).all())


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_each_sample_stands_alone(wrapper):
    W = random_operator(skew=4.0)
    bias = random_bias(batch=6) * torch.logspace(-6, 6, 6, dtype=F64)[:, None]
    solver = WRAPPERS[wrapper](PeacemanRachford(alpha=0.3, tol=1e-7))
    together = solver.solve(W, bias, prox.Tanh())
    for i in range(6):
        alone = solver.solve(W, bias[i : i + 1], prox.Tanh())
        assert int(alone.sample_steps[0]) == int(together.sample_steps[i])
        torch.testing.assert_close(alone.z[0], together.z[i], rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_failing_neighbour_changes_nothing(wrapper, guard):
    W, bias = random_operator(), random_bias(batch=3)
    huge = bias.clone()
    huge[1] = 1e308
    solver = WRAPPERS[wrapper](guard(alpha=0.02, max_steps=5000))
    alone = solver.solve(W, bias, prox.ReLU())
    mixed = solver.solve(W, huge, prox.ReLU(), throw=False)
    assert mixed.converged.tolist() == [True, False, True] and mixed.status is Status.DIVERGED
    torch.testing.assert_close(mixed.z[[0, 2]], alone.z[[0, 2]], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_nan_or_a_useless_proposal_costs_steps_only(wrapper, monkeypatch):
    """Sabotage every proposal: the solve must still converge, in at most twice the plain steps."""
    W, bias = random_operator(skew=4.0), random_bias()
    plain = PeacemanRachford(alpha=0.3, tol=1e-9)
    needed = plain.solve(W, bias, prox.ReLU()).steps
    for junk in (math.nan, math.inf, 1e30, 7.0):
        iteration = {
            "anderson": acceleration.anderson._Extrapolation,
            "newton": acceleration.newton._NewtonSteps,
        }[wrapper]
        monkeypatch.setattr(
            iteration, "propose", lambda self, u, u_next, keep, junk=junk: (torch.full_like(u, junk), torch.ones_like(keep))
        )
        solution = WRAPPERS[wrapper](plain).solve(W, bias, prox.ReLU())
        assert needed <= solution.steps <= 2 * needed
        if not math.isfinite(junk):
            assert solution.steps == needed


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_reported_bound_never_grows_where_the_splitting_contracts(wrapper):
    W, bias = random_operator(skew=6.0, m=0.2), 3 * random_bias(batch=40)
    for alpha in (0.1, 1.0):
        plain = PeacemanRachford(alpha=alpha, tol=1e-10, max_steps=3000)
        sizes = []
        problem = Problem(W.frozen(), bias, prox.ReLU(), alpha)
        iteration = WRAPPERS[wrapper](plain).iteration(problem, torch.zeros_like(bias))
        for _ in range(40):
            sizes.append(certificates.norm(iteration.advance()[1]))
        sizes = torch.stack(sizes)
        assert bool((sizes[1:] <= sizes[:-1] * (1 + 1e-9) + 1e-13).all())
        # within any two evaluations the kept vector shrinks
        contraction = max(W.cayley_norm(alpha), iteration.decrease)
        assert bool((sizes[2:] <= contraction * sizes[:-2] * (1 + 1e-9) + 1e-13).all())


@pytest.mark.claim("NEW-NEWT")
def test_pure_newton_cycles_and_safeguarded_newton_does_not():
    W, bias, z0 = cycle()
    relu = prox.ReLU()
    visited = [z0]
    for _ in range(9):
        visited.append(newton_step(W, bias, relu, visited[-1]))
    # After the first step, which leaves z0, the iterates repeat with period three and stay away from the answer.
    for k in range(1, 7):
        torch.testing.assert_close(visited[k + 3], visited[k], rtol=0, atol=1e-12)
        assert float((visited[k] - relu(W(visited[k]).detach() + bias)).norm()) > 0.4
    for guard in GUARDS.values():
        solution = Newton(guard(tol=1e-12, max_steps=5000)).solve(W, bias, relu, z0=z0)
        assert solution.status is Status.CONVERGED
        torch.testing.assert_close(solution.z, torch.full((1, 3), 0.4, dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.claim("NEW-NEWT")
def test_newton_converges_from_many_starts_on_cycling_problems():
    """Starts all over the place, all orders of the three units; pure Newton fails from some, safeguarded from none."""
    W, bias, _ = cycle()
    z0 = 3 * torch.randn(200, 3, generator=generator(0), dtype=F64)
    bias = bias.expand(200, 3).contiguous()
    z = z0
    for _ in range(30):
        z = newton_step(W, bias, prox.ReLU(), z)
    failed = (z - 0.4).norm(dim=1) > 0.1
    assert 20 < int(failed.sum()) < 200
    solution = Newton(PeacemanRachford(tol=1e-12)).solve(W, bias, prox.ReLU(), z0=z0)
    assert bool(solution.converged.all()) and float((solution.z - 0.4).abs().max()) < 1e-12


@pytest.mark.claim("NEW-NEWT")
@pytest.mark.parametrize("activation", ["relu", "leaky", "soft", "clip"])
def test_newton_finds_the_equilibrium_to_machine_precision_in_a_few_steps(activation):
    n = 60
    W, bias = random_operator(n=n, skew=5.0, m=1.0), random_bias(n=n, batch=30)
    s = ACTIVATIONS[activation]
    newton = Newton(PeacemanRachford(tol=1e-13)).solve(W, bias, s)
    plain = PeacemanRachford(tol=1e-13).solve(W, bias, s)
    assert newton.steps <= 16 < 40 < plain.steps
    assert float((newton.z - s(W(newton.z).detach() + bias)).abs().max()) < 1e-14


@pytest.mark.claim("NEW-NEWT")
def test_newton_is_quadratic_for_a_smooth_activation():
    W, bias = random_operator(skew=5.0), random_bias()
    exact = reference(W, bias, prox.Tanh())
    z, errors = exact + 0.02 * random_bias(seed=5), []
    for _ in range(3):
        errors.append(float(certificates.norm(z - exact).max()))
        z = newton_step(W, bias, prox.Tanh(), z)
    assert errors[1] < 2 * errors[0] ** 2 and errors[2] < 2 * errors[1] ** 2 + 1e-14


def test_newton_solves_a_linear_problem_in_one_step():
    """The backward pass: W', and prox.Diagonal with zero and one among its entries."""
    W, v = random_operator(skew=5.0), random_bias()
    J = torch.rand(v.shape, generator=generator(3), dtype=F64)
    J[:, 0], J[:, 1] = 0.0, 1.0
    eye = torch.eye(8, dtype=F64)
    matrix = W.to_dense().detach()
    exact = torch.stack([torch.linalg.solve(eye - j[:, None] * matrix.T, j * w) for j, w in zip(J, v, strict=True)])
    for wrapper in (Newton, Anderson):
        solution = wrapper(PeacemanRachford(tol=1e-12)).solve(W.T, v, prox.Diagonal(J))
        torch.testing.assert_close(solution.z, exact, rtol=1e-10, atol=1e-11)
        assert wrapper is Anderson or solution.steps == 2


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_layer_can_use_it_both_ways(wrapper):
    torch.manual_seed(0)
    x = torch.randn(4, 5, dtype=F64)
    gradients = []
    for solver in (PeacemanRachford(tol=1e-12), WRAPPERS[wrapper](PeacemanRachford(tol=1e-12))):
        W = random_operator(skew=4.0)
        torch.manual_seed(1)
        layer = Equilibrium(W, torch.nn.Linear(5, 8, dtype=F64), prox.Tanh(), solver)
        layer(x).square().sum().backward()
        assert layer.backward_report.solver == layer.forward_report.solver == type(solver).__name__
        gradients.append([p.grad for p in layer.parameters()])
        copy.deepcopy(layer)(x)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_newton_in_chunks_equals_newton_at_once(monkeypatch):
    W, bias = random_operator(skew=4.0), random_bias(batch=13)
    whole = newton_step(W, bias, prox.ReLU(), bias)
    monkeypatch.setattr(acceleration.newton, "CHUNK_BYTES", 3 * 8 * 8 * 8)
    torch.testing.assert_close(newton_step(W, bias, prox.ReLU(), bias), whole, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(acceleration.newton, "CHUNK_BYTES", 1)
    torch.testing.assert_close(newton_step(W, bias, prox.ReLU(), bias), whole, rtol=1e-12, atol=1e-14)


def test_newton_starts_right_where_the_answer_is_zero():
    W = random_operator()
    solution = Newton(PeacemanRachford(alpha=0.3)).solve(W, -torch.ones(2, 8, dtype=F64), prox.ReLU())
    assert bool(solution.converged.all()) and float(solution.z.abs().max()) == 0.0


def test_anderson_saves_steps_where_the_splitting_is_slow():
    W, bias = random_operator(n=40, skew=4.0, m=1.0), random_bias(n=40, batch=20)
    for guard, share in ((ForwardBackward, 0.75), (DouglasRachford, 0.75), (PeacemanRachford, 1.05)):
        plain = guard(tol=1e-8, max_steps=5000)
        before, after = plain.solve(W, bias, prox.ReLU()), Anderson(plain).solve(W, bias, prox.ReLU())
        assert after.sample_steps.double().mean() <= share * before.sample_steps.double().mean()


def test_anderson_can_converge_where_the_bare_recurrence_does_not():
    W, bias = random_operator(n=40, skew=3.0, m=1.0), random_bias(n=40, batch=10)
    naive = ForwardBackward(alpha=1.0, tol=1e-6, max_steps=400)
    assert not bool(naive.solve(W, bias, prox.ReLU(), throw=False).converged.any())
    assert bool(Anderson(naive).solve(W, bias, prox.ReLU()).converged.all())


def test_anderson_with_a_memory_beyond_the_dimension():
    W, bias = random_operator(n=3), random_bias(n=3)
    solution = Anderson(PeacemanRachford(alpha=0.2, tol=1e-12), memory=12).solve(W, bias, prox.Tanh())
    torch.testing.assert_close(solution.z, reference(W, bias, prox.Tanh()), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_float32_reaches_what_it_can(wrapper):
    W, bias = random_operator(n=20), random_bias(n=20, batch=30)
    exact = reference(W, bias, prox.ReLU())
    solution = WRAPPERS[wrapper](PeacemanRachford(tol=1e-5)).solve(W.to(torch.float32), bias.float(), prox.ReLU())
    assert bool((certificates.norm(solution.z.double() - exact) <= solution.error_bound.double()).all())
    with pytest.raises(ConvergenceError, match="use float64"):
        WRAPPERS[wrapper](PeacemanRachford(tol=1e-8)).solve(W, bias.float(), prox.ReLU())


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_rarer_checks_never_see_a_rejected_point(wrapper):
    W, bias = random_operator(skew=4.0), random_bias()
    exact = reference(W, bias, prox.ReLU())
    for check_every in (2, 3, 5):
        solver = WRAPPERS[wrapper](ForwardBackward(tol=1e-8, max_steps=5000, check_every=check_every))
        solution = solver.solve(W, bias, prox.ReLU())
        assert bool((certificates.norm(solution.z - exact) <= 1e-8 * certificates.norm(exact)).all())
        history = solution.residuals
        assert bool((history[1:] <= history[:-1] * 1.3).all())


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_settings_come_from_the_splitting(wrapper):
    solver = WRAPPERS[wrapper](DouglasRachford(alpha=0.7, tol=1e-4, max_steps=33, check_every=2))
    assert (solver.alpha, solver.tol, solver.max_steps, solver.check_every) == (0.7, 1e-4, 33, 2)
    other = solver.with_alpha(0.2)
    assert other.alpha == 0.2 and other.tol == 1e-4 and solver.alpha == 0.7 and type(other) is type(solver)
    assert pickle.loads(pickle.dumps(solver)) == solver and hash(solver) == hash(copy.deepcopy(solver))
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver.tol = 1.0
    W = random_operator()
    auto = WRAPPERS[wrapper](DouglasRachford())
    assert auto.choose_alpha(W, random_bias(), prox.ReLU()) == DouglasRachford().choose_alpha(W, random_bias(), prox.ReLU())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Anderson(memory=0), ValueError, "memory = 0"),
        (lambda: Anderson(memory=2.5), ValueError, "memory = 2.5"),
        (lambda: Anderson(damping=0.0), ValueError, "damping = 0"),
        (lambda: Anderson(damping=1.5), ValueError, "damping = 1.5"),
        (lambda: Anderson(damping=math.nan), ValueError, "damping = nan"),
        (lambda: Anderson(regularisation=-1.0), ValueError, "regularisation = -1"),
        (lambda: Anderson(Anderson()), TypeError, "pass a splitting"),
        (lambda: Anderson(solver="PeacemanRachford"), TypeError, "'PeacemanRachford'"),
        (lambda: Newton(Newton()), TypeError, "pass a splitting"),
        (lambda: Newton(decrease=1.0), ValueError, "decrease = 1"),
        (lambda: Newton(max_size=0), ValueError, "max_size = 0"),
        (lambda: Newton(tol=1e-3), TypeError, "tol"),
        (lambda: Newton(max_size=7).solve(random_operator(), random_bias(), prox.ReLU()), ValueError, "8 x 8"),
    ],
)
def test_bad_settings_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_empty_batch_is_solved(wrapper):
    solution = WRAPPERS[wrapper](PeacemanRachford(alpha=1.0)).solve(random_operator(), random_bias(batch=0), prox.ReLU())
    assert solution.z.shape == (0, 8) and solution.status is Status.CONVERGED


@pytest.mark.parametrize("scale", [1e-22, 1e-30])
def test_tiny_states_are_accelerated_like_any_other(scale):
    """Squares of such entries underflow in float32."""
    W = random_operator(n=8, m=0.3, skew=2.0, dtype=torch.float32)
    bias = random_bias(n=8, dtype=torch.float32)
    for solver in (Newton(PeacemanRachford(tol=1e-4)), Anderson(DouglasRachford(tol=1e-4))):
        usual, tiny = solver.solve(W, bias, prox.ReLU()), solver.solve(W, scale * bias, prox.ReLU())
        assert tiny.steps <= usual.steps + 2
        torch.testing.assert_close(tiny.z / scale, usual.z, rtol=1e-3, atol=1e-4)
