"""Convolutions in the Fourier domain: against conv2d, against the print, and inside a layer."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from mon_lib import ConvergenceError, Equilibrium, operators, prox, splitting, stepsize
from mon_lib.operators import _fourier, _norms, _parts
from tests.problems import F64, generator, losses_of_training, reference

TRANSFORMS = [operators.FastTransform, operators.MatrixTransform]
SIZES = [((4, 5), 3), ((5, 4), 1), ((6, 7), 5), ((8, 6), 3), ((1, 1), 1), ((2, 3), 1), ((5, 5), 5), ((34, 30), 3)]


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=generator(seed), dtype=F64).to(dtype)


def make(channels, size, kernel_size=3, m=0.5, *, g=None, h=None, seed=0, dtype=F64, **kwargs):
    torch.manual_seed(seed)
    W = operators.Convolution(channels, size, kernel_size, m, dtype=dtype, **kwargs)
    with torch.no_grad():
        if g is not None:
            W.g_raw.fill_(g)
        if h is not None:
            W.h.fill_(h)
    return W


def circular(z, kernel):
    c = kernel.shape[-1] // 2
    return conv2d(pad(z, (c, c, c, c), mode="circular"), kernel)


def kernels(W):
    """A and B with their scalars."""
    A, B = W.A.detach(), W.B.detach()
    return A * (W.g.detach().sqrt() / A.norm()), B * (W.h.detach() / B.norm())


def by_conv2d(W, z):
    """Wz by four convolutions in space; A' is the convolution with the turned kernel."""
    A, B = kernels(W)
    At, Bt = A.transpose(0, 1).flip(2, 3), B.transpose(0, 1).flip(2, 3)
    return (1 - W.m) * z - circular(circular(z, A), At) + circular(z, B) - circular(z, Bt)


def close(a, b, tol=1e-10):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def half_symbol(kernel, size):
    H, half = size[0], size[1] // 2 + 1
    return _fourier.symbol(kernel, size, torch.arange(H).repeat(half), torch.arange(half).repeat_interleave(H))


@pytest.mark.claim("MON-FFT")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("size", "k"), SIZES)
def test_a_symbol_is_the_convolution(size, k, transform):
    kernel, x, y = randn(3, 2, k, k), randn(4, 2, *size, seed=1), randn(4, 3, *size, seed=2)
    fourier, blocks = transform(size, F64, x.device), half_symbol(kernel, size)
    close(fourier.apply(blocks, x), circular(x, kernel))
    close(fourier.apply(blocks, y, adjoint=True), circular(y, kernel.transpose(0, 1).flip(2, 3)))
    close(fourier.inverse(fourier.forward(x)), x)
    close(fourier.inverse(fourier.forward(x, conjugate=True), conjugate=True), x)
    close(fourier.forward(x, conjugate=True), fourier.forward(x).conj())


@pytest.mark.claim("MON-FFT")
def test_the_transform_makes_the_matrix_block_diagonal():
    """(I_n x F) M (I_n x F)* with the unitary F of appendix B, permuted to one n x n block a frequency."""
    (H, W), n = (4, 3), 2
    kernel = randn(n, n, 3, 3)
    M = circular(torch.eye(n * H * W, dtype=F64).reshape(-1, n, H, W), kernel).reshape(n * H * W, -1).T

    def unitary(s):
        index = torch.arange(s, dtype=F64)
        angle = -2 * math.pi / s * index[:, None] * index
        return torch.complex(angle.cos(), angle.sin()) / math.sqrt(s)

    F = torch.kron(torch.eye(n, dtype=torch.complex128), torch.kron(unitary(H), unitary(W)))
    D = (F @ M.to(F.dtype) @ F.mH).reshape(n, H * W, n, H * W).permute(1, 3, 0, 2)
    blocks = D[torch.arange(H * W), torch.arange(H * W)]
    off = D.clone()
    off[torch.arange(H * W), torch.arange(H * W)] = 0
    assert float(off.abs().max()) < 1e-13 and float(blocks.abs().max()) > 0.1
    rows, columns = torch.arange(H).repeat_interleave(W), torch.arange(W).repeat(H)
    close(blocks, _fourier.symbol(kernel, (H, W), rows, columns))


