"""Several tiers: against conv2d, the claims of appendix C one by one, and inside a layer."""

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from mon_lib import Equilibrium, operators, prox, splitting, stepsize
from mon_lib.operators import _norms, _parts, _substitution, _tiers
from tests.problems import F64, generator, losses_of_training, reference

TRANSFORMS = [operators.FastTransform, operators.MatrixTransform]
GEOMETRIES = {
    "two": {"channels": (2, 3), "size": (6, 8)},
    "three-1x1": {"channels": (2, 3, 2), "size": (8, 4), "kernel_size": 1},
    "three-border": {"channels": (2, 3, 2), "size": (10, 14), "border": 1},
    "stride-3": {"channels": (3, 2), "size": (9, 9), "stride": 3},
    "stride-3-border-5x5": {"channels": (2, 1), "size": (15, 9), "stride": 3, "border": 3, "kernel_size": 5},
    "four-border": {"channels": (1, 2, 3, 1), "size": (18, 10), "border": 1},
    "stride-1": {"channels": (1, 2), "size": (5, 4), "stride": 1},
}


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=generator(seed), dtype=F64).to(dtype)


def make(m=0.5, *, h=3.0, seed=0, dtype=F64, **kwargs):
    torch.manual_seed(seed)
    W = operators.MultiTier(**kwargs, m=m, dtype=dtype)
    with torch.no_grad():
        W.h.fill_(h)
    return W


@pytest.fixture(params=GEOMETRIES)
def geometry(request):
    return GEOMETRIES[request.param]


def close(a, b, tol=1e-10):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def circular(z, kernel, stride=1):
    c = kernel.shape[-1] // 2
    return conv2d(pad(z, (c, c, c, c), mode="circular"), kernel, stride=stride)


def transposed(y, kernel, stride=1, size=None):
    """The adjoint of `circular`, for a stride by filling in zeros first."""
    if stride > 1:
        up = y.new_zeros(*y.shape[:2], *size)
        up[:, :, ::stride, ::stride] = y
        y = up
    return circular(y, kernel.transpose(0, 1).flip(2, 3))


def kernels(W):
    """A_ii, B_ii and A_{i+1,i} with their scalars."""
    A = [(a * (g.sqrt() / a.norm())).detach() for a, g in zip(W.A, W.g, strict=True)]
    B = [(b * (h / b.norm())).detach() for b, h in zip(W.B, W.h, strict=True)]
    D = [(d * (g.sqrt() / d.norm())).detach() for d, g in zip(W.down, W.down_g, strict=True)]
    return A, B, D


def by_conv2d(W, z, theta=2.0):
    """Wz in space, with W_{i+1,i} = -theta A_{i+1,i+1}'A_{i+1,i}."""
    (A, B, D), r, out, tiers = kernels(W), W.layout.stride, [], W.split(z)
    for i, x in enumerate(tiers):
        y = (1 - W.m) * x - transposed(circular(x, A[i]), A[i]) + circular(x, B[i]) - transposed(x, B[i])
        if i < len(D):
            y = y - transposed(circular(x, D[i], r), D[i], r, x.shape[2:])
        if i:
            s = circular(tiers[i - 1], D[i - 1], r)
            embedded = torch.zeros_like(x)
            embedded[:, :, : s.shape[2], : s.shape[3]] = s
            y = y - theta * transposed(embedded, A[i])
        out.append(y)
    return W.pack(out)


def matrix(W, theta=2.0):
    return by_conv2d(W, torch.eye(W.state_size, dtype=F64), theta).T


def least(M):
    """The smallest eigenvalue of the symmetric part of I - M."""
    return float(torch.linalg.eigvalsh(torch.eye(len(M), dtype=F64) - (M + M.T) / 2)[0])


@pytest.mark.claim("MON-C13")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_w_is_its_convolutions(geometry, transform):
    W = make(**geometry, transform=transform)
    z = randn(3, W.state_size)
    close(W(z).detach(), by_conv2d(W, z))
    close(W.T(z).detach(), z @ matrix(W))


