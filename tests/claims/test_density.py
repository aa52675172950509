"""Chapter 23: near W = I - Q, and wherever det W < 0, one reflection is three to one, and a flow of it no density (NEW-DENS)."""

import math

import numpy as np
import pytest
import torch

from mon_lib import flows
from mon_lib.reflections import AuxiliaryReflection, InvertibleReflection, Newton, householder

F64 = torch.float64


def generator(seed):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=F64)


def sphere(n, d, seed=0):
    x = normal(n, d, seed=seed)
    return x / x.norm(dim=1, keepdim=True)


def reflection(W):
    f = AuxiliaryReflection(len(W), dtype=F64).requires_grad_(False)
    f.weight.copy_(W)
    return f


def near_singular(d, epsilon, seed=0, sign=None):
    """Q with eigenvalue one, its fixed n, and W = I - Q + epsilon E; sign is that of det W."""
    Q = torch.linalg.qr(normal(d, d, seed=seed))[0]
    n, E = torch.linalg.svd(torch.eye(d, dtype=F64) - Q)[2][-1], normal(d, d, seed=seed + 1000)
    if sign:
        E = E * sign * (n @ E @ n).sign()
    return Q, n, E, torch.eye(d, dtype=F64) - Q + epsilon * E


def determinants(W, x):
    """By automatic differentiation, not by the formula of the library."""
    return torch.linalg.det(torch.func.vmap(torch.func.jacrev(lambda row: householder(W @ row, row)))(x))


