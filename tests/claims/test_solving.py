"""Chapter 6: what the two loops converge to, how far they are from it, how to choose the step, and Newton's method."""

import math

import pytest
import torch

from mon_lib import certificates, operators, prox, splitting, stepsize
from mon_lib.acceleration import Anderson, Newton, newton_step
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford, Status
from tests.problems import F64, generator, random_bias, random_operator

RELU = prox.ReLU()
PROJECTIONS = {"relu": RELU, "clip": prox.Clip(-0.2, 0.5)}
OTHERS = {
    "leaky": prox.LeakyReLU(0.1),
    "tanh": prox.Tanh(),
    "soft": prox.SoftThreshold(0.3),
    "softplus": prox.Softplus(),
    "elu": prox.ELU(),
}
EVERY = PROJECTIONS | OTHERS


def equilibrium(W, bias, s) -> torch.Tensor:
    """z* from a plain solve, held to the fixed-point equation."""
    z = PeacemanRachford(tol=1e-13, max_steps=20_000).solve(W, bias, s).z
    torch.testing.assert_close(z, s(W.frozen()(z) + bias), rtol=0, atol=1e-11)
    return z


def algorithm_1(W, bias, nonlinearity, alpha, steps):
    W, z = W.frozen(), torch.zeros_like(bias)
    for _ in range(steps):
        z = nonlinearity((1 - alpha) * z + alpha * (W(z) + bias))
    return z


def algorithm_2(W, bias, nonlinearity, alpha, steps, sign=1.0):
    V, z, u = W.resolvent(alpha), torch.zeros_like(bias), torch.zeros_like(bias)
    for _ in range(steps):
        u_half = 2 * z - u
        u = 2 * V(u_half + sign * alpha * bias) - u_half
        z = nonlinearity(u)
    return z


def skewed(n=60, m=1.0, g=40.0, h=10.0, seed=0, batch=20):
    """Like a trained dense layer; g and h as in appendix D.2."""
    r = generator(seed)
    A, B = torch.randn(n, n, generator=r, dtype=F64), torch.randn(n, n, generator=r, dtype=F64)
    W = (1 - m) * torch.eye(n, dtype=F64) - g * A.T @ A / A.square().sum() + h * (B - B.T) / B.norm()
    return operators.Dense.from_matrix(W, m), torch.randn(batch, n, generator=r, dtype=F64)


@pytest.mark.claim("MON-EQ8")
@pytest.mark.parametrize("s", EVERY.values(), ids=EVERY)
def test_forward_backward_needs_prox_of_alpha_f(s):
    W, bias = random_operator(skew=1.0, m=1.0), random_bias()
    exact = equilibrium(W, bias, s)
    best = W.m / W.lipschitz() ** 2
    for alpha in (0.5 * best, 1.5 * best):
        steps = math.ceil(30 / -math.log(W.forward_norm(alpha)))
        torch.testing.assert_close(algorithm_1(W, bias, lambda u, a=alpha: s.prox(u, a), alpha, steps), exact, rtol=0, atol=1e-10)
        z = algorithm_1(W, bias, s, alpha, steps)
        # the printed loop solves the network with the activation prox_{f/alpha}
        torch.testing.assert_close(z, s.prox(W.frozen()(z) + bias, 1 / alpha), rtol=0, atol=1e-10)
        assert (float((z - exact).abs().max()) < 1e-10) == (s in PROJECTIONS.values())
    solution = ForwardBackward(tol=1e-10, max_steps=20_000).solve(W, bias, s)
    assert float((solution.z - exact).abs().max()) < 1e-9


@pytest.mark.claim("MON-EQ8")
def test_with_sigma_the_limit_changes_with_alpha():
    W, bias = random_operator(skew=1.0, m=1.0), random_bias()
    limits = [algorithm_2(W, bias, prox.Tanh(), alpha, 400) for alpha in (0.25, 0.5, 1.0, 2.0)]
    exact = equilibrium(W, bias, prox.Tanh())
    distance = [float((z - exact).norm() / exact.norm()) for z in limits]
    assert distance[2] < 1e-10 < 0.01 < min(distance[0], distance[1], distance[3]) and distance[0] > distance[1]


@pytest.mark.claim("MON-A2")
@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("s", EVERY.values(), ids=EVERY)
def test_peaceman_rachford_needs_prox_of_alpha_f(s, alpha):
    W, bias = random_operator(skew=2.0, m=1.0), random_bias()
    exact = equilibrium(W, bias, s)
    steps = math.ceil(30 / -math.log(W.cayley_norm(alpha)))
    torch.testing.assert_close(algorithm_2(W, bias, lambda u: s.prox(u, alpha), alpha, steps), exact, rtol=0, atol=1e-10)
    z = algorithm_2(W, bias, s, alpha, steps)
    torch.testing.assert_close(z, s.prox(W.frozen()(z) + bias, 1 / alpha), rtol=0, atol=1e-10)
    agrees = s in PROJECTIONS.values() or alpha == 1.0
    assert (float((z - exact).abs().max()) < 1e-10) == agrees
    solution = PeacemanRachford(alpha, tol=1e-10, max_steps=20_000).solve(W, bias, s)
    assert float((solution.z - exact).abs().max()) < 1e-9


