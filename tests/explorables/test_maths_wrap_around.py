"""What WrapAround computes in the browser, against mon_lib and against zero padding in float64."""

import json

import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d, pad

from mon_lib import operators, prox, splitting

F64 = torch.float64
MODULE = "wrap_around.maths.js"
SIZE, M, G = 12, 0.5, 3.0
AT = [9.3, 5.75]


@pytest.fixture(scope="module")
def kernels(node):
    """k -> (A, B) as the picture has them."""
    assert node(MODULE, "[SIZE, M, G]") == [SIZE, M, G]
    values = node(MODULE, "[1, 3, 5].map(kernels)")
    return {k: [torch.tensor(v[name], dtype=F64)[None, None] for name in "AB"] for k, v in zip((1, 3, 5), values, strict=True)}


def operator(kernels, k, h, border):
    W = operators.Convolution(1, (SIZE + 2 * border,) * 2, k, M, dtype=F64)
    with torch.no_grad():
        W.A.copy_(kernels[k][0])
        W.B.copy_(kernels[k][1])
        W.g_raw.fill_(G).expm1_().log_()
        W.h.fill_(h)
    return W


def light(border=0):
    """One unit at column 9.3 and row 5.75 from below, as the four pixels around it see it."""
    x = torch.zeros(1, 1, SIZE, SIZE, dtype=F64)
    x[0, 0, 5, 9], x[0, 0, 5, 10], x[0, 0, 6, 9], x[0, 0, 6, 10] = 0.75 * 0.7, 0.75 * 0.3, 0.25 * 0.7, 0.25 * 0.3
    return pad(x, (border,) * 4)


def solve(W, x, s):
    return splitting.PeacemanRachford(tol=1e-11, max_steps=5000).solve(W, x, s).z


def image(values):
    side = round(len(values) ** 0.5)
    return torch.tensor(list(values), dtype=F64).reshape(side, side)


@pytest.mark.parametrize(("k", "h"), [(1, 2.0), (3, -1.2), (5, 2.5)])
def test_the_symbol_is_that_of_the_library(node, kernels, k, h):
    t = SIZE + 2
    W = operator(kernels, k, h, 1)
    expected = torch.view_as_real(W.symbol().detach()[:, 0, 0]).reshape(-1, t, 2).transpose(0, 1)
    found = node(
        MODULE,
        f"Array.from({{ length: {t} }}, (_, u) => Array.from({{ length: {t // 2 + 1} }}, (_, v) => symbol({k}, {h}, {t}, u, v)))",
    )
    torch.testing.assert_close(torch.tensor(found, dtype=F64), expected)


def test_the_resolvent_is_a_convolution_as_wide_as_the_torus(node, kernels):
    W = operator(kernels, 3, 1.5, 0)
    x = torch.randn(1, 1, SIZE, SIZE, dtype=F64, generator=torch.Generator().manual_seed(0))
    script = f"[...convolve(resolventKernel(3, 1.5, {SIZE}), {json.dumps(x.flatten().tolist())}, {SIZE}), ALPHA]"
    *found, alpha = node(MODULE, script)
    torch.testing.assert_close(image(found), W.resolvent(alpha)(x)[0, 0])


@pytest.mark.parametrize(
    ("k", "h", "border"), [(1, 1.0, 0), (3, 1.5, 0), (3, 1.5, 1), (3, -3.0, 0), (5, 0.0, 1), (5, 3.0, 0), (5, -2.0, 2)]
)
def test_the_equilibrium_is_that_of_the_library(node, kernels, k, h, border):
    found = node(MODULE, f"[...equilibrium({k}, {h}, {border}, {AT})]")
    expected = solve(operator(kernels, k, h, border), light(border), prox.Border(prox.ReLU(), border))
    torch.testing.assert_close(image(found), expected[0, 0], rtol=0, atol=1e-7)


def zero_padded(kernels, k, h):
    """The dense W that sees zeros beyond the picture, made without a torus and without a transform."""
    A, B = (kernel / kernel.norm().clamp_min(1e-300) for kernel in kernels[k])
    z = torch.eye(SIZE**2, dtype=F64).reshape(-1, 1, SIZE, SIZE)
    AA = conv_transpose2d(conv2d(z, A, padding=k - 1), A, padding=k - 1)
    skew = conv2d(z, B, padding=k // 2) - conv_transpose2d(z, B, padding=k // 2)
    return operators.Dense.from_matrix(((1 - M) * z - G * AA + h * skew).flatten(1).T, M)


@pytest.mark.parametrize(("k", "h", "border"), [(3, 1.5, 0), (3, 1.5, 1), (5, 1.5, 0), (5, 1.5, 1), (5, 1.5, 2)])
def test_what_leaked_is_measured_against_zero_padding(node, kernels, k, h, border):
    z, free, leak = node(MODULE, f"Object.values(compare({k}, {h}, {border}, {AT}))")
    expected = solve(zero_padded(kernels, k, h), light().flatten(1), prox.ReLU()).reshape(SIZE, SIZE)
    torch.testing.assert_close(image(free), expected, rtol=0, atol=1e-7)
    gap = (image(z) - expected).square().sum() / expected.square().sum()
    assert leak == pytest.approx(float(gap), rel=1e-4, abs=1e-12)
    assert (leak < 1e-12) == (2 * border >= k - 1)
    assert leak < 1e-12 or leak > 1e-3
