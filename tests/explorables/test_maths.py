"""What each explorable computes in the browser, against mon_lib in float64."""

import json
import math

import pytest
import torch

from mon_lib import operators, prox, splitting
from mon_lib.explorables import DigitSolve

F64 = torch.float64
METHODS = {
    "forward-backward": splitting.ForwardBackward,
    "peaceman-rachford": splitting.PeacemanRachford,
    "douglas-rachford": splitting.DouglasRachford,
}


def tensor(values):
    return torch.tensor(values, dtype=F64)


def rotation(m, s):
    return tensor([[m, -s], [s, m]])


def dense(G, m):
    return operators.Dense.from_matrix(torch.eye(len(G), dtype=F64) - G, m)


def path(solver, problem, u, steps):
    """z_0, ..., z_k from the library's own step."""
    out = []
    for _ in range(steps + 1):
        following, z, _ = solver.step(problem, u)
        out.append(z)
        u = following
    return torch.cat(out)


# SplittingPlane


@pytest.mark.parametrize("f", ["orthant", "l1"])
@pytest.mark.parametrize("method", METHODS)
def test_splitting_plane_takes_the_steps_of_the_library(node, method, f):
    alpha, m, s, steps, start = 0.35, 0.5, 1.4, 12, [2.6, -1.3]
    state = json.dumps({"alpha": alpha, "m": m, "s": s, "f": f})
    found, b = node("splitting_plane.maths.js", f"[run('{method}', {state}, {start}, {steps}), offset({m}, {s}, '{f}')]")
    solver = METHODS[method](alpha=alpha)
    activation = prox.ReLU() if f == "orthant" else prox.SoftThreshold(1.0)
    problem = splitting.Problem(dense(rotation(m, s), m).frozen(), tensor([b]), activation, alpha)
    expected = path(solver, problem, tensor([start]), steps)
    if method == "forward-backward":  # the picture starts at the point itself, the library's z one step later
        expected = torch.cat([tensor([start]), expected[:-1]])
    torch.testing.assert_close(tensor(found), expected)


@pytest.mark.parametrize("f", ["orthant", "l1"])
def test_splitting_plane_keeps_the_solution_in_place(node, f):
    b, target = node("splitting_plane.maths.js", f"[offset(0.7, 2, '{f}'), TARGET]")
    activation = prox.ReLU() if f == "orthant" else prox.SoftThreshold(1.0)
    solution = splitting.PeacemanRachford(tol=1e-12).solve(dense(rotation(0.7, 2.0), 0.7), tensor([b]), activation)
    torch.testing.assert_close(solution.z[0], tensor(target))


@pytest.mark.parametrize(("m", "s", "alpha"), [(0.5, 1.5, 0.3), (1.0, 0.2, 2.0), (0.2, 3.0, 0.01)])
def test_splitting_plane_factors(node, m, s, alpha):
    names = ["forwardFactor", "cayleyFactor", "averagedFactor"]
    forward, cayley, averaged = node("splitting_plane.maths.js", f"[{','.join(f'{n}({alpha},{m},{s})' for n in names)}]")
    W = dense(rotation(m, s), m)
    assert forward == pytest.approx(W.forward_norm(alpha), rel=1e-12)
    assert cayley == pytest.approx(W.cayley_norm(alpha), rel=1e-12)
    assert averaged == pytest.approx((1 + cayley) / 2)


def test_splitting_plane_threshold_is_where_the_forward_step_stops_contracting(node):
    at, below, above = node(
        "splitting_plane.maths.js", "[1, 0.99, 1.01].map((q) => forwardFactor(q * threshold(0.5, 1.5), 0.5, 1.5))"
    )
    assert below < 1 < above
    assert at == pytest.approx(1, abs=1e-14)


# ResolventCayley


