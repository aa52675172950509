"""Chapter 10: what the two printed orders mean, what the printed resolvent solves, what a border is equal to, what is counted."""

import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d, pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from mon_lib import operators, prox, splitting
from tests.problems import F64, generator, reference

RELU = prox.ReLU()


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=F64)


def make(channels, size, kernel_size=3, m=0.5, *, g=4.0, h=2.0, **kwargs):
    torch.manual_seed(0)
    W = operators.Convolution(channels, size, kernel_size, m, dtype=F64, **kwargs)
    with torch.no_grad():
        W.g_raw.fill_(g).expm1_().log_()
        W.h.fill_(h)
    return W


def kernels(W):
    A, B = W.A.detach(), W.B.detach()
    return A * (W.g.detach().sqrt() / A.norm()), B * (W.h.detach() / B.norm())


@pytest.mark.claim("MON-FFT")
@pytest.mark.parametrize("size", [(4, 5), (5, 4), (6, 6)])
def test_the_two_printed_orders_are_conjugate(size):
    """F W F* and F* W F, F with the sign of the paper: blocks conjugate to each other, and those of the mirrored kernels."""
    W, n, pixels = make(2, size), 2, size[0] * size[1]
    factors = []
    for s in size:
        j = torch.arange(s, dtype=F64)
        factors.append(torch.exp(2j * torch.pi * torch.outer(j, j) / s) / s**0.5)
    F = torch.kron(torch.eye(n, dtype=torch.complex128), torch.kron(*factors))
    M = W.to_dense().detach().to(F.dtype)
    at = torch.arange(pixels)
    b1, eq27 = ((L @ M @ L.mH).reshape(n, pixels, n, pixels)[:, at, :, at] for L in (F, F.mH))
    torch.testing.assert_close(b1, eq27.conj(), rtol=0, atol=1e-12)
    half = size[1] // 2 + 1
    kept = eq27.reshape(*size, n, n)[:, :half].transpose(0, 1).reshape(-1, n, n)
    torch.testing.assert_close(kept, W.symbol().detach(), rtol=0, atol=1e-12)
    with torch.no_grad():
        W.A.copy_(W.A.flip(2, 3))
        W.B.copy_(W.B.flip(2, 3))
    mirrored = b1.reshape(*size, n, n)[:, :half].transpose(0, 1).reshape(-1, n, n)
    torch.testing.assert_close(mirrored, W.symbol().detach(), rtol=0, atol=1e-12)
    assert float((b1 - eq27).abs().max()) > 0.1


@pytest.mark.claim("MON-EQ28")
@pytest.mark.parametrize("alpha", [0.25, 0.5, 3.0])
def test_the_printed_resolvent_solves_the_network_with_another_skew_part(alpha):
    """Without alpha on the skew terms the limit is the equilibrium for (B - B')/alpha in place of B - B'."""
    W, bias = make(3, (6, 5)), randn(2, 3, 6, 5)
    with torch.no_grad():
        symmetric = make(3, (6, 5), h=0.0)
        skew = W.symbol() - symmetric.symbol()
        eye = torch.eye(3, dtype=skew.dtype)
        printed = torch.linalg.inv(eye + alpha * (eye - symmetric.symbol()) - skew)
    fourier, u = operators.FastTransform(W.size, F64, bias.device), torch.zeros_like(bias)
    for _ in range(3000):
        z = torch.relu(u)
        u = u + 2 * (fourier.apply(printed, 2 * z - u + alpha * bias) - z)
    other = make(3, (6, 5), h=2.0 / alpha)
    for operator, same in ((other, True), (W, False)):
        flat = operators.Dense.from_matrix(operator.to_dense().detach(), operator.m)
        gap = float((torch.relu(u).flatten(1) - reference(flat, bias.flatten(1), RELU)).norm())
        assert (gap < 1e-9) if same else (gap > 0.05)


