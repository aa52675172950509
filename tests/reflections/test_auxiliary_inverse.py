"""H(Wx)x = y: one solution by Newton's method, and all of them by the pencil."""

import itertools
import math

import pytest
import torch

from mon_lib.errors import ConvergenceError
from mon_lib.reflections import AuxiliaryReflection
from mon_lib.reflections._frozen import FrozenReflection
from mon_lib.reflections.auxiliary import Newton

F64 = torch.float64


def reflection(W, dtype=F64):
    W = torch.as_tensor(W, dtype=dtype)
    f = AuxiliaryReflection(len(W), dtype=dtype).requires_grad_(False)
    f.weight.copy_(W)
    return f


def random(d, seed, dtype=F64):
    torch.manual_seed(seed)
    return AuxiliaryReflection(d, dtype=dtype).requires_grad_(False)


def near_orthogonal(d, seed, size=0.03):
    torch.manual_seed(seed)
    U = torch.linalg.qr(torch.randn(d, d, dtype=F64)).Q
    return reflection(torch.eye(d, dtype=F64) - U + size * torch.randn(d, d, dtype=F64))


def definite(d, kappa, seed):
    torch.manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(d, d, dtype=F64)).Q
    return reflection((Q * torch.linspace(1.0, kappa, d, dtype=F64)) @ Q.T)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 48])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_inverse_of_an_injective_reflection(d, dtype):
    f = definite(d, 1.9, seed=d).to(dtype)
    x = torch.randn(40, d, dtype=dtype)
    assert ((f.inverse(f(x)) - x).norm(dim=1) <= 300 * torch.finfo(dtype).eps * x.norm(dim=1)).all()


def test_inverse_solves_the_equation_of_the_lengths_given():
    f = near_orthogonal(6, seed=0)
    y = torch.randn(30, 6, dtype=F64) * torch.logspace(-20, 20, 30, dtype=F64).unsqueeze(1)
    y[7] = 0.0
    x = f.inverse(y)
    assert ((f(x) - y).norm(dim=1) <= 1e-13 * y.norm(dim=1)).all()
    assert torch.equal(x[7], y[7])
    alone = f.inverse(y[3])
    assert (alone - x[3]).norm() <= 1e-12 * y[3].norm()


def test_inverse_at_fixed_points_of_an_orthogonal_map():
    torch.manual_seed(0)
    Q = torch.linalg.qr(torch.randn(8, 8, dtype=F64)).Q
    U = ((Q * torch.tensor([-1.0] * 3 + [1.0] * 5)) @ Q.T).float()
    f = AuxiliaryReflection.from_orthogonal(U)
    y = torch.cat([torch.randn(10, 8), (torch.randn(10, 5, dtype=F64) @ Q[:, 3:].T).float()])
    assert (f.inverse(y) - y @ U).abs().max() < 1e-5


def test_inverse_is_differentiable():
    f = near_orthogonal(4, seed=1).requires_grad_(True)
    y = torch.randn(3, 4, dtype=F64, requires_grad=True)

    class Inverse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.f = f

        def forward(self, y):
            return self.f.inverse(y)

    assert torch.autograd.gradcheck(lambda y, W: torch.func.functional_call(Inverse(), {"f.weight": W}, (y,)), (y, f.weight))
    (grad,) = torch.autograd.grad(f.inverse(y).sum(), y)
    J = f.jacobian(f.inverse(y.detach())).detach()
    assert (grad - torch.linalg.solve(J.mT, torch.ones_like(grad))).abs().max() < 1e-12
    with torch.no_grad():
        assert not f.inverse(y).requires_grad


def test_second_derivatives_are_refused():
    f = near_orthogonal(4, seed=1).requires_grad_(True)
    y = torch.randn(3, 4, dtype=F64, requires_grad=True)
    for through, at in itertools.product(((y,), (f.weight,), (y, f.weight)), (y, f.weight)):
        first = torch.autograd.grad(f.inverse(y).sum(), through, create_graph=True)
        with pytest.raises(NotImplementedError, match=r"AuxiliaryReflection\.inverse.*create_graph"):
            torch.autograd.grad(sum(g.sum() for g in first), at)