@pytest.mark.claim("MON-EQ8", "MON-A2")
def test_only_projections_have_one_prox_for_every_alpha():
    x = torch.linspace(-5, 5, 501, dtype=F64)
    for s in EVERY.values():
        same = all(float((s.prox(x, alpha) - s(x)).abs().max()) < 1e-12 for alpha in (0.1, 0.5, 2.0, 10.0))
        assert same == (s in PROJECTIONS.values())


@pytest.mark.claim("MON-EQ9")
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("s", EVERY.values(), ids=EVERY)
def test_the_printed_sign_negates_the_bias(s, alpha):
    W, bias = random_operator(skew=2.0, m=1.0), random_bias()
    steps = math.ceil(30 / -math.log(W.cayley_norm(alpha)))
    plus, minus = (algorithm_2(W, bias, lambda u: s.prox(u, alpha), alpha, steps, sign) for sign in (1.0, -1.0))
    torch.testing.assert_close(plus, equilibrium(W, bias, s), rtol=0, atol=1e-10)
    torch.testing.assert_close(minus, equilibrium(W, -bias, s), rtol=0, atol=1e-10)
    assert float((minus - plus).norm() / plus.norm()) > 0.1
    # mon_lib's step has the plus
    problem = splitting.Problem(W.frozen(), bias, s, alpha)
    u = problem.operator(plus) * alpha + alpha * bias + (1 - alpha) * plus  # u* = z* - alpha A(z*)
    u_next, z, e = PeacemanRachford(alpha).step(problem, u)
    assert float((u_next - u).abs().max()) < 1e-9 and float((z - plus).abs().max()) < 1e-9 and float(e.abs().max()) < 1e-8


