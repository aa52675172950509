"""What TwoTiers computes in the browser, against mon_lib and torch in float64."""

import itertools
import json
import math

import pytest
import torch

from mon_lib import operators, prox, splitting

F64 = torch.float64
STATES = [(2.0, 0.3, 0.0, 0.0), (-1.3, 1.0, 0.7, 0.25), (3.5, 0.05, 1.2, 1.0), (0.0, 0.4, 0.2, 0.5), (-4.0, 0.2, 0.0, 0.5)]


def tensor(values):
    return torch.tensor(values, dtype=F64)


def gain(theta, m, a, up):
    """I - W by the blocks of appendix C, some of the coupling turned round."""
    A11, A21, A22 = tensor([[a]]), tensor([[1.0]]), tensor([[1.0]])
    eye = torch.eye(1, dtype=F64)
    coupling = theta * A22.T @ A21
    return torch.cat(
        [
            torch.cat([m * eye + A11.T @ A11 + A21.T @ A21, up * coupling.T], 1),
            torch.cat([(1 - up) * coupling, m * eye + A22.T @ A22], 1),
        ]
    )


def least(G):
    return float(torch.linalg.eigvalsh((G + G.T) / 2)[0])


def test_two_of_the_library_is_theta_two(node):
    """A multi-tier operator on 1x1 images with these numbers in its kernels."""
    W = operators.MultiTier((1, 1), (1, 1), kernel_size=1, m=0.3, stride=1, dtype=F64)
    a = 0.6
    with torch.no_grad():
        for kernel in (*W.A, *W.down):
            kernel.fill_(1.0)
        W.g_raw.copy_(tensor([a**2, 1.0]).expm1().log())
        W.down_g_raw.fill_(math.log(math.expm1(1.0)))
    G = torch.eye(2, dtype=F64) - W.to_dense().detach()
    torch.testing.assert_close(tensor(node("two_tiers.maths.js", f"gain(2, 0.3, {a}, 0)")), G)


@pytest.mark.parametrize("state", STATES)
def test_the_range_is_the_ellipse(node, state):
    G, left, points, roots = node(
        "two_tiers.maths.js",
        f"(() => {{ const G = gain(...{list(state)}); return [G, leftEnd(G), ellipse(G, 720), eigenvalues(G)]; }})()",
    )
    G, z = tensor(G), torch.view_as_complex(tensor(points))
    torch.testing.assert_close(G, gain(*state))
    assert left == pytest.approx(least(G), abs=1e-12)
    torch.testing.assert_close(tensor(roots), torch.linalg.eigvals(G).real.sort().values)
    assert float(torch.linalg.eigvals(G).imag.abs().max()) < 1e-12
    for k in range(24):  # its support lines, every fifteen degrees
        turn = torch.polar(torch.ones((), dtype=F64), tensor(-2 * math.pi * k / 24))
        H = turn * G.to(turn.dtype)
        top = float(torch.linalg.eigvalsh(0.5 * (H + H.mH))[-1])
        assert float((turn * z).real.max()) == pytest.approx(top, abs=1e-4)


@pytest.mark.parametrize("up", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("a", [0.0, 0.8])
def test_the_limit_is_where_the_constant_is_lost(node, a, up):
    bound = node("two_tiers.maths.js", f"limit({a})")
    assert bound >= 2.0 and (a > 0 or bound == 2.0)
    for sign in (-1, 1):
        assert least(gain(sign * bound, 0.3, a, up)) == pytest.approx(0.3, abs=1e-12)
        assert least(gain(sign * (bound + 0.01), 0.3, a, up)) < 0.3 - 1e-4
        assert least(gain(sign * (bound - 0.01), 0.3, a, up)) > 0.3 + 1e-4


def by_enumeration(G, b):
    """All z = relu(z - Gz + b) of two units."""
    out = []
    for active in itertools.product([False, True], repeat=2):
        S, z = torch.tensor(active), torch.zeros(2, dtype=F64)
        if S.any():
            z[S] = torch.linalg.solve(G[S][:, S], b[S])
        if bool((z[S] > 0).all()) and bool(((G @ z - b)[~S] >= 0).all()):
            out.append(z.tolist())
    return sorted(out)


@pytest.mark.parametrize(("theta", "up", "count"), [(4, 0, 1), (-4, 0, 1), (4, 1, 1), (2, 0.5, 1), (4, 0.5, 3), (-4, 0.5, 0)])
def test_equilibria(node, theta, up, count):
    alone = [1.2, 1.3]
    G, found = node(
        "two_tiers.maths.js",
        f"(() => {{ const G = gain({theta}, 0.3, 0, {up}); return [G, equilibria(G, {json.dumps(alone)})]; }})()",
    )
    G = tensor(G)
    b = G.diagonal() * tensor(alone)
    assert len(found) == count
    torch.testing.assert_close(tensor(sorted(found)), tensor(by_enumeration(G, b)))
    if count == 1 and abs(theta) <= 2:
        W = operators.Dense.from_matrix(torch.eye(2, dtype=F64) - G, 0.3 - 1e-12)
        z = splitting.PeacemanRachford(tol=1e-11).solve(W, b[None], prox.ReLU()).z
        torch.testing.assert_close(tensor(found), z, rtol=1e-9, atol=1e-9)


def test_equilibria_lie_on_both_responses(node):
    for theta, up in ((4, 0.5), (1.5, 0.2), (-1.0, 0.5)):
        found, lines = node(
            "two_tiers.maths.js",
            f"(() => {{ const G = gain({theta}, 0.3, 0.4, {up}), [s, t] = slopes(G); "
            "return [equilibria(G, [1.2, 1.3]), [response(1.2, s, 9), response(1.3, t, 9)]]; })()",
        )
        assert found
        for z in found:
            for line, x, y in ((lines[0], z[1], z[0]), (lines[1], z[0], z[1])):
                (left, right) = next((p, q) for p, q in itertools.pairwise(line) if p[0] <= x <= q[0])
                share = (x - left[0]) / (right[0] - left[0])
                assert left[1] + share * (right[1] - left[1]) == pytest.approx(y, abs=1e-9)