@pytest.mark.parametrize("method", [Newton(), Newton(tol=1e-3)])
def test_the_value_is_the_same_with_and_without_a_graph(method):
    f = random(7, seed=7).requires_grad_(True)
    y = torch.randn(60, 7, dtype=F64, requires_grad=True)
    with torch.no_grad():
        x = f.inverse(y, method)
    assert torch.equal(f.inverse(y, method).detach(), x)


def test_where_the_jacobian_is_singular_the_value_comes_back_and_the_gradient_is_nan():
    f = reflection([[1.0, 0.0], [0.0, 2.0]]).requires_grad_(True)  # det J = 0 at the second axis
    y = torch.tensor([[0.6, 0.8], [0.0, 1.0]], dtype=F64, requires_grad=True)
    x = f.inverse(y)
    assert (f(x) - y).abs().max() < 1e-14
    (grad,) = torch.autograd.grad(x.sum(), y, retain_graph=True)
    assert torch.isfinite(grad[0]).all()
    assert torch.isnan(grad[1]).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(x[0].sum(), (y, f.weight)))


def test_samples_that_newton_misses_are_solved_by_the_pencil():
    f = random(7, seed=7)
    y = torch.randn(60, 7, dtype=F64)
    for steps in (1, 2):
        x = f.inverse(y, Newton(max_steps=steps))
        assert ((f(x) - y).norm(dim=1) <= 1e-13 * y.norm(dim=1)).all()


def test_a_target_that_is_not_reached_is_named():
    """W = e1 (1, 1)': f is the mirror in e1, but where x1 + x2 = 0 it is the identity, and (1, 1) has no preimage."""
    f = reflection([[1.0, 1.0], [0.0, 0.0]], torch.float32)
    y = torch.tensor([[[1.0, 1.0], [1.0, 0.0]], [[0.3, -2.0], [2.0, 2.0]]])
    with pytest.raises(ConvergenceError, match=r"2 of 4 samples, rows 0, 3 of y\.reshape\(-1, 2\).*tol = 1e-07"):
        f.inverse(y, Newton(tol=1e-7))
    with pytest.raises(ConvergenceError, match=r"9 of 9 samples, rows 0, 1, 2, 3, 4, 5, 6, 7, \.\.\. of"):
        f.inverse(torch.ones(9, 2), Newton(tol=1e-7))
    near = f.inverse(y, Newton(tol=1e-3))
    assert ((f(near) - y).norm(dim=-1) <= 1.1e-3 * y.norm(dim=-1)).all()
    rough = random(7, seed=7).inverse(torch.ones(7, dtype=F64), Newton(tol=0.3))
    assert 1e-6 < (random(7, seed=7)(rough) - 1.0).norm() <= 0.3 * 7**0.5


def test_inverse_where_there_are_infinitely_many():
    f = reflection(torch.diag(torch.tensor([1.0, 1.0, 3.0], dtype=F64)))
    y = torch.tensor([0.0, 0.0, -1.0], dtype=F64)
    assert (f(f.inverse(y, Newton(max_steps=1))) - y).norm() < 1e-13


@pytest.mark.parametrize(
    "scale_W, scale_y", [(1e155, 1.0), (1e-160, 1.0), (1.0, 1e160), (1.0, 1e-160), (1e300, 1e-160), (1e-300, 1e155)]
)
def test_inverse_and_preimages_of_any_scale(scale_W, scale_y):
    f = random(4, seed=3)
    g = reflection(f.weight * scale_W).requires_grad_(True)
    y = torch.randn(6, 4, dtype=F64)
    large = (scale_y * y).requires_grad_()
    x = g.inverse(large)
    assert (x.detach() / scale_y - f.inverse(y)).abs().max() < 1e-13
    y.requires_grad_()
    (got,), (expected,) = torch.autograd.grad(x.sum(), large), torch.autograd.grad(f.inverse(y).sum(), y)
    assert (got - expected).abs().max() < 1e-11 * expected.abs().max()
    for found, others in zip(g.preimages(large), f.preimages(y), strict=True):
        assert (found / scale_y - others).abs().max() < 1e-11