def mixture(W, n, seed=0):
    """x from halves uniform and W^-1 (n - y), and their density over the uniform one."""
    d, near = len(W), torch.linalg.svd(W)[2][-1]
    u = near - sphere(n // 2, d, seed + 1)
    x = torch.linalg.solve(W, u.T).T * normal(n // 2, 1, seed=seed + 2).sign()
    x = torch.cat([sphere(n // 2, d, seed), x / x.norm(dim=1, keepdim=True)])
    u = x @ W.T
    length = u.norm(dim=1)
    caps = torch.linalg.det(W).abs() * length**-d * (2 * (u @ near).abs() / length) ** (d - 2)
    return x, 0.5 + 0.5 * caps


def interval(values):
    return values.mean().item(), values.std().item() / len(values) ** 0.5


# The start


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 12, 24, 48])
def test_half_of_the_orthogonal_matrices_give_a_singular_W(d):
    """A product of k reflections: I - Q is singular whenever det Q = (-1)^(d-1), with a kernel of odd dimension."""
    for k in range(max(0, d - 4), d + 1):
        Q = torch.eye(d, dtype=F64)
        for v in normal(k, d, seed=k):
            Q = householder(v, Q)
        values = torch.linalg.svdvals(torch.eye(d, dtype=F64) - Q)
        kernel = int((values < 1e-10).sum())
        assert round(torch.linalg.det(Q).item()) == (-1) ** k
        assert kernel == d - k  # k independent vectors; their complement is fixed
        assert k % 2 != (d - 1) % 2 or kernel % 2 == 1


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [2, 3, 12, 24, 48])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_qr_makes_a_product_of_one_reflection_less_than_the_dimension(d, dtype):
    A = normal(50, d, d, seed=d).to(dtype)
    tau = torch.geqrf(A).tau
    assert (tau[:, -1] == 0).all() and (tau[:, :-1] >= 1).all()
    for Q in (torch.linalg.qr(A)[0].double(), torch.from_numpy(np.linalg.qr(A.numpy())[0]).double()):
        assert set(torch.linalg.det(Q).round().tolist()) == {(-1.0) ** (d - 1)}
        values = torch.linalg.svdvals(torch.eye(d, dtype=F64) - Q)
        assert values[:, -1].max() < 20 * torch.finfo(dtype).eps and values[:, -2].min() > 1e-3


# Counting


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize("t", [-2.0, -0.1, 0.05, 0.4, 0.8, 1.0, 1.7, 3.9])
def test_an_axis_of_symmetry(t, d):
    """W = diag(t, 2, ..., 2): three preimages, one, or three between the folds."""
    y = sphere(80, d, seed=d)
    found = [len(x) for x in reflection(torch.diag(torch.tensor([t] + [2.0] * (d - 1), dtype=F64))).preimages(y)]
    expected = torch.full((80,), 3 if t < 0 else 1)
    if 0 < t < 1:
        sin2 = t * (4 - t) / (4 - t**2)
        fold = math.sqrt(1 - sin2) * (4 * (1 - t) * sin2 - t**2 * (1 - sin2)) / (4 * t)
        expected[y[:, 0].abs() < fold] = 3
    assert found == expected.tolist()


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_degree_is_decided_by_the_sign_of_the_determinant(d, sign):
    """Far from I - Q: the signs of det J over the preimages of every target add up to 1, -1 or -3."""
    degree = (1 if sign > 0 else -3) if d % 2 == 0 else -1
    for seed in range(3):
        W = normal(d, d, seed=10 * d + seed)
        W[0] *= sign * torch.linalg.det(W).sign()
        for found in reflection(W).preimages(sphere(25, d, seed)):
            signs = determinants(W, found).sign()
            assert signs.sum().item() == degree
            assert abs(degree) <= len(found) <= 2 * d - 1 and len(found) % 2 == 1


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("d", [2, 3, 8, 12, 24])
def test_near_the_singular_start_there_are_three(d, sign):
    """One preimage near Q'y, one in each cap, there where the stereographic projection says; signs as the degree demands."""
    epsilon = 1e-4
    Q, n, E, W = near_singular(d, epsilon, seed=d, sign=sign)
    assert torch.linalg.det(W).sign() == sign
    y = sphere(40, d, seed=1)
    y = y[(y @ n).abs() < 0.95]
    pinv = torch.linalg.pinv(torch.eye(d, dtype=F64) - Q, rtol=1e-6)
    beta = n @ E @ n
    for target, found in zip(y, reflection(W).preimages(y), strict=True):
        assert len(found) == 3
        expected = [Q.T @ target]
        for side in (1.0, -1.0):
            q = (side * target - (side * target @ n) * n) / (1 - side * target @ n)  # projects to the target
            h = pinv @ (-beta * q - (E @ n - beta * n))
            x = n + epsilon * h
            expected.append(side * x / x.norm())
        gaps = torch.cdist(torch.stack(expected), found, compute_mode="donot_use_mm_for_euclid_dist")
        assert set(gaps.argmin(1).tolist()) == {0, 1, 2}
        bound = 1e5 * epsilon  # E is not small, nor is the inverse of I - Q off its kernel
        assert gaps.min(1).values[0] < bound * 1e-2 and (gaps.min(1).values[1:] < bound * 1e-4).all()
        signs = [determinants(W, found[gaps[k].argmin()][None]).sign().item() for k in range(3)]
        cap = (-1) ** d * sign ** (d - 1)
        assert signs == [(-1) ** (d - 1), cap, cap]


# Mass


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [2, 5, 12])
def test_the_samples_have_the_density_that_they_are_weighted_with(d):
    W = near_singular(d, 0.05, seed=3)[3]
    x, density = mixture(W, 40_000)
    for values, expected in ((torch.ones(len(x), dtype=F64), 1.0), (x[:, 0] ** 2, 1 / d), ((x[:, 0] * x[:, 1]).sign(), 0.0)):
        mean, error = interval(values / density)
        assert abs(mean - expected) < 5 * error


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [3, 4, 8, 12])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_mass_is_three_and_uniform_samples_do_not_see_it(d, sign):
    W = near_singular(d, 1e-3, seed=d, sign=sign)[3]
    x, density = mixture(W, 8000)
    dets = determinants(W, x)
    mean, error = interval(dets.abs() / density)
    assert abs(mean - 3) < 5 * error + 0.02 and error < 0.02  # the theorem is a limit
    mean, error = interval(dets / density)
    assert abs(mean - ((1 if sign > 0 else -3) if d % 2 == 0 else -1)) < 5 * error
    mean, error = interval(determinants(W, sphere(8000, d, 7)).abs())
    assert mean < 1.2 or error > 0.1


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [2, 4, 8, 12])
@pytest.mark.parametrize("kappa", [1.5, 1.9, 1.99])
def test_constrained_reflections_have_mass_one(d, kappa):
    torch.manual_seed(d)
    g = InvertibleReflection(d, kappa, dtype=F64).requires_grad_(False)
    g.weight.normal_().mul_(30)
    assert d == 2 or g.condition() > 1 + 0.9 * (kappa - 1)
    mean, error = interval(g.forward_and_ladj(sphere(40_000, d, seed=5))[1].exp())
    assert abs(mean - 1) < 5 * error and error < 0.05


