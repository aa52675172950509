"""What SolveCost computes in the browser, against the multiplications of mon_lib's own products and against the book's rates."""

import math

import pytest
import torch
from counting import Multiplications

from mon_lib import operators

SIZES = [(3, 8, 2), (5, 7, 4), (24, 16, 16), (1, 4, 1)]


def counted(run):
    with Multiplications() as count:
        run()
    return count.total


@pytest.mark.parametrize(("n", "s", "b"), SIZES)
def test_operations_are_those_of_the_library(node, n, s, b):
    explicit, products, matrices, fast, symbol, inverse = node(
        "solve_cost.maths.js",
        f"[convolution({n},{s},{b}), products({n},{s},{b}), matrixTransforms({n},{s},{b}), fastTransforms({n},{s},{b}), "
        f"symbol({n},{s}), inverse({n},{s})]",
    )
    x = torch.randn(b, n, s, s)
    kernel = torch.nn.Conv2d(n, n, 3, padding=1, bias=False)
    with torch.no_grad():
        assert explicit == counted(lambda: kernel(x))
        for kind, transforms in ((operators.MatrixTransform, matrices), (operators.FastTransform, fast)):
            W = operators.Convolution(n, (s, s), transform=kind)
            assert symbol == counted(W.frozen)
            frozen = W.frozen()
            assert inverse == counted(lambda frozen=frozen: frozen.resolvent(0.5))
            R = frozen.resolvent(0.5)
            for run in (R, R.T, frozen):  # one price for the resolvent, its transpose and W
                assert products + transforms == pytest.approx(counted(lambda run=run: run(x)), rel=1e-12)


@pytest.mark.parametrize(("L", "tau", "tol"), [(1.2, 1.0, 1e-3), (4.9, 1.0, 1e-5), (4.9, 2.0, 1e-5), (9.0, 0.3, 1e-2)])
def test_steps_are_those_of_the_factor(node, L, tau, tol):
    """c(alpha) as chapter 3 has it, at alpha = tau/L and m = 1."""
    alpha = tau / L
    c = math.sqrt(1 - 4 * alpha / (1 + 2 * alpha + (alpha * L) ** 2))
    found = node("solve_cost.maths.js", f"steps({L}, {tol}, {tau})")
    assert c**found <= tol * (1 + 1e-9) < c ** (found - 1)


def test_the_bound_covers_a_rotation(node):
    """G = I + sK with K'K = I is the worst case at alpha = 1/L: its Cayley operator has exactly the norm of the bound."""
    s = 3.0
    G = torch.tensor([[1.0, -s], [s, 1.0]], dtype=torch.float64)
    L = math.hypot(1, s)
    W = operators.Dense.from_matrix(torch.eye(2, dtype=torch.float64) - G, 1.0)
    found = node("solve_cost.maths.js", f"steps({L}, 1e-6)")
    assert W.cayley_norm(1 / L) ** found <= 1e-6 * (1 + 1e-9) < W.cayley_norm(1 / L) ** (found - 1)


def test_a_solve_is_the_sum_of_its_parts(node):
    state = "{n: 24, s: 16, b: 8, L: 4.9, tol: 1e-3, ratio: %s}"
    for ratio, kind in ((1, "fast"), (40, "matrix")):
        whole, one, count, once = node(
            "solve_cost.maths.js",
            f"[solve({state % ratio}), step(24, 16, 8, {ratio}), steps(4.9, 1e-3), "
            "(symbol(24, 16) + inverse(24, 16)) / convolution(24, 16, 8)]",
        )
        assert whole["fast"] is (kind == "fast")
        assert whole["steps"] == count
        assert whole["total"] == pytest.approx(2 * count * (one["products"] + one[kind]) + once, rel=1e-12)
        assert whole["total"] == pytest.approx(sum(whole["parts"].values()), rel=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 5.0, 12.0, 40.0])
def test_crossover(node, ratio):
    """From there on the fast transform is the cheaper one, and just below it is not."""
    at, most, differences = node(
        "solve_cost.maths.js",
        f"[crossover({ratio}), 1024, Array.from({{length: 1023}}, (_, i) => i + 2).map((s) => "
        f"matrixTransforms(3, s, 2) - {ratio} * fastTransforms(3, s, 2))]",
    )
    wins = [difference > 0 for difference in differences]  # sizes 2, 3, ...
    assert all(wins[at - 2 : most - 1])
    assert at == 2 or not wins[at - 3]


def test_no_crossover_in_reach(node):
    assert node("solve_cost.maths.js", "crossover(40, 32)") == math.inf
