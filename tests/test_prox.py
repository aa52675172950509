"""Every activation is the prox of its f: one conformance suite over one list, and the errors for what is not one."""

from __future__ import annotations

import copy
import math
import pickle
import re
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mon_lib import prox
from mon_lib.errors import ConvergenceError, NotProximalError
from mon_lib.prox import _implicit


def ramp(x):
    return F.relu6(x + 3) / 6


# A new activation is one line: the object, and sigma written with a namespace m that is numpy or mpmath.
CASES = [
    (prox.ReLU(), lambda t, m: m.maximum(t, 0)),
    (prox.LeakyReLU(), lambda t, m: m.where(t > 0, t, t / 100)),
    (prox.LeakyReLU(0.5), lambda t, m: m.where(t > 0, t, t / 2)),
    (prox.Clip(), lambda t, m: m.minimum(m.maximum(t, 0), 1)),
    (prox.Clip(-1.0, 6.0), lambda t, m: m.minimum(m.maximum(t, -1), 6)),
    (prox.SoftThreshold(), lambda t, m: m.maximum(t - 1, 0) - m.maximum(-t - 1, 0)),
    (prox.SoftThreshold(0.5), lambda t, m: m.maximum(t - 0.5, 0) - m.maximum(-t - 0.5, 0)),
    (prox.Tanh(), lambda t, m: m.tanh(t)),
    (prox.Sigmoid(), lambda t, m: m.where(t > 0, 1, m.exp(m.minimum(t, 0))) / (1 + m.exp(-m.abs(t)))),
    (prox.Softplus(), lambda t, m: m.maximum(t, 0) + m.log1p(m.exp(-m.abs(t)))),
    (prox.ELU(), lambda t, m: m.where(t > 0, t, m.expm1(m.minimum(t, 0)))),
    (prox.ELU(0.5), lambda t, m: m.where(t > 0, t, m.expm1(m.minimum(t, 0)) / 2)),
    (prox.Softsign(), lambda t, m: t / (1 + m.abs(t))),
    (prox.Arctan(), lambda t, m: m.arctan(t)),
    (prox.from_callable(ramp), lambda t, m: m.minimum(m.maximum(t + 3, 0), 6) / 6),
    (prox.from_callable(F.tanhshrink), lambda t, m: t - m.tanh(t)),
    (prox.Masked(prox.Clip(-1.0, 0.5), torch.tensor(True)), lambda t, m: m.minimum(m.maximum(t, -1), 0.5)),
    (prox.Masked(prox.Tanh(), torch.tensor(True)), lambda t, m: m.tanh(t)),
]
MP = SimpleNamespace(
    maximum=max, minimum=min, abs=abs, where=lambda c, a, b: a if c else b,
    tanh=mpmath.tanh, exp=mpmath.exp, expm1=mpmath.expm1, log1p=mpmath.log1p, arctan=mpmath.atan,
)  # fmt: skip
EXACT = [case for case in CASES if getattr(case[0], "exact", True)]  # of a callable, t - sigma(t) is not known well
every = pytest.mark.parametrize(("s", "sigma"), CASES, ids=[repr(s) for s, _ in CASES])
SMOOTH = (prox.Tanh, prox.Sigmoid, prox.Softplus, prox.Softsign, prox.Arctan)
ALPHAS = (0.05, 0.5, 1.0, 2.0, 20.0)
KINKS = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0], dtype=torch.float64)


class Reference:
    """f and prox_{alpha f} from sigma alone, in numpy: quadrature for f, then search of the minimum.

    Along the graph z = sigma(t), f(z) = t z - z^2/2 - integral of sigma from 0 to t. The panels of the quadrature are
    a quarter wide, so kinks at multiples of a quarter cost nothing.
    """

    def __init__(self, sigma):
        self.sigma = lambda t: sigma(t, np) + 0.0 * t
        self.nodes, self.weights = np.polynomial.legendre.leggauss(10)
        self.start = -256.0
        knots = self.start + 0.25 * np.arange(2049)
        panels = self._panel(knots[:-1], knots[1:])
        self.table = np.concatenate([[0.0], np.cumsum(panels)])
        self.table -= self.table[1024]

    def _panel(self, low, high):
        half = 0.5 * (high - low)
        points = half[..., None] * self.nodes + 0.5 * (high + low)[..., None]
        return half * (self.sigma(points) @ self.weights)

    def area(self, t):
        k = np.clip(np.floor((t - self.start) / 0.25).astype(int), 0, 2047)
        return self.table[k] + self._panel(self.start + 0.25 * k, t)

    def f(self, t):
        z = self.sigma(t)
        return t * z - 0.5 * z * z - self.area(t)

    def prox(self, x, alpha):
        """Zoom in on the minimum over t; where sigma is flat, on both ends of the stretch of minima."""
        windows = {(-255.0, 255.0)}
        for _ in range(7):
            found = []
            for low, high in windows:
                t = np.linspace(low, high, 341)
                value = 0.5 * (x - self.sigma(t)) ** 2 + alpha * self.f(t)
                ties = np.flatnonzero(value <= value.min() + 1e-13 * (1 + abs(x)))
                for k in (ties[0], ties[-1]):
                    found.append((value[k], (t[max(k - 2, 0)], t[min(k + 2, 340)]), self.sigma(t[k])))
            best = min(found)
            windows = {window for value, window, _ in found if value <= best[0] + 1e-12}
        return best[2]


