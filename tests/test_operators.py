"""One conformance suite for every operator. A new operator is one line in CASES."""

import copy
import math
import pickle

import pytest
import torch

from mon_lib import NotMonotoneError, operators

F64 = torch.float64


def random_matrix(n, seed=0):
    return torch.randn(n, n, dtype=F64, generator=torch.Generator().manual_seed(seed))


def from_matrix(n, m):
    G = random_matrix(n, 7)
    S = G @ G.T / n
    return operators.Dense.from_matrix((1 - m) * torch.eye(n, dtype=F64) - S + (G - G.T), m)


def skewed(W):
    """The same operator at weights far from the first ones: ||I - W|| about 5 to 40."""
    with torch.no_grad():
        for name, p in W.named_parameters():
            if "g_raw" in name:
                p.fill_(40.0)
        W.h.fill_(10.0)
    return W


def convolution(*args, **kwargs):
    return operators.Convolution(*args, **kwargs, dtype=F64)


def multitier(*args, **kwargs):
    return operators.MultiTier(*args, **kwargs, dtype=F64)


CASES = {
    "dense": lambda: operators.Dense(7, 0.5, dtype=F64),
    "dense-unnormalised": lambda: operators.Dense(6, 1.0, normalised=False, dtype=F64),
    "dense-one-unit": lambda: operators.Dense(1, 2.0, dtype=F64),
    "dense-skewed": lambda: skewed(operators.Dense(8, 0.3, dtype=F64)),
    "dense-from-matrix": lambda: from_matrix(5, 0.2),
    "convolution": lambda: convolution(2, (4, 5), m=0.5),
    "convolution-fast": lambda: convolution(2, (5, 4), m=0.5, transform=operators.FastTransform),
    "convolution-matrix": lambda: convolution(2, (4, 6), m=0.5, transform=operators.MatrixTransform),
    "convolution-5x5": lambda: convolution(2, (5, 7), 5, m=0.3),
    "convolution-1x1": lambda: skewed(convolution(3, (3, 2), 1)),
    "convolution-one-pixel": lambda: convolution(1, (1, 1), 1, m=2.0),
    "convolution-skewed": lambda: skewed(convolution(2, (6, 3), m=0.3, transform=operators.FastTransform)),
    "convolution-long": lambda: skewed(convolution(1, (3, 30), m=0.3, transform=operators.MatrixTransform)),
    "multitier": lambda: multitier((1, 2), (6, 8), m=0.5),
    "multitier-border": lambda: skewed(multitier((1, 2), (6, 10), m=0.3, border=1, transform=operators.FastTransform)),
    "multitier-three": lambda: multitier((2, 1, 3), (8, 4), 1, transform=operators.MatrixTransform),
    "multitier-stride-3": lambda: multitier((2, 1), (9, 3), 1, m=0.4, stride=3),
}


@pytest.fixture(params=CASES)
def W(request):
    torch.manual_seed(0)
    return CASES[request.param]()


def states(W, batch=3, seed=1):
    return torch.randn(batch, *W.state_shape, dtype=W.dtype, generator=torch.Generator().manual_seed(seed))


def close(a, b, tol=1e-10):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def test_adjoint(W):
    z, y = states(W), states(W, seed=2)
    close((W(z) * y).sum(), (z * W.T(y)).sum())
    close(W.T.T(z), W(z))


def test_matches_to_dense(W):
    z, M = states(W), W.to_dense()
    assert M.shape == (W.state_size, W.state_size)
    close(W(z).flatten(1), z.flatten(1) @ M.T)
    close(W.T.to_dense(), M.T)


def test_frozen_is_the_same_operator(W):
    z, frozen = states(W), W.frozen()
    close(frozen(z), W(z).detach())
    close(frozen.T(z), W.T(z).detach())
    close(W.T.frozen()(z), W.T(z).detach())
    assert not frozen(z).requires_grad