@pytest.mark.parametrize(("size", "k"), SIZES)
def test_w_is_four_convolutions(size, k):
    W = make(3, size, k, g=5.0, h=-2.0)
    z = randn(2, 3, *size)
    close(W(z).detach(), by_conv2d(W, z))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("alpha", [0.25, 1.0])
def test_both_transforms_agree(dtype, alpha):
    fast, slow = (make(6, (9, 12), g=40.0, h=10.0, transform=t, dtype=dtype) for t in TRANSFORMS)
    z, tol = randn(5, 6, 9, 12, dtype=dtype), 2e-5 if dtype == torch.float32 else 1e-11
    close(fast(z), slow(z), tol)
    close(fast.T(z), slow.T(z), tol)
    close(fast.resolvent(alpha)(z), slow.resolvent(alpha)(z), tol)
    close(fast.resolvent(alpha).T(z), slow.resolvent(alpha).T(z), tol)


def test_only_the_choice_is_kept(monkeypatch):
    monkeypatch.setattr(_fourier, "_CHOICES", {})
    state = torch.get_rng_state()
    first = _fourier.choose_transform((6, 5), 3, F64, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)
    assert list(_fourier._CHOICES.values()) == [type(first)]
    monkeypatch.setattr(_fourier, "_seconds", lambda *_: pytest.fail("measured twice"))
    assert type(_fourier.choose_transform((6, 5), 3, F64, torch.device("cpu"))) is type(first)
    W, z = make(3, (6, 5)), randn(2, 3, 6, 5)
    before = W(z).detach()
    with torch.no_grad():
        W.A.mul_(-1.0).add_(0.3)
    close(W(z).detach(), by_conv2d(W, z))
    assert not torch.allclose(W(z), before)


@pytest.mark.parametrize("batch", [1, 15, 16, 17, 40])
def test_chunks_do_not_show(monkeypatch, batch):
    W, z = make(2, (5, 6), g=9.0), randn(batch, 2, 5, 6)
    R, whole = W.resolvent(0.5), W(z).detach()
    expected = R(z)
    monkeypatch.setattr(_parts, "PART_BYTES", 1)
    close(W.frozen()(z), whole)
    close(R(z), expected)
    z.requires_grad_()
    close(torch.autograd.grad(R(z).square().sum(), z)[0], 2 * R.T(R(z)).detach())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("size", [(5, 6), (4, 7)])
@pytest.mark.parametrize("moves", [False, True])
def test_gradients_in_parts_are_the_gradients(monkeypatch, size, transform, transposed, moves):
    """Also the second ones, and where only the weights or the state and the weights are differentiated."""
    W, z, v = make(3, size, g=9.0, h=2.0, transform=transform), randn(19, 3, *size), randn(19, 3, *size, seed=5)
    z.requires_grad_(moves)
    leaves = [*W.parameters(), *([z] if moves else [])]

    def gradients():
        out = (W.T if transposed else W)(z)
        first = torch.autograd.grad((out * v).sum(), leaves, create_graph=True)
        return [out, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]

    whole = gradients()
    plain = torch.autograd.grad(((W.T if transposed else W)(z) * v).sum(), leaves)
    monkeypatch.setattr(_parts, "PART_BYTES", 1)
    parts = gradients()
    for a, b in zip(whole, parts, strict=True):
        close(b.detach(), a.detach())
    for a, b in zip(plain, torch.autograd.grad(((W.T if transposed else W)(z) * v).sum(), leaves), strict=True):
        close(b, a)