def exact(sigma, u, alpha):
    """prox_{alpha f}(u) with fifty digits, by bisection."""
    with mpmath.workdps(50):
        u, alpha = mpmath.mpf(u), mpmath.mpf(alpha)

        def excess(t):
            z = sigma(t, MP)
            return z + alpha * (t - z) - u

        reach = 2 * abs(excess(u)) * max(1, 1 / alpha)
        low, high = u - reach, u + reach
        while high - low > mpmath.mpf(10) ** -45 * (abs(low) + mpmath.mpf(10) ** -30):
            middle = (low + high) / 2
            low, high = (low, middle) if excess(middle) > 0 else (middle, high)
        return sigma(high, MP) + 0 * u


def points(n=60, spread=4.0, seed=0):
    """Random points at least 0.02 from any kink of a listed activation."""
    x = spread * torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    near = (x[:, None] - KINKS).abs().amin(1) < 0.02
    return torch.where(near, x + 0.06, x)


# ------------------------------------------------------------------------------------------------ conformance


@every
def test_sigma_is_the_function_of_its_name(s, sigma):
    x = points(200)
    assert np.allclose(s(x).numpy(), sigma(x.numpy(), np), rtol=1e-13, atol=1e-13)


@pytest.mark.claim("NEW-PROX")
@every
def test_prox_minimises_the_definition(s, sigma):
    reference = Reference(sigma)
    x = torch.tensor([-3.1, -1.2, -0.3, 0.0, 0.2, 0.7, 1.4, 4.3], dtype=torch.float64)
    for alpha in ALPHAS:
        expected = [reference.prox(v, alpha) for v in x.tolist()]
        assert np.allclose(s.prox(x, alpha).numpy(), expected, rtol=0, atol=3e-6), alpha


@pytest.mark.claim("NEW-PROX")
@every
def test_moreau_identity(s, sigma):
    """prox_{alpha f}(x) + alpha prox_{f*/alpha}(x/alpha) = x, with the second prox found by minimisation."""
    conjugate = Reference(lambda t, m: t - sigma(t, m))
    x = torch.tensor([-2.2, -0.4, 0.3, 1.7], dtype=torch.float64)
    for alpha in (0.5, 1.0, 3.0):
        second = torch.tensor([conjugate.prox(v / alpha, 1 / alpha) for v in x.tolist()], dtype=torch.float64)
        assert torch.allclose(s.prox(x, alpha) + alpha * second, x, rtol=0, atol=1e-5)


@every
def test_potential_is_f(s, sigma):
    reference = Reference(sigma)
    t = torch.linspace(-6, 6, 49, dtype=torch.float64)
    z = torch.from_numpy(reference.sigma(t.numpy()))
    try:
        f = s.potential(z)
    except NotImplementedError:
        assert repr(s).startswith("from_callable")
        return
    expected = torch.from_numpy(reference.f(t.numpy()))
    assert torch.allclose(f - f[24], expected - expected[24], atol=1e-9)
    outside = torch.tensor([-30.0, -2.0, 2.0, 30.0], dtype=torch.float64)
    reached = torch.from_numpy(reference.sigma(np.array([-1e9, 1e9])))
    beyond = (outside < reached[0] - 0.1) | (outside > reached[1] + 0.1)
    assert torch.equal(s.potential(outside).isinf(), beyond)


@every
def test_firmly_nonexpansive(s, sigma):
    x, y = points(400, 5.0, 1), points(400, 5.0, 2)
    for alpha in (1e-4, *ALPHAS, 1e4):
        d = s.prox(x, alpha) - s.prox(y, alpha)
        assert ((x - y) * d - d * d >= -1e-13 * (x - y).abs()).all()


@every
def test_alpha_one_is_sigma_exactly(s, sigma):
    x = points(100)
    assert torch.equal(s.prox(x, 1.0), s(x))
    assert torch.equal(s.prox(x, 1), s(x))
    assert torch.equal(s.prox_derivative(x, 1.0), s.derivative(x))


@every
def test_derivative_agrees_with_autograd_and_differences(s, sigma):
    x = torch.cat([points(100), KINKS, -KINKS]).requires_grad_()
    (slope,) = torch.autograd.grad(s(x).sum(), x)
    assert torch.allclose(s.derivative(x), slope, rtol=1e-10, atol=1e-14)
    assert ((s.derivative(x) >= 0) & (s.derivative(x) <= 1 + 1e-15)).all()
    y = points(100)
    difference = (sigma((y + 1e-6).numpy(), np) - sigma((y - 1e-6).numpy(), np)) / 2e-6
    assert np.allclose(s.derivative(y).numpy(), difference, atol=1e-8)


