"""Chapter 17: when f(x) = H(Wx)x is invertible, by topology as in the paper, and by monotonicity (NEW-K2)."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.polynomial import Polynomial

from mon_lib.reflections import InvertibleReflection, householder

F64 = torch.float64


def generator(seed):
    return torch.Generator().manual_seed(seed)


def sphere(n, d, seed=0):
    x = torch.randn(n, d, generator=generator(seed), dtype=F64)
    return x / x.norm(dim=1, keepdim=True)


def circle(n):
    theta = torch.linspace(0, 2 * math.pi, n + 1, dtype=F64)[:-1]
    return torch.stack([theta.cos(), theta.sin()], 1)


def f(W, x):
    return householder(x @ W.T, x)


def jacobians(W, x):
    """Of every row, by automatic differentiation, not by the formula of chapter 16."""
    return torch.func.vmap(torch.func.jacrev(lambda row: f(W, row)))(x)


def definite(d, kappa, seed=0, scale=1.0):
    """W with eigenvalues from scale to kappa * scale, and an eigenvector of the least and of the largest."""
    g = generator(seed)
    Q = torch.linalg.qr(torch.randn(d, d, generator=g, dtype=F64))[0]
    spectrum = 1 + (kappa - 1) * torch.rand(d, generator=g, dtype=F64)
    spectrum[0], spectrum[-1] = 1.0, kappa
    return scale * (Q * spectrum) @ Q.T, Q[:, 0], Q[:, -1]


def preimages(spectrum, y, tol=1e-6):
    """All x with f(x) = y for W = diag(spectrum): x = y / (1 - 2c lambda), with c a real root of a polynomial of degree 2d - 1.

    From |x| = |y|: sum_i y_i^2 lambda_i (1 - c lambda_i) / (1 - 2c lambda_i)^2 = 0. Shares nothing with the library's method.
    """
    spectrum, y = np.asarray(spectrum, dtype=float), np.asarray(y, dtype=float)
    total = Polynomial([0.0])
    for i, weight in enumerate(spectrum * y**2):
        term = Polynomial([weight, -weight * spectrum[i]])
        for j, other in enumerate(spectrum):
            term *= Polynomial([1.0, -2 * other]) ** 2 if j != i else 1.0
        total += term
    roots = total.roots()
    c = roots.real[np.abs(roots.imag) < 1e-7 * np.maximum(1.0, np.abs(roots))]
    x = torch.from_numpy(y / (1 - 2 * c[:, None] * spectrum))
    good = (f(torch.diag(torch.from_numpy(spectrum)), x) - torch.from_numpy(y)).abs().amax(1) < tol
    return x[good]


def turns(W, n=20_000):
    """The angle of f along the circle, unwrapped, from 0 to 2 pi inclusive."""
    y = f(W, circle(n)).numpy()
    angle = np.arctan2(y[:, 1], y[:, 0])
    return np.unwrap(np.append(angle, angle[0]))


def count_on_circle(angles, target):
    """How often the unwrapped angle passes a target modulo a turn."""
    low, high = np.sort(np.stack([angles[:-1], angles[1:]]), axis=0)
    return int((np.floor((high - target) / (2 * math.pi)) - np.floor((low - target) / (2 * math.pi))).sum())


def search(objective, W, starts=8, steps=300):
    """The least value of objective(W, x, h) that gradient descent finds from random points and directions."""
    points = torch.randn(2, starts, len(W), generator=generator(7), dtype=F64).requires_grad_()
    descent = torch.optim.Adam([points], lr=0.1)
    cooling = torch.optim.lr_scheduler.CosineAnnealingLR(descent, steps)
    for _ in range(steps):
        descent.zero_grad()
        values = objective(W, points[0], points[1])
        values.sum().backward()
        descent.step()
        cooling.step()
    return values.min().item()


def quotients(W, x, y):
    """<-f(x) + f(y), x - y> and |f(x) - f(y)|, over |x - y|^2 and |x - y|."""
    step, change = x - y, f(W, y) - f(W, x)
    length = step.norm(dim=-1)
    return (step * change).sum(-1) / length**2, change.norm(dim=-1) / length


# REF-L2, REF-L3: from the sphere to the space


@pytest.mark.claim("REF-L2")
@pytest.mark.parametrize("kappa", [1.3, 1.9])
def test_an_inverse_on_the_circle_extends_to_the_plane(kappa):
    W = definite(2, kappa)[0]
    grid, angles = np.linspace(0, 2 * math.pi, 200_001), turns(W, 200_000)
    assert (np.diff(angles) > 0).all()  # invertible on the circle: an inverse is a table

    def on_the_circle(y):
        theta = np.interp((np.arctan2(y[:, 1], y[:, 0]) - angles[0]) % (2 * math.pi) + angles[0], angles, grid)
        return torch.from_numpy(np.stack([np.cos(theta), np.sin(theta)], 1))

    x = 3 * torch.randn(200, 2, generator=generator(1), dtype=F64)
    y = f(W, x)
    size = y.norm(dim=1, keepdim=True)
    torch.testing.assert_close(size, x.norm(dim=1, keepdim=True))
    torch.testing.assert_close(size * on_the_circle((y / size).numpy()), x, rtol=1e-7, atol=1e-7)


@pytest.mark.claim("REF-L2")
@pytest.mark.parametrize("d", [1, 3, 48])
def test_scale_and_norm(d):
    W = torch.randn(d, d, generator=generator(d), dtype=F64)
    x = sphere(20, d)
    for t in (1e-3, 7.0, 1e4):
        torch.testing.assert_close(f(W, t * x), t * f(W, x), rtol=1e-12, atol=0)
    torch.testing.assert_close(f(W, x).norm(dim=1), torch.ones(20, dtype=F64))


@pytest.mark.claim("REF-L3")
@pytest.mark.parametrize("d", [2, 5])
def test_the_jacobian_is_continuous_if_W_is_invertible(d):
    W = torch.randn(d, d, generator=generator(3), dtype=F64)
    x, h = sphere(50, d, 1), sphere(50, d, 2)
    jumps = []
    for step in (1e-2, 1e-4, 1e-6):
        near = x + step * h
        near = near / near.norm(dim=1, keepdim=True)
        jumps.append((jacobians(W, near) - jacobians(W, x)).abs().amax().item())
    assert jumps[1] < 0.05 * jumps[0] and jumps[2] < 0.05 * jumps[1]


@pytest.mark.claim("REF-L3")
def test_a_singular_W_can_tear_the_sphere():
    W = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=F64)  # Wx is (x1 + x2, 0): the mirror does not turn
    at = torch.tensor([[1.0, -1.0]], dtype=F64) / math.sqrt(2)
    assert torch.equal(f(W, at), at)
    for step in (1e-3, 1e-6, 1e-9):
        assert (f(W, at + torch.tensor([step, 0.0], dtype=F64)) - at).norm() > 1.4


@pytest.mark.parametrize("d", [2, 3, 6])
def test_the_determinant_is_that_along_the_sphere(d):
    """J sends x to f(x), and what is orthogonal to x to what is orthogonal to f(x)."""
    W = torch.randn(d, d, generator=generator(d), dtype=F64)
    for x, J in zip(sphere(20, d), jacobians(W, sphere(20, d)), strict=True):
        y = f(W, x)
        tangent, image = (torch.linalg.svd(p[None])[2][1:] for p in (x, y))
        torch.testing.assert_close(J @ x, y)
        torch.testing.assert_close(y @ J @ tangent.T, torch.zeros(d - 1, dtype=F64), atol=1e-10, rtol=0)
        assert abs(torch.linalg.det(J)).item() == pytest.approx(abs(torch.linalg.det(image @ J @ tangent.T)).item())


# REF-T5, REF-T4: topology


@pytest.mark.claim("REF-T4")
def test_the_counterexample_on_the_circle():
    W = torch.diag(torch.tensor([1.0, -1.0], dtype=F64))
    x = circle(1000)
    theta = torch.atan2(x[:, 1], x[:, 0])
    torch.testing.assert_close(f(W, x), torch.stack([(math.pi - 3 * theta).cos(), (math.pi - 3 * theta).sin()], 1))
    torch.testing.assert_close(torch.linalg.det(jacobians(W, x)), torch.full((1000,), -3.0, dtype=F64))
    angles = turns(W)
    assert all(count_on_circle(angles, target) == 3 for target in np.linspace(0.001, 6.2, 50))
    for y in sphere(50, 2, 4):
        assert len(preimages([1.0, -1.0], y)) == 3


@pytest.mark.claim("REF-T4")
def test_every_W_of_the_plane():
    """Not only symmetric ones: det J = 2 det W / |Wx|^2 - 1, and f winds 2 sign(det W) - 1 times."""
    seen = set()
    for seed in range(24):
        W = torch.randn(2, 2, generator=generator(seed), dtype=F64)
        x, determinant = circle(300), torch.linalg.det(W).item()
        J = torch.linalg.det(jacobians(W, x))
        torch.testing.assert_close(J, 2 * determinant / (x @ W.T).square().sum(1) - 1)
        angles = turns(W, 3000)
        winding = round((angles[-1] - angles[0]) / (2 * math.pi))
        assert winding == 2 * np.sign(determinant) - 1
        counts = {count_on_circle(angles, target) for target in angles[5::25] + 1e-4}
        s = torch.linalg.svdvals(W)
        if determinant < 0:
            assert (J < -1).all() and counts == {3}
        elif s[0] < 2 * s[1]:
            assert (J > 0).all() and counts == {1}
        elif s[0] > 2.2 * s[1]:
            assert J.min() < 0 and max(counts) == 3
        seen.add((determinant > 0, (s[0] < 2 * s[1]).item()))
    assert len(seen) == 4


@pytest.mark.claim("REF-T4")
@pytest.mark.parametrize("d", [3, 4, 5])
def test_in_space_the_same_matrix_has_a_fold(d):
    """W = diag(1, ..., 1, -1) is three to one as in the plane, but now det J vanishes: at latitude pi/6."""
    W = torch.eye(d, dtype=F64)
    W[-1, -1] = -1.0
    theta, side = torch.linspace(-1.5, 1.5, 61, dtype=F64), torch.zeros(61, d, dtype=F64)
    side[:, :-1] = sphere(61, d - 1, 5)
    pole = torch.zeros(d, dtype=F64)
    pole[-1] = 1.0

    def at(angle):
        return angle.cos()[:, None] * side + angle.sin()[:, None] * pole

    torch.testing.assert_close(f(W, at(theta)), at(math.pi - 3 * theta))
    expected = -3 * (-(3 * theta).cos() / theta.cos()) ** (d - 2)
    torch.testing.assert_close(torch.linalg.det(jacobians(W, at(theta))), expected, rtol=1e-9, atol=1e-9)
    fold = torch.full((61,), math.pi / 6, dtype=F64)
    assert torch.linalg.det(jacobians(W, at(fold))).abs().max() < 1e-10


def least_determinant(W, sign, starts=6, steps=150):
    """The least of sign * det J on the sphere, by descent."""
    x = torch.randn(starts, len(W), generator=generator(2), dtype=F64).requires_grad_()
    descent = torch.optim.Adam([x], lr=0.05)
    for _ in range(steps):
        descent.zero_grad()
        values = sign * torch.linalg.det(jacobians(W, x))
        values.sum().backward()
        descent.step()
    return values.min().item()


@pytest.mark.claim("REF-T5")
def test_without_simple_connectedness_the_conclusion_fails_and_on_the_cover_it_holds():
    """The circle meets every hypothesis but the third; the angle of f as a map of the line meets all three."""
    W = torch.tensor([[1.0, 0.3], [0.2, -0.7]], dtype=F64)
    assert torch.linalg.det(jacobians(W, circle(2000))).abs().min() > 1.0
    angles = turns(W)
    assert count_on_circle(angles, 1.0) == 3
    line = np.concatenate([angles[:-1] + k * (angles[-1] - angles[0]) for k in range(-3, 4)])
    for target in np.linspace(-15, 15, 30):
        assert ((line[:-1] - target) * (line[1:] - target) < 0).sum() == 1


@pytest.mark.claim("REF-T5", "REF-T4")
@pytest.mark.parametrize("spectrum", [(1, 1.5, 2.9), (1, 1.2, 1.9), (1, 2, -1.5), (1, 1.6, 1.7), (1, 1.3, 4), (-1, -1.1, -1.95)])
def test_in_space_several_preimages_come_with_a_zero_of_the_determinant(spectrum):
    """The contrapositive, on the sphere of R^3: where some target has three preimages, det J is not of one sign."""
    W = torch.diag(torch.tensor(spectrum, dtype=F64))
    targets = torch.cat([sphere(100, 3), -torch.eye(3, dtype=F64) + 1e-3])
    counts = {len(preimages(spectrum, y / y.norm())) for y in targets}
    signs = torch.linalg.det(jacobians(W, sphere(200, 3, 1))).sign()
    one_sign = bool((signs == signs[0]).all()) and least_determinant(W, signs[0]) > 1e-3
    assert one_sign == (counts == {1})
    assert one_sign == (len(counts) == 1) == (max(np.abs(spectrum)) < 2)


# REF-L4, REF-T2: the paper's condition


@pytest.mark.claim("REF-L4")
@pytest.mark.parametrize("kappa", [1.01, 1.25, 1.49])
@pytest.mark.parametrize("d", [2, 5, 20])
def test_eigenvalues_of_the_inverse_of_A(d, kappa):
    W, least, largest = definite(d, kappa, scale=3.0)
    x = torch.cat([sphere(300, d), torch.stack([least, largest])])
    u = x @ W
    c = (x * u).sum(1) / u.square().sum(1)
    A = torch.eye(d, dtype=F64) - 2 * c[:, None, None] * W
    assert torch.linalg.eigvalsh(torch.linalg.inv(A)).max() < -0.5
    second = 1 + 2 * (u * torch.linalg.solve(A, u)).sum(1) / u.square().sum(1)
    assert second.max() < 0 and torch.linalg.det(A).abs().min() > 0
    # The printed proof says this of A itself.
    assert (torch.linalg.eigvalsh(A).max() < -0.5) == (kappa < 4 / 3)


@pytest.mark.claim("REF-L4")
@pytest.mark.parametrize(("kappa", "holds"), [(1.499, True), (1.501, False)])
def test_the_bound_of_lemma_4_ends_at_three_halves(kappa, holds):
    W, least, _ = definite(6, kappa)
    u = W @ least
    A = torch.eye(6, dtype=F64) - 2 * (least @ u) / (u @ u) * W
    assert (torch.linalg.eigvalsh(torch.linalg.inv(A)).max() < -0.5) == holds
    assert 1 + 2 * (u @ torch.linalg.solve(A, u)) / (u @ u) == pytest.approx(-1.0)  # and nothing happens to det J there


@pytest.mark.claim("REF-T2")
@pytest.mark.parametrize("kappa", [1.1, 1.4])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 48])
def test_below_three_halves_x_plus_f_is_a_contraction(d, kappa):
    kappa = 1.0 if d == 1 else kappa
    W, least, largest = definite(d, kappa, seed=d, scale=0.2)
    x, z = torch.randn(2, 1000, d, generator=generator(d), dtype=F64)
    difference = (x + f(W, x) - z - f(W, z)).norm(dim=1)
    assert (difference <= 2 * (kappa - 1) * (x - z).norm(dim=1) + 1e-13).all()
    J = torch.eye(d, dtype=F64) + jacobians(W, least[None])[0]
    assert (J @ largest).norm().item() == pytest.approx(2 * (kappa - 1), abs=1e-12)  # the constant is exact
    y = torch.randn(5, d, generator=generator(1), dtype=F64)
    limits = []
    for start in (torch.zeros_like(y), 10 * y.flip(0)):
        state = start
        for _ in range(160):
            state = state + f(W, state) - y
        limits.append(state)
        torch.testing.assert_close(f(W, state), y, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(limits[0], limits[1], rtol=1e-8, atol=1e-8)


def test_beyond_three_halves_it_is_none():
    W, least, largest = definite(5, 1.51)
    J = torch.eye(5, dtype=F64) + jacobians(W, least[None])[0]
    assert (J @ largest).norm() > 1.0


@pytest.mark.claim("REF-T2")
@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_paper_condition_leaves_one_preimage(d):
    for seed in range(60):
        spectrum = torch.linspace(1, 1.49, d, dtype=F64)
        assert len(preimages(spectrum, sphere(1, d, seed)[0])) == 1


# NEW-K2: the sharp condition


@pytest.mark.parametrize("d", [2, 3, 17])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_jacobian_in_one_line(d, sign):
    """J = 2 H(u)(I - M) - I for any symmetric W, M = cW."""
    W = sign * definite(d, 5.0)[0]
    W[0, 0] -= 2.0 * sign
    x = sphere(30, d)
    u = x @ W
    M = ((x * u).sum(1) / u.square().sum(1))[:, None, None] * W
    I = torch.eye(d, dtype=F64)
    H = I - 2 * u[:, :, None] * u[:, None, :] / u.square().sum(1)[:, None, None]
    torch.testing.assert_close(jacobians(W, x), 2 * H @ (I - M) - I, rtol=1e-10, atol=1e-10)


@pytest.mark.claim("NEW-K2")
@pytest.mark.parametrize("kappa", [1.05, 1.5, 1.9, 1.99])
@pytest.mark.parametrize("d", [2, 3, 4, 8, 16, 24, 48])
def test_the_constants_hold_and_are_attained(d, kappa):
    W, least, largest = definite(d, kappa, seed=d, scale=0.3)
    m, L = 2 / kappa - 1, 2 * kappa - 1
    x, y = torch.randn(2, 1000, d, generator=generator(1), dtype=F64)
    near = x + 1e-3 * y
    through_zero = -0.7 * x
    for other in (y, near, through_zero):
        low, high = quotients(W, x, other)
        assert low.min() >= m - 1e-9 and high.max() <= L + 1e-9
    J = jacobians(W, torch.stack([largest, least]))
    assert -(least @ J[0] @ least).item() == pytest.approx(m, abs=1e-12)
    assert (J[1] @ largest).norm().item() == pytest.approx(L, abs=1e-12)
    assert torch.linalg.svdvals(J[0])[-1].item() == pytest.approx(m, abs=1e-12)  # so the inverse is 1/m-Lipschitz, exactly


@pytest.mark.claim("NEW-K2")
@pytest.mark.parametrize(("d", "kappa"), [(2, 1.1), (8, 1.9), (48, 1.9)])
def test_a_search_that_is_not_told_finds_the_constants(d, kappa):
    W = definite(d, kappa, seed=1)[0]

    def product(W, x, h):
        """J'h: its form and its norm are those of J."""
        return torch.autograd.grad(f(W, x), x, h, create_graph=True)[0]

    low = search(lambda W, x, h: -(product(W, x, h) * h).sum(1) / h.square().sum(1), W)
    high = -search(lambda W, x, h: -product(W, x, h).norm(dim=1) / h.norm(dim=1), W)
    m, L = 2 / kappa - 1, 2 * kappa - 1
    assert m - 1e-12 <= low <= m + 0.01 * (kappa - 1)
    assert L - 0.01 * (kappa - 1) <= high <= L + 1e-12


