"""Choosing alpha: the paper's halving search and two rules that need no trial solves (ledger NEW-ALPHA, MON-STEP)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from .operators import FrozenOperator
from .operators._base import check_step
from .prox import Activation, ReLU

__all__ = ["ContractionFactor", "Fixed", "Halving", "SpectralRadius", "StepSize"]

LARGE = 4096  # entries of a state that needs one slope vector where a small one needs several


class StepSize(ABC):
    """A rule that chooses alpha for one operator. It keeps no state: the same weights give the same alpha."""

    @abstractmethod
    def choose(self, operator: FrozenOperator, bias: Tensor, activation, solver) -> float:
        """A positive step size.

        Parameters
        ----------
        operator : FrozenOperator
            W at today's weights.
        bias : Tensor
            Shape ``(batch, *state_shape)``; only `Halving` looks at it.
        activation : mon_lib.prox.Activation
        solver : mon_lib.splitting.Solver
            The solver the step size is for.
        """


@dataclass(frozen=True)
class Fixed(StepSize):
    """Always the same alpha.

    Raises
    ------
    ValueError
        If alpha is not positive and finite.
    """

    alpha: float

    def __post_init__(self):
        check_step(self.alpha)

    def choose(self, operator, bias, activation, solver) -> float:
        return float(self.alpha)


def _minimise_over_logarithm(function, low: float, high: float, ratio: float, refinements: int) -> float:
    """The alpha in [low, high] with the least value: a geometric grid, then a finer one around its best point."""
    count = max(2, math.ceil(math.log(high / low) / math.log(ratio)) + 1)
    grid = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    step = (high / low) ** (1.0 / (count - 1))
    values = {alpha: function(alpha) for alpha in grid}
    for _ in range(refinements):
        best = min(values, key=values.get)
        step = step**0.5
        for alpha in (best / step, best * step):
            if low <= alpha <= high:
                values[alpha] = function(alpha)
    return min(values, key=values.get)


@dataclass(frozen=True)
class SpectralRadius(StepSize):
    """argmin over alpha of the rate a network shows: the mean of rho(C_alpha diag(s)) over random slopes s of C_f.

    Near the equilibrium Peaceman-Rachford is u -> C_alpha C_f(u) with C_f = 2 prox - I locally diag(s). For ReLU s is a
    sign vector: +1 where a unit is active, -1 where it is not; a border is always -1. The slopes are those at a
    standard normal u. The rate is the spectral radius of C_alpha diag(s), estimated by the growth of powers;
    Douglas-Rachford averages with the identity (``relaxation=0.5``). The best ||C_alpha||, by contrast, is a bound over
    all s at once and up to twice too slow. No trial solve, and alpha may exceed 1.

    Parameters
    ----------
    signs : int, optional
        Number of random slope vectors; by default 3, and 1 for a state of `LARGE` entries or more, which averages over
        its own entries.
    relaxation : float
        1 for Peaceman-Rachford, 1/2 for Douglas-Rachford.
    powers : int, optional
        Number of products in each estimate; by default 48, and 24 for a state of `LARGE` entries or more.
    seed : int
        Of the slopes and the starting vectors.

    Raises
    ------
    ValueError
        If signs < 1, powers < 3 or relaxation lies outside (0, 1].
    """

    signs: int | None = None
    relaxation: float = 1.0
    powers: int | None = None
    seed: int = 0

    def __post_init__(self):
        for name, least in (("signs", 1), ("powers", 3)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name} = {value} is too few; it must be an integer, at least {least}, or None")
        if not 0.0 < self.relaxation <= 1.0:
            raise ValueError(f"relaxation = {self.relaxation} must lie in (0, 1]; 1 is Peaceman-Rachford, 1/2 Douglas-Rachford")

    def rate(self, operator: FrozenOperator, alpha: float, activation: Activation | None = None) -> float:
        """The estimated rate at one alpha, for `activation` or for ReLU."""
        large = operator.state_size >= LARGE
        count, powers = self.signs or (1 if large else 3), self.powers or (24 if large else 48)
        generator = torch.Generator().manual_seed(self.seed)

        def normal(samples):
            x = torch.randn((samples, *operator.state_shape), generator=generator)
            return x.to(dtype=operator.dtype, device=operator.device)

        # An activation that differs among samples, as of a backward solve, stands here with its first one.
        activation = (ReLU() if activation is None else activation).part(slice(0, 1), 1 + len(operator.state_shape))
        slopes = activation.prox_derivative(normal(count), alpha)
        # Two starting vectors for each slope vector: a complex pair makes the growth of one of them uneven.
        s = (2.0 * slopes - 1.0).repeat(2, *[1] * len(operator.state_shape))
        x = normal(2 * count)
        resolvent, burn_in = operator.resolvent(alpha), powers // 3
        growth, tiny = x.new_zeros(len(x)), torch.finfo(operator.dtype).tiny
        for k in range(powers):
            y = s * x
            step = self.relaxation * (2.0 * resolvent(y) - y) + (1.0 - self.relaxation) * x
            size = torch.linalg.vector_norm(step.flatten(1), dim=1).clamp_min(tiny)
            if k >= burn_in:
                growth += size.log()
            x = step / size.reshape(-1, *[1] * len(operator.state_shape))
        return float((growth / (powers - burn_in)).exp().mean())

    def choose(self, operator, bias, activation, solver) -> float:
        lipschitz = operator.lipschitz_bound()
        low, high = 0.25 / lipschitz, 4.0 / operator.m

        def rate(alpha):
            return self.rate(operator, alpha, activation)

        return _minimise_over_logarithm(rate, low, high, ratio=2.0, refinements=3)


@dataclass(frozen=True)
class ContractionFactor(StepSize):
    """argmin over alpha of ||I - alpha G||, the certified factor of forward-backward; never worse than m/L^2.

    For every x, ||x - alpha Gx||^2 decreases on [0, m/L^2], so the minimiser lies in [m/L^2, 2/L], where a search finds
    it. At m/L^2 the factor is at most sqrt(1 - m^2/L^2) < 1; for a symmetric G the search finds 2/(m + L).
    """

    def choose(self, operator, bias, activation, solver) -> float:
        lipschitz = operator.lipschitz()
        low, high = operator.m / lipschitz**2, 2.0 / lipschitz
        return _minimise_over_logarithm(operator.forward_norm, low, max(high, 2.0 * low), ratio=2.0, refinements=5)


@dataclass(frozen=True)
class Halving(StepSize):
    """The paper's search: halve alpha from start as long as the number of steps falls (MON D.2).

    It costs one trial solve for each alpha and cannot exceed `start`. A trial counts only if it converges: a tuner that
    counts steps alone prefers a solve that overflowed on its third step.

    Raises
    ------
    ValueError
        If not 0 < smallest <= start.
    """

    start: float = 1.0
    smallest: float = 1.0 / 64.0

    def __post_init__(self):
        if not check_step(self.smallest) <= check_step(self.start):
            raise ValueError(f"smallest = {self.smallest} exceeds start = {self.start}; give smallest <= start")

    def choose(self, operator, bias, activation, solver) -> float:
        best, alpha, fewest = None, float(self.start), math.inf
        while alpha >= self.smallest:
            trial = solver.with_alpha(alpha).solve(operator, bias, activation, throw=False)
            if bool(trial.converged.all()):
                if trial.steps >= fewest:
                    break
                best, fewest = alpha, trial.steps
            alpha /= 2.0
        if best is None:
            raise ValueError(
                f"no alpha in {self.start}, {self.start / 2}, ..., {self.smallest} converged within "
                f"{solver.max_steps} steps; raise max_steps or lower smallest"
            )
        return best