@pytest.mark.claim("MON-EQ28")
def test_the_printed_resolvent_lacks_alpha():
    """(1 + alpha m)I + alpha A*A - B + B* inverts I + alpha(I - W) at alpha = 1 and at no other."""
    W, x = make(3, (6, 5), h=3.0), randn(2, 3, 6, 5)
    for alpha in (0.25, 1.0):
        right, printed = (invert(W, alpha, skew)(x) for skew in (alpha, 1.0))
        residual = [float((y + alpha * (y - W(y).detach()) - x).norm() / x.norm()) for y in (right, printed)]
        close(right, W.resolvent(alpha)(x))
        assert residual[0] < 1e-13
        assert (residual[1] < 1e-13) if alpha == 1.0 else (residual[1] > 0.1)


def invert(W, alpha, skew):
    """The inverse of (1 + alpha m)I + alpha A*A - skew (B - B*) at each frequency, as an operator."""
    A, B = (half_symbol(kernel, W.size) for kernel in kernels(W))
    eye = torch.eye(W.channels, dtype=A.dtype)
    inverse = torch.linalg.inv((1 + alpha * W.m) * eye + alpha * (A.mH @ A) - skew * (B - B.mH))
    fourier = operators.FastTransform(W.size, F64, A.device)
    return lambda x: fourier.apply(inverse, x)


@pytest.mark.claim("MON-EQ28")
@pytest.mark.parametrize("corrected", [True, False])
def test_peaceman_rachford_stalls_with_the_printed_resolvent(corrected):
    W, bias, alpha = make(3, (6, 5), h=3.0), randn(2, 3, 6, 5), 0.25
    R, u = invert(W, alpha, alpha if corrected else 1.0), torch.zeros_like(bias)
    for _ in range(400):
        z = torch.relu(u)
        u = u + 2 * (R(2 * z - u + alpha * bias) - z)
    z = torch.relu(u)
    residual = float((z - torch.relu(W(z).detach() + bias)).norm() / z.norm())
    assert (residual < 1e-10) if corrected else (residual > 0.05)


def test_the_first_weights_are_not_normalised():
    W = make(4, (6, 7))
    A, B = half_symbol(W.A.detach(), W.size), half_symbol(W.B.detach(), W.size)
    close(W.symbol().detach(), 0.5 * torch.eye(4, dtype=A.dtype) - A.mH @ A + B - B.mH)
    bound = 1 / math.sqrt(4 * 9)
    assert 0.9 * bound < float(W.A.detach().abs().max()) <= bound


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("g_raw", [-30.0, 0.0, 50.0])
def test_g_stays_positive(g_raw):
    W = make(2, (4, 5), m=0.4, g=g_raw, h=-20.0)
    assert W.g.item() > 0
    assert W.monotonicity() >= 0.4 - 1e-12


def test_gradients_stay_finite_where_softplus_underflows():
    W = make(2, (4, 5), g=-300.0, dtype=torch.float32)
    assert W.g.item() == 0.0
    W(randn(1, 2, 4, 5, dtype=torch.float32)).square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in W.parameters())


def test_zero_kernels_contribute_nothing():
    W = make(2, (4, 5))
    with torch.no_grad():
        W.A.zero_()
        W.B.zero_()
    z = randn(1, 2, 4, 5)
    close(W(z).detach(), 0.5 * z)


@pytest.mark.parametrize(
    ("channels", "size", "k"), [(24, (30, 30), 3), (5, (30, 34), 3), (4, (14, 64), 3), (3, (32, 32), 5), (16, (7, 7), 3)]
)
def test_the_cheap_bound(channels, size, k):
    for W in (make(channels, size, k, dtype=torch.float32), make(channels, size, k, g=40.0, h=10.0, dtype=torch.float32)):
        exact = float(torch.linalg.svdvals(torch.eye(channels) - W.symbol().detach())[:, 0].max())
        assert W.lipschitz() == pytest.approx(exact, rel=1e-5)
        assert exact <= W.frozen().lipschitz_bound() <= 1.5 * exact


def interior(z, width):
    return z[..., width : z.shape[-2] - width, width : z.shape[-1] - width]


def solve_picture(W, bias, width):
    """The equilibrium for a picture inside a border of zeros, on a torus of W's size."""
    framed = pad(bias, (width,) * 4)
    z = splitting.PeacemanRachford(tol=1e-11).solve(W, framed, prox.Border(prox.ReLU(), width)).z
    return interior(z, width)