@pytest.mark.claim("NEW-K2")
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_the_module_keeps_them_by_construction(scale):
    g = InvertibleReflection(9, kappa=1.8, dtype=F64).requires_grad_(False)
    g.weight.mul_(scale)
    kappa = g.condition()
    assert kappa <= 1.8 and (kappa == 1.0) == (scale == 0.0)
    x, y = torch.randn(2, 1000, 9, generator=generator(1), dtype=F64)
    low, high = quotients(g.to_dense(), x, y)
    assert low.min() >= 2 / kappa - 1 - 1e-12 and high.max() <= 2 * kappa - 1 + 1e-12
    torch.testing.assert_close(g(x), f(g.to_dense(), x), rtol=1e-12, atol=1e-12)


@pytest.mark.claim("NEW-K2")
@pytest.mark.parametrize("d", [2, 5, 30])
def test_the_two_blocks_of_the_symmetric_part(d):
    W = definite(d, 4.0, seed=d)[0]
    x = sphere(100, d)
    u = x @ W
    u = u / u.norm(dim=1, keepdim=True)
    J = jacobians(W, x)
    S = -0.5 * (J + J.mT)
    a = (u * (u @ W)).sum(1) * (u * torch.linalg.solve(W, u.T).T).sum(1)
    torch.testing.assert_close((S @ u[:, :, None])[:, :, 0], (3 - 2 * a)[:, None] * u, rtol=1e-9, atol=1e-9)
    assert a.max() <= 25 / 16 + 1e-12  # Kantorovich at kappa = 4
    complement = torch.linalg.eigvalsh(S + 100 * u[:, :, None] * u[:, None, :])[:, 0]
    assert complement.min() >= 2 / 4 - 1 - 1e-12