@pytest.mark.parametrize("alpha", [0.01, 1.0, 7.0])
def test_resolvent_inverts_both_ways(W, alpha):
    R, x = W.resolvent(alpha), states(W)
    y = R(x)
    close(y + alpha * (y - W(y)), x)
    y = R.T(x)
    close(y + alpha * (y - W.T(y)), x)
    close(W.T.resolvent(alpha)(x), R.T(x))
    close(R.T.T(x), R(x))


def test_transposes_share_one_inverse(W):
    frozen = W.frozen()
    x = states(W)
    close(frozen.T.resolvent(0.5)(x), W.resolvent(0.5).T(x))
    close(frozen.resolvent(0.5)(x), W.resolvent(0.5)(x))
    close(frozen.T.T.resolvent(0.5)(x), W.resolvent(0.5)(x))


@pytest.mark.claim("MON-P1")
def test_strong_monotonicity(W):
    eye = torch.eye(W.state_size, dtype=F64)
    M = eye - W.to_dense().detach()
    smallest = float(torch.linalg.eigvalsh((M + M.T) / 2)[0])
    assert smallest >= W.m - 1e-12 * float(torch.linalg.matrix_norm(M))
    assert math.isclose(W.monotonicity(), smallest, rel_tol=1e-10)


def test_norms_are_exact(W):
    eye = torch.eye(W.state_size, dtype=F64)
    G = eye - W.to_dense().detach()

    def two(M):
        return float(torch.linalg.svdvals(M)[0])

    def agrees(norm, exact, tol):
        # A multi-tier norm is an upper bound, one per cent above the norm at most.
        above = 1e-2 if isinstance(W, operators.MultiTier) else tol
        return exact * (1 - tol) <= norm <= exact * (1 + above)

    assert agrees(W.lipschitz(), two(G), 1e-12)
    for alpha in (0.1, 1.0, 3.0):
        assert agrees(W.forward_norm(alpha), two(eye - alpha * G), 1e-10)
        C = 2 * torch.linalg.inv(eye + alpha * G) - eye
        assert agrees(W.cayley_norm(alpha), two(C), 1e-10)
    assert two(G) <= W.frozen().lipschitz_bound() <= 1.5 * two(G)


def test_gradients(W):
    z = states(W, batch=2).requires_grad_()
    assert torch.autograd.gradcheck(W, z)
    assert torch.autograd.gradcheck(W.T, z)
    assert torch.autograd.gradcheck(W.resolvent(0.7), z)
    names, parameters = zip(*W.named_parameters(), strict=True)

    def product(*values):
        return torch.func.functional_call(W, dict(zip(names, values, strict=True)), (z.detach(),))

    assert torch.autograd.gradcheck(product, [p.detach().clone().requires_grad_() for p in parameters])


def test_batches_and_layout(W):
    z = states(W, batch=4)
    close(W(z)[1:2], W(z[1:2]))
    assert W(z[:0]).shape == (0, *W.state_shape)
    strided = states(W, batch=8)[::2]
    assert not strided.is_contiguous() or strided.numel() <= 4
    close(W(strided), W(strided.contiguous()))
    close(W.resolvent(0.5)(strided), W.resolvent(0.5)(strided.contiguous()))


def test_autocast_changes_nothing(W):
    """A product, a norm or an inverse in a short format would certify another operator."""
    W = W.to(torch.float32)
    z = states(W)

    def everything():
        frozen = W.frozen()
        products = [W(z), W.T(z), frozen(z), frozen.T(z), W.resolvent(0.5)(z), W.resolvent(0.5).T(z), W.to_dense()]
        norms = [W.lipschitz(), frozen.lipschitz_bound(), W.forward_norm(0.5), W.cayley_norm(0.5), W.monotonicity()]
        return [p.detach() for p in products], norms

    products, norms = everything()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast_products, cast_norms = everything()
    for a, b in zip(products, cast_products, strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=0)
    assert norms == cast_norms


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_weights_have_infinite_norms(W, bad):
    """A NaN compares as smaller than everything, so a maximum that skips it would call the operator harmless."""
    with torch.no_grad():
        next(W.parameters()).view(-1)[0] = bad
    frozen = W.frozen()
    assert not math.isfinite(frozen.lipschitz_bound())
    assert math.isinf(W.lipschitz()) and math.isinf(W.forward_norm(1.0))