@pytest.mark.claim("NEW-PROX")
@every
def test_prox_derivative_is_one_over_one_plus_alpha_d(s, sigma):
    """With t the preimage of u and sigma'(t) = 1/(1 + D), the slope of prox_{alpha f} at u is 1/(1 + alpha D)."""
    t = points(100)
    z, slope = s(t), s.derivative(t)
    for alpha in (0.2, 3.0):
        u = (z + alpha * (t - z)).requires_grad_()
        expected = torch.where(slope > 0, 1 / (1 + alpha * (1 / slope - 1)), 0.0)
        (found,) = torch.autograd.grad(s.prox(u, alpha).sum(), u)
        assert torch.allclose(s.prox(u, alpha), z, atol=1e-13)
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-13)
        assert torch.allclose(s.prox_derivative(u, alpha), expected, rtol=1e-9, atol=1e-13)


@every
def test_gradients_of_both_orders(s, sigma):
    t = points(8, 1.5, 3)
    for alpha in (0.3, 1.0, 2.5):
        with torch.no_grad():
            u = s(t) + alpha * (t - s(t))
        u.requires_grad_()
        assert torch.autograd.gradcheck(lambda v, a=alpha: s.prox(v, a), u)
        assert torch.autograd.gradgradcheck(lambda v, a=alpha: s.prox(v, a), u)
    t.requires_grad_()
    assert torch.autograd.gradcheck(s, t)
    if isinstance(s, SMOOTH):
        assert torch.autograd.gradcheck(s.derivative, t)
        assert torch.autograd.gradcheck(lambda v: s.prox_derivative(v, 0.3), t)


