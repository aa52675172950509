"""InvertibleReflection: W stays in its set at every weight; inverse and log-determinant against dense algebra and autograd."""

import copy
import math
import pickle

import pytest
import torch
from torch.func import functional_call, jacrev, vmap

from mon_lib.reflections import InvertibleReflection, _layout, householder

F64 = torch.float64
METHODS = ("forward", "forward_and_ladj", "inverse", "inverse_and_ladj")
AXES = [((3, 5), -1), ((5,), -1), ((2, 1, 5), -1), ((2, 5, 2, 1), 1), ((5, 3), 0), ((5,), 0), ((2, 5, 2), -2)]


def randn(*shape, dtype=F64, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def module(d=5, kappa=1.9, dim=-1, dtype=F64, size=3.0, seed=0):
    """A reflection with condition number near kappa: a random weight of some size."""
    g = InvertibleReflection(d, kappa, dim, dtype=dtype)
    with torch.no_grad():
        g.weight.copy_(size * randn(d, d, seed=seed))
    return g


def with_spectrum(eigenvalues, kappa, dtype=F64, seed=0):
    Q = torch.linalg.qr(randn(len(eigenvalues), len(eigenvalues), seed=seed))[0]
    W = (Q * torch.tensor(eigenvalues, dtype=F64)) @ Q.T
    return InvertibleReflection.from_matrix(((W + W.T) / 2).to(dtype), kappa)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-3, 1.0, 1e3, 1e12, 1e300])
@pytest.mark.parametrize("kappa", [1.0001, 1.5, 1.9, 1.999999])
def test_the_condition_number_is_bounded_at_every_weight(kappa, size):
    for d in (1, 2, 7):
        g = module(d, kappa, size=size)
        W = g.to_dense().detach()
        assert torch.equal(W.isfinite(), torch.ones_like(W, dtype=torch.bool))
        values = torch.linalg.eigvalsh(W)
        assert float(values[0]) >= 1 - 1e-14 and float(values[-1]) <= kappa + 1e-14
        assert 1 <= g.condition() <= kappa
        assert g.condition() == pytest.approx(float(values[-1] / values[0]), rel=1e-13)
        assert float((W - W.T).abs().max()) < 1e-15
        assert size or g.condition() == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_w_is_reached_up_to_its_scale(sign):
    g = with_spectrum([sign * 3.0, sign * 3.3, sign * 3.3, sign * 5.6], 1.9)
    x = randn(20, 4)
    Q = torch.linalg.qr(randn(4, 4))[0]
    W = (Q * torch.tensor([3.0, 3.3, 3.3, 5.6], dtype=F64)) @ Q.T
    torch.testing.assert_close(g(x), householder(x @ W, x), rtol=1e-12, atol=1e-13)
    assert g.condition() == pytest.approx(5.6 / 3.0, rel=1e-13)
    torch.testing.assert_close(g.to_dense() / g.to_dense().trace(), W / W.trace(), rtol=1e-12, atol=1e-14)


@pytest.mark.claim("NEW-SEC")
@pytest.mark.parametrize("d", [1, 2, 3, 17, 48])
@pytest.mark.parametrize("kappa", [1.1, 1.9, 1.99, 1.999999])
def test_inverse_in_float64(kappa, d):
    for size in (0.0, 0.3, 1e3):
        g = module(d, kappa, size=size, seed=d)
        x = randn(500, d, seed=1)
        y = g(x)
        back = g.inverse(y)
        error = ((back - x).norm(dim=1) / x.norm(dim=1)).max()
        assert error < (1e-12 if kappa <= 1.99 else 1e-8)  # 1/m = kappa/(2 - kappa) times rounding
        assert ((g(back) - y).norm(dim=1) / y.norm(dim=1)).max() < 1e-13


@pytest.mark.claim("NEW-SEC")
@pytest.mark.parametrize("d", [3, 12, 48, 192])
def test_inverse_in_float32(d):
    worst = 0.0
    for size in (0.3, 3.0, 1e4):
        g = module(d, 1.9, dtype=torch.float32, size=size, seed=d)
        x = randn(2000, d, dtype=torch.float32, seed=1)
        worst = max(worst, float(((g.inverse(g(x)) - x).detach().norm(dim=1) / x.norm(dim=1)).max()))
    assert worst < 1e-4


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_scale_of_x_does_not_matter(scale):
    g, x = module(), randn(9, 5)
    torch.testing.assert_close(g(scale * x), scale * g(x), rtol=1e-13, atol=0)
    torch.testing.assert_close(g.inverse(scale * x), scale * g.inverse(x), rtol=1e-12, atol=0)
    torch.testing.assert_close(g.forward_and_ladj(scale * x)[1], g.forward_and_ladj(x)[1], rtol=1e-12, atol=1e-13)


