"""What SecularRoot computes in the browser, against the library's solver, its list of preimages and f itself."""

import itertools
import json
import math

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection, householder, solve_secular

F64 = torch.float64
MODULE = "secular_root.maths.js"
SHARES = [[0.1, 0.2, 1.0], [1.0, 0.0, 0.0], [0.0, 0.3, 1.0], [0.5, 0.5, 0.5], [0.02, 0.0, 1.0], [0.01, 0.7, 0.9], [0.0, 0.0, 1.0]]


def unit(y):
    y = torch.tensor(y, dtype=F64)
    return y / y.norm()


def reflection(spectrum):
    f = AuxiliaryReflection(3, dtype=F64).requires_grad_(False)
    f.weight.copy_(torch.diag(spectrum))
    return f


def scalars(spectrum, x):
    u = x * spectrum
    return (x * u).sum(-1) / u.square().sum(-1)


@pytest.mark.parametrize("kappa", [1.05, 1.5, 1.9, 1.99])
@pytest.mark.parametrize("middle", [0.0, 0.45, 1.0])
def test_below_two_the_root_is_that_of_the_library(node, kappa, middle):
    script = f"""(() => {{ const lambda = spectrum({kappa}, {middle});
        const all = (y) => [roots(lambda, y), newtonPath(lambda, y), newtonOnF(lambda, y).c];
        return [lambda, {json.dumps(SHARES)}.map(unit).map(all)]; }})()"""
    values, found = node(MODULE, script)
    spectrum = torch.tensor(values, dtype=F64)
    torch.testing.assert_close(spectrum, torch.tensor([1, 1 + middle * (kappa - 1), kappa], dtype=F64))
    for shares, (roots, path, newton) in zip(SHARES, found, strict=True):
        c = float(solve_secular(spectrum, unit(shares)).c)
        assert roots == [pytest.approx(c, abs=1e-11)]
        assert path[-1] == pytest.approx(c, abs=1e-13) and newton == pytest.approx(c, abs=1e-10)
        assert path[0] == 1 / kappa and all(a < b for a, b in itertools.pairwise(path))  # it climbs
        assert len(path) <= 10


@pytest.mark.parametrize("kappa", [2.1, 2.5, 3.3, 4.0])
@pytest.mark.parametrize("middle", [0.1, 0.45, 0.9])
def test_beyond_two_the_roots_are_the_preimages(node, kappa, middle):
    script = f"""(() => {{ const lambda = spectrum({kappa}, {middle});
        return {json.dumps(SHARES)}.map(unit).map((y) => [roots(lambda, y), newtonOnF(lambda, y)]); }})()"""
    spectrum = torch.tensor([1, 1 + middle * (kappa - 1), kappa], dtype=F64)
    f, counts = reflection(spectrum), set()
    for shares, (roots, newton) in zip(SHARES, node(MODULE, script), strict=True):
        expected = scalars(spectrum, f.preimages(unit(shares))[0]).sort().values
        torch.testing.assert_close(torch.tensor(roots, dtype=F64), expected, rtol=1e-7, atol=1e-7)
        counts.add(len(roots))
        if newton:
            assert min(abs(newton["c"] - c) for c in roots) < 1e-8
    assert len(counts) > 1


def test_lengths_poles_and_f(node):
    lambda_, y, c = [1.0, 1.3, 2.4], unit([0.2, 0.5, 0.9]).tolist(), 0.7
    x, size, walls, fewer, image = node(
        MODULE,
        f"""[solve({lambda_}, {y}, {c}), length({lambda_}, {y}, {c}), poles({lambda_}, {y}), poles({lambda_}, [0, 0.6, 0.8]),
        reflect({lambda_}, {y})]""",
    )
    spectrum = torch.tensor(lambda_, dtype=F64)
    exact = torch.linalg.solve(torch.eye(3, dtype=F64) - 2 * c * torch.diag(spectrum), torch.tensor(y, dtype=F64))
    torch.testing.assert_close(torch.tensor(x, dtype=F64), exact)
    assert size == pytest.approx(float(exact.norm()))
    assert walls == pytest.approx([1 / 4.8, 1 / 2.6, 0.5]) and fewer == pytest.approx([1 / 4.8, 1 / 2.6])
    z = torch.tensor(y, dtype=F64)
    torch.testing.assert_close(torch.tensor(image, dtype=F64), householder(z * spectrum, z))
    assert node(MODULE, "[unit([0, 0, 0]), interval([1, 2, 4])]") == [[0, 0, 1], [0.25, 1]]
    assert math.isclose(node(MODULE, "length([1, 1, 1], [0, 0, 1], 1)"), 1.0)