@pytest.mark.parametrize(("s", "sigma"), EXACT, ids=[repr(s) for s, _ in EXACT])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extreme_alphas_to_a_few_ulps(s, sigma, dtype):
    """The result lies between the exact prox of u(1 - 8 eps) and of u(1 + 8 eps), give or take 8 eps of itself."""
    eps, tiny = torch.finfo(dtype).eps, 4 * torch.finfo(dtype).tiny
    u = torch.tensor([-1e6, -30.0, -1.0, -0.3, -1e-3, 1e-8, 0.5, 0.999, 1.5707, 8.0, 1e6], dtype=dtype)
    for alpha in (1e-6, 1e-2, 10.0, 1e6):
        for v, z in zip(u.tolist(), s.prox(u, alpha).tolist(), strict=True):
            slack = 8 * eps * abs(z) + tiny
            wobble = 8 * eps * abs(v)
            low, high = float(exact(sigma, v - wobble, alpha)), float(exact(sigma, v + wobble, alpha))
            assert low - slack <= z <= high + slack, (alpha, v, z)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(s, sigma, dtype):
    x = points(50).to(dtype)
    for alpha in (0.25, 1.0, 5.0):
        for found, expected in (
            (s.prox(x, alpha), s.prox(x.double(), alpha)),
            (s.prox_derivative(x, alpha), s.prox_derivative(x.double(), alpha)),
        ):
            assert found.dtype == dtype
            assert torch.allclose(found.double(), expected, rtol=8 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    leaf = x.clone().requires_grad_()
    s.prox(leaf, 0.25).sum().backward()
    assert leaf.grad.dtype == dtype and leaf.grad.isfinite().all()


@every
def test_layout_and_empty(s, sigma):
    x = points(60).reshape(3, 4, 5)
    for alpha in (0.3, 2.0):
        whole = s.prox(x, alpha)
        assert whole.shape == x.shape
        turned = s.prox(x.transpose(0, 2), alpha)
        assert torch.allclose(turned, whole.transpose(0, 2), rtol=1e-14, atol=1e-15)
        assert torch.allclose(s.prox(x[:, ::2], alpha), whole[:, ::2], rtol=1e-14, atol=1e-15)
        assert torch.allclose(s.prox(x[1:2, 1:2, 1:2], alpha), whole[1:2, 1:2, 1:2], rtol=1e-14, atol=1e-15)
        assert torch.allclose(s.prox(x[:1, 0, 0].expand(7), alpha), whole[0, 0, 0], rtol=1e-14, atol=1e-15)
        assert s.prox(x[0, 0, 0], alpha).shape == ()
        assert s.prox(x[:0], alpha).shape == (0, 4, 5)
    assert s.derivative(x[:0]).shape == s(x[:0]).shape == (0, 4, 5)


@every
def test_not_a_number_stays_one_and_spoils_nothing_else(s, sigma):
    x = torch.tensor([0.3, math.nan, -1.2], dtype=torch.float64)
    out = s.prox(x, 0.4)
    assert out[1].isnan()
    assert torch.allclose(out[[0, 2]], s.prox(x[[0, 2]], 0.4), rtol=1e-14, atol=1e-15)


@every
def test_input_is_never_changed(s, sigma):
    x = points(20)
    kept = x.clone()
    s(x), s.prox(x, 0.3), s.prox(x, 3.0), s.derivative(x), s.prox_derivative(x, 2.0)
    assert torch.equal(x, kept)


@every
def test_values_not_state(s, sigma):
    for twin in (copy.deepcopy(s), copy.copy(s), pickle.loads(pickle.dumps(s))):
        assert twin == s and hash(twin) == hash(s)
        assert torch.equal(twin.prox(points(10), 0.3), s.prox(points(10), 0.3))
    if not repr(s).startswith(("from_callable", "Masked")):  # which hold more than fits a line
        assert eval(repr(s), vars(prox)) == s
    with pytest.raises(AttributeError):
        s.slope = 2.0
    assert len({repr(c) for c, _ in CASES}) == len({c for c, _ in CASES}) == len(CASES)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")  # raised inside torch.func itself
@every
def test_functional_transforms(s, sigma):
    x = points(6)
    slope = s.prox_derivative(x, 0.4)
    assert torch.allclose(torch.func.vmap(torch.func.grad(lambda v: s.prox(v, 0.4)))(x), slope, rtol=1e-9, atol=1e-13)
    if not repr(s).startswith("from_callable"):
        _, tangent = torch.func.jvp(lambda v: s.prox(v, 0.4), (x,), (torch.ones_like(x),))
        assert torch.allclose(tangent, slope, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_alpha_out_of_range_is_named(alpha):
    for s, _ in CASES:
        with pytest.raises(ValueError, match=f"alpha = {alpha}"):
            s.prox(torch.zeros(2), alpha)


def test_alpha_must_be_a_number_and_x_a_float_tensor():
    with pytest.raises(TypeError, match=r"float\(alpha\)"):
        prox.ReLU().prox(torch.zeros(2), torch.tensor(0.5))
    for call in (prox.ReLU(), prox.Tanh().derivative, lambda x: prox.Tanh().prox(x, 0.5)):
        with pytest.raises(TypeError, match="int64"):
            call(torch.arange(3))
        with pytest.raises(TypeError, match="list"):
            call([1.0])
    with pytest.raises(ValueError, match="out of the range of"):
        prox.Tanh().prox(torch.zeros(2), 1e-60)


DIAGONAL = prox.Diagonal(torch.tensor([0.0, 1.0]))
MASKED = prox.Masked(prox.ReLU(), torch.tensor([False, True]))


@pytest.mark.parametrize("s", [s for s, _ in CASES] + [DIAGONAL, MASKED, prox.Border(prox.ReLU(), 0)], ids=repr)
def test_alpha_must_fit_the_dtype(s):
    for dtype, wide, alphas in (
        (torch.float32, torch.float32, (1e-60, 1e-39, 1e39, 1e300)),
        (torch.bfloat16, torch.float32, (1e-60, 1e39)),
        (torch.float64, torch.float32 if s is DIAGONAL else torch.float64, (1e-310, 1e300)),
    ):
        x = torch.tensor([[[-2.0, 2.0]]], dtype=dtype)
        for alpha in alphas:
            for call in (s.prox, s.prox_derivative):
                with pytest.raises(ValueError, match=re.escape(f"alpha = {alpha} is out of the range of {wide}")):
                    call(x, alpha)
        for alpha in (1e-37, 1e31):  # inside the range nothing overflows
            assert s.prox(x, alpha).isfinite().all() and s.prox_derivative(x, alpha).isfinite().all()


def test_a_threshold_beyond_the_dtype_leaves_nothing():
    s, x = prox.SoftThreshold(1e20), torch.tensor([-3e38, 5.0])
    for big in (prox.SoftThreshold(1e300)(x), s.prox(x, 1e30), s.prox_derivative(x, 1e30), prox.SoftThreshold(1e300).derivative(x)):
        assert torch.equal(big, torch.zeros(2))


def test_a_diagonal_in_half_precision_is_computed_in_single():
    J = torch.tensor([0.0, 0.9], dtype=torch.float16)
    x = torch.tensor([1.5, -2.5], dtype=torch.float16)
    assert torch.equal(prox.Diagonal(J).prox(x, 1e-9), prox.Diagonal(J.float()).prox(x.float(), 1e-9).half())


def test_the_constant_of_the_potential():
    """f(0) = 0 where 0 is in the domain; an indicator is 0 on its domain, which may miss 0."""
    zero = torch.zeros(2, dtype=torch.float64)
    for s in [s for s, _ in CASES if not repr(s).startswith("from_callable")] + [DIAGONAL, MASKED]:
        assert torch.equal(s.potential(zero), zero), s
    assert prox.Clip(1.0, 2.0).potential(torch.tensor([0.0, 1.0, 1.5, 2.0])).tolist() == [math.inf, 0.0, 0.0, 0.0]
    assert "f(0) = 0 where 0 lies in the domain" in " ".join(prox.Activation.potential.__doc__.split())


def test_few_looks_at_the_device(monkeypatch):
    """Typical steps need one look at convergence, not one an iteration."""
    looks = []
    original = torch.Tensor.__bool__
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: looks.append(1) or original(self))
    for s in (prox.Tanh(), prox.Sigmoid(), prox.Softplus(), prox.ELU(), prox.Arctan()):
        looks.clear()
        s.prox(points(1000), 0.5)
        assert 1 <= len(looks) <= 2


def test_a_false_activation_is_reported_not_returned():
    """A slope of -1 makes the equation unsolvable by the bracket; the result must not be a silent number."""
    liar = prox.check.CallableActivation(lambda t: torch.floor(3 * t), "floor")
    with pytest.raises(ConvergenceError, match="slope must lie in"):
        liar.prox(torch.linspace(-1, 1, 11, dtype=torch.float64) + 0.01, 0.3)
    assert _implicit.MAX_STEPS > _implicit.PATIENCE


# ------------------------------------------------------------------------------------- Border, Masked and Diagonal


def test_border_is_the_prox_with_a_frame_of_zeros():
    s = prox.Border(prox.Tanh(), 2)
    x = points(2 * 3 * 7 * 6).reshape(2, 3, 7, 6)
    frame = torch.zeros(7, 6, dtype=torch.bool)
    frame[2:-2, 2:-2] = True
    for found, inside in (
        (s(x), torch.tanh(x)),
        (s.prox(x, 0.3), prox.Tanh().prox(x, 0.3)),
        (s.derivative(x), prox.Tanh().derivative(x)),
        (s.prox_derivative(x, 4.0), prox.Tanh().prox_derivative(x, 4.0)),
    ):
        assert torch.equal(found, torch.where(frame, inside, 0.0))
    z = s(x)
    assert torch.allclose(s.potential(z), torch.where(frame, prox.Tanh().potential(z), 0.0))
    z[0, 0, 0, 0] = 0.1
    assert s.potential(z)[0, 0, 0, 0] == math.inf
    assert torch.equal(prox.Border(prox.ReLU(), 0)(x), torch.relu(x))


def test_border_gradients_and_saved_tensors():
    s = prox.Border(prox.Sigmoid(), 1)
    x = points(16, 1.0).reshape(1, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: s.prox(v * v, 0.4), x)
    assert torch.autograd.gradgradcheck(lambda v: s.prox(v * v, 0.4), x)
    y = torch.exp(x)  # saves its output: an in-place border would spoil the backward pass
    s(y).sum().backward()
    assert torch.equal(x.grad[0, 0], torch.zeros(4, dtype=torch.float64)) and (x.grad[0, 1:3, 1:3] != 0).all()


@pytest.mark.parametrize("shape", [(1, 4, 9), (2, 9, 4), (1, 3, 3)])
def test_border_too_wide(shape):
    with pytest.raises(ValueError, match="border of width 2"):
        prox.Border(prox.ReLU(), 2)(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(9, 9), (9,), ()])