@pytest.mark.claim("NEW-K2")
def test_only_if():
    """kappa = 2 leaves monotone and no more; beyond it, and for W that is not definite, not even that."""
    for d in (2, 6):
        for kappa, below in ((2.0, 1e-12), (2.2, -0.05)):
            W, least, largest = definite(d, kappa)
            value = -(least @ jacobians(W, largest[None])[0] @ least).item()
            assert value == pytest.approx(2 / kappa - 1, abs=1e-12) and value <= below
        first, last = torch.eye(d, dtype=F64)[[0, -1]]
        spectrum = torch.linspace(1, 3, d, dtype=F64)
        indefinite, singular = torch.diag(spectrum - 4 * first), torch.diag(spectrum - first)
        for matrix, x in ((indefinite, first + last), (singular, first)):  # <x, Wx> = -3 + 3 and Wx = 0
            torch.testing.assert_close(f(matrix, x[None])[0], x)
            assert quotients(matrix, x, torch.zeros_like(x))[0].item() == pytest.approx(-1.0)
        low = quotients(-definite(d, 1.8)[0], *torch.randn(2, 2000, d, generator=generator(1), dtype=F64))[0].min()
        assert low >= 2 / 1.8 - 1  # a negative definite W is as good


@pytest.mark.claim("NEW-K2")
@pytest.mark.parametrize("kappa", [2.01, 2.5, 3.0, 10.0])
def test_beyond_two_there_are_three_preimages(kappa):
    r = 1 / (kappa - 1)
    x = torch.tensor([[0.0, 1.0], [math.sqrt(1 - r**2), r], [-math.sqrt(1 - r**2), r]], dtype=F64)
    W = torch.diag(torch.tensor([1.0, kappa], dtype=F64))
    torch.testing.assert_close(f(W, x), torch.tensor([[0.0, -1.0]], dtype=F64).expand(3, 2), atol=1e-13, rtol=0)
    W, least, largest = definite(9, kappa, scale=5.0)
    x = x @ torch.stack([least, largest])
    torch.testing.assert_close(f(W, x), -largest.expand(3, 9), atol=1e-12, rtol=0)