def test_evaluation_is_training(W):
    z = states(W)
    close(W.eval()(z), W.train()(z), tol=0)


def test_copies_pickles_and_state(W):
    z = states(W)
    for twin in (copy.deepcopy(W), pickle.loads(pickle.dumps(W))):
        close(twin(z), W(z), tol=0)
    with torch.no_grad():
        other = copy.deepcopy(W)
        for p in other.parameters():
            p.add_(0.1)
    assert not torch.equal(other(z), W(z))
    other.load_state_dict(W.state_dict())
    close(other(z), W(z), tol=0)
    assert W.to(torch.float32).dtype == torch.float32


def test_a_resolvent_keeps_its_weights(W):
    x, R = states(W), W.resolvent(0.5)
    before = R(x)
    with torch.no_grad():
        for p in W.parameters():
            p.add_(0.3)
    close(R(x), before, tol=0)
    assert not torch.allclose(W.resolvent(0.5)(x), before)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x[0], ValueError, "batch"),
        (lambda x: x.float(), TypeError, "float32"),
        (lambda x: torch.cat([x, x], -1), ValueError, "shape"),
        (lambda x: x.numpy(), TypeError, "ndarray"),
    ],
)
def test_bad_states_are_named(W, change, error, message):
    x = change(states(W))
    for f in (W, W.T, W.frozen(), W.resolvent(1.0)):
        with pytest.raises(error, match=message):
            f(x)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_alpha_is_named(W, alpha):
    with pytest.raises(ValueError, match=f"alpha = {alpha}"):
        W.resolvent(alpha)


@pytest.mark.parametrize("m", [0.0, -0.5, float("nan"), float("inf")])
def test_bad_m_is_named(m):
    with pytest.raises(ValueError, match=f"m = {m}"):
        operators.Dense(3, m)


@pytest.mark.parametrize("n", [0, -2, 1.5])
def test_bad_size_is_named(n):
    with pytest.raises(ValueError, match=f"n = {n}"):
        operators.Dense(n)


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("g_raw", [-30.0, -1.0, 0.0, 50.0])
def test_g_is_positive_at_every_parameter_value(g_raw):
    W = operators.Dense(9, 0.4, dtype=F64)
    with torch.no_grad():
        W.g_raw.fill_(g_raw)
        W.h.fill_(-20.0)
    assert W.g.item() > 0
    assert W.monotonicity() >= 0.4 - 1e-12


def test_normalisation_leaves_the_first_weights_alone():
    W = operators.Dense(9, 0.4, dtype=F64)
    A, B = W.A.detach(), W.B.detach()
    close(W.to_dense().detach(), 0.6 * torch.eye(9, dtype=F64) - A.T @ A + B - B.T)


@pytest.mark.claim("MON-P1")
@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("m", [0.05, 1.0, 3.0])
def test_from_matrix_rebuilds_w(n, m):
    G = random_matrix(n, n)
    S = G @ G.T
    W = (1 - m) * torch.eye(n, dtype=F64) - S + 5 * (G - G.T)
    operator = operators.Dense.from_matrix(W, m)
    close(operator.to_dense().detach(), W, tol=1e-11)
    # On the edge, where the smallest eigenvalue is m exactly, it is still accepted.
    shift = float(torch.linalg.eigvalsh(S)[0])
    edge = operators.Dense.from_matrix(W + shift * torch.eye(n, dtype=F64), m)
    assert edge.monotonicity() == pytest.approx(m, abs=1e-9)


