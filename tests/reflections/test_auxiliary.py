"""f(x) = H(Wx)x: values, gradients, Jacobian and determinant, against formulas that share no code with it."""

import copy
import io
import pickle

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection, _frozen, householder

F64 = torch.float64


def orthogonal(d, mirrored=1, seed=0):
    """Q diag(-1, ..., -1, 1, ..., 1) Q' with `mirrored` minus ones, and a basis of the vectors that it leaves alone."""
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(d, d, dtype=F64, generator=generator)).Q
    signs = torch.ones(d, dtype=F64)
    signs[:mirrored] = -1
    return (Q * signs) @ Q.T, Q[:, mirrored:]


def plain(x, W):
    """H(Wx)x as it is written, for one vector."""
    u = W @ x
    return x - 2 * u * (u @ x) / (u @ u)


def make(d=5, seed=0, dtype=F64):
    torch.manual_seed(seed)
    return AuxiliaryReflection(d, dtype=dtype)


def with_weight(f, method="forward"):
    """(x, W) -> the method of f with W as its weight."""

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.f = f

        def forward(self, x):
            return getattr(self.f, method)(x)

    return lambda x, W: torch.func.functional_call(Call(), {"f.weight": W}, (x,))


@pytest.mark.parametrize("d", [1, 2, 3, 7, 48])
def test_is_the_reflection_and_keeps_lengths(d):
    f = make(d)
    x = torch.randn(6, d, dtype=F64)
    y = f(x).detach()
    expected = torch.stack([plain(row, f.weight.detach()) for row in x])
    assert (y - expected).abs().max() < 1e-13
    assert (y.norm(dim=1) - x.norm(dim=1)).abs().max() < 1e-13
    assert (f(-3.0 * x).detach() + 3.0 * y).abs().max() < 1e-13


def test_initial_weights_are_those_of_the_paper():
    d = 400
    W = make(d, dtype=torch.float32).weight.detach() * d**0.5
    assert W.abs().max() <= 1.0
    assert abs(float(W.mean())) < 0.01
    assert abs(float(W.var()) - 1 / 3) < 0.01