def test_at_two_it_is_still_one_to_one_and_its_inverse_is_not_lipschitz():
    W = torch.diag(torch.tensor([1.0, 2.0], dtype=F64))
    assert (np.diff(turns(W)) > 0).all()
    for step in (1e-1, 1e-2, 1e-3):
        x = torch.tensor([[0.0, 1.0], [math.sin(step), math.cos(step)]], dtype=F64)
        apart = f(W, x)
        assert 0 < (apart[0] - apart[1]).norm() < step**3


@pytest.mark.parametrize("spectrum", list(itertools.combinations([-2.7, -1.8, 0.0, 1.0, 1.9, 2.5], 3)))
def test_which_symmetric_W_are_invertible(spectrum):
    """Exactly those whose non-zero eigenvalues have one sign and a ratio of at most two."""
    values = np.abs([v for v in spectrum if v])
    one_sign = len(set(np.sign(spectrum)) - {0.0}) == 1
    targets = sphere(30, 3, 3)
    near = -torch.eye(3, dtype=F64)[np.argmax(np.abs(spectrum))] + 1e-2 * targets[:3]
    counts = [len(preimages(spectrum, y / y.norm())) for y in torch.cat([targets, near])]
    if one_sign and max(values) <= 2 * min(values):
        assert set(counts) == {1}
    else:
        assert max(counts) >= 3 and (one_sign or min(counts) >= 3)


@pytest.mark.parametrize("kappa", [1.2, 1.99])
@pytest.mark.parametrize("d", [2, 10])
def test_f_never_leaves_a_cone_about_minus_x(d, kappa):
    """cos >= 8 kappa / (kappa + 1)^2 - 1, attained where the two ends of the spectrum meet."""
    W, least, largest = definite(d, kappa, seed=4)
    x = torch.cat([sphere(2000, d), (math.sqrt(kappa) * least + largest)[None]])
    x = x / x.norm(dim=1, keepdim=True)
    cosine = -(x * f(W, x)).sum(1)
    bound = 8 * kappa / (kappa + 1) ** 2 - 1
    assert cosine.min() >= bound - 1e-12
    assert cosine[-1].item() == pytest.approx(bound, abs=1e-12)