def zero_padded(W, size):
    """The dense operator that sees zeros beyond the picture: no torus, no transform."""
    (A, B), k, n = kernels(W), W.kernel_size, W.channels
    z = torch.eye(n * size[0] * size[1], dtype=F64).reshape(-1, n, *size)
    AA = conv_transpose2d(conv2d(z, A, padding=k - 1), A, padding=k - 1)
    skew = conv2d(z, B, padding=k // 2) - conv_transpose2d(z, B, padding=k // 2)
    return operators.Dense.from_matrix(((1 - W.m) * z - AA + skew).flatten(1).T, W.m)


def inside(z, width):
    return z[..., width : z.shape[-2] - width, width : z.shape[-1] - width]


def compressed(W, width):
    """P W P' as a matrix."""
    n, (H, V) = W.channels, W.size
    H, V = H - 2 * width, V - 2 * width
    picture = torch.eye(n * H * V, dtype=F64).reshape(-1, n, H, V)
    return inside(W(pad(picture, (width,) * 4)).detach(), width).flatten(1).T


def with_reach(size, k, inner):
    """A convolution with k x k kernels whose A vanishes outside its inner part, so that W reaches less than k - 1."""
    W = make(2, size, k)
    mask, c = torch.zeros(k, k, dtype=F64), k // 2
    mask[c - inner : c + inner + 1, c - inner : c + inner + 1] = 1
    with torch.no_grad():
        W.A.mul_(mask)
    return W


@pytest.mark.claim("MON-PAD")
@pytest.mark.parametrize(("k", "inner", "reach"), [(1, 0, 0), (3, 0, 1), (3, 1, 2), (5, 1, 2), (5, 2, 4)])
@pytest.mark.parametrize("width", [0, 1, 2])
def test_a_border_makes_the_zero_padded_network(k, inner, reach, width):
    """P W P' is the zero-padded operator iff twice the border is the reach of W, which may be less than k - 1."""
    picture = (9, 10)  # more than twice every reach
    W = with_reach((picture[0] + 2 * width, picture[1] + 2 * width), k, inner)
    flat, M = zero_padded(W, picture), compressed(W, width)
    gap = float((M - flat.to_dense().detach()).abs().max())
    assert (gap < 1e-12) if 2 * width >= reach else (gap > 1e-4)
    bias = randn(1, 2, *picture)
    solve = splitting.PeacemanRachford(tol=1e-11).solve
    z = solve(W, pad(bias, (width,) * 4), prox.Border(RELU, width)).z
    assert float((z - pad(inside(z, width), (width,) * 4)).abs().max()) == 0
    y = reference(operators.Dense.from_matrix(M, W.m), bias.flatten(1), RELU)
    torch.testing.assert_close(inside(z, width).flatten(1), y, rtol=0, atol=1e-9)


@pytest.mark.claim("MON-PAD")
@pytest.mark.parametrize(("k", "width"), [(3, 0), (5, 1)])
def test_a_narrower_border_has_a_bias_that_shows_it(k, width):
    """The bias of the proof: the equilibrium on the torus is a chosen positive state, that with zeros beyond is another."""
    picture = (9, 10)
    W = make(2, (picture[0] + 2 * width, picture[1] + 2 * width), k)
    y = randn(1, 2, *picture).abs() + 0.1
    bias = y - (y.flatten(1) @ compressed(W, width).T).reshape(y.shape)
    z = splitting.PeacemanRachford(tol=1e-11).solve(W, pad(bias, (width,) * 4), prox.Border(RELU, width)).z
    torch.testing.assert_close(inside(z, width), y, rtol=0, atol=1e-9)
    assert float((reference(zero_padded(W, picture), bias.flatten(1), RELU) - y.flatten(1)).norm()) > 0.01


class Transformed(TorchDispatchMode):
    """Counts the real numbers that pass through real Fourier transforms."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if "_fft_r2c" in str(function):
            self.numbers += args[0].numel()
        if "_fft_c2r" in str(function):
            self.numbers += out.numel()
        return out


@pytest.mark.claim("MON-COST")
@pytest.mark.parametrize(("n", "s", "b"), [(4, 9, 5), (8, 16, 3), (3, 5, 1)])
def test_a_product_costs_its_blocks_and_two_transforms(n, s, b):
    """N b n^2 complex multiplications and 2bn transforms of s x s numbers, and no more; N = s(s // 2 + 1)."""
    R = make(n, (s, s), transform=operators.FastTransform).resolvent(0.5)
    x, kernel = randn(b, n, s, s), randn(n, n, 3, 3)
    with FlopCounterMode(display=False) as counter, Transformed() as transformed:
        R(x)
    blocks = counter.get_total_flops() // 2
    assert blocks == s * (s // 2 + 1) * b * n**2
    assert transformed.numbers == 2 * b * n * s**2
    with FlopCounterMode(display=False) as counter:
        conv2d(x, kernel, padding=1)
    assert counter.get_total_flops() // 2 == 9 * b * n**2 * s**2
    assert 2 / 9 < 4 * blocks / (9 * b * n**2 * s**2) <= (2 + 4 / s) / 9


@pytest.mark.claim("MON-COST")
def test_transforms_by_matrix_products_cost_s_operations_a_number():
    """Real along the rows and complex along the columns, there and back, beside the same blocks."""
    n, s, b = 4, 9, 5
    R = make(n, (s, s), transform=operators.MatrixTransform).resolvent(0.5)
    with FlopCounterMode(display=False) as counter:
        R(randn(b, n, s, s))
    half = s // 2 + 1
    rows, columns = b * n * s * s * 2 * half, half * s * s * b * n
    assert counter.get_total_flops() // 2 == 2 * (rows + columns) + s * half * b * n**2