@pytest.mark.claim("NEW-CERT")
@pytest.mark.parametrize("alpha", [0.05, 0.7, 6.0])
def test_the_vectors_of_the_theorem_lie_where_it_says(alpha):
    """With softplus, df(z) = sigma^-1(z) - z is single-valued, so membership is an equation."""
    W, bias = random_operator(skew=3.0), random_bias()
    s, matrix = prox.Softplus(), W.to_dense().detach()
    G = torch.eye(8, dtype=F64) - matrix
    problem = splitting.Problem(W.frozen(), bias, s, alpha)

    def in_sum(z):
        return problem.affine(z) + torch.log(torch.expm1(z)) - z

    exact = equilibrium(W, bias, s)
    for seed in range(5):
        u = 2 * random_bias(seed=seed)
        for solver, share in ((PeacemanRachford(alpha), 2.0), (DouglasRachford(alpha), 1.0)):
            u_next, z, e = solver.step(problem, u)
            q = e + alpha * e @ G.T
            torch.testing.assert_close(q, in_sum(z), rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(e, (u - u_next) / (share * alpha), rtol=1e-10, atol=1e-12)
            error, tight = certificates.norm(z - exact), certificates.norm(q) / W.m
            cheap = (1 + alpha * W.lipschitz()) / W.m * certificates.norm(e)
            assert bool((error <= tight).all() and (tight <= cheap * (1 + 1e-12)).all())
            ledger = certificates.norm((u_next - u) + alpha * (u_next - u) @ G.T) / (share * alpha * W.m)
            torch.testing.assert_close(tight, ledger, rtol=1e-9, atol=1e-12)
        start = s(u)
        z_next, _, e = ForwardBackward(alpha).step(problem, start)
        torch.testing.assert_close(e - alpha * e @ G.T, in_sum(z_next), rtol=1e-7, atol=1e-7)
        assert bool((certificates.norm(z_next - exact) <= W.forward_norm(alpha) / W.m * certificates.norm(e)).all())
        r = start - s(problem.operator(start) + bias)
        size = torch.linalg.matrix_norm(matrix, 2)
        assert bool((certificates.norm(start - exact) <= (1 + size / W.m) * certificates.norm(r)).all())


@pytest.mark.claim("NEW-CERT")
def test_the_first_bound_is_attained():
    """G = mI and all units active: the error is ||q||/m exactly."""
    m = 0.3
    W = operators.Dense.from_matrix((1 - m) * torch.eye(4, dtype=F64), m)
    bias = torch.ones(1, 4, dtype=F64)
    z = equilibrium(W, bias, RELU) + 0.1 * random_bias(n=4, batch=1)
    q = m * z - bias
    torch.testing.assert_close(certificates.norm(q) / m, certificates.norm(z - equilibrium(W, bias, RELU)), rtol=1e-10, atol=0)


@pytest.mark.claim("NEW-CERT")
def test_relative_change_depends_on_alpha_and_the_certificate_does_not():
    W, bias = skewed()
    exact, eps = equilibrium(W, bias, RELU), 1e-3
    wrong = []
    for alpha in (2.0**-8, 2.0**-5, 0.5):
        V, z, u = W.resolvent(alpha), torch.zeros_like(bias), torch.zeros_like(bias)
        for _ in range(20_000):
            half = V(2 * z - u + alpha * bias)
            u = 2 * half - (2 * z - u)
            z, previous = RELU(u), z
            if (z - previous).norm() <= eps * z.norm():
                break
        wrong.append(float((z - exact).norm() / exact.norm()))
        for solver in (PeacemanRachford, DouglasRachford):
            z = solver(alpha, tol=eps, max_steps=20_000).solve(W, bias, RELU).z
            assert bool((certificates.norm(z - exact) <= eps * certificates.norm(z)).all())
    assert wrong[0] > 30 * eps and wrong[1] > 3 * eps and wrong[2] < 2 * eps


@pytest.mark.claim("NEW-ALPHA")
@pytest.mark.parametrize("alpha", [0.15, 0.6, 2.0])
def test_the_late_iteration_is_linear_with_the_predicted_matrix(alpha):
    W, bias = skewed(n=20, batch=1)
    eye = torch.eye(20, dtype=F64)
    C = 2 * torch.linalg.inv(eye + alpha * (eye - W.to_dense().detach())) - eye
    problem, solver = splitting.Problem(W.frozen(), bias, RELU, alpha), PeacemanRachford(alpha)
    z_star = equilibrium(W, bias, RELU)
    u_star = z_star - alpha * problem.affine(z_star)
    s = torch.sign(u_star[0])
    rho = float(torch.linalg.eigvals(C * s).abs().max())
    assert rho <= W.cayley_norm(alpha) * (1 + 1e-12) < 1
    u, distances, linear = torch.zeros_like(bias), [], 0
    while len(distances) < 400 and (not distances or distances[-1] > 1e-9):
        previous = u
        u, _, _ = solver.step(problem, previous)
        distances.append(float((previous - u_star).norm()))
        if bool((torch.sign(previous) == s).all()):
            torch.testing.assert_close(u - u_star, (previous - u_star) @ (C * s).T, rtol=1e-6, atol=1e-12)
            linear += 1
    assert linear > len(distances) // 2
    tail = len(distances) // 3
    rate = (distances[-1] / distances[-tail]) ** (1 / (tail - 1))
    assert rate == pytest.approx(rho, abs=0.04)


def mean_steps(W, bias, alpha):
    return float(PeacemanRachford(alpha, max_steps=5000).solve(W, bias, RELU).sample_steps.double().mean())


@pytest.mark.claim("NEW-ALPHA")
@pytest.mark.parametrize(("g", "h"), [(5.0, 6.0), (60.0, 12.0), (40.0, 10.0), (5.0, 40.0)])
def test_random_signs_choose_nearly_the_best_step(g, h):
    W, bias = skewed(g=g, h=h, seed=3)
    grid = [1.5 / W.lipschitz() * 2.0 ** (k / 6) for k in range(-8, 13)]
    fewest = min(mean_steps(W, bias, alpha) for alpha in grid)
    auto = PeacemanRachford().choose_alpha(W, bias, RELU)
    assert mean_steps(W, bias, auto) <= 1.05 * fewest
    by_norm = min((2.0 ** (k / 4) / W.lipschitz() for k in range(-12, 13)), key=W.cayley_norm)
    assert 1.0 <= mean_steps(W, bias, by_norm) / fewest <= 2.3
    # the estimate agrees with exact spectral radii over many other signs
    eye = torch.eye(60, dtype=F64)
    C = 2 * torch.linalg.inv(eye + auto * (eye - W.to_dense().detach())) - eye
    signs = torch.randint(2, (24, 60), generator=generator(8)).double() * 2 - 1
    exact = float(torch.linalg.eigvals(C * signs[:, None]).abs().amax(1).mean())
    assert stepsize.SpectralRadius().rate(W.frozen(), auto) == pytest.approx(exact, abs=0.04)


@pytest.mark.claim("NEW-ALPHA")
def test_halving_cannot_exceed_one():
    W, bias = skewed(m=0.1, g=0.5, h=0.5)
    auto = PeacemanRachford().choose_alpha(W, bias, RELU)
    halving = stepsize.Halving().choose(W.frozen(), bias, RELU, PeacemanRachford())
    assert halving == 1.0 < 2.0 < auto
    assert mean_steps(W, bias, auto) < 0.6 * mean_steps(W, bias, halving)


@pytest.mark.claim("NEW-NEWT")
@pytest.mark.parametrize("s", [RELU, prox.LeakyReLU(0.1), prox.Clip(-0.2, 0.5)], ids=repr)
def test_one_newton_step_ends_it_close_to_the_answer(s):
    W, bias = random_operator(n=12, skew=4.0), random_bias(n=12, batch=20)
    exact = equilibrium(W, bias, s)
    near = exact + 1e-7 * random_bias(n=12, batch=20, seed=5)
    assert float((newton_step(W, bias, s, near) - exact).abs().max()) < 1e-13
    # also with a unit exactly on its kink
    x = W.frozen()(exact) + bias
    on_kink = bias.clone()
    on_kink[:, 0] -= x[:, 0] - torch.where(exact[:, 0] > 0, x[:, 0], 0.0)
    exact = equilibrium(W, on_kink, s)
    near = exact + 1e-7 * random_bias(n=12, batch=20, seed=6)
    assert float((newton_step(W, on_kink, s, near) - exact).abs().max()) < 1e-13


@pytest.mark.claim("NEW-NEWT")
@pytest.mark.parametrize("t", [0.5, 0.9, 1.1, 1.5, 1.9])
def test_newton_cycles_from_most_starts_beyond_diagonal_dominance(t):
    P = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=F64)
    W, c = operators.Dense.from_matrix(-t * P, 1 - t / 2), torch.ones(100, 3, dtype=F64)
    z0 = 2 * torch.randn(100, 3, generator=generator(0), dtype=F64)
    z = z0
    for _ in range(40):
        z = newton_step(W, c, RELU, z)
    lost = int(((z - 1 / (1 + t)).abs().amax(1) > 1e-6).sum())
    assert lost == 0 if t < 1 else lost > 40
    safe = Newton(PeacemanRachford(tol=1e-10)).solve(W, c, RELU, z0=z0)
    assert bool(safe.converged.all()) and float((safe.z - 1 / (1 + t)).abs().max()) < 1e-9


