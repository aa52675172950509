"""Compact WY in blocks against the loop over single reflections and against torch's own product of them."""

import copy
import pickle

import pytest
import torch

from mon_lib.reflections import HouseholderProduct, householder

SIZES = [(1, 1, 64), (2, 5, 2), (5, 0, 4), (7, 7, 3), (9, 1, 64), (12, 30, 64), (40, 13, 8), (70, 70, 64)]


def product(d, k, block=64, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return HouseholderProduct(d, k, block=block, dtype=dtype)


def loop(vectors, x):
    """H(v_1) ... H(v_k) x, one mirror after the other."""
    for v in reversed(vectors.unbind()):
        x = householder(v, x)
    return x


def eye(d):
    return torch.eye(d, dtype=torch.float64)


@pytest.mark.parametrize(("d", "k", "block"), SIZES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (500,)], ids=str)
def test_equals_the_loop_in_value_and_gradient(d, k, block, shape):
    f = product(d, k, block)
    x = torch.randn(*shape, d, dtype=torch.float64).requires_grad_()
    vectors, weight = f.vectors.detach().clone().requires_grad_(), torch.randn(*shape, d, dtype=torch.float64)
    y, expected = f(x), loop(vectors, x)
    assert y.shape == x.shape
    assert (y - expected).abs().max() < 1e-12
    ours = torch.autograd.grad((y * weight).sum(), (f.vectors, x), allow_unused=True, materialize_grads=True)
    theirs = torch.autograd.grad((expected * weight).sum(), (vectors, x), allow_unused=True, materialize_grads=True)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() < 1e-11 * (1 + b.norm())
    assert (f.inverse(y) - x).abs().max() < 1e-12
    assert (f.prepared()(x) - y).abs().max() < 1e-12