@pytest.mark.claim("MON-WN")
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("zeroed", ["A", "B", "AB"])
@pytest.mark.parametrize(
    "make", [lambda: operators.Dense(87, 0.5), lambda: operators.Convolution(30, (3, 4), m=0.5)], ids=["dense", "conv"]
)
def test_zero_factors_give_a_finite_w_and_finite_gradients(make, zeroed, dtype):
    W = make().to(dtype)
    with torch.no_grad():
        for name in zeroed:
            getattr(W, name).zero_()
    if zeroed == "AB":
        z = states(W)
        torch.testing.assert_close(W(z).detach(), 0.5 * z, rtol=1e-5, atol=1e-5)
    W(states(W)).square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in W.parameters())


@pytest.mark.claim("MON-P1")
def test_from_matrix_is_no_laxer_than_rounding():
    """A large skew part must not buy tolerance for a symmetric part that fails."""
    A = 100 * torch.randn(50, 50, generator=torch.Generator().manual_seed(0))
    with pytest.raises(NotMonotoneError, match=r"smallest eigenvalue .* is -0\.02"):
        operators.Dense.from_matrix(A - A.T + 1.02 * torch.eye(50), 1e-6)


@pytest.mark.claim("MON-P1")
def test_the_advice_of_from_matrix_works():
    for seed in range(50):
        W = 0.3 * random_matrix(6, seed)
        with pytest.raises(NotMonotoneError) as caught:
            operators.Dense.from_matrix(W, 5.0)
        text = str(caught.value)
        shift = float(text.split("at least ")[1].rstrip(").\n"))
        operators.Dense.from_matrix(W - shift * torch.eye(6, dtype=F64), 5.0)
        if "Use m <= " in text:
            operators.Dense.from_matrix(W, float(text.split("Use m <= ")[1].split(",")[0]))


@pytest.mark.claim("MON-P1")
def test_from_matrix_refuses_and_names_the_eigenvalue():
    W = torch.tensor([[0.0, -3.0], [3.0, 0.5]], dtype=F64)
    with pytest.raises(NotMonotoneError, match=r"smallest eigenvalue .* is 0\.5, below m = 0\.6"):
        operators.Dense.from_matrix(W, 0.6)
    operators.Dense.from_matrix(W, 0.5)
    with pytest.raises(NotMonotoneError, match="No m > 0"):
        operators.Dense.from_matrix(2 * torch.eye(2, dtype=F64), 0.1)
    for bad, error in (
        (torch.ones(2, 3), ValueError),
        (torch.ones(2, 2, dtype=torch.long), TypeError),
        (torch.full((2, 2), math.nan), ValueError),
    ):
        with pytest.raises(error):
            operators.Dense.from_matrix(bad, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: operators.Convolution(None, (4, 4)),
        lambda: operators.Convolution(float("nan"), (4, 4)),
        lambda: operators.Convolution("3", (4, 4)),
        lambda: operators.Convolution(True, (4, 4)),
        lambda: operators.Convolution(3, (float("nan"), 4)),
        lambda: operators.Convolution(3, (4, "a")),
        lambda: operators.Convolution(3, (4, 4), kernel_size="3"),
        lambda: operators.MultiTier((2, "a"), (4, 4)),
        lambda: operators.MultiTier((2, 2), (4, 4), stride=None),
        lambda: operators.MultiTier((2, 2), (4, 4), border="1"),
        lambda: operators.Dense(float("inf")),
    ],
)
def test_sizes_that_are_no_numbers_are_named(make):
    with pytest.raises(ValueError, match=r" = .*(None|nan|'3'|True|'a'|'1'|inf)"):
        make()


def test_a_constant_that_is_no_number_is_named():
    for m in (None, "1"):
        with pytest.raises(TypeError, match=f"m = {m!r} is .*; pass a positive strong monotonicity constant"):
            operators.Dense(3, m)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: operators.Convolution(2, (4, 4)), lambda: operators.MultiTier((2, 3), (4, 4), 1)])
def test_kernels_in_a_dtype_without_a_transform_are_named(make, dtype):
    W = make().to(dtype)
    z = torch.zeros(1, *W.state_shape, dtype=dtype)
    for use in (lambda: W(z), W.lipschitz, W.frozen):
        with pytest.raises(TypeError, match=f"the kernels are {dtype}.*keep them in float32 or float64"):
            use()