@pytest.mark.claim("MON-C13")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("alpha", [0.1, 1.0, 4.0])
def test_back_substitution_inverts(geometry, transform, alpha):
    W = make(**geometry, transform=transform)
    x = randn(3, W.state_size)
    eye = torch.eye(W.state_size, dtype=F64)
    inverse = torch.linalg.inv(eye + alpha * (eye - matrix(W)))
    close(W.resolvent(alpha)(x), x @ inverse.T)
    close(W.resolvent(alpha).T(x), x @ inverse)


@pytest.mark.claim("MON-C13")
def test_w_is_block_lower_bidiagonal():
    W = make(channels=(1, 2, 1), size=(12, 12))
    M = W.to_dense().detach()
    rows = [block.split(W.layout.lengths, 1) for block in M.split(W.layout.lengths, 0)]
    for i in range(3):
        for j in range(3):
            assert bool(rows[i][j].any()) == (i - 1 <= j <= i)


def test_both_transforms_agree_in_float32():
    fast, slow = (make(channels=(3, 4, 5), size=(18, 10), border=1, transform=t, dtype=torch.float32) for t in TRANSFORMS)
    z = randn(4, fast.state_size, dtype=torch.float32)
    for f, g in ((fast, slow), (fast.T, slow.T), (fast.resolvent(0.5), slow.resolvent(0.5))):
        close(f(z), g(z), 2e-5)


@pytest.mark.claim("MON-C4")
@pytest.mark.parametrize("border", [0, 1])
def test_two_is_the_largest_factor_between_tiers(border):
    """I - W >= mI for |theta| <= 2 at every weight; beyond, weights exist where it fails (here A_11 is almost zero)."""
    for seed in range(3):
        W = make(channels=(2, 2), size=(6, 10), border=border, seed=seed)
        for theta in (-2.0, -1.0, 0.0, 1.0, 2.0):
            assert least(matrix(W, theta)) >= W.m - 1e-12
        with torch.no_grad():
            W.g_raw[0] = -40.0
        for theta in (-2.0, 2.0):
            assert least(matrix(W, theta)) >= W.m - 1e-12
        for theta in (-2.05, 2.05, 3.0):
            assert least(matrix(W, theta)) < W.m - 1e-3
    close(W.to_dense().detach(), matrix(W, 2.0))


@pytest.mark.claim("MON-C8")
def test_the_skew_part_enters_with_minus_b():
    """(1 + alpha m)I + alpha(A_11'A_11 + A_21'A_21 - B + B') is the block; as printed, + B - B', it is another one."""
    W, alpha = make(channels=(2, 2), size=(6, 8)), 0.7
    A, B, D = kernels(W)
    n = W.layout.lengths[0]
    x = torch.eye(n, dtype=F64).reshape(n, 2, 6, 8)
    even = (1 + alpha * W.m) * x + alpha * (transposed(circular(x, A[0]), A[0]) + transposed(circular(x, D[0], 2), D[0], 2, (6, 8)))
    skew = alpha * (circular(x, B[0]) - transposed(x, B[0]))
    M = W.to_dense().detach()[:n, :n]
    block = (1 + alpha) * torch.eye(n, dtype=F64) - alpha * M
    close((even - skew).flatten(1).T, block)
    assert float(((even + skew).flatten(1).T - block).norm() / block.norm()) > 0.1


def first_block(W, alpha):
    tier = W._tiers()[0]
    unstrided, _, S = (s.detach() for s in W._symbols([tier])[0])
    n = unstrided.shape[-1]
    P = (1 + alpha) * torch.eye(n, dtype=unstrided.dtype) - alpha * unstrided
    return tier, unstrided, S, P