@pytest.mark.parametrize("width", [0, 1])
def test_border_refuses_what_is_no_picture(shape, width):
    """In a state (batch, n) the border would be whole samples."""
    s, x = prox.Border(prox.ReLU(), width), torch.ones(shape)
    for call in (s, s.derivative, s.potential, lambda x: s.prox(x, 0.5), lambda x: s.prox_derivative(x, 0.5)):
        with pytest.raises(ValueError, match=r"\(channels, height, width\).*shape " + re.escape(str(shape))):
            call(x)


def test_border_arguments():
    for width in (-1, 1.5, True):
        with pytest.raises(ValueError, match="width"):
            prox.Border(prox.ReLU(), width)
    with pytest.raises(TypeError, match="Activation"):
        prox.Border(torch.relu, 1)
    assert prox.Border(prox.ReLU(), 1) == prox.Border(prox.ReLU(), 1) != prox.Border(prox.ReLU(), 2)
    assert pickle.loads(pickle.dumps(prox.Border(prox.Tanh(), 1))) == prox.Border(prox.Tanh(), 1)


MASKABLE = [prox.ReLU(), prox.Clip(0.5, 2.0), prox.Tanh(), prox.LeakyReLU(0.3), prox.Softplus(), prox.from_callable(ramp)]


@pytest.mark.claim("MON-PAD")
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "no graph"])
@pytest.mark.parametrize("inside", MASKABLE, ids=repr)
def test_masked_is_the_prox_with_zeros_where_the_mask_is_false(inside, graph):
    mask = points(5, seed=4).reshape(1, 5) > torch.zeros(3, 1)
    mask = torch.stack([mask.flatten(), mask.flatten().roll(1)])  # (2, 15)
    s, x = prox.Masked(inside, mask), points(4 * 2 * 15).reshape(4, 2, 15)
    assert 0 < mask.sum() < mask.numel()
    with torch.set_grad_enabled(graph):
        for found, expected in (
            (s(x), inside(x)),
            (s.prox(x, 0.3), inside.prox(x, 0.3)),
            (s.prox(x, 4.0), inside.prox(x, 4.0)),
            (s.derivative(x), inside.derivative(x)),
            (s.prox_derivative(x, 4.0), inside.prox_derivative(x, 4.0)),
        ):
            assert torch.equal(found, torch.where(mask, expected, 0.0))
            assert torch.equal(found.masked_select(~mask), torch.zeros(4 * int((~mask).sum()), dtype=torch.float64))
        single = s.prox(x.float(), 0.3)  # another dtype has its own bounds
        assert single.dtype == torch.float32
        assert torch.allclose(single.double(), s.prox(x, 0.3), atol=1e-6)
    if not repr(inside).startswith("from_callable"):
        z = s(x)
        assert torch.allclose(s.potential(z), torch.where(mask, inside.potential(z), 0.0))
        outside = (~mask).nonzero()[0]
        z[0, outside[0], outside[1]] = 0.1
        assert s.potential(z)[0, outside[0], outside[1]] == math.inf