@pytest.mark.parametrize(("m", "s", "t", "alpha"), [(0.4, 1.2, 0.5, 1.0), (0.0, 2.0, 0.0, 7.0), (1.5, 0.0, 2.0, 0.1)])
def test_resolvent_cayley_norms(node, m, s, t, alpha):
    size, G, C, bound = node(
        "resolvent_cayley.maths.js",
        f"[measure({m},{s},{t},{alpha}), operator({m},{s},{t}), cayley(operator({m},{s},{t}), {alpha}), "
        f"cayleyBound({alpha}, {m}, measure({m},{s},{t},{alpha}).G)]",
    )
    G, eye = tensor(G), torch.eye(2, dtype=F64)
    R = torch.linalg.inv(eye + alpha * G)
    torch.testing.assert_close(tensor(C), 2 * R - eye)
    for name, matrix in (("G", G), ("R", R), ("C", 2 * R - eye)):
        assert size[name] == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), abs=1e-7)
    assert size["m"] == pytest.approx(float(torch.linalg.eigvalsh(0.5 * (G + G.T))[0]), abs=1e-12)
    assert size["C"] <= bound + 1e-9


def test_a_rotation_has_an_isometry_for_its_cayley_operator(node):
    points = node("resolvent_cayley.maths.js", "image(cayley(operator(0, 1.7, 0), 3.1), circle(24)).map((x) => Math.hypot(...x))")
    assert points == pytest.approx([1] * 24, abs=1e-12)


# NumericalRange


def test_numerical_range_against_its_support_lines(node):
    W, boundary = node("numerical_range.maths.js", "[matrix(0.5, 3, 2, 0), numericalRange(matrix(0.5, 3, 2, 0), 64)]")
    W, z = tensor(W), torch.view_as_complex(tensor(boundary))
    assert len(z) == 64
    for k in range(64):
        turn = torch.polar(torch.ones((), dtype=F64), tensor(-2 * math.pi * k / 64))
        H = turn * W.to(turn.dtype)
        top = float(torch.linalg.eigvalsh(0.5 * (H + H.mH))[-1])
        reached = (turn * z).real
        assert float(reached.max()) == pytest.approx(top, abs=1e-10)
        assert float(reached[k]) == pytest.approx(top, abs=1e-10)


@pytest.mark.parametrize(("g", "h"), [(0.0, 0.0), (3.0, 2.0), (8.0, 3.5)])
@pytest.mark.parametrize("m", [0.05, 1.0, 2.0])
def test_numerical_range_stops_at_the_line_unless_set_free(node, m, g, h):
    held, free = node("numerical_range.maths.js", f"[reach(matrix({m},{g},{h},0)), reach(matrix({m},{g},{h},1))]")
    assert held <= 1 - m + 1e-12
    assert free > 1 - m


@pytest.mark.parametrize("free", [0.0, 0.4, 1.0])
def test_eigenvalues(node, free):
    W, roots = node("numerical_range.maths.js", f"[matrix(0.5, 3, 2, {free}), eigenvalues(matrix(0.5, 3, 2, {free}))]")
    found, expected = torch.view_as_complex(tensor(roots)), torch.linalg.eigvals(tensor(W))
    assert float((found[:, None] - expected[None, :]).abs().min(0).values.max()) < 1e-9
    assert float((found[:, None] - expected[None, :]).abs().min(1).values.max()) < 1e-9


# StepsVersusAlpha


@pytest.mark.parametrize(("g", "h", "tol"), [(2.0, 2.0, 1e-5), (20.0, 6.0, 1e-3)])
def test_measured_steps_are_those_of_the_library(node, g, h, tol):
    alphas = [1 / 64, 0.1, 0.44, 1.0, 4.0]
    G, bias, rachford, forward = node(
        "steps_versus_alpha.maths.js",
        f"(() => {{ const G = gain(1, {g}, {h}), L = spectralNorm(G), alphas = {alphas}; return [G, BIAS, "
        f"alphas.map((a) => peacemanRachford(G, L, 1, a, {tol})), alphas.map((a) => forwardBackward(G, L, 1, a, {tol}))]; }})()",
    )
    W = dense(tensor(G), 1.0)

    def steps(method):
        out = []
        for alpha in alphas:
            solution = method(alpha=alpha, tol=tol).solve(W, tensor([bias]), prox.ReLU(), throw=False)
            out.append(solution.steps if bool(solution.converged.all()) else 500)
        return out

    assert rachford == steps(splitting.PeacemanRachford)
    assert forward == steps(splitting.ForwardBackward)
    assert max(forward) == 500 > max(rachford)