@pytest.mark.claim("NEW-DENS")
def test_two_layers_multiply():
    first, second = (reflection(near_singular(6, 1e-3, seed=s)[3]) for s in (1, 2))
    numbers = [sum(len(x) for x in first.preimages(y.flip(1))) for y in second.preimages(sphere(30, 6, 4))]
    assert max(numbers) == 9 and np.mean(numbers) > 8.5


# Training and Newton's method


@pytest.mark.claim("NEW-DENS")
@pytest.mark.parametrize("d", [4, 12])
def test_one_step_of_training_is_generic(d):
    """Maximum likelihood under a Gaussian with correlated data, one step of Adam: one preimage before, three after."""
    f = AuxiliaryReflection.from_orthogonal(torch.linalg.qr(normal(d, d, seed=d))[0])
    data = normal(500, d, seed=1) @ normal(d, d, seed=2)
    targets = sphere(30, d, 3)
    assert all(len(x) == 1 for x in f.preimages(targets))
    descent = torch.optim.Adam(f.parameters(), 1e-3)
    (-f.forward_and_ladj(data)[1].mean()).backward()
    descent.step()
    counts = [len(x) for x in f.preimages(targets)]
    assert counts.count(3) >= 28 and set(counts) <= {1, 3}


@pytest.mark.claim("NEW-DENS")
def test_newton_returns_the_far_preimage_whether_or_not_there_are_others():
    Q, n, _, W = near_singular(12, 1e-3, seed=4)
    f, y = reflection(W), sphere(100, 12, 5)
    y = y[(y @ n).abs() < 0.7]
    found = f.inverse(y, Newton())
    torch.testing.assert_close(f(found), y, rtol=1e-10, atol=1e-10)
    assert (found - y @ Q).norm(dim=1).max() < 0.1
    x = sphere(100, 12, 6)
    x = x[(x @ n).abs() < 0.7]
    assert (f.inverse(f(x)) - x).norm(dim=1).max() < 1e-9  # as if it were injective
    others = torch.cat([three[(three @ Q.T - f(three)).norm(dim=1) > 0.5] for three in f.preimages(y)])
    assert len(others) == 2 * len(y)
    assert (f.inverse(f(others)) - others).norm(dim=1).min() > 0.1


# Likelihood


@pytest.mark.claim("NEW-DENS")
def test_a_sampler_that_picks_a_preimage_has_the_reported_density_there_and_none_elsewhere():
    """In the plane, by angle: z uniform on the circle, x the preimage that Newton's method returns, in twelve sectors."""
    W = torch.tensor([[-0.6, 0.3], [0.1, 1.5]], dtype=F64)
    f, n = reflection(W), 6000
    grid = (torch.arange(n, dtype=F64) + 0.5) * (2 * math.pi / n)
    points = torch.stack([grid.cos(), grid.sin()], 1)
    density = determinants(W, points).abs()
    assert density.mean().item() == pytest.approx(3, abs=1e-6)
    back = (f.inverse(f(points)) - points).norm(dim=1) < 1e-6
    assert (back * density).mean().item() == pytest.approx(1, abs=0.01)  # the sheets that it returns are a third of the mass
    z = sphere(20_000, 2, 9)
    x = f.inverse(z)
    sector = (torch.atan2(x[:, 1], x[:, 0]).remainder(2 * math.pi) * 6 / math.pi).long()
    for k in range(12):
        share = (back * density)[k * n // 12 : (k + 1) * n // 12].mean().item() / 12
        found = (sector == k).double().mean().item()
        assert abs(found - share) < 5 * (share * (1 - share) / 20_000) ** 0.5 + 1e-3


@pytest.mark.claim("NEW-DENS")
def test_the_pixels_behind_a_reflection_of_glow():
    """A step of level i has D / (3 * 4^i) pixels, which is what multiplies log 3."""
    model = flows.Glow((3, 16, 16), levels=3, steps=1, hidden=4, mixing=flows.transforms.AuxiliaryMixing)
    x = torch.rand(1, 3, 16, 16)
    for i, level in enumerate(model.flow.levels):
        for step in level:
            if isinstance(step, flows.transforms.AuxiliaryMixing):
                assert x.shape[1] == 12 * 2**i and x[0, 0].numel() * 12 * 4**i == model.entries
            x = step(x)
        x = x.chunk(2, 1)[0]
