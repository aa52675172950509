"""Every solver on every problem: the answer, the certificate, the batch, and what is said when it fails."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch

from mon_lib import ConvergenceError, certificates, operators, prox, splitting, stepsize
from mon_lib.operators import _parts
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford, Status
from tests.problems import ACTIVATIONS, F64, generator, random_bias, random_operator, reference

SOLVERS = {"forward-backward": ForwardBackward, "peaceman-rachford": PeacemanRachford, "douglas-rachford": DouglasRachford}


@pytest.fixture(params=SOLVERS)
def solver(request):
    return SOLVERS[request.param](tol=1e-9, max_steps=20_000)


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.parametrize("skew", [0.0, 3.0])
def test_finds_the_equilibrium_and_bounds_its_error(solver, activation, skew):
    W, bias = random_operator(skew=skew), random_bias()
    exact = reference(W, bias, activation)
    solution = solver.solve(W, bias, activation)
    error = certificates.norm(solution.z - exact)
    size = certificates.norm(exact)
    assert bool((error <= solution.error_bound + 1e-12 * size).all())
    assert bool((error <= 1.01e-9 * size).all())
    assert solution.status is Status.CONVERGED and bool(solution.converged.all())
    torch.testing.assert_close(solution.z, activation(W(solution.z) + bias).detach(), rtol=0, atol=1e-8)


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("alpha", [0.02, 0.3, 1.0, 9.0])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_at_every_step_for_every_alpha(name, alpha, seed):
    W, bias = random_operator(skew=4.0, m=0.3, seed=seed), random_bias(seed=seed)
    exact = reference(W, bias, prox.ReLU())
    for steps in (1, 2, 5, 30):
        solution = SOLVERS[name](alpha=alpha, tol=1e-12, max_steps=steps).solve(W, bias, prox.ReLU(), throw=False)
        error = certificates.norm(solution.z - exact)
        assert bool((error <= solution.error_bound * (1 + 1e-9)).all() or not bool(torch.isfinite(solution.error_bound).all()))


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("alpha", [0.05, 0.5, 4.0])
def test_the_free_vector_is_the_ledgers_certificate(alpha):
    """(I + alpha G)e lies in A(z) + df(z), and equals (I + alpha G)(u - u+)/(2 alpha)."""
    W, bias = random_operator(), random_bias()
    problem = splitting.Problem(W.frozen(), bias, prox.Tanh(), alpha)
    solver = PeacemanRachford(alpha=alpha)
    u = 0.1 * random_bias(seed=9)  # small, so that atanh recovers the subgradient to rounding
    u_next, z, e = solver.step(problem, u)
    G = torch.eye(8, dtype=F64) - W.to_dense().detach()
    lifted = e + alpha * e @ G.T
    subgradient = torch.atanh(z) - z  # df of tanh = prox_f
    torch.testing.assert_close(lifted, problem.affine(z) + subgradient, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(e, (u - u_next) / (2 * alpha), rtol=1e-9, atol=1e-12)
    # forward-backward: (I - alpha G)e lies in A(z+) + df(z+)
    z_next, _, e = ForwardBackward(alpha=alpha).step(problem, z)
    torch.testing.assert_close(e - alpha * e @ G.T, problem.affine(z_next) + torch.atanh(z_next) - z_next, rtol=1e-8, atol=1e-8)


@pytest.mark.claim("NEW-CERT")
def test_any_point_can_be_certified():
    W, bias = random_operator(skew=5.0), random_bias()
    for activation in ACTIVATIONS.values():
        exact = reference(W, bias, activation)
        L = float(torch.linalg.svdvals(W.to_dense().detach())[0])
        for scale in (1.0, 1e-3, 1e-9):
            z = exact + scale * random_bias(seed=4)
            bound = certificates.fixed_point_bound(W, bias, activation, z)
            assert bool((certificates.norm(z - exact) <= bound).all())
            r = certificates.norm(z - activation(W(z).detach() + bias))
            assert bool((bound <= (1 + L / W.m) * r + 1e-11).all())  # never looser than the ledger's


@pytest.mark.parametrize("name", SOLVERS)
def test_alphas_and_solvers_stop_at_the_same_accuracy(name):
    W, bias = random_operator(skew=3.0), random_bias(batch=20)
    exact = reference(W, bias, prox.ReLU())
    limit = 2 * W.m / W.lipschitz() ** 2
    for alpha in (0.3 * limit, 0.9 * limit) if name == "forward-backward" else (0.05, 0.3, 1.0, 4.0):
        solution = SOLVERS[name](alpha=alpha, tol=1e-4, max_steps=20_000).solve(W, bias, prox.ReLU())
        assert bool((certificates.norm(solution.z - exact) <= 1e-4 * certificates.norm(solution.z)).all())


def test_each_sample_stands_alone(solver):
    W = random_operator(skew=4.0)
    bias = random_bias(batch=6) * torch.logspace(-6, 2, 6, dtype=F64)[:, None]
    solver = solver.with_alpha(solver.choose_alpha(W, bias, prox.Tanh()))
    together = solver.solve(W, bias, prox.Tanh())
    for i in range(6):
        alone = solver.solve(W, bias[i : i + 1], prox.Tanh())
        assert int(alone.sample_steps[0]) == int(together.sample_steps[i]) == alone.steps
        torch.testing.assert_close(alone.z[0], together.z[i], rtol=1e-12, atol=1e-18)
    assert together.steps == int(together.sample_steps.max())


def test_a_failing_neighbour_changes_nothing():
    W = random_operator()
    bias = random_bias(batch=3)
    huge = bias.clone()
    huge[1] = 1e308
    alone = PeacemanRachford(alpha=0.5).solve(W, bias, prox.ReLU())
    mixed = PeacemanRachford(alpha=0.5).solve(W, huge, prox.ReLU(), throw=False)
    assert mixed.converged.tolist() == [True, False, True] and mixed.status is Status.DIVERGED
    torch.testing.assert_close(mixed.z[[0, 2]], alone.z[[0, 2]], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", [prox.Tanh(), prox.Diagonal(torch.rand(40, 8, dtype=F64, generator=generator(3)))], ids=repr)
@pytest.mark.parametrize("batch", [17, 40])
def test_a_batch_solved_in_parts_is_the_batch(monkeypatch, solver, activation, batch):
    W, bias = random_operator(), random_bias(batch=40)[:batch]
    activation = activation.part(slice(0, batch), 2)
    bias[3] *= 0.0
    whole = solver.solve(W, bias, activation, z0=0.1 * bias)
    monkeypatch.setattr(_parts, "PART_BYTES", 1)  # sixteen samples, the fewest
    parts = solver.solve(W, bias, activation, z0=0.1 * bias)
    torch.testing.assert_close(parts.z, whole.z, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(parts.error_bound, whole.error_bound, rtol=1e-3, atol=1e-15)
    assert parts.sample_steps.tolist() == whole.sample_steps.tolist() and parts.steps == whole.steps
    assert parts.residuals.shape == (parts.steps, batch) and parts.status is Status.CONVERGED
    for sample, taken in enumerate(parts.sample_steps.tolist()):
        torch.testing.assert_close(parts.residuals[:taken, sample], whole.residuals[:taken, sample], rtol=1e-3, atol=1e-12)


GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_recorded_steps_are_the_steps(solver, device):
    W, bias = random_operator().to(device), random_bias().to(device)
    plain = solver.solve(W, bias, prox.Tanh())
    recorded = dataclasses.replace(solver, capture=True).solve(W, bias, prox.Tanh())
    torch.testing.assert_close(recorded.z, plain.z, rtol=1e-12, atol=1e-15)
    assert recorded.sample_steps.tolist() == plain.sample_steps.tolist()


def test_the_worst_part_is_reported(monkeypatch):
    monkeypatch.setattr(_parts, "PART_BYTES", 1)
    W, bias = random_operator(), random_bias(batch=40)
    bias[20] = 1e308
    solution = PeacemanRachford(alpha=0.5).solve(W, bias, prox.ReLU(), throw=False)
    assert solution.status is Status.DIVERGED and solution.converged.sum() == 39 and not solution.converged[20]
    with pytest.raises(ConvergenceError, match="1 of 40 samples"):
        PeacemanRachford(alpha=0.5).solve(W, bias, prox.ReLU())
    late = PeacemanRachford(alpha=0.5, max_steps=2).solve(W, bias, prox.ReLU(), throw=False)
    assert late.status is Status.DIVERGED and late.residuals.shape == (2, 40)


def test_history_and_shapes():
    W, bias = random_operator(), random_bias()
    solution = PeacemanRachford(alpha=0.4, tol=1e-8).solve(W, bias, prox.ReLU())
    assert solution.residuals.shape == (solution.steps, 5)
    relative = solution.error_bound / certificates.norm(solution.z)
    picked = solution.residuals[solution.sample_steps - 1, torch.arange(5)]
    torch.testing.assert_close(picked, relative)
    assert bool((picked <= 1e-8).all()) and solution.alpha == 0.4 and solution.solver == "PeacemanRachford"


def test_warm_start_at_the_answer_takes_one_step(solver):
    W, bias = random_operator(), random_bias()
    solution = solver.solve(W, bias, prox.Tanh())
    again = solver.solve(W, bias, prox.Tanh(), z0=solver.with_alpha(0.7 * solution.alpha).solve(W, bias, prox.Tanh()).z)
    assert again.steps <= max(2, solution.steps // 3)


@pytest.mark.parametrize("check_every", [2, 3, 7])
def test_rarer_checks_give_an_answer_at_least_as_good(check_every):
    W, bias = random_operator(), random_bias()
    often = PeacemanRachford(alpha=0.3).solve(W, bias, prox.ReLU())
    seldom = PeacemanRachford(alpha=0.3, check_every=check_every).solve(W, bias, prox.ReLU())
    assert often.steps <= seldom.steps < often.steps + check_every
    assert bool((seldom.error_bound <= often.error_bound * (1 + 1e-9)).all())


def test_zero_states_are_found():
    """All units inactive: z* = 0 exactly, and there is no relative error to ask for."""
    M = torch.tensor([[0.3, -2.2], [1.8, 0.3]], dtype=F64)
    W = operators.Dense.from_matrix(torch.eye(2, dtype=F64) - M, 0.1)
    stiff = PeacemanRachford(alpha=0.488, tol=1e-11).solve(W, torch.tensor([[-1.6750, -2.4888]], dtype=F64), prox.ReLU())
    assert bool(stiff.converged.all()) and stiff.z.abs().max() == 0.0
    W = random_operator()
    for dtype in (torch.float32, F64):
        bias = torch.cat([-torch.ones(1, 8), torch.ones(1, 8), torch.zeros(1, 8)]).to(dtype)
        solution = PeacemanRachford().solve(W.to(dtype), bias, prox.ReLU())
        assert bool(solution.converged.all())
        assert solution.z[0].abs().max() == 0.0 and solution.z[2].abs().max() == 0.0
        assert solution.z[1].abs().max() > 0.0


def test_float32_is_certified_against_float64():
    W, bias = random_operator(n=20, skew=3.0), random_bias(n=20, batch=50)
    exact = reference(W, bias, prox.ReLU())
    solution = PeacemanRachford(tol=1e-5).solve(W.to(torch.float32), bias.float(), prox.ReLU())
    error = certificates.norm(solution.z.double() - exact)
    assert bool((error <= solution.error_bound.double()).all())


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("m", [1.0, 1e-1, 1e-2, 1e-3, 1e-4])
def test_float32_bounds_hold_where_w_is_near_the_identity(m):
    """G = I - W is then a small difference; the reference uses the very float32 matrix, in float64."""
    for seed in range(3):
        torch.manual_seed(seed)
        W = operators.Dense(20, m, normalised=False)
        with torch.no_grad():
            W.A.mul_(0.3 * m**0.5)
            W.B.mul_(0.3 * m)
        bias = torch.randn(8, 20)
        stored = W.to_dense().detach().double()
        true_m = float(torch.linalg.eigvalsh(torch.eye(20, dtype=F64) - 0.5 * (stored + stored.T))[0])
        twin = operators.Dense.from_matrix(stored, true_m * (1 - 1e-9))
        exact = PeacemanRachford(tol=1e-10, max_steps=5000).solve(twin, bias.double(), prox.ReLU()).z
        for solver in (PeacemanRachford(), DouglasRachford(), ForwardBackward(max_steps=5000)):
            solution = solver.solve(W, bias, prox.ReLU(), throw=False)
            assert bool((certificates.norm(solution.z.double() - exact) <= solution.error_bound).all())
            assert solution.status in (Status.CONVERGED, Status.ROUNDING) and solution.steps < 500


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("scale", [1e-12, 1e-18, 1e-23, 1e-30])
def test_tiny_states_are_certified_too(scale):
    """Squares of such entries underflow in float32, and a bound of zero is no bound."""
    W, bias = random_operator(n=6, skew=1.0, dtype=torch.float32), random_bias(n=6, dtype=torch.float32)
    bias[0] = 0.0
    solution = PeacemanRachford().solve(W, scale * bias, prox.ReLU())
    exact = scale * reference(W, bias, prox.ReLU())
    error = (solution.z.double() - exact).norm(dim=1)
    assert bool((error <= solution.error_bound.double()).all())
    assert bool((error[1:] <= 1e-5 * exact[1:].norm(dim=1)).all()) and bool((error[1:] > 0).any())


def test_a_floor_of_rounding_is_called_one():
    """L/m = 20: the bound stops falling just above tol, and more steps would not help."""
    torch.manual_seed(0)
    W, bias = operators.Dense(87, 0.1), torch.nn.Linear(784, 87)(torch.randn(32, 784)).detach()
    with pytest.raises(ConvergenceError, match=r"use float64 or a tol above (\S+)") as caught:
        PeacemanRachford(tol=1e-6).solve(W, bias, prox.ReLU())
    assert caught.value.solution.status is Status.ROUNDING and caught.value.solution.steps < 200
    advice = float(str(caught.value).rsplit(" ", 1)[1].rstrip("."))
    PeacemanRachford(tol=advice).solve(W, bias, prox.ReLU())


def test_advice_that_cannot_be_followed_is_not_given():
    """With L/m = 1e16 not even half of ||z|| is certified in float64, and there is no wider format."""
    W = operators.Dense(8, 1e-16, dtype=F64)
    with pytest.raises(ConvergenceError, match=r"float64 cannot certify .* use a smaller L/m \(a larger m, or smaller weights\)"):
        PeacemanRachford(alpha=1.0).solve(W, random_bias(), prox.ReLU())


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e25])
def test_broken_weights_are_named(solver, bad):
    W = operators.Dense(5, normalised=False)
    with torch.no_grad():
        W.A[0, 0] = bad
    for chosen in (solver, solver.with_alpha(stepsize.Halving())):
        with pytest.raises(ValueError, match=r"W has a NaN or an infinite entry"):
            chosen.solve(W, random_bias(n=5, dtype=torch.float32), prox.ReLU())


def test_a_tolerance_below_the_dtype_is_said():
    W, bias = random_operator(dtype=torch.float32), random_bias(dtype=torch.float32)
    with pytest.raises(ConvergenceError, match=r"float32 cannot certify .* use float64") as caught:
        PeacemanRachford(tol=1e-8).solve(W, bias, prox.ReLU())
    assert caught.value.solution.status is Status.ROUNDING
    assert caught.value.solution.steps < 500
    pickle.loads(pickle.dumps(caught.value))


@pytest.mark.claim("MON-STEP")
def test_forward_backward_past_its_limit_is_refused_with_the_reason():
    m, s = 1.0, 3.0
    W = operators.Dense.from_matrix(torch.eye(2, dtype=F64) - torch.tensor([[m, -s], [s, m]], dtype=F64), m)
    limit = 2 * m / (m * m + s * s)
    bias = torch.ones(1, 2, dtype=F64)
    free = prox.LeakyReLU(1.0 - 1e-12)  # f = 0: the affine problem alone
    ForwardBackward(alpha=0.5 * limit, max_steps=2000).solve(W, bias, free)
    with pytest.raises(ConvergenceError, match="not below 2m/L"):
        ForwardBackward(alpha=1.01 * limit, max_steps=2000).solve(W, bias, free)
    for alpha in (1e-2, 1.0, 20.0):
        PeacemanRachford(alpha=alpha, max_steps=5000).solve(W, bias, free)


def test_an_overflow_is_not_convergence():
    """nan > tol is false and inf <= inf is true, so a careless loop calls this converged."""
    W = random_operator(skew=50.0)
    solution = ForwardBackward(alpha=1.0, max_steps=2000).solve(W, random_bias(), prox.LeakyReLU(0.9), throw=False)
    assert solution.status is Status.DIVERGED and not bool(solution.converged.any())
    with pytest.raises(ConvergenceError, match="not below 2m/L"):
        ForwardBackward(alpha=1.0, max_steps=2000).solve(W, random_bias(), prox.LeakyReLU(0.9))


def test_too_few_steps_says_how_many_more():
    W, bias = random_operator(skew=3.0), random_bias()
    needed = PeacemanRachford(alpha=0.05).solve(W, bias, prox.ReLU()).steps
    with pytest.raises(ConvergenceError, match=r"5 of 5 samples .* about (\d+) more") as caught:
        PeacemanRachford(alpha=0.05, max_steps=needed // 2).solve(W, bias, prox.ReLU())
    more = int(str(caught.value).split("about ")[1].split(" more")[0])
    assert 0.3 * needed / 2 <= more <= 3 * needed / 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PeacemanRachford(alpha=0.0), "alpha = 0"),
        (lambda: PeacemanRachford(alpha=-1), "alpha = -1"),
        (lambda: PeacemanRachford(alpha=math.nan), "alpha = nan"),
        (lambda: PeacemanRachford(alpha="best"), '"best" is unknown'),
        (lambda: PeacemanRachford(tol=0.0), "tol = 0"),
        (lambda: PeacemanRachford(tol=2.0), "tol = 2"),
        (lambda: PeacemanRachford(max_steps=0), "max_steps = 0"),
        (lambda: PeacemanRachford(check_every=0), "check_every = 0"),
        (lambda: PeacemanRachford(max_steps=math.inf), "max_steps = inf"),
        (lambda: PeacemanRachford(check_every=1.5), "check_every = 1.5"),
        (lambda: stepsize.SpectralRadius(signs=0), "signs = 0"),
        (lambda: stepsize.SpectralRadius(powers=-3), "powers = -3"),
        (lambda: stepsize.SpectralRadius(relaxation=0.0), "relaxation = 0"),
        (lambda: stepsize.Fixed(-2.0), "alpha = -2"),
        (lambda: stepsize.Halving(start=0.1, smallest=1.0), "smallest = 1"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_of_other_types_are_numbers():
    for alpha in (torch.tensor(0.5), np.float32(0.5), np.float64(0.5), 1):
        assert PeacemanRachford(alpha=alpha).alpha == float(alpha)
    assert PeacemanRachford(max_steps=10.0, check_every=3.0) == PeacemanRachford(max_steps=10, check_every=3)
    with pytest.raises(TypeError, match=r"alpha = \[\] is not a number"):
        PeacemanRachford(alpha=[])


def test_bad_inputs_are_named(solver):
    W, bias = random_operator(), random_bias()
    nan = bias.clone()
    nan[0, 0] = math.nan
    for bad, error, message in (
        (nan, ValueError, "bias has a NaN"),
        (bias[0], ValueError, "bias has shape"),
        (bias.float(), TypeError, "bias is torch.float32"),
    ):
        with pytest.raises(error, match=message):
            solver.solve(W, bad, prox.ReLU())
    with pytest.raises(ValueError, match="z0 has shape"):
        solver.solve(W, bias, prox.ReLU(), z0=bias[:2])
    with pytest.raises(TypeError, match="unexpected keyword"):
        solver.solve(W, bias, prox.ReLU(), tolerance=1e-3)
    with pytest.raises(TypeError, match="operator is a Linear"):
        solver.solve(torch.nn.Linear(8, 8), bias, prox.ReLU())
    for wrong in (torch.nn.GELU(), torch.relu):
        with pytest.raises((TypeError, ValueError)):
            certificates.fixed_point_bound(W, bias, wrong, bias)


def test_an_empty_batch_is_solved():
    solution = PeacemanRachford(alpha=1.0).solve(random_operator(), random_bias(batch=0), prox.ReLU())
    assert solution.z.shape == (0, 8) and solution.status is Status.CONVERGED


def test_no_graph_and_no_autocast(solver):
    W, bias = random_operator(dtype=torch.float32), random_bias(dtype=torch.float32).requires_grad_()
    solver = solver.__class__(tol=1e-5, max_steps=5000)
    plain = solver.solve(W, bias, prox.ReLU())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = solver.solve(W, bias, prox.ReLU())
    assert not plain.z.requires_grad
    torch.testing.assert_close(plain.z, cast.z, rtol=0, atol=0)