@pytest.mark.parametrize(("d", "k", "block"), SIZES)
def test_dense_matrix_and_determinant(d, k, block):
    f = product(d, k, block)
    U = f.to_dense().detach()
    assert (U.T @ U - eye(d)).abs().max() < 1e-13
    assert (U - loop(f.vectors.detach(), eye(d)).T).abs().max() < 1e-13
    assert f.determinant() == round(float(torch.linalg.det(U)))
    with torch.no_grad():
        f.vectors[: k // 2] = 0.0
    assert f.determinant() == round(float(torch.linalg.det(f.to_dense().detach())))


def test_the_matrix_in_another_dtype_is_orthogonal_to_its_rounding():
    f = product(24, 20)
    assert f.vectors.dtype == torch.float64
    f = f.float()
    wide = f.to_dense(torch.float64)
    assert wide.dtype == torch.float64
    assert (wide.mT @ wide - torch.eye(24, dtype=torch.float64)).abs().max() < 1e-14
    assert (f.to_dense() - wide).abs().max() < 1e-5
    wide.sum().backward()
    assert f.vectors.grad.dtype == torch.float32 and bool(f.vectors.grad.any())
    with pytest.raises(TypeError, match="complex64 is no real"):
        f.to_dense(torch.complex64)


@pytest.mark.parametrize(("d", "k"), [(5, 3), (16, 16), (70, 66)])
def test_equals_the_product_that_lapack_forms(d, k):
    reflectors = torch.randn(d, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tril(-1)
    reflectors += torch.eye(d, k, dtype=torch.float64)
    theirs = torch.linalg.householder_product(reflectors, 2.0 / reflectors.square().sum(0))
    f = product(d, k)
    with torch.no_grad():
        f.vectors.copy_(reflectors.T)
    assert (f.to_dense()[:, :k] - theirs).abs().max() < 1e-13


def test_a_zero_vector_is_the_identity_and_gets_no_gradient():
    f = product(6, 5, block=2)
    with torch.no_grad():
        f.vectors[1] = 0.0
        f.vectors[4] = 0.0
    x = torch.randn(3, 6, dtype=torch.float64)
    kept = f.vectors.detach()[[0, 2, 3]].clone().requires_grad_()
    weight = torch.randn(3, 6, dtype=torch.float64)
    y, expected = f(x), loop(kept, x)
    assert (y - expected).abs().max() < 1e-14
    (y * weight).sum().backward()
    (expected * weight).sum().backward()
    assert torch.equal(f.vectors.grad[[1, 4]], torch.zeros(2, 6, dtype=torch.float64))
    assert (f.vectors.grad[[0, 2, 3]] - kept.grad).abs().max() < 1e-13
    with torch.no_grad():
        f.vectors.zero_()
    assert torch.equal(f(x), x)
    assert f.determinant() == 1


def test_gradients_of_first_and_second_order():
    f, x = product(4, 5, block=2), torch.randn(3, 4, dtype=torch.float64).requires_grad_()

    def value(vectors, x):
        return torch.func.functional_call(f, {"vectors": vectors}, (x,))

    vectors = f.vectors.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(value, (vectors, x))
    assert torch.autograd.gradgradcheck(value, (vectors, x))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lengths_of_the_vectors_change_nothing(scale):
    f = product(20, 20, dtype=torch.float32)
    x = torch.randn(8, 20)
    y = f(x)
    (slope,) = torch.autograd.grad(y[0, 0], f.vectors)
    with torch.no_grad():
        f.vectors *= scale
    assert (f(x) - y).abs().max() < 5e-6
    (scaled,) = torch.autograd.grad(f(x)[0, 0], f.vectors)
    assert (scaled * scale - slope).abs().max() < 1e-5


@pytest.mark.claim("REF-INTRO")
@pytest.mark.parametrize("d", [1, 2, 3, 8, 31, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_orthogonal_matrix_is_a_product_of_as_many_mirrors_as_it_moves_directions(d, dtype):
    torch.manual_seed(d)
    tolerance = 20 * d**0.5 * torch.finfo(dtype).eps
    for r in sorted({0, 1, min(2, d), d // 2, d - 1, d}):
        U = product(d, r, dtype=dtype, seed=r).to_dense().detach()
        f = HouseholderProduct.from_orthogonal(U)
        assert (f.to_dense() - U).abs().max() < tolerance
        assert f.vectors.shape == (d, d)
        count = int((f.vectors != 0).any(1).sum())
        assert count == r  # what U was made of, and never more than rank(I - U)
        assert int((torch.linalg.svdvals(torch.eye(d, dtype=dtype) - U) > 1e-4).sum()) == r
        assert f.determinant() == round(float(torch.linalg.det(U.double())))
        if r:
            with pytest.raises(ValueError, match=rf"k = {r - 1} reflections cannot make U, which needs {r}"):
                HouseholderProduct.from_orthogonal(U, r - 1)


@pytest.mark.claim("REF-INTRO")
@pytest.mark.parametrize("d", [2, 3, 10])
def test_exactly_d_mirrors_give_one_determinant_only(d):
    for seed in range(20):
        assert float(torch.linalg.det(product(d, d, seed=seed).to_dense().detach())) * (-1) ** d == pytest.approx(1.0, abs=1e-12)
    # So the other half of the group needs H(0) = I: the identity for odd d, one mirror for even d.
    missing = eye(d) if d % 2 else product(d, 1).to_dense().detach()
    f = HouseholderProduct.from_orthogonal(missing)
    assert int((f.vectors == 0).all(1).sum()) % 2 == 1
    assert (f.to_dense() - missing).abs().max() < 1e-14


@pytest.mark.parametrize(
    ("U", "count"),
    [
        (eye(6), 0),
        (-eye(6), 6),
        (eye(6)[[1, 2, 3, 4, 5, 0]], 5),
        (eye(6)[[1, 0, 2, 3, 4, 5]], 1),
        (torch.diag(torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0], dtype=torch.float64)), 2),
    ],
    ids=["identity", "minus", "cycle", "swap", "signs"],
)
def test_special_matrices(U, count):
    f = HouseholderProduct.from_orthogonal(U, count)
    assert int((f.vectors != 0).any(1).sum()) == count
    assert (f.to_dense() - U).abs().max() < 1e-14


def test_a_rotation_by_a_tiny_angle_is_kept_and_rounding_is_not():
    turn = torch.tensor(1e-7, dtype=torch.float64)
    U = eye(5)
    U[:2, :2] = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()]).view(2, 2)
    f = HouseholderProduct.from_orthogonal(U)
    assert int((f.vectors != 0).any(1).sum()) == 2
    assert (f.to_dense() - U).abs().max() < 1e-15
    noise = eye(5) + 1e-16 * torch.randn(5, 5, dtype=torch.float64)
    assert not HouseholderProduct.from_orthogonal(noise).vectors.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_and_autocast_compute_in_float32(dtype):
    f, x = product(30, 30, dtype=torch.float32), torch.randn(9, 30)
    y = f(x)
    assert f(x.to(dtype)).dtype == dtype
    assert (f(x.to(dtype)).float() - f(x.to(dtype).float())).abs().max() <= torch.finfo(dtype).eps * y.abs().max()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(f(x), y)
        assert torch.equal(f.inverse(y), f.inverse(y))
        assert (f.prepared()(x) - y).abs().max() < 1e-5
    short = copy.deepcopy(f).to(dtype)
    assert short(x.to(dtype)).dtype == dtype
    assert (short.to_dense().float().norm(dim=0) - 1).abs().max() < 4 * torch.finfo(dtype).eps


def test_prepared_factors_serve_many_steps_with_gradients():
    f, h = product(10, 4), torch.randn(3, 10, dtype=torch.float64)
    step, state, expected = f.prepared(), h, h
    for _ in range(5):
        state, expected = torch.tanh(step(state)), torch.tanh(f(expected))
    (ours,), (theirs,) = (torch.autograd.grad(s.square().sum(), f.vectors) for s in (state, expected))
    assert ours.abs().max() > 1e-3
    assert (ours - theirs).abs().max() < 1e-12


def test_a_sample_stands_alone_and_a_nan_stays_in_it():
    f = product(20, 20)
    x = torch.randn(100, 20, dtype=torch.float64)
    y = f(x)
    assert (torch.stack([f(row) for row in x]) - y).abs().max() < 1e-13
    x[3, 0] = float("nan")
    assert torch.isnan(f(x)[3]).all()
    assert torch.isfinite(f(x)[4:]).all()


def test_copies_pickles_and_state_dicts_agree():
    f, x = product(6, 4), torch.randn(2, 6, dtype=torch.float64)
    for other in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert torch.equal(other(x), f(x))
    other = product(6, 4, seed=1)
    assert not torch.equal(other(x), f(x))
    other.load_state_dict(f.state_dict())
    assert torch.equal(other(x), f(x))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: HouseholderProduct(0, 1), ValueError, "d = 0 is too small; pass an integer, at least 1"),
        (lambda: HouseholderProduct(3, -1), ValueError, "k = -1 is too small; pass an integer, at least 0"),
        (lambda: HouseholderProduct(3, 1.5), TypeError, "k = 1.5 is float"),
        (lambda: HouseholderProduct(3, 1, block=0), ValueError, "block = 0"),
        (lambda: HouseholderProduct(3, 1)(torch.ones(2, 4)), ValueError, "vectors of 4 along axis -1, and d = 3"),
        (
            lambda: HouseholderProduct(3, 1)(torch.ones(3).double()),
            TypeError,
            "x is torch.float64, the parameters are torch.float32",
        ),
        (
            lambda: HouseholderProduct(3, 1).inverse(torch.ones(3).double()),
            TypeError,
            "y is torch.float64, the parameters are torch.float32",
        ),
        (lambda: HouseholderProduct(3, 3).inverse(torch.ones(9, 3).double()), TypeError, "y is torch.float64"),
        (lambda: HouseholderProduct(3, 1, dtype=torch.complex64), TypeError, "dtype = torch.complex64 .* pass torch.float32"),
        (lambda: HouseholderProduct(3, 1, dtype=torch.int64), TypeError, "dtype = torch.int64 .* pass torch.float32"),
        (lambda: HouseholderProduct(3, 1)(torch.ones(3).long()), TypeError, "x is torch.int64"),
        (lambda: HouseholderProduct(3, 1).inverse(torch.full((3,), float("nan"))), ValueError, "y has 3 NaN or infinite entries"),
        (lambda: HouseholderProduct.from_orthogonal(2 * torch.eye(3)), ValueError, "U is not orthogonal: an entry of U'U - I is 3"),
        (lambda: HouseholderProduct.from_orthogonal(torch.ones(3, 2)), ValueError, r"U has shape \(3, 2\); pass a square matrix"),
        (lambda: HouseholderProduct.from_orthogonal(torch.eye(3) / 0), ValueError, "U has 9 NaN or infinite entries"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
