"""The statements of chapter 12: multiplications, memory, the valley of alpha, averaging over signs, acceleration, warm starts."""

import copy
import math

import pytest
import torch
from counting import Multiplications
from problems import F64, generator, random_bias, random_operator

from mon_lib import Equilibrium, operators, prox, splitting, stepsize
from mon_lib.acceleration import Anderson, newton_step
from mon_lib.certificates import norm
from mon_lib.splitting import DouglasRachford, PeacemanRachford

SIGMA = prox.Border(prox.ReLU(), 1)


def counted(run):
    with Multiplications() as count:
        run()
    return count.total


def hard(n=6, s=8, batch=5, seed=0, kind=operators.MatrixTransform):
    """A convolution with large gains, and biases that are zero on the border."""
    r = generator(seed)
    W = operators.Convolution(n, (s, s), transform=kind, dtype=F64)
    with torch.no_grad():
        for kernel in (W.A, W.B):
            kernel.copy_(torch.randn(kernel.shape, generator=r, dtype=F64))
        W.g_raw.fill_(40.0)
        W.h.fill_(10.0)
    bias = torch.randn(batch, n, s - 2, s - 2, generator=r, dtype=F64)
    return W, torch.nn.functional.pad(bias, (1, 1, 1, 1))


# cost-step


@pytest.mark.parametrize(("n", "s", "b"), [(5, 7, 3), (6, 8, 2), (17, 16, 1), (16, 15, 2)])
def test_multiplications_of_a_product(n, s, b):
    half, x = s // 2 + 1, torch.randn(b, n, s, s, dtype=F64)
    W = hard(n, s, 1)[0].requires_grad_(False)
    assert counted(W.frozen) == 4 * s * half * (n**3 + 9 * n**2)
    frozen = W.frozen()
    assert counted(lambda: frozen.resolvent(0.3)) == 4 * s * half * n**3
    R = frozen.resolvent(0.3)
    assert counted(lambda: R(x)) == counted(lambda: frozen(x)) == 4 * b * n**2 * s * half + 12 * b * n * s**2 * half
    explicit = torch.nn.Conv2d(n, n, 3, padding=1, bias=False, dtype=F64).requires_grad_(False)
    convolution = counted(lambda: explicit(x))
    assert convolution == 9 * b * n**2 * s**2
    even = 2 if s % 2 == 0 else 1
    assert counted(lambda: R(x)) / convolution == pytest.approx(2 / 9 * (1 + even / s) * (1 + 3 * s / n), rel=1e-12)