def test_first_and_second_derivatives():
    f = make(4)
    x = torch.randn(3, 4, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(with_weight(f), (x, f.weight))
    assert torch.autograd.gradgradcheck(with_weight(f), (x, f.weight))


@pytest.mark.parametrize("noise", [False, True], ids=["regular", "rounding"])
def test_the_short_way_and_that_of_torch_func_agree_twice(noise, monkeypatch):
    f = AuxiliaryReflection.from_orthogonal(torch.eye(4, dtype=F64)) if noise else make(4)
    x, v = torch.randn(3, 4, dtype=F64, requires_grad=True), torch.randn(3, 4, dtype=F64)
    ways = []
    for step in (f, f.prepared()):
        for general in (lambda: False, lambda: True):
            monkeypatch.setattr(_frozen, "_transforms_active", general)
            y = step(x)
            once = torch.autograd.grad(y, (x, f.weight), v, create_graph=True)
            ways.append((y, *once, *torch.autograd.grad([g.square().sum() for g in once], (x, f.weight))))
    for way in ways[1:]:
        for a, b in zip(way, ways[0], strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_derivatives_under_torch_func():
    f = make(4)
    x = torch.randn(3, 4, dtype=F64)
    W = f.weight.detach()
    for transform in (torch.func.jacrev, lambda g: torch.func.jacrev(torch.func.jacrev(g))):
        got = torch.func.vmap(transform(f))(x).detach()
        expected = torch.func.vmap(transform(lambda x: plain(x, W)))(x)
        assert (got - expected).abs().max() < 1e-12 * expected.abs().max()


@pytest.mark.parametrize("d", [2, 3, 16, 170])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_from_orthogonal_also_at_fixed_points(d, dtype):
    U, fixed = orthogonal(d, mirrored=max(1, d // 3))
    f = AuxiliaryReflection.from_orthogonal(U.to(dtype))
    eps = torch.finfo(dtype).eps
    torch.manual_seed(1)
    still = torch.randn(20, fixed.shape[1], dtype=F64) @ fixed.T  # Ux = x, so Wx is rounding and nothing else
    x = torch.cat([torch.randn(20, d, dtype=F64), still, torch.zeros(1, d, dtype=F64)]).to(dtype)
    y = f(x).detach()
    assert ((y - x @ U.to(dtype).T).norm(dim=1) <= 40 * eps * (1 + x.norm(dim=1))).all()
    J = f.jacobian(x[20:]).detach()
    assert (J - U.to(dtype)).abs().max() < 16 * eps
    if d <= 16:
        assert (torch.func.vmap(torch.func.jacrev(f))(x[20:]).detach() - U.to(dtype)).abs().max() < 16 * eps


def test_without_the_rounding_rule_a_fixed_point_is_mirrored_at_random():
    U, fixed = orthogonal(16, mirrored=5)
    W = (torch.eye(16, dtype=F64) - U).float()
    x = (torch.randn(50, fixed.shape[1], dtype=F64) @ fixed.T).float()
    assert (householder(x @ W.T, x) - x).norm(dim=1).max() > 0.1 * x.norm(dim=1).min()


@pytest.mark.parametrize("d", [2, 5, 48, 500])
def test_what_counts_as_rounding_lies_above_rounding_and_far_below_everything_else(d):
    """The rule 4 eps ||W||_F ||x||: noise stays below half of it, and vectors twenty times longer are reflected."""
    eps = torch.finfo(torch.float32).eps
    U, fixed = orthogonal(d, mirrored=max(1, d // 2))
    W = (torch.eye(d, dtype=F64) - U).float()
    x = (torch.randn(50, fixed.shape[1], dtype=F64) @ fixed.T).float()
    noise = (x @ W.T).norm(dim=1) / (W.norm() * x.norm(dim=1) * eps)
    assert noise.max() < 2.0
    f = AuxiliaryReflection(2)
    for scale, reflected in ((1e-7, False), (1e-5, True)):
        with torch.no_grad():
            f.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, scale]]))
        y = f(torch.tensor([0.0, 1.0])).detach()
        assert torch.equal(y, torch.tensor([0.0, -1.0 if reflected else 1.0 - scale]))


def test_zero_weight_and_zero_vector():
    f = make(3)
    with torch.no_grad():
        f.weight.zero_()
    x = torch.randn(4, 3, dtype=F64, requires_grad=True)
    f(x).sum().backward()
    assert torch.equal(f(x), x)
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(f.weight.grad, -torch.ones(3, 4, dtype=F64) @ x.detach())  # the convention d/dv = -I at v = 0
    g = make(3)
    zero = torch.zeros(1, 3, dtype=F64)
    assert torch.equal(g(zero), zero)
    assert torch.equal(g.jacobian(zero)[0], torch.eye(3, dtype=F64) - g.weight)


@pytest.mark.parametrize("scale_x, scale_W", [(1e-30, 1.0), (1e30, 1.0), (1.0, 1e-18), (1.0, 1e18), (1e25, 1e-10), (1e-20, 1e15)])
def test_scales_do_not_matter(scale_x, scale_W):
    f, g = make(6, dtype=torch.float32), make(6, dtype=torch.float32)
    with torch.no_grad():
        g.weight.mul_(scale_W)
    x = torch.randn(5, 6)
    out = torch.randn(5, 6)
    a, b = x.clone().requires_grad_(), (scale_x * x).requires_grad_()
    y, z = f(a), g(b)
    y.backward(out)
    z.backward(out)
    assert torch.allclose(z / scale_x, y, rtol=1e-5, atol=1e-6)
    assert torch.allclose(b.grad, a.grad, rtol=1e-4, atol=1e-5)
    assert torch.allclose(g.weight.grad * (scale_W / scale_x), f.weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (0, 5), (2, 3, 5), (2, 1, 4, 5)])
def test_shapes(shape):
    f = make(5)
    x = torch.randn(shape, dtype=F64)
    rows = x.reshape(-1, 5)
    y, ladj = f.forward_and_ladj(x)
    assert y.shape == f(x).shape == f.inverse(f(x)).shape == shape
    assert ladj.shape == shape[:-1]
    assert f.jacobian(x).shape == (*shape, 5)
    assert torch.equal(f(x).reshape(-1, 5), f(rows))
    assert len(f.preimages(y)) == len(rows)


def test_strided_input_and_a_sample_on_its_own():
    f = make(5)
    x = torch.randn(5, 3, 2, dtype=F64).permute(2, 1, 0)
    assert not x.is_contiguous()
    assert torch.allclose(f(x), f(x.contiguous()), rtol=0, atol=1e-15)
    assert torch.allclose(f(x)[1, 2], f(x[1, 2]), rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_are_computed_in_float32(dtype):
    f = make(8, dtype=torch.float32)
    x = torch.randn(3, 8).to(dtype)
    y = f(x)
    assert y.dtype == dtype
    assert torch.equal(y, f(x.float()).to(dtype))
    g = copy.deepcopy(f).to(dtype)
    assert g(x).dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = f(x.float())
        inside.sum().backward()
    assert torch.equal(inside, f(x.float()))
    grad, f.weight.grad = f.weight.grad.clone(), None
    f(x.float()).sum().backward()
    assert torch.equal(grad, f.weight.grad)


def test_prepared_is_the_same_map_with_the_same_gradients():
    f = make(5)
    x = torch.randn(3, 5, dtype=F64, requires_grad=True)
    step = f.prepared()
    three = step(step(step(x)))
    assert torch.equal(three, f(f(f(x))))
    got = torch.autograd.grad(three.square().mul(torch.arange(5.0)).sum(), (x, f.weight))
    expected = torch.autograd.grad(f(f(f(x))).square().mul(torch.arange(5.0)).sum(), (x, f.weight))
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_prepared_keeps_the_weight_that_it_was_made_from():
    f = make(5)
    x = torch.randn(3, 5, dtype=F64)
    step, before = f.prepared(), f(x).detach()
    expected = torch.autograd.grad(f(x).square()[:, 0].sum(), f.weight)[0]
    with torch.no_grad():
        f.weight.add_(1.0)
    assert torch.equal(step(x), before)
    assert torch.equal(torch.autograd.grad(step(x).square()[:, 0].sum(), f.weight)[0], expected)
    assert not torch.allclose(f(x), before)


@pytest.mark.parametrize("scale_x, scale_W", [(1e160, 1.0), (1e-160, 1.0), (1.0, 1e155), (1.0, 1e-160), (1e160, 1e-300)])
def test_scales_do_not_matter_in_float64(scale_x, scale_W):
    f, g = make(6), make(6)
    with torch.no_grad():
        g.weight.mul_(scale_W)
    x, out = torch.randn(5, 6, dtype=F64), torch.randn(5, 6, dtype=F64)
    a, b = x.clone().requires_grad_(), (scale_x * x).requires_grad_()
    y, z = f(a), g(b)
    assert (z / scale_x - y).abs().max() < 1e-13
    (expected,), (got,) = torch.autograd.grad(y, a, out), torch.autograd.grad(z, b, out)
    assert (got - expected).abs().max() < 1e-12 * expected.abs().max()


def test_small_vectors_with_large_gradients():
    f = make(6, dtype=torch.float32)
    x, out = torch.randn(5, 6), torch.randn(5, 6)
    gradients = []
    for scale in (1.0, 1e-20):
        point = (scale * x).requires_grad_()
        for_x, for_W = torch.autograd.grad(f(point), (point, f.weight), out / scale)
        gradients.append((for_x * scale, for_W))
    for got, expected in zip(*gradients, strict=True):
        assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_an_exact_product_of_the_size_of_rounding_counts_as_rounding():
    f = AuxiliaryReflection(2)
    with torch.no_grad():
        f.weight.copy_(torch.diag(torch.tensor([1.0, 2.0**-22])))
    x = torch.tensor([0.0, 1.0])
    assert torch.equal(f(x), x - f.weight @ x)  # the mirror would give -x


def test_nan_passes_on_in_its_own_sample():
    f = make(4)
    x = torch.randn(3, 4, dtype=F64)
    x[1, 2] = torch.nan
    y = f(x)
    assert torch.isnan(y[1]).all()
    assert torch.equal(y[[0, 2]], f(x[[0, 2]]))


def test_copies_and_saved_states():
    f = make(4)
    x = torch.randn(3, 4, dtype=F64)
    file = io.BytesIO()
    torch.save(f.state_dict(), file)
    file.seek(0)
    loaded = make(4, seed=9)
    loaded.load_state_dict(torch.load(file))
    for g in (copy.deepcopy(f), pickle.loads(pickle.dumps(f)), loaded):
        assert torch.equal(g(x), f(x))
    with torch.no_grad():
        f.weight.add_(1.0)
    assert (f(x) - torch.stack([plain(row, f.weight) for row in x])).abs().max() < 1e-14  # nothing stale


@pytest.mark.parametrize(
    "act, error, words",
    [
        (lambda f: f(torch.zeros(2, 5)), ValueError, "d = 4"),
        (lambda f: f(torch.zeros(2, 4, dtype=torch.long)), TypeError, "int64"),
        (lambda f: f.jacobian(torch.tensor(1.0)), ValueError, "shape"),
        (lambda f: f.forward_and_ladj([1.0]), TypeError, "list"),
        (lambda f: f(torch.zeros(4, dtype=F64)), TypeError, "float64"),
        (lambda f: f.inverse(torch.full((4,), torch.nan)), ValueError, "NaN"),
        (lambda f: f.preimages(torch.full((4,), torch.inf)), ValueError, "infinite"),
        (lambda f: AuxiliaryReflection(3, dtype=torch.complex64), TypeError, "complex64"),
        (lambda f: AuxiliaryReflection(3, dtype=torch.long), TypeError, "int64"),
        (lambda f: AuxiliaryReflection(0), ValueError, "d = 0"),
        (lambda f: AuxiliaryReflection(2.5), TypeError, "2.5"),
        (lambda f: AuxiliaryReflection.from_orthogonal(torch.ones(3, 3)), ValueError, "not orthogonal"),
    ],
)
def test_bad_input_is_named(act, error, words):
    with pytest.raises(error, match=words):
        act(make(4, dtype=torch.float32))


@pytest.mark.claim("REF-T3", "REF-A22")
def test_jacobian_is_the_papers_formula_and_autograds():
    for d, seed in ((1, 0), (2, 1), (5, 2), (12, 3)):
        f = make(d, seed)
        W = f.weight.detach()
        x = torch.randn(4, d, dtype=F64)
        J = f.jacobian(x).detach()
        eye = torch.eye(d, dtype=F64)
        for row, found in zip(x, J, strict=True):
            u = W @ row
            A = eye - 2 * (row @ u) / (u @ u) * W
            printed = (eye - 2 * torch.outer(u, u) / (u @ u)) @ A - 2 * torch.outer(u, row @ W) / (u @ u)
            assert (found - printed).abs().max() < 1e-12 * (1 + printed.abs().max())
            auto = torch.func.jacrev(lambda z, W=W: plain(z, W))(row)
            assert (found - auto).abs().max() < 1e-12 * (1 + auto.abs().max())


@pytest.mark.claim("REF-A22")
def test_jacobian_is_the_printed_matrix():
    """The numbers that the paper prints for seed 42; the draws as the paper makes them."""
    torch.manual_seed(42)
    W = torch.zeros(4, 4).uniform_(-1, 1)
    x = torch.zeros(4, 1).uniform_(-1, 1)
    f = AuxiliaryReflection(4)
    with torch.no_grad():
        f.weight.copy_(W)
    printed = torch.tensor(
        [
            [0.2011, -1.4628, 0.7696, -0.5376],
            [0.3125, 0.6518, 0.7197, -0.5997],
            [-1.0764, 0.8388, 0.0020, -0.1107],
            [-0.8789, -0.3006, -0.4591, 1.3701],
        ]
    )
    assert (f.jacobian(x.squeeze()).detach() - printed).abs().max() < 5.1e-5


@pytest.mark.claim("REF-L1")
def test_determinant_is_lemma_1_and_its_simplified_form_and_needs_the_factor_2():
    worst = 0.0
    for d in range(1, 9):
        f = make(d, seed=d)
        W = f.weight.detach()
        eye = torch.eye(d, dtype=F64)
        for row in torch.randn(5, d, dtype=F64):
            det = torch.linalg.det(f.jacobian(row).detach())
            u = W @ row
            A = eye - 2 * (row @ u) / (u @ u) * W
            solved = torch.linalg.solve(A, u)
            lemma = -torch.linalg.det(A) * (1 + 2 * (row @ W) @ solved / (u @ u))
            simplified = -torch.linalg.det(A) * (row @ solved) / (row @ u)
            remark = -torch.linalg.det(A) * (1 + (row @ W) @ solved / (u @ u))
            assert abs(lemma - det) < 1e-9 * (1 + abs(det))
            assert abs(simplified - det) < 1e-9 * (1 + abs(det))
            worst = max(worst, float(abs(remark - det)))
    assert worst > 0.1


def test_ladj_and_its_derivatives():
    f = make(4)
    x = torch.randn(5, 4, dtype=F64, requires_grad=True)
    y, ladj = f.forward_and_ladj(x)
    J = torch.func.vmap(torch.func.jacrev(f))(x)
    assert torch.equal(y, f(x))
    assert (ladj - torch.linalg.slogdet(J).logabsdet).abs().max() < 1e-12
    assert torch.autograd.gradcheck(with_weight(f, "forward_and_ladj"), (x, f.weight))
    assert torch.autograd.gradgradcheck(with_weight(f, "forward_and_ladj"), (x[:2], f.weight))


def test_ladj_where_both_forms_of_the_lemma_divide_by_zero():
    """x'Wx = 0, then det A = 0: the simplified form, then the lemma itself is 0/0, and det J is nothing special."""
    cases = [
        ([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.5, 0.0, 2.0]], [1.0, 1.0, 0.0]),  # x'Wx = 0
        ([[1.0, 0.0], [0.0, 3.0]], [3**0.5 / 2, 0.5]),  # 2c = 1, an eigenvalue of W^-1
    ]
    for W, x in cases:
        W, x = torch.tensor(W, dtype=F64), torch.tensor(x, dtype=F64)
        f = AuxiliaryReflection(len(W), dtype=F64)
        with torch.no_grad():
            f.weight.copy_(W)
        u = W @ x
        A = torch.eye(len(W), dtype=F64) - 2 * (x @ u) / (u @ u) * W
        assert min(abs(float(x @ u)), abs(float(torch.linalg.det(A)))) < 1e-15
        for step in (0.0, 1e-12, 1e-7):
            point = (x + step).requires_grad_()
            ladj = f.forward_and_ladj(point)[1]
            reference = torch.linalg.slogdet(torch.func.jacrev(lambda z, W=W: plain(z, W))(point)).logabsdet
            assert torch.isfinite(reference)
            assert abs(float((ladj - reference).detach())) < 1e-11
            (got,), (expected,) = torch.autograd.grad(ladj, point), torch.autograd.grad(reference, point)
            assert (got - expected).abs().max() < 1e-10 * (1 + expected.abs().max())


def test_ladj_of_an_orthogonal_map_is_zero_everywhere():
    U, fixed = orthogonal(6, mirrored=2)
    f = AuxiliaryReflection.from_orthogonal(U.float())
    x = torch.cat([torch.randn(4, 6), (torch.randn(4, 4, dtype=F64) @ fixed.T).float(), torch.zeros(1, 6)])
    ladj = f.forward_and_ladj(x)[1]
    assert ladj.abs().max() < 1e-5
    ladj.sum().backward()
    assert torch.isfinite(f.weight.grad).all()


@pytest.mark.parametrize("scale", [1e-6, 2.0, 1e4, 1e8, 1e12])
def test_a_large_weight_keeps_lengths_where_its_product_is_noise(scale):
    torch.manual_seed(0)
    Q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    R = torch.eye(4, dtype=torch.float64)
    R[:2, :2] = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    f = AuxiliaryReflection.from_orthogonal((Q @ R @ Q.T).float())
    x = (Q[:, 2:] @ torch.randn(2, 200, dtype=torch.float64)).T.float()  # Ux = x
    with torch.no_grad():
        f.weight.mul_(scale)
        gap = (f(x) - x).norm(dim=1) / x.norm(dim=1)
        alone = AuxiliaryReflection(2, dtype=torch.float32)
        alone.weight.copy_(torch.diag(torch.tensor([1e6, 0.1])))
        y = alone(torch.tensor([0.0, 1.0]))
    assert gap.max() < 8 * 4**0.5 * 2**-23 + 2**-22  # what the docstring says, and the rounding of a difference
    assert abs(float(y.norm()) - 1.0) < 8 * 2**0.5 * 2**-23


def test_a_large_weight_that_leaves_the_range_has_the_same_noise():
    torch.manual_seed(0)
    f = AuxiliaryReflection(3, dtype=torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        f.weight.mul_(1e140)
        assert torch.allclose(f(f.inverse(x)), x, rtol=1e-12, atol=1e-12)