@pytest.mark.claim("MON-PC1")
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("outputs", [1, 3])
def test_woodbury_needs_coupled_output_channels(outputs, stride):
    """Proposition C1 with K over blocks of channels, and with one K for each channel, against a dense inverse."""
    W, alpha = make(channels=(2, outputs), size=(3 * stride, 4 * stride), stride=stride, h=1.0), 0.7
    n = W.layout.lengths[0]
    eye = torch.eye(n, dtype=F64)
    expected = torch.linalg.inv(eye + alpha * (eye - W.to_dense().detach()[:n, :n]))
    tier, unstrided, S, P = first_block(W, alpha)
    fourier = operators.FastTransform(tier.grid, F64, S.device)

    def dense(blocks):
        x = eye.reshape(n, 2, *tier.size)
        return tier.image(fourier.apply(blocks, tier.phases(x))).reshape(n, n).T

    inverse, image = _substitution.solve_block(tier, unstrided, S, alpha)
    close(dense(inverse), expected)
    close(image, S @ inverse)
    base = tier.merge(torch.linalg.inv(P))
    coupling = S @ base @ S.mH
    uncoupled = torch.diag_embed(coupling.diagonal(dim1=1, dim2=2))
    for K, right in ((coupling, True), (uncoupled, outputs == 1)):
        middle = torch.linalg.inv(torch.eye(outputs, dtype=S.dtype) + alpha * K)
        gap = float((dense(base - alpha * base @ S.mH @ middle @ S @ base) - expected).norm() / expected.norm())
        assert (gap < 1e-13) if right else (gap > 1e-3)


@pytest.mark.claim("MON-PC1")
@pytest.mark.parametrize("r", [1, 2, 3])
def test_phases_make_a_strided_convolution_unstrided(r):
    tier = _tiers.Tier(2, (4 * r, 3 * r), r)
    kernel, square, x = randn(3, 2, 3, 3), randn(2, 2, 3, 3, seed=1), randn(2, 2, 4 * r, 3 * r, seed=2)
    fourier = operators.MatrixTransform(tier.grid, F64, x.device)
    close(tier.image(tier.phases(x)), x)
    close(fourier.apply(tier.strided(kernel), tier.phases(x)), circular(x, kernel, r))
    close(tier.image(fourier.apply(tier.merge(tier.symbols(square)), tier.phases(x))), circular(x, square))


def test_the_embedding_is_an_isometry():
    tier, s = _tiers.Tier(2, (6, 8), 2), randn(3, 2, 5, 7)
    y = randn(3, 8, 3, 4, seed=1)
    close(tier.cropped(tier.embedded(s), (5, 7)), s, 0)
    close((tier.embedded(s) * y).sum(), (s * tier.cropped(y, (5, 7))).sum())


def test_the_geometry_of_table_d1():
    W = operators.MultiTier((16, 32, 60), (34, 34), border=1)
    assert W.sizes == ((34, 34), (18, 18), (10, 10))
    # Kernels of A and B on each tier and between tiers, and eight scalars.
    expected = 9 * (2 * (16**2 + 32**2 + 60**2) + 16 * 32 + 32 * 60) + 8
    assert sum(p.numel() for p in W.parameters()) == expected == 109736
    assert operators.MultiTier((1, 1, 1), (36, 20)).sizes == ((36, 20), (18, 10), (9, 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (34, 34)}, "multiple of 4. The nearest sizes that fit are 32 x 32 and 36 x 36"),
        ({"size": (33, 34), "border": 1}, "nearest sizes that fit are 30 x 34 and 34 x 34"),
        ({"size": (3, 3)}, "nearest sizes that fit are 4 x 4"),
        ({"border": 1, "stride": 3}, "border = 1 does not fit stride = 3.*border=3"),
        ({"size": (8, 8)}, "kernel_size = 3 is wider than the last tier, 2 x 2"),
        ({"channels": (3,)}, r"channels = \(3,\)"),
        ({"channels": 3}, "channels = 3"),
        ({"channels": (3, 0)}, "channels"),
        ({"stride": 0}, "stride = 0"),
        ({"border": -1}, "border = -1"),
        ({"kernel_size": 4}, "kernel_size = 4 has no central pixel"),
        ({"m": -1.0}, "m = -1.0"),
    ],
)
def test_what_does_not_fit_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        operators.MultiTier(**{"channels": (1, 1, 1), "size": (36, 36), **arguments})