def test_where_a_step_is_cheaper_than_a_convolution():
    def ratio(n, s):
        return 4 * (s // 2 + 1) * (3 * s + n) / (9 * s * n)

    assert all(ratio(n, s) <= 1 for s in range(16, 129) for n in range(s, 300))
    assert ratio(14, 14) > 1 and ratio(16, 16) == 1  # neither sixteen nor n >= s can go without a change elsewhere
    assert ratio(15, 16) > 1


# cost-pass, the sentence on a whole pass


@pytest.mark.parametrize("kind", [operators.MatrixTransform, operators.FastTransform])
def test_a_pass_costs_its_steps_and_a_fixed_amount(kind):
    W, bias = hard(kind=kind)
    R = W.frozen().resolvent(0.2)
    P, fixed, steps = counted(lambda: R(bias)), [], []
    for tol in (0.3, 1e-2, 1e-6):
        layer = Equilibrium(W, torch.nn.Identity(), SIGMA, PeacemanRachford(0.2, tol=tol))
        total = counted(lambda layer=layer: layer(bias.clone().requires_grad_()).sum().backward())
        steps.append(layer.forward_report.steps + layer.backward_report.steps)
        fixed.append(total - steps[-1] * P)
    assert steps[0] < steps[1] < steps[2]
    assert fixed == pytest.approx([fixed[0]] * 3, rel=1e-9) and fixed[0] > 0


@pytest.mark.parametrize("depth", [1, 3])
def test_an_explicit_layer_costs_three_convolutions_to_train(depth):
    x = torch.randn(2, 4, 6, 6).requires_grad_()
    stack = torch.nn.Sequential(*[torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(depth)])
    assert counted(lambda: stack(x).sum().backward()) == 3 * depth * 9 * 2 * 4**2 * 6**2


# cost-memory


def kept(run):
    held = {}

    def pack(x):
        held[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = run()
    assert out.requires_grad
    return sum(storage.nbytes() for storage in held.values())


def test_memory_does_not_grow_with_the_steps():
    W, bias = hard()
    x, held, steps = bias.clone().requires_grad_(), set(), []
    for alpha, tol in ((0.2, 0.5), (0.2, 1e-3), (0.2, 1e-9), (0.01, 1e-6)):
        layer = Equilibrium(W, torch.nn.Identity(), SIGMA, PeacemanRachford(alpha, tol=tol, max_steps=5000))
        held.add(kept(lambda layer=layer: layer(x)))
        steps.append(layer.forward_report.steps)
    assert len(held) == 1 and steps[-1] > 20 * steps[0]

    def unrolled(count):
        problem = splitting.Problem(W.frozen(), x, SIGMA, 0.2)
        u = torch.zeros_like(x)
        for _ in range(count):
            z = problem.prox(u)
            u = u + 2 * (problem.resolvent(2 * z - u + problem.shift) - z)
        return problem.prox(u)

    loop = [kept(lambda count=count: unrolled(count)) for count in (5, 10, 20)]
    inside = (6 / 8) ** 2 * x.numel() * x.element_size()
    assert loop[1] - loop[0] >= 5 * inside and loop[2] - loop[1] == 2 * (loop[1] - loop[0])


# cost-valley


@pytest.mark.parametrize("tau", [0.2, 0.5, 1.0, 2.0, 7.0])
def test_the_valley(tau):
    s = 3.0
    G = torch.tensor([[1.0, -s], [s, 1.0]], dtype=F64)  # attains c(alpha) at every alpha
    W, kappa = operators.Dense.from_matrix(torch.eye(2, dtype=F64) - G, 1.0), math.hypot(1, s)
    x = kappa * math.cosh(math.log(tau))
    c = W.cayley_norm(tau / kappa)
    assert c**2 == pytest.approx((x - 1) / (x + 1), rel=1e-10)
    for eps in (0.5, 1e-3, 1e-9):
        steps = math.ceil(x * math.log(1 / eps))
        assert c**steps <= eps
    assert c ** (0.8 * x * math.log(1e9)) > 1e-9  # no bound that is a fifth lower


def test_a_factor_of_two_costs_a_quarter():
    assert math.cosh(math.log(2)) == pytest.approx(1.25)
    assert math.cosh(-math.log(2)) == pytest.approx(1.25)


# cost-signs


def growth(C, eta, K):
    return torch.linalg.matrix_power(C * eta.unsqueeze(-2), K).square().sum((-2, -1)) / C.shape[0]


def matrix(N, c=0.9, seed=0):
    C = torch.randn(N, N, generator=generator(seed), dtype=F64)
    return c * C / torch.linalg.matrix_norm(C, 2)


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_nearby_signs_have_nearby_growth(K, share):
    N, c = 40, 0.9
    r = generator(K)
    for seed in range(10):
        C = matrix(N, c, seed)
        eta = 2 * torch.rand(2, N, generator=r, dtype=F64) - 1  # any slopes, not only signs
        change = torch.rand(N, generator=r) < share
        other = torch.where(change, eta[1], eta[0])
        delta = float((other != eta[0]).double().mean())
        assert abs(float(growth(C, other, K) - growth(C, eta[0], K))) <= 4 * K * delta * c ** (2 * K)


def test_the_growth_is_a_mean_over_starts():
    C, K = matrix(30), 3
    eta = torch.randint(2, (30,), generator=generator(1)).to(F64) * 2 - 1
    x = torch.randn(30, 200_000, generator=generator(2), dtype=F64)
    sample = (torch.linalg.matrix_power(C * eta, K) @ x).square().sum(0) / 30
    mean, c = float(growth(C, eta, K)), 0.9
    assert float(sample.mean()) == pytest.approx(mean, rel=0.01)
    assert float(sample.var()) <= 2 * c ** (4 * K) / 30


def test_large_states_average_over_themselves():
    """A circulant family: the same kernel on more and more pixels."""
    K, scaled = 3, []
    for s in (4, 8, 16):
        W, _ = hard(n=3, s=s, batch=1, seed=1)
        N, eye = W.state_size, torch.eye(W.state_size, dtype=F64)
        C = 2 * W.resolvent(0.3)(eye.reshape(N, 3, s, s)).reshape(N, N).T.detach() - eye
        c = W.cayley_norm(0.3)
        eta = torch.randint(2, (40, N), generator=generator(s)).to(F64) * 2 - 1
        spread = torch.cat([growth(C, part, K) for part in eta.split(10)]).std()
        assert float(spread) <= 2 * K * c ** (2 * K) / N**0.5
        scaled.append(float(spread) * N**0.5)
    assert max(scaled) < 2.5 * min(scaled)


def test_dependent_signs_do_not_average():
    """All slopes zero or all one: the growth spreads as widely in any dimension, and the bound fails."""
    K = 2
    for N in (400, 1600):
        C = 0.9 * torch.eye(N, dtype=F64)
        both = torch.stack([growth(C, torch.full((N,), v, dtype=F64), K) for v in (0.0, 1.0)])
        assert float(both.std(correction=0)) > 2 * K * 0.9 ** (2 * K) / N**0.5


def test_one_estimate_spreads_less_on_a_larger_state():
    spreads = []
    for s in (4, 16):
        W = hard(n=4, s=s, batch=1, seed=2)[0].frozen()
        rules = [stepsize.SpectralRadius(signs=1, powers=24, seed=i) for i in range(12)]
        spreads.append(float(torch.tensor([rule.rate(W, 0.3) for rule in rules]).std()))
    assert spreads[1] < 0.6 * spreads[0]


def test_one_step_serves_every_sample():
    W, bias = hard(n=8, s=10, batch=8)
    PR = PeacemanRachford(max_steps=3000)
    L = W.lipschitz()
    every = torch.stack([PR.with_alpha(2.0 ** (k / 3) / L).solve(W, bias, SIGMA).sample_steps for k in range(-3, 10)])
    chosen = PR.solve(W, bias, SIGMA).sample_steps
    assert bool((chosen <= 1.15 * every.amin(0) + 1).all())


# cost-accelerated


@pytest.mark.parametrize("memory", [1, 4, 7])
def test_what_anderson_adds(memory):
    W, bias = hard()
    frozen, solver = W.frozen(), DouglasRachford(0.2)
    frozen.resolvent(0.2), frozen.lipschitz_bound()
    P = counted(lambda: frozen.resolvent(0.2)(bias))
    steps = []
    plain = counted(lambda: steps.append(solver.solve(frozen, bias, SIGMA).steps))
    fast = counted(lambda: steps.append(Anderson(solver, memory).solve(frozen, bias, SIGMA).steps))
    assert plain == steps[0] * P
    assert fast == steps[1] * P + (steps[1] - 1) * (memory**2 + 2 * memory) * bias.numel()
    assert steps[1] < steps[0]


@pytest.mark.parametrize("s", [prox.ReLU(), prox.Tanh(), prox.LeakyReLU(0.3)], ids=repr)
def test_newtons_direction_is_an_equilibrium(s):
    W, bias = random_operator(n=12, skew=3.0), random_bias(n=12, batch=6)
    frozen, z = W.frozen(), random_bias(n=12, batch=6, seed=4)
    pre = frozen(z) + bias
    r, J = s(pre) - z, s.derivative(pre)
    e = PeacemanRachford(tol=1e-13).solve(frozen, frozen(r), prox.Diagonal(J)).z
    d = r + e
    torch.testing.assert_close(d - J * frozen(d), r, rtol=0, atol=1e-10)
    torch.testing.assert_close(z + d, newton_step(W, bias, s, z), rtol=0, atol=1e-10)


def test_newtons_inner_loop_is_as_slow_as_the_outer_one():
    """Close to z* one step of either is the same linear map."""
    W, bias = random_operator(n=12, skew=3.0), random_bias(n=12, batch=1)
    frozen, alpha, solver = W.frozen(), 0.4, PeacemanRachford(0.4)
    problem = splitting.Problem(frozen, bias, prox.ReLU(), alpha)
    z = solver.with_alpha(alpha).solve(W, bias, prox.ReLU()).z
    u = PeacemanRachford.lift(solver, problem, PeacemanRachford(tol=1e-13).solve(W, bias, prox.ReLU()).z)
    J = (u > 0).to(F64)
    inner = splitting.Problem(frozen, frozen(z), prox.Diagonal(J), alpha)
    step = 1e-6 * torch.eye(12, dtype=F64).unsqueeze(1)
    outer = [(solver.step(problem, u + h)[0] - solver.step(problem, u)[0]) / 1e-6 for h in step]
    linear = [(solver.step(inner, u + h)[0] - solver.step(inner, u)[0]) / 1e-6 for h in step]
    torch.testing.assert_close(torch.stack(outer), torch.stack(linear), rtol=0, atol=1e-7)


# cost-warm


def changed(W, size, seed=1):
    other, r = copy.deepcopy(W), generator(seed)
    with torch.no_grad():
        for kernel in (other.A, other.B):
            noise = torch.randn(kernel.shape, generator=r, dtype=F64)
            kernel.add_(noise * size * kernel.norm() / noise.norm())
    return other


@pytest.mark.parametrize("size", [1e-1, 1e-3])
@pytest.mark.parametrize("shift", [0.0, 1e-2])
def test_how_far_the_equilibrium_moves(size, shift):
    W, bias = hard()
    other, moved = changed(W, size), bias + shift * SIGMA(torch.randn(bias.shape, generator=generator(3), dtype=F64))
    PR = PeacemanRachford(0.2, tol=1e-12)
    before, after = PR.solve(W, bias, SIGMA).z, PR.solve(other, moved, SIGMA).z
    frozen = other.frozen()
    bound = norm(frozen(before) - W.frozen()(before) + moved - bias) / other.m
    assert bool((norm(before - after) <= bound).all())
    problem = splitting.Problem(frozen, moved, SIGMA, 0.2)
    error = PR.lift(problem, before) - PR.lift(problem, after)
    gap = before - after
    torch.testing.assert_close(error, gap - 0.2 * (gap - frozen(gap)), rtol=0, atol=1e-9)


def test_the_first_bound_of_a_warm_start_is_attained():
    """W = (1 - m)I and all units active: b moves the equilibrium by exactly 1/m times its own change."""
    m = 0.4
    W = operators.Dense.from_matrix((1 - m) * torch.eye(3, dtype=F64), m)
    PR = PeacemanRachford(tol=1e-13)
    z = [PR.solve(W, torch.full((1, 3), v, dtype=F64), prox.ReLU()).z for v in (1.0, 1.2)]
    assert float(norm(z[1] - z[0])) == pytest.approx(0.2 * 3**0.5 / m, rel=1e-10)


def test_a_warm_start_saves_what_its_distance_says():
    W, bias = hard(n=8, s=10, batch=8)
    PR = PeacemanRachford(tol=1e-8)
    PR = PR.with_alpha(PR.choose_alpha(W, bias, SIGMA))
    before = PR.solve(W, bias, SIGMA)
    rate = float((before.residuals[-1] / before.residuals[-9]).mean() ** (1 / 8))
    saved = []
    for size in (1e-1, 1e-3, 1e-5):
        other = changed(W, size)
        cold, warm = (PR.solve(other, bias, SIGMA, z0=z0) for z0 in (None, before.z))
        problem = splitting.Problem(other.frozen(), bias, SIGMA, PR.alpha)
        end = PR.lift(problem, cold.z)
        ratio = float((norm(end) / norm(PR.lift(problem, before.z) - end)).log().mean())
        saved.append(float((cold.sample_steps - warm.sample_steps).double().mean()))
        assert 0.6 < saved[-1] / (ratio / -math.log(rate)) < 1.6
    assert saved[0] < saved[1] < saved[2]
    other = PR.solve(W, bias, SIGMA, z0=before.z.roll(1, 0))
    assert other.steps > 0.7 * before.steps  # another sample's equilibrium is no better than zero
