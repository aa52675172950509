"""Rules for alpha: what each promises, and what it costs the solver."""

import math

import pytest
import torch

from mon_lib import operators, prox, stepsize
from mon_lib.splitting import DouglasRachford, ForwardBackward, PeacemanRachford
from tests.problems import F64, random_bias, random_operator


def steps(solver, W, bias, alpha):
    return solver.with_alpha(alpha).solve(W, bias, prox.ReLU(), throw=False).steps


@pytest.mark.claim("NEW-ALPHA")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "solver", [PeacemanRachford(tol=1e-8, max_steps=3000), DouglasRachford(tol=1e-8, max_steps=3000)], ids=["pr", "dr"]
)
def test_the_spectral_rule_is_near_the_best_alpha(solver, seed):
    """Within 10% of the fewest steps on a fine grid of alpha, on random dense W with skew.

    The ledger's 2% is about the rate at n in the hundreds; with 40 units three sign vectors leave a few percent of
    chance, and steps are integers.
    """
    W, bias = random_operator(n=40, m=0.5, skew=3.0, seed=seed), random_bias(n=40, batch=32, seed=seed)
    chosen = solver.choose_alpha(W, bias, prox.ReLU())
    best = min(steps(solver, W, bias, chosen * 2.0 ** (k / 4)) for k in range(-12, 13))
    assert steps(solver, W, bias, chosen) <= math.ceil(1.1 * best)


@pytest.mark.claim("NEW-ALPHA")
def test_the_rate_is_the_spectral_radius():
    """The growth of powers against eigenvalues, for the same sign vectors."""
    W = random_operator(n=30, skew=2.0).frozen()
    rule = stepsize.SpectralRadius(powers=400)
    generator = torch.Generator().manual_seed(rule.seed)
    signs = torch.randn(3, 30, generator=generator).sign().to(F64)
    for alpha in (0.1, 0.5, 2.0):
        C = 2 * W.resolvent(alpha)(torch.eye(30, dtype=F64)).T - torch.eye(30, dtype=F64)
        radii = [float(torch.linalg.eigvals(C * s).abs().max()) for s in signs]
        assert rule.rate(W, alpha) == pytest.approx(sum(radii) / 3, rel=2e-2)


@pytest.mark.claim("NEW-ALPHA")
def test_a_border_counts_as_inactive():
    """Zero padding makes every unit of the border inactive, which moves the best alpha; the rule has to see it."""
    torch.manual_seed(0)
    W = operators.Convolution(6, (8, 8), dtype=F64)
    with torch.no_grad():
        W.g_raw.fill_(10.0)
        W.h.fill_(20.0)
    bias, solver = random_bias(n=6 * 64, batch=4).reshape(4, 6, 8, 8), PeacemanRachford(tol=1e-6, max_steps=2000)
    framed = prox.Border(prox.ReLU(), 1)
    aware, blind = (stepsize.SpectralRadius().choose(W.frozen(), bias, s, solver) for s in (framed, prox.ReLU()))
    aware_steps, blind_steps = (solver.with_alpha(alpha).solve(W, bias, framed).steps for alpha in (aware, blind))
    assert aware_steps < blind_steps


@pytest.mark.claim("NEW-ALPHA")
def test_the_spectral_rule_may_exceed_one_where_halving_cannot():
    W = operators.Dense.from_matrix(0.9 * torch.eye(12, dtype=F64), 0.1)  # G = I/10: the best alpha is 10
    bias = random_bias(n=12)
    solver = PeacemanRachford(tol=1e-8)
    free, halved = solver.choose_alpha(W, bias, prox.ReLU()), stepsize.Halving().choose(W, bias, prox.ReLU(), solver)
    assert halved == 1.0 and free > 5.0
    assert steps(solver, W, bias, free) < steps(solver, W, bias, halved) / 2


@pytest.mark.claim("NEW-ALPHA")
@pytest.mark.parametrize("skew", [0.5, 4.0])
@pytest.mark.parametrize("seed", range(2))
def test_auto_needs_no_more_steps_than_halving(skew, seed):
    W, bias = random_operator(n=30, m=1.0, skew=skew, seed=seed), random_bias(n=30, batch=16, seed=seed)
    solver = PeacemanRachford(tol=1e-6)
    halved = stepsize.Halving().choose(W, bias, prox.ReLU(), solver)
    assert steps(solver, W, bias, "auto") <= steps(solver, W, bias, halved) + 1


@pytest.mark.claim("MON-STEP")
@pytest.mark.parametrize("skew", [0.0, 0.5, 5.0])
def test_the_contraction_rule_beats_m_over_l_squared(skew):
    W = random_operator(n=15, skew=skew)
    frozen, L = W.frozen(), W.lipschitz()
    alpha = ForwardBackward().choose_alpha(W, random_bias(n=15), prox.ReLU())
    assert W.m / L**2 <= alpha * (1 + 1e-12) and frozen.forward_norm(alpha) <= frozen.forward_norm(W.m / L**2) < 1.0
    if skew == 0.0:  # symmetric: the minimiser is 2/(l_min + L), found to the grid's last refinement
        low = W.monotonicity()
        assert frozen.forward_norm(alpha) == pytest.approx((L - low) / (L + low), rel=2e-2)


def test_halving_never_prefers_an_overflow():
    """Forward-backward at alpha = 1 overflows here; a rule that counts steps alone would choose it."""
    W, bias = random_operator(n=10, m=1.0, skew=3.0), random_bias(n=10)
    solver = ForwardBackward(tol=1e-4, max_steps=5000)
    alpha = stepsize.Halving(smallest=2.0**-10).choose(W, bias, prox.LeakyReLU(0.95), solver)
    assert alpha < 1.0 and bool(solver.with_alpha(alpha).solve(W, bias, prox.LeakyReLU(0.95)).converged.all())
    with pytest.raises(ValueError, match=r"no alpha in 1\.0"):
        stepsize.Halving(smallest=1.0).choose(W, bias, prox.LeakyReLU(0.95), solver)


def test_rules_are_pure():
    W, bias = random_operator(n=20), random_bias(n=20)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    alphas = {rule.choose(W.frozen(), bias, prox.ReLU(), PeacemanRachford()) for rule in [stepsize.SpectralRadius()] * 2}
    assert len(alphas) == 1 and torch.equal(torch.get_rng_state(), before)
    assert stepsize.Fixed(0.3).choose(W.frozen(), bias, prox.ReLU(), PeacemanRachford()) == 0.3