def test_masked_by_a_frame_is_border():
    frame = torch.zeros(7, 6, dtype=torch.bool)
    frame[2:-2, 2:-2] = True
    x = points(2 * 3 * 7 * 6).reshape(2, 3, 7, 6)
    for s in (prox.ReLU(), prox.Tanh()):
        masked, border = prox.Masked(s, frame), prox.Border(s, 2)
        assert torch.equal(masked.prox(x, 0.4), border.prox(x, 0.4))
        assert torch.equal(masked.prox_derivative(x, 0.4), border.prox_derivative(x, 0.4))
        assert torch.equal(masked.potential(x), border.potential(x))


def test_masked_gradients_and_saved_tensors():
    s = prox.Masked(prox.Sigmoid(), torch.tensor([True, False, True, True]))
    x = points(8, 1.0).reshape(2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: s.prox(v * v, 0.4), x)
    assert torch.autograd.gradgradcheck(lambda v: s.prox(v * v, 0.4), x)
    with torch.inference_mode():
        MASKED(torch.ones(3, 2))  # what is kept from here serves a graph too
    y = torch.ones(3, 2, requires_grad=True)
    MASKED(torch.exp(y)).sum().backward()
    assert torch.equal(y.grad, torch.tensor([0.0, torch.e]).expand(3, 2))


def test_masked_repeats_axes_of_length_one():
    column = torch.tensor([True, False]).reshape(2, 1)
    s, x = prox.Masked(prox.ReLU(), column), points(24).reshape(3, 2, 4)
    for graph in (True, False):
        with torch.set_grad_enabled(graph):
            assert torch.equal(s(x), torch.relu(x) * column)
            assert s(x[:, :, :0]).shape == (3, 2, 0)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 1), (1, 1, 3), ()])
def test_masked_refuses_what_its_mask_does_not_fit(shape):
    """Nor is x enlarged to the shape of the mask."""
    s, x = prox.Masked(prox.ReLU(), torch.ones(2, 3, dtype=torch.bool)), torch.ones(shape)
    for call in (s, s.derivative, s.potential, lambda x: s.prox(x, 0.5), lambda x: s.prox_derivative(x, 0.5)):
        with pytest.raises(ValueError, match=r"mask has shape \(2, 3\) and x " + re.escape(str(shape))):
            call(x)


def test_masked_arguments_and_values():
    mask = torch.tensor([True, False])
    for bad, kind in (([True], "list"), (torch.ones(2), "torch.float32"), (torch.ones(2, dtype=torch.uint8), "torch.uint8")):
        with pytest.raises(TypeError, match=f"bool tensor as its mask, not {kind}"):
            prox.Masked(prox.ReLU(), bad)
    with pytest.raises(TypeError, match="Activation"):
        prox.Masked(torch.relu, mask)
    s = prox.Masked(prox.ReLU(), mask)
    assert s == prox.Masked(prox.ReLU(), mask.clone()) != prox.Masked(prox.ReLU(), ~mask)
    assert s != prox.Masked(prox.Tanh(), mask) and s != prox.Masked(prox.ReLU(), mask.reshape(1, 2)) and s != prox.ReLU()
    assert len({s, prox.Masked(prox.ReLU(), mask.clone())}) == 1
    assert repr(s) == "Masked(ReLU(), 1 of 2 entries of shape (2,))"
    mask[0] = False  # the activation has its own
    assert torch.equal(s(torch.ones(2)), torch.tensor([1.0, 0.0]))


def test_masked_leaves_what_it_keeps_for_speed_out_of_copies():
    s, x = prox.Masked(prox.ReLU(), points(1000) > 0), points(1000)
    fresh = len(pickle.dumps(s))
    with torch.no_grad():
        expected = s(x)
        assert len(pickle.dumps(s)) == fresh
        for twin in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
            assert twin == s and torch.equal(twin(x), expected)


def test_masked_builds_its_bounds_once(monkeypatch):
    s, x, made = prox.Masked(prox.ReLU(), torch.tensor([True, False])), torch.ones(3, 2), []
    original = torch.Tensor.masked_fill
    monkeypatch.setattr(torch.Tensor, "masked_fill", lambda *args: made.append(1) or original(*args))
    with torch.no_grad():
        first, second = s(x), s.prox(x, 0.5)
        assert len(made) == 2
        s(x.double())
    assert len(made) == 4 and torch.equal(first, second)


def test_masked_for_some_samples():
    x = points(12).reshape(4, 3)
    s = prox.Masked(prox.ReLU(), torch.tensor([True, False, True]))
    assert s.part(slice(1, 3), 2) is s
    column = prox.Masked(prox.ReLU(), torch.tensor([[True], [False], [True], [True]]))
    inside = prox.Masked(prox.Diagonal(x.abs() / 9), torch.tensor([True, False, True]))
    for s in (column, inside):
        assert torch.equal(s.part(slice(1, 3), 2)(x[1:3]), s(x)[1:3])


def test_masked_follows_the_device():
    s = prox.Masked(prox.ReLU(), torch.tensor([True, False]))
    x = torch.ones(3, 2, device="meta")
    for graph in (True, False):
        with torch.set_grad_enabled(graph):
            assert s(x).device.type == s.derivative(x).device.type == "meta"
            assert torch.equal(s(torch.ones(2)), torch.tensor([1.0, 0.0]))