def test_split_and_pack():
    W = make(channels=(2, 3), size=(6, 10), border=1)
    z = randn(4, W.state_size)
    tiers = W.split(z)
    assert [tuple(t.shape) for t in tiers] == [(4, 2, 6, 10), (4, 3, 4, 6)]
    assert tiers[1].data_ptr() != z.data_ptr() and tiers[0].untyped_storage().data_ptr() == z.untyped_storage().data_ptr()
    assert torch.equal(W.pack(tiers), z)
    with pytest.raises(ValueError, match="expected"):
        W.pack(tiers[::-1])
    with pytest.raises(ValueError, match="one batch for all"):
        W.pack([tiers[0][:1], *tiers[1:]])
    with pytest.raises(ValueError, match="'NoneType'"):
        W.pack([None, *tiers[1:]])
    for width in (-1, 1.5):
        with pytest.raises(ValueError, match=f"width = {width}"):
            W.interior(width)
    with pytest.raises(ValueError, match="shape"):
        W.split(z[:, 1:])
    inside = W.split(W.interior()[None].to(F64))
    assert [int(t.sum()) for t in inside] == [2 * 4 * 8, 3 * 2 * 4]
    assert not bool(inside[0][..., 0].any()) and bool(W.interior(0).all())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_norms_are_upper_bounds(dtype):
    for seed in range(3):
        W = make(channels=(2, 3, 2), size=(10, 14), border=1, seed=seed, h=1.0 + 3.0 * seed, dtype=dtype)
        eye = torch.eye(W.state_size, dtype=F64)
        G = eye - W.to_dense().detach().double()

        def two(M):
            return float(torch.linalg.matrix_norm(M, 2))

        slack = 1 - 10 * torch.finfo(dtype).eps
        assert two(G) * slack <= W.lipschitz() <= 1.01 * two(G)
        assert two(G) * slack <= W.frozen().lipschitz_bound() <= 1.5 * two(G)
        assert W.T.frozen().lipschitz_bound() <= 1.5 * two(G)
        assert two(eye - 0.3 * G) * slack <= W.forward_norm(0.3) <= 1.01 * two(eye - 0.3 * G)
        C = 2 * torch.linalg.inv(eye + 0.3 * G) - eye
        assert two(C) * slack <= W.cayley_norm(0.3) <= 1.01 * two(C)


def test_monotonicity_beyond_a_thousand_entries_is_estimated_from_above():
    W = make(channels=(2, 2), size=(24, 24), m=0.5)
    assert W.state_size > 1024
    exact = least(W.to_dense().detach())
    assert exact - 1e-10 <= W.monotonicity() <= exact + 1e-2


@pytest.mark.parametrize("spectrum", ["spread", "one", "zero", "top"])
def test_lanczos(spectrum):
    """Against known eigenvalues: an upper bound by its own promise, exact once the space is exhausted."""
    n = 200
    values = {"spread": torch.linspace(0, 3, n), "one": torch.ones(n), "zero": torch.zeros(n)}.get(spectrum)
    values = (torch.arange(n) == 0).double() * 5 if values is None else values.double()
    Q = torch.linalg.qr(randn(n, n))[0]
    A = Q @ torch.diag(values) @ Q.T
    top = float(values.max())
    like = torch.zeros((), dtype=F64)
    for steps in (8, 40, 200):
        bound = _norms.lanczos(lambda x: x @ A, (n,), like, steps)
        estimate = _norms.lanczos(lambda x: x @ A, (n,), like, steps, upper=False)
        assert estimate <= top + 1e-12 <= bound + 2e-12
        assert bound <= 2.25 * top + 1e-12
        if steps == 200 or spectrum != "spread":
            assert estimate == pytest.approx(top, abs=1e-10)
    with pytest.raises(ValueError, match="2 steps from 1 starts bound nothing"):
        _norms.lanczos(lambda x: x @ torch.diag(torch.linspace(0, 3, n, dtype=F64)), (n,), like, 2, starts=1)