@pytest.mark.claim("MON-PAD")
@pytest.mark.parametrize(
    ("k", "width", "enough"), [(1, 0, True), (3, 0, False), (3, 1, True), (5, 0, False), (5, 1, False), (5, 2, True)]
)
def test_a_border_removes_wrap_around(k, width, enough):
    """The same picture on a torus so large that nothing wraps: equal iff twice the border is the reach of W, k - 1."""
    bias = randn(1, 2, 6, 7, seed=3)
    small = make(2, (6 + 2 * width, 7 + 2 * width), k, m=1.0, g=2.0, h=2.0)
    large = make(2, (16, 17), k, m=1.0)
    large.load_state_dict(small.state_dict())
    gap = float((solve_picture(small, bias, width) - solve_picture(large, bias, 5)).norm())
    assert (gap < 1e-9) if enough else (gap > 1e-3)
    assert enough == (2 * width >= k - 1)


@pytest.mark.parametrize("solver", [splitting.PeacemanRachford(tol=1e-10), splitting.DouglasRachford(tol=1e-10, max_steps=2000)])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_automatic_alpha_and_the_solvers(solver, transform):
    W, bias = make(2, (4, 5), g=4.0, h=2.0, transform=transform), randn(3, 2, 4, 5)
    flat = operators.Dense.from_matrix(W.to_dense().detach(), W.m)
    expected = reference(flat, bias.flatten(1), prox.ReLU())
    close(solver.solve(W, bias, prox.ReLU()).z.flatten(1), expected, 1e-8)
    alpha = stepsize.SpectralRadius().choose(W.frozen(), bias, prox.ReLU(), solver)
    assert 0.25 / W.frozen().lipschitz_bound() <= alpha <= 4.0 / W.m


