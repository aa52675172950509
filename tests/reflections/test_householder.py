"""H(v)x against its matrix in float64, its derivatives in both modes, and what holds at v = 0."""

import pytest
import torch
from torch.func import jacfwd, jacrev, vmap

from mon_lib.reflections import householder

# Forward mode loads torch.jit.script inside torch, which torch itself has deprecated.
forward_mode = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")


def randn(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def rotation(d, fixed, seed=0):
    """An orthogonal matrix that leaves a space of the given dimension alone."""
    basis = torch.linalg.qr(randn(d, d, seed=seed))[0]
    block = torch.eye(d, dtype=torch.float64)
    block[fixed:, fixed:] = torch.linalg.qr(randn(d - fixed, d - fixed, seed=seed + 1))[0]
    return basis @ block @ basis.T


def matrix(v):
    return torch.eye(len(v), dtype=v.dtype) - 2 * torch.outer(v, v) / (v @ v)


SHAPES = [((5,), (5,)), ((1,), (1,)), ((7, 5), (7, 5)), ((5,), (7, 5)), ((3, 1, 5), (4, 5)), ((2, 3, 5), (5,)), ((0, 5), (5,))]


@pytest.mark.parametrize(("of_v", "of_x"), SHAPES, ids=str)
def test_is_the_matrix_times_x_for_every_pair_of_leading_shapes(of_v, of_x):
    v, x = randn(*of_v, seed=1), randn(*of_x, seed=2)
    wide_v, wide_x = torch.broadcast_tensors(v, x)
    y = householder(v, x)
    assert y.shape == wide_x.shape
    rows = zip(*(t.reshape(-1, v.shape[-1]) for t in (wide_v, wide_x, y)), strict=True)
    assert all((matrix(a) @ b - c).abs().max() < 1e-14 for a, b, c in rows)


@pytest.mark.claim("REF-L5")
@pytest.mark.parametrize("d", [2, 3, 17, 48])
def test_the_mirror_of_the_difference_sends_x_to_y(d):
    x, y = randn(200, d, seed=1), randn(200, d, seed=2)
    y = y * (x.norm(dim=1, keepdim=True) / y.norm(dim=1, keepdim=True))
    assert (householder(x - y, x) - y).abs().max() < 1e-12
    assert (householder(x - y, y) - x).abs().max() < 1e-12
    # The two need the same norm: with another one the mirror image of x is not y.
    assert (householder(x - 1.1 * y, x) - 1.1 * y).norm(dim=1).min() > 0.01 * x.norm(dim=1).min()
    # And only multiples of the difference do it: a mirror that sends x to y moves x along its own normal.
    assert (householder(x - y + 0.1 * randn(200, d, seed=3), x) - y).norm(dim=1).min() > 1e-4


@pytest.mark.claim("REF-T1")
@pytest.mark.parametrize(("d", "fixed"), [(2, 0), (3, 1), (6, 4), (17, 8)])
def test_one_reflection_is_any_orthogonal_map_with_its_jacobian(d, fixed):
    U = rotation(d, fixed)
    W = torch.eye(d, dtype=torch.float64) - U
    x = randn(50, d)

    def f(x):
        return householder(W @ x, x)

    # Rounding turns the mirror by eps ||x||/||Wx||, so the value is off by that and the Jacobian by its ratio once more.
    near = x.norm(dim=1) / (x @ W.T).norm(dim=1)
    assert ((vmap(f)(x) - x @ U.T).norm(dim=1) < 5e-15 * d * near * x.norm(dim=1)).all()
    assert ((vmap(jacrev(f))(x) - U).norm(dim=(1, 2)) < 5e-15 * d * near**2).all()
    # Where Ux = x exactly the mirror vanishes, the value needs H(0) = I, and the derivative needs the convention.
    zero = torch.zeros(d, dtype=torch.float64)
    assert torch.equal(f(zero), zero)
    assert torch.equal(jacrev(f)(zero), U) or (jacrev(f)(zero) - U).abs().max() < 1e-15


@pytest.mark.claim("REF-T1")
def test_at_a_fixed_point_an_epsilon_has_the_jacobian_of_the_identity():
    U = torch.eye(4, dtype=torch.float64)
    U[:2, :2] = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    x = torch.tensor([0.0, 0.0, 1.0, -2.0], dtype=torch.float64)  # Ux = x to the last bit

    def with_epsilon(x, eps=1e-8):
        v = x - U @ x
        return x - 2 * v * (v @ x) / (v @ v + eps)

    assert torch.equal(householder(x - U @ x, x), U @ x)
    assert torch.equal(with_epsilon(x), U @ x)
    assert (jacrev(lambda x: householder(x - U @ x, x))(x) - U).abs().max() < 1e-15
    assert (jacrev(with_epsilon)(x) - torch.eye(4, dtype=torch.float64)).abs().max() < 1e-15
    # Both modes and plain autograd see the same convention, and the second derivative of a linear map is zero.
    seen = torch.autograd.functional.jacobian(lambda x: householder(x - U @ x, x), x)
    assert (seen - U).abs().max() < 1e-15
    bent = jacrev(jacrev(lambda x: householder(x - U @ x, x)))(x)
    assert bent.abs().max() < 1e-14


@forward_mode
@pytest.mark.parametrize(("of_v", "of_x"), [((5,), (5,)), ((5,), (3, 5)), ((3, 1, 4), (2, 4)), ((2, 3), (3,))], ids=str)
def test_derivatives_of_first_and_second_order_in_both_modes(of_v, of_x):
    v, x = randn(*of_v, seed=1).requires_grad_(), randn(*of_x, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(householder, (v, x), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(householder, (v, x), check_fwd_over_rev=True, check_batched_grad=True)
    assert torch.autograd.gradcheck(lambda v: householder(v, x.detach()), (v,), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda x: householder(v.detach(), x), (x,), check_forward_ad=True)


@forward_mode
def test_the_convention_at_zero_is_local_to_its_sample():
    v = randn(4, 3, seed=1)
    v[1] = 0.0
    x = randn(4, 3, seed=2)
    of_v, of_x = vmap(jacrev(householder, argnums=(0, 1)))(v, x)
    eye = torch.eye(3, dtype=torch.float64)
    assert torch.equal(householder(v, x)[1], x[1])
    assert torch.equal(of_v[1], -eye)
    assert torch.equal(of_x[1], eye)
    for i in (0, 2, 3):
        assert (of_x[i] - matrix(v[i])).abs().max() < 1e-15
        assert (of_v[i] + eye).abs().max() > 0.1
    for seen, other in zip((of_v, of_x), vmap(jacfwd(householder, argnums=(0, 1)))(v, x), strict=True):
        assert (seen - other).abs().max() < 1e-14


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e30, 3e38])
def test_the_length_of_v_changes_no_value_and_scales_the_gradient(scale):
    v, x = torch.tensor([0.5, -0.25, 1.0, 0.0, -1.0]), randn(6, 5, dtype=torch.float32)
    unit, far = v.clone().requires_grad_(), (v * scale).requires_grad_()
    weight = randn(6, 5, dtype=torch.float32, seed=9)
    (householder(unit, x) * weight).sum().backward()
    (householder(far, x) * weight).sum().backward()
    if scale > 1e-40:  # below, the entries of v themselves have only a few bits
        assert (householder(unit, x) - householder(far, x)).abs().max() < 1e-6
        torch.testing.assert_close(far.grad.double() * scale, unit.grad.double(), rtol=1e-5, atol=1e-6)
    else:
        assert torch.isfinite(householder(far, x)).all()
    assert (householder(far, x).norm(dim=1) / x.norm(dim=1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_are_computed_in_float32(dtype):
    v, x = (300 * randn(50, 64, dtype=torch.float32, seed=1)).to(dtype), randn(50, 64, dtype=torch.float32, seed=2).to(dtype)
    v.requires_grad_()
    y = householder(v, x)
    exact = householder(v.detach().double(), x.double())
    assert y.dtype == dtype
    torch.testing.assert_close(y, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)
    y.float().square().sum().backward()
    assert v.grad.dtype == dtype
    assert torch.isfinite(v.grad).all()
    assert householder(v.detach().float(), x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = householder(v.detach().float(), x.float())
    assert torch.equal(inside, householder(v.detach().float(), x.float()))


def test_strides_do_not_matter():
    v, x = randn(5, 7, seed=1).T, randn(7, 5, 2, seed=2)[..., 0]
    assert not v.is_contiguous()
    assert not x.is_contiguous()
    assert torch.equal(householder(v, x), householder(v.contiguous(), x.contiguous()))


def test_a_nan_stays_in_its_sample():
    v, x = randn(3, 4, seed=1), randn(3, 4, seed=2)
    v[0, 1], x[1, 2] = float("nan"), float("nan")
    y = householder(v, x)
    assert torch.isnan(y[:2]).all()
    assert torch.equal(y[2], householder(v[2], x[2]))


@pytest.mark.parametrize(
    ("v", "x", "error", "message"),
    [
        (torch.ones(3), torch.ones(2, 4), ValueError, r"v has shape \(3,\): vectors of 3 along axis -1, and d = 4"),
        (torch.ones(3), torch.ones(3, dtype=torch.int64), TypeError, r"x is torch.int64; .*x.float\(\)"),
        (torch.ones(3, dtype=torch.complex64), torch.ones(3), TypeError, "v is torch.complex64"),
        (torch.ones(3), [1.0, 2.0, 3.0], TypeError, "x is list; pass a torch.Tensor"),
        (torch.tensor(1.0), torch.tensor(1.0), ValueError, "without an axis -1"),
        (torch.ones(2, 0), torch.ones(2, 0), ValueError, "1 or more is needed"),
    ],
)
def test_bad_arguments_are_refused_by_name(v, x, error, message):
    with pytest.raises(error, match=message):
        householder(v, x)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"v has shape \(2, 3\) and x \(5, 3\), which do not broadcast"):
        householder(torch.randn(2, 3), torch.randn(5, 3))
