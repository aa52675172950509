"""Chapter 9: the steps over training (MON-FIG2), the bound that explains them, and why accuracy is no test of convergence."""

import math

import pytest
import torch

from mon_lib import data, prox, splitting, training
from mon_lib.networks import FullyConnectedMON
from mon_lib.operators import Dense
from mon_lib.splitting import PeacemanRachford


@pytest.fixture(scope="module")
def halves():
    return data.load("mnist-5k").take(1000), data.load("mnist-5k", train=False).take(300)


@pytest.fixture(scope="module")
def runs(halves):
    """A run with alpha tuned and one with alpha = 1: model, L before, steps before, history."""
    found = {}
    for name, solver in (("tuned", PeacemanRachford(tol=1e-3)), ("one", PeacemanRachford(alpha=1.0, tol=1e-3))):
        torch.manual_seed(0)
        model = FullyConnectedMON(solver=solver)
        before = model.equilibrium.operator.lipschitz(), model.equilibrium.solve(halves[1].images.flatten(1)).steps
        history = training.fit(model, *halves, epochs=4, seed=0, learning_rate=1e-2)
        found[name] = model, *before, history
    return found


@pytest.mark.claim("MON-FIG2")
@pytest.mark.parametrize("name", ["tuned", "one"])
def test_training_lets_the_lipschitz_constant_and_the_steps_grow(runs, name):
    model, lipschitz, steps, history = runs[name]
    assert model.equilibrium.operator.lipschitz() > 2 * lipschitz
    assert history[-1].forward_steps > (1.3 if name == "tuned" else 2.0) * steps
    assert history[-1].backward_steps > history[0].backward_steps
    assert history[-1].test_accuracy > 0.8


@pytest.mark.claim("MON-FIG2")
@pytest.mark.parametrize("way", ["forward_steps", "backward_steps"])
def test_a_tuned_alpha_needs_fewer_steps_throughout(runs, way):
    tuned, one = runs["tuned"][3].column(way), runs["one"][3].column(way)
    assert all(a < b for a, b in zip(tuned, one, strict=True))
    assert tuned[-1] < 0.75 * one[-1]
    assert runs["one"][3].column("alpha") == [(1.0,)] * 4


def steps_needed(alpha, m, L, eps):
    return math.ceil((1 + 2 * alpha * m + alpha**2 * L**2) / (2 * alpha * m) * math.log(1 / eps))


def steps_taken(W, bias, activation, alpha, eps):
    problem = splitting.Problem(W.frozen(), bias, activation, alpha)
    solver = PeacemanRachford(alpha=alpha)
    u = torch.zeros_like(bias)
    for _ in range(steps_needed(alpha, W.m, W.lipschitz(), 1e-10)):
        u = solver.step(problem, u)[0]
    fixed, u = u, torch.zeros_like(bias)
    first = (u - fixed).norm(dim=1)
    for k in range(10_000):
        if bool(((u - fixed).norm(dim=1) <= eps * first).all()):
            return k
        u = solver.step(problem, u)[0]
    raise AssertionError("no convergence")


@pytest.mark.parametrize("activation", [prox.ReLU(), prox.Tanh(), prox.SoftThreshold(0.1)], ids=repr)
@pytest.mark.parametrize(("m", "scale"), [(1.0, 1.0), (0.2, 1.0), (1.0, 3.0)])
def test_the_bound_on_the_steps_holds(activation, m, scale):
    torch.manual_seed(0)
    W = Dense(12, m, normalised=False, dtype=torch.float64)
    with torch.no_grad():
        W.A.mul_(scale)
        W.B.mul_(scale)
    bias = 3 * torch.randn(8, 12, dtype=torch.float64)
    L = W.lipschitz()
    for alpha in (1.0, 1 / L, 0.3):
        assert steps_taken(W, bias, activation, alpha, 1e-4) <= steps_needed(alpha, m, L, 1e-4)


def test_the_bound_on_the_steps_is_attained_up_to_a_constant():
    """f = 0 and the matrix of MON-STEP: the factor is exact, so the bound is loose only by -log(1 - q) >= q."""
    m, L = 0.1, 5.0
    s = math.sqrt(L**2 - m**2)
    W = Dense.from_matrix(torch.eye(2, dtype=torch.float64) - torch.tensor([[m, -s], [s, m]], dtype=torch.float64), m)
    bias = torch.ones(1, 2, dtype=torch.float64)
    for alpha in (1.0, 1 / L):
        taken = steps_taken(W, bias, prox.LeakyReLU(1.0), alpha, 1e-4)
        needed = steps_needed(alpha, m, L, 1e-4)
        assert needed - 2 <= taken * 1.05 and taken <= needed


def test_an_unconverged_solve_has_the_accuracy_of_a_converged_one(runs, halves):
    model = runs["tuned"][0]
    layer, test = model.equilibrium, halves[1]
    with torch.no_grad():
        bias = layer.injection(test.images.flatten(1))
        z = layer(test.images.flatten(1))
        solver = PeacemanRachford(alpha=layer.tune(), tol=1e-3, max_steps=5)
        stopped = solver.solve(layer.operator, bias, layer.activation, throw=False)
        right, hasty = ((model.readout(state).argmax(1) == test.labels).double().mean().item() for state in (z, stopped.z))
    errors = (stopped.z - z).norm(dim=1) / z.norm(dim=1)
    assert abs(right - hasty) < 0.02
    assert errors.median() > 0.05
    assert not bool(stopped.converged.any())
    assert bool((errors * z.norm(dim=1) <= stopped.error_bound + 1e-3 * z.norm(dim=1)).all())


def test_training_cannot_break_monotonicity(runs):
    for model, *_ in runs.values():
        assert model.equilibrium.operator.monotonicity() > 1.0 - 1e-5