def test_diagonal_is_the_prox_of_a_quadratic():
    J = torch.tensor([0.0, 0.1, 0.5, 1.0], dtype=torch.float64)
    s = prox.Diagonal(J)
    x = points(12).reshape(3, 4)
    assert torch.equal(s(x), J * x) and torch.equal(s.derivative(x), J.expand(3, 4))
    for alpha in (0.1, 1.0, 7.0, 7.0):
        D = torch.where(J > 0, 1 / J - 1, math.inf)
        assert torch.allclose(s.prox(x, alpha), x / (1 + alpha * D), rtol=1e-14)
        assert torch.allclose(s.prox_derivative(x, alpha), (1 / (1 + alpha * D)).expand(3, 4), rtol=1e-14)
    potential = s.potential(torch.ones(4, dtype=torch.float64))
    assert potential.tolist() == pytest.approx([math.inf, 4.5, 0.5, 0.0])
    assert s == prox.Diagonal(J.clone()) != prox.Diagonal(J / 2)
    assert pickle.loads(pickle.dumps(s)) == copy.deepcopy(s) == s


def test_diagonal_gradient_reaches_j():
    x = points(4)

    def through(J):
        return prox.Diagonal(J).prox(x, 0.3)

    J = torch.tensor([0.2, 0.4, 0.6, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(through, J) and torch.autograd.gradgradcheck(through, J)


def test_diagonal_takes_a_tensor_of_floats():
    for bad, kind in (([0.5], "list"), (0.5, "float"), (torch.tensor([0, 1]), "int64"), (torch.ones(2, dtype=torch.bool), "bool")):
        with pytest.raises(TypeError, match=f"Diagonal takes .* not .*{kind}"):
            prox.Diagonal(bad)


@pytest.mark.parametrize("bad", [-1e-3, 1.001, math.nan])
def test_diagonal_out_of_range(bad):
    with pytest.raises(ValueError, match="entry of J"):
        prox.Diagonal(torch.tensor([0.5, bad]))
    assert prox.Diagonal(torch.tensor([1 + 1e-7])).J.max() <= 1


# ----------------------------------------------------------------------------------- what is not an activation

REFUSED = [
    (F.silu, r"slope -0\.0998\d* at x = -2\.4: .*nondecreasing.*slope 1\.1 at x = 2\.4: .*nonexpansive"),
    (F.gelu, r"slope -0\.1289 at x = -1\.41: .*nondecreasing.*slope 1\.129 at x = 1\.41: .*nonexpansive"),
    (F.mish, r"slope -0\.1125 at x = -2\.26: .*nondecreasing.*slope 1\.088 at x = 1\.49: .*nonexpansive"),
    (F.selu, r"slope 1\.758 at x just below 0: .*nonexpansive"),
    (nn.ELU(2.0), r"slope 2 at x just below 0: .*nonexpansive"),
    (lambda x: F.gelu(x, approximate="tanh"), "nondecreasing.*nonexpansive"),
    (F.hardswish, "nondecreasing.*nonexpansive"),
    (torch.erf, r"slope 1\.128 at x just .* 0: .*nonexpansive"),
    (torch.sin, "nondecreasing"),
    (torch.neg, "nondecreasing"),
    (lambda x: 1.001 * x, r"slope 1\.001"),
    (F.hardshrink, r"x = (-)?0\.5: .*nonexpansive"),
    (lambda x: x.sign() * 1e-6, "nonexpansive"),
    (lambda x: 0.5 * x + 1e-3 * (x > 7.77777).to(x.dtype), r"x = 7\.78: .*nonexpansive"),
    (lambda x: 0.5 * x - 1e-3 * (x > 7.77777).to(x.dtype), r"x = 7\.78: .*nondecreasing"),
    (torch.exp, r"is inf at x = 7\d\d"),
    (torch.log, "is nan at x = -1e"),
    (lambda x: torch.softmax(x, -1), "mixes the entries"),
    (lambda x: x - x.mean(), "mixes the entries"),
    (lambda x: x.cumsum(-1), "mixes the entries"),
    (lambda x: x.flip(-1).tanh(), "mixes the entries"),
    (lambda x: x.tanh().sum(), "shape"),
    (lambda x: x.tanh().float(), "float32"),
    (lambda x: None, "NoneType"),
    (nn.Dropout(), "two answers"),
    (nn.ReLU(inplace=True), "in place"),
    (nn.PReLU(), "parameters"),
    (lambda x: torch.tanh(x.detach()), "no gradient reaches x"),
    (lambda x: torch.from_numpy(np.tanh(x.numpy())), "no gradient reaches x"),
    (lambda x: torch.from_numpy(np.tanh(x.detach().numpy())), "no gradient reaches x"),
    (lambda x: torch.tanh(x.detach()) + 0 * x, r"slope is 0 at .* no gradient reaches x"),
    (lambda x: x + (torch.tanh(x) - x).detach(), r"slope is 1 at x = .* secant \d"),  # a straight-through gradient
    (lambda x: 0.5 * x + 0.5 * torch.tanh(x.detach()), r"slope is 0\.5 at .*gradients would be wrong"),
]


@pytest.mark.claim("NEW-PROX")
@pytest.mark.parametrize(("fn", "reason"), REFUSED)
def test_refused_with_the_reason(fn, reason):
    with pytest.raises(NotProximalError, match=reason):
        prox.from_callable(fn)


def test_refusal_names_the_function():
    with pytest.raises(NotProximalError, match="swish: slope"):
        prox.from_callable(F.silu, name="swish")
    with pytest.raises(TypeError, match="a function of a tensor"):
        prox.from_callable(3.0)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.tanh(1000 * (x - 5)) / 1000,  # bends within one step of the grid
        lambda x: torch.tanh(x - 999_999.5),
        lambda x: F.relu(x) - F.relu(-x),  # autograd's slope is 0 at 0, and right elsewhere
        lambda x: 0.5 * (x + x.abs()) + 1e6,
        lambda x: F.hardshrink(x) * 0,
        torch.zeros_like,  # constant: without a gradient, rightly
        lambda x: torch.full_like(x, 0.3),
        lambda x: x.clamp(-1 / 3, 1 / 3),
    ],
)
def test_gradients_that_are_right_are_accepted(fn):
    assert torch.isfinite(prox.from_callable(fn, "f").prox(torch.tensor([-2.0, 0.1, 7.0]), 0.5)).all()