def test_forward_backward_and_its_rule():
    W, bias = make(2, (4, 5), m=1.0, g=2.0), randn(3, 2, 4, 5)
    alpha = stepsize.ContractionFactor().choose(W.frozen(), bias, prox.ReLU(), None)
    assert W.forward_norm(alpha) <= math.sqrt(1 - (W.m / W.lipschitz()) ** 2) + 1e-12
    ahead = splitting.ForwardBackward(tol=1e-9, max_steps=5000).solve(W, bias, prox.ReLU()).z
    close(ahead, splitting.PeacemanRachford(tol=1e-9).solve(W, bias, prox.ReLU()).z, 1e-7)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_layer_has_the_right_gradient(transform):
    W = make(2, (4, 4), m=0.5, g=1.0, transform=transform)
    injection = nn.Conv2d(1, 2, 3, padding=1, dtype=F64)
    layer = Equilibrium(W, injection, prox.Softplus(), splitting.PeacemanRachford(alpha=0.7, tol=1e-13))
    x = randn(1, 1, 4, 4).requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def solve(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(solve, (x, *[v.detach().clone().requires_grad_() for v in values]), atol=1e-6, fast_mode=True)


def test_a_training_step_lowers_the_loss_and_keeps_m():
    layer = Equilibrium(make(2, (4, 4), g=1.0), nn.Conv2d(1, 2, 3, padding=1, dtype=F64), prox.ReLU())
    losses = losses_of_training(layer, 1e-2, randn(4, 1, 4, 4), randn(4, 2, 4, 4, seed=1).abs())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert layer.operator.monotonicity() >= 0.5 - 1e-12


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_autocast_changes_nothing(transform):
    W, z = make(3, (5, 6), dtype=torch.float32, transform=transform), randn(2, 3, 5, 6, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = W(z), W.T(z), W.frozen()(z), W.resolvent(0.5)(z), W.resolvent(0.5).T(z), W.symbol()
    outside = W(z), W.T(z), W.frozen()(z), W.resolvent(0.5)(z), W.resolvent(0.5).T(z), W.symbol()
    for a, b in zip(inside, outside, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_a_search_keeps_two_inverses():
    frozen, x = make(2, (4, 5)).frozen(), randn(1, 2, 4, 5)
    for alpha in (0.1, 0.2, 0.3, 0.4):
        close(frozen.T.resolvent(alpha)(x), frozen.resolvent(alpha).T(x), 0)
    assert list(frozen._memo._kept) == [0.3, 0.4]


def test_constants_made_in_inference_mode_serve_training():
    size, dtype = (11, 13), F64
    with torch.inference_mode():
        make(1, size, dtype=dtype, transform=operators.MatrixTransform)(randn(1, 1, *size))
    W = make(1, size, dtype=dtype, transform=operators.MatrixTransform)
    W(randn(1, 1, *size)).sum().backward()
    assert float(W.A.grad.abs().max()) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels = 0"),
        ({"channels": 1.5}, "channels = 1.5"),
        ({"size": 5}, "size = 5"),
        ({"size": (5, 0)}, r"size = \(5, 0\)"),
        ({"size": (5, 5, 5)}, "size"),
        ({"kernel_size": 2}, "kernel_size = 2 has no central pixel"),
        ({"kernel_size": 0}, "kernel_size = 0"),
        ({"kernel_size": 7}, "kernel_size = 7 is wider than the image, 5 x 6"),
        ({"m": 0.0}, "m = 0.0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        operators.Convolution(**{"channels": 2, "size": (5, 6), **arguments})


def test_the_scale_of_a_kernel_does_not_matter():
    """Its square may overflow or vanish; a zero kernel stays zero, and so do its gradients finite."""
    W = make(2, (5, 4), dtype=torch.float32)
    before = W.to_dense().detach()
    with torch.no_grad():
        W.A.mul_(2.0**100)
        W.B.mul_(2.0**-100)
    torch.testing.assert_close(
        W.to_dense().detach(), before, rtol=0, atol=4 * torch.finfo(torch.float32).eps * float(before.abs().max())
    )
    with torch.no_grad():
        W.B.zero_()
    W(randn(2, 2, 5, 4, dtype=torch.float32)).sum().backward()
    assert bool(torch.isfinite(W.B.grad).all()) and float(W.B.grad.abs().max()) < 1e3


def test_singular_blocks_have_no_inverse_and_raise_nothing():
    blocks = torch.stack([torch.eye(2, dtype=F64), torch.zeros(2, 2, dtype=F64)])
    for found in (_norms.inverse(blocks), _norms.solution(blocks, blocks[:1].expand(2, 2, 2))):
        assert torch.equal(found[0], blocks[0]) and bool(found[1].isnan().all())


def test_runaway_weights_end_as_a_failed_solve():
    """I + alpha(I - W) loses its identity to rounding; that is no answer, and no error of another kind."""
    torch.manual_seed(0)
    W = operators.MultiTier((2, 3), (10, 14), border=1)
    with torch.no_grad():
        W.h.fill_(1e8)
    with pytest.raises(ConvergenceError):
        splitting.PeacemanRachford(max_steps=20).solve(W, torch.ones(1, *W.state_shape), prox.ReLU())


def test_an_empty_batch_has_gradients_of_zero():
    W = make(2, (4, 5))
    W(randn(0, 2, 4, 5)).sum().backward()
    assert all(not bool(p.grad.any()) for p in W.parameters())


def test_a_transform_is_a_class():
    with pytest.raises(TypeError, match="transform = 'fft' is no transform"):
        operators.Convolution(2, (4, 4), transform="fft")


def test_choices_travel_with_a_checkpoint(monkeypatch):
    monkeypatch.setattr(_fourier, "_CHOICES", {})
    chosen = _fourier.choose_transform((6, 5), 3, F64, torch.device("cpu"))
    listed = _fourier.choices()
    other = next(kind for kind in TRANSFORMS if kind is not type(chosen))
    listed[0][-1] = other.__name__
    _fourier.choose_again(listed)
    assert type(_fourier.choose_transform((6, 5), 3, F64, torch.device("cpu"))) is other