@pytest.mark.parametrize("arguments", [{"tol": 0.0}, {"tol": math.nan}, {"max_steps": 0}])
def test_newton_refuses(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Newton(**arguments)


@pytest.mark.parametrize("tol", ["a", True, [1.0]])
def test_newton_names_a_tolerance_that_is_no_number(tol):
    with pytest.raises(TypeError, match=r"tol = .*positive number"):
        Newton(tol=tol)


@pytest.mark.parametrize("method", ["newton", Newton, None])
def test_inverse_names_a_method_that_is_none(method):
    with pytest.raises(TypeError, match=r"method = .*pass Newton\(\)"):
        random(3, seed=0).inverse(torch.ones(3, dtype=F64), method)


def brute_force(f, y, points=20_000):
    """The angles of all x in the plane with f(x) = y, from sign changes of the angle between f(x) and y."""
    angle = torch.linspace(0.0, 2 * math.pi, points + 1, dtype=F64)[:-1] + 1e-4
    z = f(torch.stack([angle.cos(), angle.sin()], 1))
    cross, dot = z[:, 0] * y[1] - z[:, 1] * y[0], z @ y
    change = (cross * cross.roll(-1) < 0) & (dot > 0) & (dot.roll(-1) > 0)
    return angle[change] + math.pi / points


@pytest.mark.parametrize("seed", range(8))
def test_preimages_in_the_plane_against_a_search_along_the_circle(seed):
    f = random(2, seed)
    for y in torch.randn(3, 2, dtype=F64):
        y = y / y.norm()
        (x,) = f.preimages(y)
        assert (f(x) - y).norm(dim=1).max() < 1e-10
        expected = brute_force(f, y)
        found = torch.atan2(x[:, 1], x[:, 0]) % (2 * math.pi)
        assert len(found) == len(expected)
        assert (found.sort().values - expected.sort().values).abs().max() < 1e-3


@pytest.mark.parametrize("d", [2, 3, 4, 7, 12])
def test_preimages_counted_with_the_sign_of_det_J_are_the_same_for_every_target(d):
    """The degree of a map of the sphere: a preimage that is missed or invented changes it."""
    degrees, counts = set(), set()
    for f in (random(d, seed=d), near_orthogonal(d, seed=d)):
        y = torch.randn(8, d, dtype=F64)
        found = f.preimages(y)
        signs = [torch.linalg.slogdet(f.jacobian(x)).sign.sum() for x in found]
        assert len({int(s) for s in signs}) == 1
        degrees.add(int(signs[0]))
        counts |= {len(x) for x in found}
        assert max(float(((f(x) - row).norm(dim=1) / row.norm()).max()) for x, row in zip(found, y, strict=True)) < 1e-10
        one = f.inverse(y[:1])
        assert (found[0] - one).norm(dim=1).min() < 1e-6
    assert max(counts) > 1


def test_preimages_of_the_two_by_two_map_with_three():
    """W = diag(1, -1) turns the angle theta into pi - 3 theta: three preimages everywhere (REF Theorem 4 in the plane)."""
    f = reflection([[1.0, 0.0], [0.0, -1.0]])
    for angle in (0.1, 1.0, 2.0, -0.4, math.pi / 2, 0.0):
        (x,) = f.preimages(torch.tensor([math.cos(angle), math.sin(angle)], dtype=F64))
        got = torch.atan2(x[:, 1], x[:, 0])
        expected = torch.tensor([(math.pi - angle + 2 * math.pi * k) / 3 for k in range(3)], dtype=F64)
        distance = ((got[:, None] - expected[None] + math.pi) % (2 * math.pi) - math.pi).abs()
        assert len(x) == 3
        assert distance.min(0).values.max() < 1e-12


@pytest.mark.parametrize("kappa", [2.5, 3.0, 10.0])
@pytest.mark.parametrize("offset", [0.0, 1e-13, 1e-10, 1e-7, 1e-4])
def test_preimages_where_I_minus_tW_is_singular(kappa, offset):
    """W = diag(1, kappa), y = (0, -1): two of the three solutions have t = 1, and I - W has no inverse."""
    f = reflection([[1.0, 0.0], [0.0, kappa]])
    y = torch.tensor([math.sin(offset), -math.cos(offset)], dtype=F64)
    (x,) = f.preimages(y)
    second = 1 / (kappa - 1)
    expected = torch.tensor([[0.0, 1.0], [math.sqrt(1 - second**2), second], [-math.sqrt(1 - second**2), second]], dtype=F64)
    assert len(x) == 3
    near = [min(float((row - e).norm()) for row in x) for e in expected]
    assert max(near) <= 1e-9 + 20 * offset
    assert (f(x) - y).norm(dim=1).max() < 1e-12


def test_preimages_when_there_are_infinitely_many():
    f = reflection(torch.diag(torch.tensor([1.0, 1.0, 3.0], dtype=F64)))
    with pytest.raises(ValueError, match="infinitely many"):
        f.preimages(torch.tensor([0.0, 0.0, -1.0], dtype=F64))
    assert len(f.preimages(torch.tensor([0.03, 0.01, -1.0], dtype=F64))[0]) == 3


def test_preimages_of_special_targets():
    skew = reflection([[0.0, -1.0], [1.0, 0.0]])  # y'Wy = 0 for every y, f is the identity
    y = torch.tensor([[0.6, 0.8], [0.0, 0.0]], dtype=F64)
    for x, row in zip(skew.preimages(y), y, strict=True):
        assert len(x) == 1
        assert (x[0] - row).norm() < 1e-12
    zero = reflection(torch.zeros(3, 3))
    assert torch.equal(zero.preimages(torch.ones(3, dtype=F64))[0], torch.ones(1, 3, dtype=F64))
    flat = reflection([[1.0, 0.0], [0.0, 0.0]])  # (0, 1) is in the null space of W and stays; (0, 1) has no other
    (x,) = flat.preimages(torch.tensor([0.0, 1.0], dtype=F64))
    assert torch.allclose(x, torch.tensor([[0.0, 1.0]], dtype=F64))


def test_preimages_of_an_injective_reflection_are_one():
    for d, kappa in itertools.product((2, 3, 6), (1.0, 1.4, 1.9)):
        f = definite(d, kappa, seed=d)
        x = torch.randn(5, d, dtype=F64)
        for row, found in zip(x, f.preimages(f(x)), strict=True):
            assert len(found) == 1
            assert (found[0] - row).norm() < 1e-11 * row.norm()


def test_a_fixed_point_in_float32_is_among_its_own_preimages():
    """Wx is noise there, of a size that float64 would take for a direction."""
    torch.manual_seed(0)
    Q = torch.linalg.qr(torch.randn(5, 5, dtype=F64)).Q
    U = ((Q * torch.tensor([-1.0, -1.0, 1.0, 1.0, 1.0])) @ Q.T).float()
    f = AuxiliaryReflection.from_orthogonal(U).requires_grad_(False)
    y = (torch.randn(5, 3, dtype=F64) @ Q[:, 2:].T).float()
    for row, found in zip(y, f.preimages(y), strict=True):
        distance, nearest = (found - row).norm(dim=1).min(0)
        assert distance < 1e-6 * row.norm()
        assert (f(found[nearest]) - row).norm() < 1e-6 * row.norm()


def test_preimages_leave_nothing_on_stderr(capfd):
    """LAPACK writes there when it is handed a NaN: singular pencils."""
    for W in ([[0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], torch.eye(3)):
        f = reflection(W)
        d = f.d
        x = torch.randn(6, d, dtype=F64)
        for row, found in zip(x, f.preimages(f(x)), strict=True):
            assert (found - row).norm(dim=1).min() < 1e-11
        assert torch.equal(f.preimages(torch.zeros(d, dtype=F64))[0], torch.zeros(1, d, dtype=F64))
        assert all(len(found) for found in f.preimages(torch.eye(d, dtype=F64)))
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_preimages_near_fixed_points_in_float32_are_preimages():
    """A rounding of x turns Wx there; those that it turns away are left out."""
    torch.manual_seed(0)
    total, none = 0, 0
    for _ in range(10):
        Q = torch.linalg.qr(torch.randn(5, 5, dtype=F64)).Q
        U = ((Q * torch.tensor([-1.0, -1.0, 1.0, 1.0, 1.0])) @ Q.T).float()
        f = AuxiliaryReflection.from_orthogonal(U).requires_grad_(False)
        wide = FrozenReflection.of(f.weight, F64)
        size = 10 ** (-8 + 3 * torch.rand(60, 1, dtype=F64))
        y = (torch.randn(60, 3, dtype=F64) @ Q[:, 2:].T + size * torch.randn(60, 2, dtype=F64) @ Q[:, :2].T).float()
        for row, found in zip(y, f.preimages(y), strict=True):
            assert ((wide(found.double()) - row).norm(dim=1) <= 3.5e-4 * row.norm()).all()
            total, none = total + 1, none + (len(found) == 0)
    assert none < 0.2 * total