@pytest.mark.claim("NEW-PROX")
def test_a_repaired_silu_is_proximal():
    s = prox.from_callable(lambda x: (F.silu(x) + 0.1 * x) / 1.2, "repaired silu")
    x = points(50)
    t = torch.autograd.functional.jvp(lambda v: s.prox(v, 0.5), x, torch.ones_like(x))[1]
    assert ((t >= 0) & (t <= 1)).all()


@pytest.mark.parametrize("s", [s for s, _ in CASES], ids=repr)
def test_own_activations_pass_the_check(s):
    again = prox.from_callable(s._value, name=repr(s))
    x = points(50)
    assert torch.allclose(again.prox(x, 0.3), s.prox(x, 0.3), atol=1e-12)
    assert prox.from_callable(s) is s


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: prox.ELU(1.5), "slope just below 0 is 1.5"),
        (lambda: prox.ELU(-0.1), "slope"),
        (lambda: prox.ELU(math.nan), "slope"),
        (lambda: prox.LeakyReLU(1.01), "slope=1.01"),
        (lambda: prox.LeakyReLU(-0.2), "slope=-0.2"),
    ],
)
def test_parameters_that_are_not_proximal(make, match):
    with pytest.raises(NotProximalError, match=match):
        make()


def test_parameters_that_make_no_sense():
    with pytest.raises(ValueError, match="low must be below high"):
        prox.Clip(1.0, 1.0)
    with pytest.raises(ValueError, match="low must be below high"):
        prox.Clip(0.0, math.nan)
    for threshold in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="threshold"):
            prox.SoftThreshold(threshold)
    with pytest.raises(TypeError):
        prox.LeakyReLU(negative_slope=0.1)


def test_limits_of_the_parameters():
    x = points(40)
    for edge in (prox.LeakyReLU(0.0), prox.ELU(0.0)):
        assert torch.allclose(edge.prox(x, 0.3), torch.relu(x), atol=1e-15)
        assert edge.potential(torch.tensor([-0.1, 0.2])).tolist() == [math.inf, 0.0]
    for edge in (prox.LeakyReLU(1.0), prox.SoftThreshold(0.0), prox.Clip(-math.inf, math.inf)):
        assert torch.equal(edge.prox(x, 0.3), x)


# ------------------------------------------------------------------------------------------------ as_activation


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (nn.ReLU(), r"ReLU\(\)"), (torch.relu, r"ReLU\(\)"), (F.relu, r"ReLU\(\)"), (nn.ReLU6(), r"Clip\(low=0.0, high=6.0\)"),
        (nn.LeakyReLU(0.2), r"LeakyReLU\(slope=0.2\)"), (nn.Hardtanh(), r"Clip\(low=-1.0, high=1.0\)"),
        (nn.Softshrink(0.3), r"SoftThreshold\(threshold=0.3\)"), (nn.Tanh(), r"Tanh\(\)"), (torch.sigmoid, r"Sigmoid\(\)"),
        (nn.Softplus(), r"Softplus\(\)"), (nn.ELU(), r"ELU\(alpha=1.0\)"), (nn.CELU(), r"ELU\(alpha=1.0\)"),
        (F.softsign, r"Softsign\(\)"), (torch.atan, r"Arctan\(\)"), (nn.Softplus(beta=2), "from_callable"),
        (F.tanhshrink, r"from_callable\(tanhshrink\)"), (prox.ReLU, r"pass an instance, mon_lib.prox.ReLU\(\)"),
        (nn.ReLU, "pass an object of mon_lib.prox"), (None, "pass an object of mon_lib.prox"),
    ],
)  # fmt: skip
def test_as_activation_names_the_right_object(obj, name):
    with pytest.raises(TypeError, match=name):
        prox.as_activation(obj)


@pytest.mark.parametrize("obj", [nn.SiLU(), F.gelu, nn.Mish(), nn.SELU(), nn.ELU(2.0), nn.PReLU(), torch.softmax])
def test_as_activation_refuses_what_is_no_prox(obj):
    with pytest.raises((NotProximalError, TypeError)):
        prox.as_activation(obj)
    assert prox.as_activation(s := prox.Tanh()) is s