@pytest.mark.claim("MON-FIG3")
def test_convergence_over_alpha_on_a_skewed_network():
    W, bias = skewed(h=14.0)
    alphas = [2.0**-k for k in range(7)]
    peaceman = [PeacemanRachford(alpha, max_steps=3000).solve(W, bias, RELU).steps for alpha in alphas]
    assert min(peaceman) < min(peaceman[0], peaceman[-1])  # every alpha converges, a middle one fastest
    forward = [ForwardBackward(alpha, max_steps=6000).solve(W, bias, RELU, throw=False) for alpha in alphas]
    works = [bool(solution.converged.all()) for solution in forward]
    assert not works[0] and works[-1] and works == sorted(works)  # a threshold between them
    steps = [solution.steps for solution, good in zip(forward, works, strict=True) if good]
    assert steps[-1] > steps[-2] > steps[-3] and min(steps) > min(peaceman)
    assert all(good for alpha, good in zip(alphas, works, strict=True) if alpha < 2 * W.m / W.lipschitz() ** 2)


@pytest.mark.claim("MON-FIG3")
def test_a_nan_ends_the_papers_loop_and_not_ours():
    W, bias = skewed(h=14.0)
    frozen, bias = W.to(torch.float32).frozen(), bias.float()
    z, err, k = torch.zeros_like(bias), torch.tensor(torch.inf), 0
    while err > 1e-6 and k < 5000:
        z, previous = RELU(frozen(z) + bias), z
        err, k = (z - previous).norm() / z.norm(), k + 1
    assert bool(err.isnan()) and k < 500  # "converged"
    solution = ForwardBackward(1.0, max_steps=5000).solve(frozen, bias, RELU, throw=False)
    assert solution.status is Status.DIVERGED and not bool(solution.converged.any())
    solver = ForwardBackward(tol=1e-4, max_steps=5000)
    assert stepsize.Halving().choose(frozen, bias, RELU, solver) < 1.0


def test_anderson_gains_little_on_peaceman_rachford_and_more_elsewhere():
    W, bias = skewed()
    gain = {}
    for plain in (PeacemanRachford(), DouglasRachford(), ForwardBackward(max_steps=2000)):
        gain[type(plain)] = Anderson(plain).solve(W, bias, RELU).steps / plain.solve(W, bias, RELU).steps
    assert gain[PeacemanRachford] > 0.8 and gain[DouglasRachford] < 0.7 and gain[ForwardBackward] < 0.7