@pytest.mark.parametrize("solver", [splitting.PeacemanRachford(tol=1e-10), splitting.ForwardBackward(tol=1e-10, max_steps=5000)])
def test_automatic_alpha_and_the_solvers(solver):
    W, bias = make(channels=(1, 2), size=(6, 8), m=1.0, h=1.0), randn(3, 72)
    flat = operators.Dense.from_matrix(W.to_dense().detach(), W.m)
    close(solver.solve(W, bias, prox.ReLU()).z, reference(flat, bias, prox.ReLU()), 1e-8)


def test_both_rules_for_alpha():
    W, bias = make(channels=(1, 2), size=(6, 8)), randn(1, 72)
    alpha = stepsize.SpectralRadius().choose(W.frozen(), bias, prox.ReLU(), None)
    assert 0.25 / W.frozen().lipschitz_bound() <= alpha <= 4.0 / W.m
    alpha = stepsize.ContractionFactor().choose(W.frozen(), bias, prox.ReLU(), None)
    assert W.forward_norm(alpha) < 1.0


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_layer_has_the_right_gradient(transform):
    W = make(channels=(1, 2), size=(4, 4), kernel_size=1, m=0.5, h=1.0, transform=transform)
    layer = Equilibrium(W, nn.Linear(3, 24, dtype=F64), prox.Softplus(), splitting.PeacemanRachford(alpha=0.7, tol=1e-13))
    x = randn(1, 3).requires_grad_()
    names, values = zip(*layer.operator.named_parameters(), strict=True)

    def solve(x, *parameters):
        named = {f"operator.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(layer, named, (x,))

    assert torch.autograd.gradcheck(solve, (x, *[v.detach().clone().requires_grad_() for v in values]), atol=1e-6, fast_mode=True)


def test_a_training_step_lowers_the_loss_and_keeps_m():
    W = make(channels=(2, 2, 2), size=(10, 10), border=1, h=1.0)
    layer = Equilibrium(W, nn.Linear(3, W.state_size, dtype=F64), prox.ReLU())
    losses = losses_of_training(layer, 0.1, randn(4, 3), randn(4, W.state_size, seed=1).abs())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert all(p.grad is not None and bool(p.grad.any()) for p in W.parameters())
    assert W.monotonicity() >= 0.5 - 1e-12


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_autocast_changes_nothing(transform):
    W = make(channels=(2, 3), size=(6, 8), dtype=torch.float32, transform=transform)
    z = randn(2, W.state_size, dtype=torch.float32)

    def everything():
        frozen = W.frozen()
        return W(z), W.T(z), frozen(z), W.resolvent(0.5)(z), W.resolvent(0.5).T(z), torch.tensor(frozen.lipschitz_bound())

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = everything()
    for a, b in zip(inside, everything(), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_a_search_keeps_two_inverses():
    frozen = make(channels=(1, 2), size=(6, 8)).frozen()
    x = randn(1, 72)
    for alpha in (0.1, 0.2, 0.3, 0.4):
        close(frozen.T.resolvent(alpha)(x), frozen.resolvent(alpha).T(x), 0)
    assert list(frozen._memo._kept) == [0.3, 0.4]


@pytest.mark.parametrize("moves", [False, True])
def test_parts_of_a_batch_do_not_show(monkeypatch, geometry, moves):
    """Products, resolvents, and first and second gradients."""
    W = make(**geometry)
    z, v = randn(19, *W.state_shape), randn(19, *W.state_shape, seed=5)
    z.requires_grad_(moves)
    leaves = [*W.parameters(), *([z] if moves else [])]

    def everything():
        found = []
        for product in (W(z), W.T(z)):
            first = torch.autograd.grad((product * v).sum(), leaves, create_graph=True)
            found += [product, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)]
        return [*found, W.resolvent(0.5)(z)]

    whole = everything()
    monkeypatch.setattr(_parts, "PART_BYTES", 1)
    for a, b in zip(whole, everything(), strict=True):
        close(b.detach(), a.detach())