def test_zero_goes_to_zero_with_finite_gradients():
    g = module()
    x = randn(4, 5)
    x[1] = 0
    x.requires_grad_()
    for method in METHODS:
        g.weight.grad = x.grad = None
        found = getattr(g, method)(x)
        y, ladj = found if isinstance(found, tuple) else (found, torch.zeros(4))
        assert bool((y[1] == 0).all()) and ladj[1] == 0
        (y.sum() + ladj.sum()).backward()
        assert bool(x.grad.isfinite().all() and g.weight.grad.isfinite().all())


@pytest.mark.claim("NEW-LADJ")
@pytest.mark.parametrize(("shape", "dim"), AXES, ids=str)
def test_log_determinant_is_that_of_the_jacobian(shape, dim):
    g, x = module(kappa=1.999, dim=dim), randn(*shape)
    y, ladj = g.forward_and_ladj(x)
    torch.testing.assert_close(y, g(x), rtol=1e-13, atol=1e-14)  # in the eigenbasis, which the determinant needs, and outside
    rows = x.movedim(dim, -1).reshape(-1, 5)
    line = module(kappa=1.999)
    exact = torch.linalg.slogdet(vmap(jacrev(line))(rows)).logabsdet
    torch.testing.assert_close(ladj.reshape(-1), exact, rtol=1e-11, atol=1e-11)
    back, other = g.inverse_and_ladj(y)
    torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(other, -ladj, rtol=1e-9, atol=1e-9)


def test_both_ways_to_f_have_the_same_gradients_also_at_zero():
    g, x, v = module(), randn(4, 5), randn(4, 5, seed=7)
    x[1] = 0
    x.requires_grad_()
    alone, beside = (torch.autograd.grad(y, [x, g.weight], v) for y in (g(x), g.forward_and_ladj(x)[0]))
    torch.testing.assert_close(beside, alone, rtol=1e-12, atol=1e-13)
    assert float(alone[0][1].abs().max()) > 0.1


@pytest.mark.claim("NEW-LADJ")
def test_log_determinant_next_to_two():
    """det J is 2/kappa - 1 in the flattest direction; the sums have no cancellation, so it keeps its digits."""
    g = with_spectrum([1.0, 1.4, 2 - 1e-9], 2 - 1e-10)
    values, Q = torch.linalg.eigh(g.to_dense().detach())
    kappa = g.condition()
    # At the top eigenvector c = 1/lambda_max, and J is I - 2W/lambda_max on the other eigenvectors, -1 on this one.
    ladj = g.forward_and_ladj(Q[:, -1])[1].detach()
    exact = (2 * values[:-1] / values[-1] - 1).log().sum()
    assert float(ladj) == pytest.approx(float(exact), rel=1e-6) and math.log(2 / kappa - 1) < -20


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("shape", "dim"), AXES, ids=str)
def test_gradients_against_finite_differences(shape, dim, method):
    g = module(dim=dim, size=0.7)
    weights = {
        "random": g.weight.detach().clone(),
        "identity": torch.zeros(5, 5, dtype=F64),
        "repeated": torch.zeros(5, 5, dtype=F64),
    }
    weights["repeated"][0, 0] = 2.0
    for weight in weights.values() if shape == (3, 5) else [weights["random"]]:

        def call(x, w):
            holder = copy.deepcopy(g)
            del holder._parameters["weight"]
            holder.weight = w
            return getattr(holder, method)(x)

        assert torch.autograd.gradcheck(call, (randn(*shape).requires_grad_(), weight.requires_grad_()))