def test_the_predicted_rate(node):
    alphas = [0.05, 0.5, 3.0]
    G, signs, rates = node("steps_versus_alpha.maths.js", f"[gain(1, 5, 3), SIGNS, {alphas}.map((a) => rate(gain(1, 5, 3), a))]")
    eye = torch.eye(6, dtype=F64)
    for alpha, rate in zip(alphas, rates, strict=True):
        C = 2 * torch.linalg.inv(eye + alpha * tensor(G)) - eye
        expected = torch.stack([torch.linalg.eigvals(C @ torch.diag(tensor(s))).abs().max() for s in signs]).mean()
        assert rate == pytest.approx(float(expected), rel=1e-4)


def test_halving_stops_at_the_first_rise(node):
    picks = node(
        "steps_versus_alpha.maths.js",
        "[halving((a) => Math.abs(a - 0.2)), halving((a) => -a), halving((a) => a), least([[1, 3], [2, 1], [3, 2]])]",
    )
    assert picks == [0.25, 1, 1 / 64, [2, 1]]


# ActivationProx

ACTIVATIONS = {
    "relu": prox.ReLU(),
    "leaky": prox.LeakyReLU(0.1),
    "clip": prox.Clip(),
    "soft": prox.SoftThreshold(),
    "tanh": prox.Tanh(),
    "sigmoid": prox.Sigmoid(),
    "softplus": prox.Softplus(),
    "elu": prox.ELU(),
    "softsign": prox.Softsign(),
    "arctan": prox.Arctan(),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_prox(node, name):
    x = torch.linspace(-4, 4, 33, dtype=F64) + 0.003
    alphas = [1 / 16, 0.5, 1.0, 3.0, 16.0]
    sigma, slope, moved = node(
        "activation_prox.maths.js",
        f"(() => {{ const a = ACTIVATIONS.{name}, x = {x.tolist()}; return [x.map(a.sigma), x.map(a.slope), "
        f"{alphas}.map((alpha) => x.map((u) => prox(a, u, alpha)))]; }})()",
    )
    activation = ACTIVATIONS[name]
    torch.testing.assert_close(tensor(sigma), activation(x))
    torch.testing.assert_close(tensor(slope), activation.derivative(x))
    for alpha, values in zip(alphas, moved, strict=True):
        torch.testing.assert_close(tensor(values), activation.prox(x, alpha), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_penalty(node, name):
    curve = tensor(node("activation_prox.maths.js", f"penalty(ACTIVATIONS.{name})"))
    shown = curve[curve[:, 0].abs() < 4]
    torch.testing.assert_close(shown[:, 1], ACTIVATIONS[name].potential(shown[:, 0]), rtol=1e-4, atol=1e-5)
    assert len(shown) > 100


def test_interpolation_on_the_penalty(node):
    assert node("activation_prox.maths.js", "[0, 0.5, 1, 2].map((p) => interpolate([[0, 1], [1, 3], [2, 3]], p))") == [1, 2, 3, 3]
    assert all(map(math.isnan, node("activation_prox.maths.js", "[-1, 3].map((p) => interpolate([[0, 1], [1, 3]], p))")))


# NaiveVersusSplitting


@pytest.mark.claim("MON-STEP")
def test_naive_iteration_cycles_and_splitting_arrives(node):
    cycle, naive, split, z = node(
        "naive_versus_splitting.maths.js",
        "(() => { const n = naive(3, 1, [1.2, 3.6], 60); "
        "return [period(n), n.at(-1), splitting(3, 1, [1.2, 3.6], 60).at(-1), equilibrium(3, 1)]; })()",
    )
    assert cycle == 4
    assert math.dist(naive, z) > 0.1
    assert math.dist(split, z) < 1e-8


@pytest.mark.parametrize("s", [0.0, 0.8, 3.0])
@pytest.mark.parametrize("x", [-1.0, 0.02, 1.0])
def test_two_units_have_the_equilibrium_of_the_library(node, s, x):
    W, c, z, split = node(
        "naive_versus_splitting.maths.js", f"[weight({s}), bias({x}), equilibrium({s}, {x}), splitting({s}, {x}, [0, 0], 8)]"
    )
    operator = operators.Dense.from_matrix(tensor(W), 1.0)
    solution = splitting.PeacemanRachford(tol=1e-10).solve(operator, tensor([c]), prox.ReLU())
    torch.testing.assert_close(tensor(z), solution.z[0], rtol=1e-8, atol=1e-8)
    solver = splitting.PeacemanRachford(alpha=1 / math.hypot(1, s))
    problem = splitting.Problem(operator.frozen(), tensor([c]), prox.ReLU(), solver.alpha)
    torch.testing.assert_close(tensor(split), path(solver, problem, tensor([[0.0, 0.0]]), 8))


def test_period(node):
    assert node("naive_versus_splitting.maths.js", "[period(naive(0.5, 1, [0, 0], 200)), period(naive(1, 1, [0, 0], 5))]") == [1, 0]


# ComplementaryCones


@pytest.mark.claim("NEW-LCP")
def test_a_p_matrix_tiles_the_plane(node):
    """Every c lies in one cone, and its solution is the network's equilibrium, while M is a P-matrix, monotone or not."""
    cs = [[3 * math.cos(0.05 + k * 0.37), 3 * math.sin(0.05 + k * 0.37)] for k in range(17)]
    for m, s, k in [(1.0, 0.5, 0.3), (0.3, 2.0, -0.2), (0.5, 2.0, 1.5)]:
        M, kind, found = node(
            "complementary_cones.maths.js",
            f"(() => {{ const M = matrix({m}, {s}, {k}); "
            f"return [M, [isMonotone(M), isP(M)], {cs}.map((c) => solutions(M, c))]; }})()",
        )
        assert kind == [abs(k) <= m, True]
        assert [len(each) for each in found] == [1] * len(cs)
        z, c = tensor([each[0]["z"] for each in found]), tensor(cs)
        torch.testing.assert_close(z, torch.relu(z - z @ tensor(M).T + c))
        if kind[0]:
            solver = splitting.PeacemanRachford(tol=1e-11)
            # z* = 0 has no relative error to certify: such a sample may end at rounding level instead
            solution = solver.solve(dense(tensor(M), m - abs(k)), c, prox.ReLU(), throw=False)
            torch.testing.assert_close(z, solution.z, rtol=1e-9, atol=1e-9)


def test_beyond_p_matrices_there_are_several_solutions_or_none(node):
    cs = [[3 * math.cos(k * 0.31), 3 * math.sin(k * 0.31)] for k in range(20)]
    for coupling, extremes in ((2.0, [1, 3]), (-2.0, [0, 2])):
        M, kind, counts, found = node(
            "complementary_cones.maths.js",
            f"(() => {{ const M = matrix(1, 0.5, {coupling}); "
            f"return [M, isP(M), census(M), {cs}.map((c) => solutions(M, c))]; }})()",
        )
        assert kind is False
        assert counts == extremes
        for c, each in zip(cs, found, strict=True):
            for solution in each:
                z = tensor(solution["z"])
                torch.testing.assert_close(z, torch.relu(z - tensor(M) @ z + tensor(c)))


def test_cones_are_drawn_where_the_solutions_are(node):
    """The middle of each sector has a solution with that active set, and the four angles make a full turn."""
    sectors, found = node(
        "complementary_cones.maths.js",
        "(() => { const M = matrix(1, 0.8, 0.4), all = SETS.map((set) => sector(M, set)); "
        "return [all, all.map((s) => solutions(M, [Math.cos(s.middle), Math.sin(s.middle)]))]; })()",
    )
    assert sum(s["width"] for s in sectors) == pytest.approx(2 * math.pi)
    assert [[each["set"] for each in here] for here in found] == [[[]], [[0]], [[1]], [[0, 1]]]


# ImplicitGradient


def two_units():
    W = tensor([[0, -3], [3, 0]])
    return W, operators.Dense.from_matrix(W, 1.0), tensor([0.6, -0.5])


@pytest.mark.claim("MON-T2")
@pytest.mark.parametrize("theta", [-2.0, 0.4, 2.5])
def test_implicit_gradient_is_that_of_autograd_through_the_fixed_point(node, theta):
    z, slope, loss = node(
        "implicit_gradient.maths.js", f"(() => {{ const z = equilibrium({theta}); return [z, implicit({theta}, z), loss(z)]; }})()"
    )
    W, operator, target = two_units()
    bias = tensor([[theta, 0.4]])
    solution = splitting.PeacemanRachford(tol=1e-13).solve(operator, bias, prox.Tanh())
    torch.testing.assert_close(tensor(z), solution.z[0])
    J = torch.diag(1 - solution.z[0] ** 2)
    dz = torch.linalg.solve(torch.eye(2, dtype=F64) - J @ W, J @ tensor([1.0, 0.0]))
    assert slope == pytest.approx(float((solution.z[0] - target) @ dz), rel=1e-10)
    assert loss == pytest.approx(0.5 * float((solution.z[0] - target).square().sum()))


@pytest.mark.parametrize(("theta", "alpha", "steps"), [(-2.0, 0.2, 2), (0.7, 1.0, 5), (1.5, 3.0, 4), (1.0, 0.3, 0)])
def test_unrolled_gradient_is_that_of_autograd_through_the_steps(node, theta, alpha, steps):
    z, slope = node("implicit_gradient.maths.js", f"[unroll({theta}, {alpha}, {steps}).z, unrolled({theta}, {alpha}, {steps})]")
    _, operator, target = two_units()
    solver = splitting.PeacemanRachford(alpha=alpha)

    def final(t):
        problem = splitting.Problem(operator.frozen(), torch.cat([t.reshape(1, 1), tensor([[0.4]])], 1), prox.Tanh(), alpha)
        u = torch.zeros(1, 2, dtype=F64)
        for _ in range(steps):
            u = solver.step(problem, u)[0]
        return problem.prox(u)[0]

    t = tensor(theta).requires_grad_()
    y = final(t)
    torch.testing.assert_close(tensor(z), y.detach())
    expected = torch.autograd.grad(0.5 * (y - target).square().sum(), t)[0] if y.requires_grad else 0.0
    assert slope == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


# DigitSolve


def test_digit_solve_numbers(node):
    expression = "[argmax([0.1, 0.7, 0.2]), settled([[1, 0], [0, 1], [1, 0], [0.9, 0.1]]), settled([[1, 0]])]"
    assert node("digit_solve.maths.js", expression) == [1, 2, 0]
    low, high = node("digit_solve.maths.js", "decadeRange([[3, 0.02], [0, 0.5]])")
    assert (low, high) == pytest.approx((0.01, 10))


def test_digit_solve_images_survive_the_journey(node):
    image = torch.arange(12.0).reshape(1, 1, 3, 4) - 5
    widget = DigitSolve(image, torch.ones(1, 2, 10) / 10, torch.ones(1, 2), [7])
    assert widget.size == [3, 4]
    found = node("digit_solve.maths.js", f"[...bytes({widget.images[0]!r})]")
    assert found == [round(255 * k / 11) for k in range(12)]