def test_second_derivatives_in_x():
    g, x = module(), randn(3, 5).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: g(x), (x,))
    plain = torch.autograd.functional.hessian(lambda x: householder(x @ g.to_dense().detach(), x).pow(3).sum(), x)
    torch.testing.assert_close(torch.autograd.functional.hessian(lambda x: g(x).pow(3).sum(), x), plain)
    torch.testing.assert_close(jacrev(jacrev(lambda x: g(x).pow(3).sum()))(x.detach()), plain)
    # A penalty on the gradient in x trains the weight: that is a first derivative of W.
    v = randn(3, 5, seed=2)

    def slope(w):
        return torch.autograd.grad(functional_call(g, {"weight": w}, (x,)), x, v, create_graph=True)[0]

    assert torch.autograd.gradcheck(slope, (g.weight.detach().clone().requires_grad_(),))


def second_derivatives(call, at):
    """The ways to ask for the second derivative of a scalar: each prunes a graph in its own way."""

    def first(at):
        return torch.autograd.grad(call(at), at, create_graph=True)[0]

    at = at.detach().requires_grad_()
    return {
        "backward": lambda: first(at).sum().backward(),
        "grad": lambda: torch.autograd.grad(first(at).sum(), at),
        "grad, unused allowed": lambda: torch.autograd.grad(first(at).sum(), at, allow_unused=True, materialize_grads=True),
        "hessian": lambda: torch.autograd.functional.hessian(call, at),
        "vectorised hessian": lambda: torch.autograd.functional.hessian(call, at, vectorize=True),
        "jacrev": lambda: jacrev(jacrev(call))(at.detach()),
        "grad of grad": lambda: torch.func.grad(lambda w: torch.func.grad(call)(w).sum())(at.detach()),
    }


WAYS = tuple(second_derivatives(None, torch.zeros(())))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", (*METHODS, "to_dense"))
def test_second_derivatives_that_are_not_implemented_are_refused(method, way):
    """A zero in place of a second derivative is a wrong number that nobody sees."""
    g, x = module(), randn(3, 5)

    def value(found):
        found = found if isinstance(found, tuple) else (found,)
        return sum(part.pow(3).sum() for part in found)

    class Method(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.g = g

        def forward(self, *args):
            return value(getattr(self.g, method)(*args))

    calls = {"weight": lambda w: functional_call(Method(), {"g.weight": w}, () if method == "to_dense" else (x,))}
    if method not in ("forward", "to_dense"):
        calls["x"] = lambda x: value(getattr(g, method)(x))
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=r"second derivatives through InvertibleReflection .* drop create_graph=True"):
            second_derivatives(call, g.weight if name == "weight" else x)[way]()


@pytest.mark.parametrize("method", ["forward_and_ladj", "inverse", "inverse_and_ladj"])
def test_mixed_second_derivatives_are_refused_too(method):
    g, x = module(), randn(3, 5).requires_grad_()
    for a, b in ((x, g.weight), (g.weight, x)):
        found = getattr(g, method)(x)
        found = found[1] if isinstance(found, tuple) else found
        (first,) = torch.autograd.grad(found.pow(2).sum(), a, create_graph=True)
        with pytest.raises(NotImplementedError, match="not implemented"):
            torch.autograd.grad(first.sum(), b)


def test_it_trains_from_the_identity_to_a_given_map():
    """W = I is a point like any other: all eigenvalues coincide there, and the derivative of eigh does not exist."""
    torch.manual_seed(0)
    aim, g = with_spectrum([1.0, 1.3, 1.7], 1.9, seed=3), InvertibleReflection(3, 1.9, dtype=F64)
    torch.nn.init.zeros_(g.weight)
    x = randn(200, 3)
    target = aim(x).detach()
    optimiser = torch.optim.Adam(g.parameters(), lr=0.05)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        loss = (g(x) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 1e-4 * losses[0]
    assert torch.linalg.cond(g.to_dense()) < 1.9


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
def test_images(layout):
    g, line = module(dim=1), module()
    x = randn(3, 5, 4, 6).to(memory_format=layout)
    rows = x.permute(0, 2, 3, 1)
    for method in METHODS:
        found, expected = getattr(g, method)(x), getattr(line, method)(rows)
        if isinstance(found, tuple):
            torch.testing.assert_close(found[1], expected[1], rtol=1e-10, atol=1e-12)
            found, expected = found[0], expected[0]
        torch.testing.assert_close(found, expected.permute(0, 3, 1, 2), rtol=1e-10, atol=1e-12)
        assert found.is_contiguous(memory_format=layout), "the layout of the images is kept"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_formats_are_computed_in_float32(dtype):
    g, x = module(dtype=torch.float32), randn(8, 5, dtype=dtype)
    half = copy.deepcopy(g).to(dtype)
    for method in METHODS:
        found = getattr(half, method)(x)
        found = found if isinstance(found, tuple) else (found,)
        wide = copy.deepcopy(half).float()
        expected = getattr(wide, method)(x.float())
        expected = expected if isinstance(expected, tuple) else (expected,)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == dtype
            assert torch.equal(a, b.to(dtype))


def test_autocast_changes_nothing():
    g, x = module(dtype=torch.float32), randn(8, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = [g(x), *g.forward_and_ladj(x), g.inverse(x), *g.inverse_and_ladj(x), g.to_dense()]
    expected = [g(x), *g.forward_and_ladj(x), g.inverse(x), *g.inverse_and_ladj(x), g.to_dense()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_prepared_is_the_same_map_with_gradients():
    g, x = module(), randn(6, 5)
    p = g.prepared()
    torch.testing.assert_close(p(x), g(x), rtol=0, atol=0)
    torch.testing.assert_close(p.inverse(p(x)), x, rtol=1e-12, atol=1e-13)
    p(p(x)).square()[:, 0].sum().backward()
    once = g.weight.grad.clone()
    g.weight.grad = None
    g(g(x)).square()[:, 0].sum().backward()
    torch.testing.assert_close(g.weight.grad, once, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        g.weight.add_(1.0)
    assert float((g(x) - p(x)).abs().max().detach()) > 1e-3  # the module follows its weight, the prepared map does not


@pytest.mark.parametrize(("shape", "dim"), [((6, 5), -1), ((2, 5, 3, 2), 1)], ids=["rows", "images"])
def test_a_rotation_that_comes_first_is_part_of_the_map(shape, dim):
    g, x, R = module(dim=dim), randn(*shape).requires_grad_(), torch.linalg.qr(randn(5, 5, seed=9))[0]
    p, turned = g.prepared(R), (x.movedim(dim, -1) @ R.mT).movedim(-1, dim)
    y, v = g(turned), randn(*shape, seed=3)
    for found, expected in (
        (p(x), y),
        (p.forward_and_ladj(x)[0], y),
        (p.forward_and_ladj(x)[1], g.forward_and_ladj(turned)[1]),
        (p.inverse(y.detach()), x),
        (p.inverse_and_ladj(y.detach())[1], -g.forward_and_ladj(turned)[1]),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    ours, theirs = (torch.autograd.grad(f, [x, g.weight], v) for f in (p.forward_and_ladj(x)[0], g(turned)))
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_derivatives_of_the_log_determinant_by_torch_func():
    g, x = module(), randn(3, 5)
    for part in (0, 1):
        by_func = vmap(jacrev(lambda row, part=part: g.forward_and_ladj(row)[part]))(x)
        for row, J in zip(x, by_func, strict=True):
            expected = torch.autograd.functional.jacobian(lambda row, part=part: g.forward_and_ladj(row)[part], row)
            torch.testing.assert_close(J, expected, rtol=1e-12, atol=1e-13)


def test_copies_pickles_and_states():
    g, x = module(), randn(6, 5)
    other = InvertibleReflection(5, 1.9, dtype=F64)
    other.load_state_dict(g.state_dict())
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), other):
        assert torch.equal(twin(x), g(x))
    assert set(g.state_dict()) == {"weight", "_extra_state"}
    assert repr(module(dim=1)) == "InvertibleReflection(d=5, kappa=1.9, dim=1)"


def test_a_state_dict_of_another_kappa_is_refused_before_anything_is_loaded(tmp_path):
    g, other = module(), module(kappa=1.5, seed=1)
    torch.save(torch.nn.Sequential(g).state_dict(), tmp_path / "state.pt")
    state, before = torch.load(tmp_path / "state.pt", weights_only=True), other.weight.detach().clone()
    for strict in (True, False):
        with pytest.raises(ValueError, match=r"of kappa = 1\.9, the module has kappa = 1\.5.*Reflection\(5, kappa=1\.9\)"):
            torch.nn.Sequential(other).load_state_dict(state, strict=strict)
    assert torch.equal(other.weight, before)
    twin = module(seed=2)
    torch.nn.Sequential(twin).load_state_dict({name: value.float() for name, value in state.items()} | {"0.weight": g.weight})
    assert torch.equal(twin.weight, g.weight)


def test_a_state_dict_without_kappa_loads():
    g, other = module(), module(seed=1)
    assert not any(other.load_state_dict({"weight": g.weight}))
    assert torch.equal(other.weight, g.weight)
    with pytest.raises(RuntimeError, match=r"Missing key.*weight"):
        other.load_state_dict({})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["copy", "pickle"])
def test_a_prepared_map_that_was_used_can_be_copied(copied):
    g, x = module(), randn(6, 5)
    p = g.prepared(torch.linalg.qr(randn(5, 5, seed=9))[0])
    y = p(x)
    twin = copied(p)
    assert torch.equal(twin(x), y) and torch.equal(twin.inverse(y), p.inverse(y))


def test_jacobians_by_torch_func():
    g, x = module(), randn(5)
    J = jacrev(g)(x)
    columns = torch.autograd.functional.jacobian(g, x)
    torch.testing.assert_close(J, columns)
    per_weight = jacrev(lambda w: functional_call(g, {"weight": w}, (x,)))(g.weight.detach())
    assert per_weight.shape == (5, 5, 5)
    torch.testing.assert_close(per_weight, per_weight.mT)  # only the symmetric part of the weight matters


def test_nan_passes_forward_and_is_refused_backward():
    g, x = module(), randn(3, 5)
    x[1, 2] = math.nan
    y, ladj = g.forward_and_ladj(x)
    assert bool(y[1].isnan().all() and ladj[1].isnan()) and bool(y[[0, 2]].isfinite().all() and ladj[[0, 2]].isfinite().all())
    for method in (g.inverse, g.inverse_and_ladj):
        with pytest.raises(ValueError, match="1 NaN or infinite"):
            method(x)
    with torch.no_grad():
        g.weight[0, 0] = math.nan
    with pytest.raises(ValueError, match="weight has 1 NaN"):
        g(randn(3, 5))


def test_what_is_refused():
    for kappa in (1.0, 2.0, 0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="pass 1 < kappa < 2"):
            InvertibleReflection(3, kappa)
    for kappa in ("1.5", True, None, torch.tensor(1.5), 1.5 + 0j):
        for make in (InvertibleReflection, lambda _, kappa: InvertibleReflection.from_matrix(torch.eye(3), kappa)):
            with pytest.raises(TypeError, match=r"kappa = .* pass 1 < kappa < 2"):
                make(3, kappa)
    for dtype in (torch.complex64, torch.int64, "float32"):
        with pytest.raises(TypeError, match=r"reflections are real, pass torch\.float32"):
            InvertibleReflection(3, dtype=dtype)
    with pytest.raises(ValueError, match="d = 0"):
        InvertibleReflection(0)
    with pytest.raises(TypeError, match=r"d = 2\.5"):
        InvertibleReflection(2.5)
    with pytest.raises(TypeError, match="dim = 'channels'"):
        InvertibleReflection(3, dim="channels")
    g = module()
    for R, error, match in (
        (torch.eye(4, dtype=F64), ValueError, r"rotation has shape \(4, 4\); pass an orthogonal matrix, \(5, 5\)"),
        (torch.ones(5, dtype=F64), ValueError, r"rotation has shape \(5,\)"),
        (torch.ones(2, 5, 5, dtype=F64), ValueError, r"rotation has shape \(2, 5, 5\)"),
        (torch.eye(5, dtype=torch.int64), TypeError, "rotation is torch.int64"),
        ([[1.0]], TypeError, "rotation is list"),
    ):
        with pytest.raises(error, match=match):
            g.prepared(R)
    with pytest.raises(TypeError, match=r"the parameters are torch\.complex128; reflections are real"), pytest.warns(UserWarning):
        copy.deepcopy(g).to(torch.complex128)(randn(2, 5))
    for method in METHODS:
        with pytest.raises(ValueError, match="vectors of 4"):
            getattr(g, method)(randn(2, 4))
        with pytest.raises(TypeError, match="float32"):
            getattr(g, method)(randn(2, 5, dtype=torch.float32))
        with pytest.raises(TypeError, match="int64"):
            getattr(g, method)(torch.ones(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="without an axis 1"):
        module(dim=1)(randn(5))


def test_what_from_matrix_refuses():
    eye = torch.eye(3, dtype=F64)
    skew = eye.clone()
    skew[0, 1] = 0.1
    for W, match in (
        (skew, "not symmetric"),
        (eye[:2], r"shape \(2, 3\)"),
        (torch.diag(torch.tensor([1.0, 1.95])), r"ratio below kappa = 1\.9"),
        (torch.diag(torch.tensor([1.0, -1.0])), "one sign"),
        (0 * eye, "one sign"),
        (eye * math.nan, "NaN"),
    ):
        with pytest.raises(ValueError, match=match):
            InvertibleReflection.from_matrix(W)


LAYOUTS = [
    ((50, 4), -1, None),
    ((4, 50), 0, None),
    ((30, 4, 1, 1), 1, None),
    ((2, 4, 7, 5), 1, None),
    ((2, 4, 7, 5), 1, torch.channels_last),
    ((3, 2, 4, 9), 2, None),
    ((5, 6, 4), -1, None),
    ((4,), 0, None),
    ((0, 4), -1, None),
]


@pytest.mark.parametrize(("shape", "dim", "layout"), LAYOUTS)
def test_blocks_of_any_size_give_the_same(shape, dim, layout, monkeypatch):
    """On a processor large inputs are cut, along whichever axis is long enough."""
    torch.manual_seed(0)
    g = InvertibleReflection(4, 1.9, dim=dim, dtype=torch.float64)
    x = torch.randn(shape, dtype=torch.float64)
    x = (x if layout is None else x.to(memory_format=layout)).requires_grad_()

    def everything():
        y, ladj = g.forward_and_ladj(x)
        gradients = torch.autograd.grad((y.pow(3).sum() + ladj.sin().sum(), g.inverse(x).pow(3).sum()), [x, g.weight])
        return y, ladj, g.inverse(x), *gradients

    whole = everything()
    for entries in (1, 17, 64):
        monkeypatch.setattr(_layout, "BLOCK", entries)
        for found, expected in zip(everything(), whole, strict=True):
            assert found.is_contiguous() == expected.is_contiguous()
            assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_scale_of_a_matrix_may_be_any():
    W = torch.diag(torch.tensor([1.0, 1.5], dtype=torch.float64))
    x = torch.randn(5, 2, dtype=torch.float64)
    expected = InvertibleReflection.from_matrix(W)(x)
    for scale in (1e200, 1e-200, -1e300):
        assert torch.allclose(InvertibleReflection.from_matrix(W * scale)(x), expected, rtol=1e-14, atol=1e-14)


def test_a_matrix_at_the_bound_of_a_short_format_is_refused_or_kept():
    torch.manual_seed(0)
    Q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    W = (Q * torch.tensor([1.0, 1.2, 1.45, 1.9], dtype=torch.float64)) @ Q.T
    W = (0.5 * (W + W.T)).float()
    condition = torch.linalg.cond(W.double()).item()
    x = torch.randn(50, 4)
    exact = x.double() @ W.double()
    exact = x.double() - 2 * exact * (x * exact).sum(1, keepdim=True) / exact.square().sum(1, keepdim=True)
    refused = []
    for excess in (1e-2, 1e-4, 1e-8, 1e-10, 1e-13):
        try:
            f = InvertibleReflection.from_matrix(W, condition * (1 + excess))
        except ValueError as error:
            assert "pass a larger kappa, or W in float64" in str(error)
            refused.append(excess)
            continue
        gap = ((f(x) - exact).norm(dim=1) / exact.norm(dim=1)).max()
        assert gap < 1e-3
        assert f.condition() <= f.kappa
    assert 1e-13 in refused and 1e-4 not in refused


def test_a_matrix_in_a_short_format_is_kept_to_its_rounding():
    W = torch.diag(torch.tensor([1.0, 1.25, 1.5])).bfloat16()
    f = InvertibleReflection.from_matrix(W)
    x = torch.randn(20, 3)
    exact = InvertibleReflection.from_matrix(W.double())(x.double())
    assert f.weight.dtype == torch.bfloat16
    assert (f(x) - exact).abs().max() < 16 * 2**-8 * x.norm(dim=1).max()


def test_the_eigenvalues_of_a_refused_matrix_are_its_own():
    with pytest.raises(ValueError, match="run from 100 to 300"):
        InvertibleReflection.from_matrix(torch.diag(torch.tensor([100.0, 300.0])))
