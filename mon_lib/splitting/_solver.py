"""The protocol of a solver, and the loop that every one of them runs in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor

from .. import stepsize
from ..certificates import norm, rounding_allowance
from ..errors import ConvergenceError
from ..operators import FrozenOperator, Operator
from ..operators._base import check_state, check_step
from ..prox import as_activation
from ._problem import Problem, Solution, Status

__all__ = ["Iteration", "Solver"]

PATIENCE = 25  # checks without a new lowest bound, close to rounding, before a sample is given up


class Iteration(ABC):
    """A loop body with its own state."""

    @abstractmethod
    def advance(self) -> tuple[Tensor, Tensor, float]:
        """One step: a point z, its certificate vector e, and c with ||z - z*|| <= c ||e||."""


class Solver(ABC):
    """Anything that finds the equilibrium and certifies it."""

    tol: float
    max_steps: int
    alpha: float | str | stepsize.StepSize

    @abstractmethod
    def with_alpha(self, alpha: float | str | stepsize.StepSize) -> Solver:
        """The same solver with another step size."""

    @abstractmethod
    def automatic(self) -> stepsize.StepSize:
        """The rule behind ``alpha="auto"``."""

    @abstractmethod
    def iteration(self, problem: Problem, z0: Tensor) -> Iteration:
        """What to repeat from z0."""

    def doubt(self, problem: Problem) -> str | None:
        """Why this solver need not converge on this problem, with the remedy; None where it must."""
        return None

    def choose_alpha(self, operator: Operator, bias: Tensor, activation) -> float:
        """The step size `solve` would use: alpha itself, or what its rule chooses for today's weights."""
        if isinstance(self.alpha, (int, float)):
            return check_step(self.alpha)
        rule = self.automatic() if self.alpha == "auto" else self.alpha
        with torch.no_grad():
            return check_step(rule.choose(_usable(operator), bias, activation, self))

    def solve(self, operator: Operator, bias: Tensor, activation, *, z0: Tensor | None = None, throw: bool = True) -> Solution:
        """Solve z = sigma(Wz + bias) for every sample of a batch.

        Parameters
        ----------
        operator : Operator
            W; a transposed or frozen operator is as good.
        bias : Tensor
            Ux + b, shape ``(batch, *state_shape)``, in the operator's dtype.
        activation : mon_lib.prox.Activation
            sigma = prox_f.
        z0 : Tensor, optional
            Starting point, same shape; zero by default.
        throw : bool
            Whether to raise where a sample does not converge.

        Returns
        -------
        Solution
            Outside the graph; `mon_lib.Equilibrium` differentiates.

        Raises
        ------
        ConvergenceError
            If a sample misses `tol` and `throw` is true. It holds the solution.
        ValueError, TypeError
            For a bias or z0 of the wrong shape, dtype or with NaN or infinite entries; for a W with such entries or in half
            precision; for alpha <= 0.
        NotProximalError
            For an activation that is no proximal operator.
        """
        activation = as_activation(activation)
        frozen = _usable(operator)
        with torch.no_grad(), torch.autocast(operator.device.type, enabled=False):
            bias = _checked(bias, operator, "bias")
            z0 = torch.zeros_like(bias) if z0 is None else _checked(z0, operator, "z0")
            if z0.shape != bias.shape:
                raise ValueError(f"z0 has shape {tuple(z0.shape)} and bias {tuple(bias.shape)}; they must agree")
            alpha = self.choose_alpha(frozen, bias, activation)
            problem = Problem(frozen, bias, activation, alpha)
            solution = _run(self, problem, self.iteration(problem, z0))
        if throw and solution.status is not Status.CONVERGED:
            raise ConvergenceError(_explain(self, problem, solution), solution)
        return solution


@torch.no_grad()
def _usable(operator: Operator) -> FrozenOperator:
    """The operator at today's weights, or an error that says why no solve is possible with them."""
    if not isinstance(operator, Operator):
        raise TypeError(f"operator is a {type(operator).__name__}; pass a mon_lib.operators object, for instance Dense(87)")
    if operator.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"W is {operator.dtype}, which cannot certify a solve; keep W in float32 and use torch.autocast")
    with torch.autocast(operator.device.type, enabled=False):
        frozen = operator.frozen()
        lipschitz = frozen.lipschitz_bound()
    if not math.isfinite(lipschitz):
        raise ValueError(
            f"W has a NaN or an infinite entry, or ||I - W|| overflows {operator.dtype}; look at the parameters "
            "(after training: lower the learning rate)"
        )
    return frozen


def _checked(x: Tensor, operator: Operator, name: str) -> Tensor:
    check_state(x, operator.state_shape, operator.dtype, name)
    if x.device != operator.device:
        raise ValueError(f"{name} is on {x.device}, the operator on {operator.device}; move one with .to()")
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{name} has a NaN or an infinite entry; find where it entered, a solve cannot repair it")
    return x.detach()


def _run(solver, problem: Problem, iteration: Iteration) -> Solution:
    """Repeat until every sample is certified; each sample is judged by its own numbers alone."""
    bias, m, lipschitz = problem.bias, problem.operator.m, problem.lipschitz
    eps = torch.finfo(bias.dtype).eps
    check_every = solver.check_every or (1 if bias.device.type == "cpu" else 4)
    n, tiny = bias.shape[0], torch.finfo(bias.dtype).tiny
    size = norm
    if bias.numel():
        # A state this small has squares that underflow: its norm, and the bound on its error, would silently be zero.
        largest = bias.flatten(1).abs().amax(1)
        if bool(((largest > 0) & (largest < tiny**0.5 / eps)).any()):
            size = partial(norm, scaled=True)
    bias_norm = size(bias)
    open_ = torch.ones(n, dtype=torch.bool, device=bias.device)
    converged, overflowed, rounded = torch.zeros_like(open_), torch.zeros_like(open_), torch.zeros_like(open_)
    steps = torch.zeros(n, dtype=torch.long, device=bias.device)
    z_out, bound_out, history, k = None, torch.zeros_like(bias_norm), [], 0
    lowest, standing = torch.full_like(bias_norm, math.inf), torch.zeros_like(steps)
    while k < solver.max_steps:
        burst = min(check_every, solver.max_steps - k)
        for _ in range(burst):
            z, e, factor = iteration.advance()
        k += burst
        z_norm, certificate = size(z), factor * size(e)
        slack = rounding_allowance(z_norm, bias_norm, problem.alpha, m, lipschitz, eps)
        bound, target = certificate + slack, solver.tol * z_norm
        history.append((bound, z_norm))
        quiet = (bound > target) & (certificate > 16.0 * slack)  # far from done and from rounding; false for NaN
        last = k >= solver.max_steps or n == 0
        if not last and not bool((open_ & ~quiet).any()):
            continue
        # The allowance is first-order: rounding settles within a few of it, and there the bound stops falling.
        at_rounding = certificate <= 4.0 * slack
        standing = torch.where(bound < (1.0 - 8.0 * eps) * lowest, 0, standing + 1)
        lowest = torch.minimum(lowest, bound)
        zero = (z_norm <= eps**0.5 * bias_norm / lipschitz) & at_rounding
        finite = torch.isfinite(bound) & torch.isfinite(z_norm)
        done = finite & ((bound <= target) | zero)  # inf <= inf is true: an overflow must not pass for convergence
        settled = (certificate <= 16.0 * slack) & (standing >= PATIENCE)
        stuck = finite & ~done & ((at_rounding & (slack > target)) | settled)
        write = open_ if last else open_ & (done | stuck | ~finite)
        converged, overflowed, rounded = converged | (write & done), overflowed | (write & ~finite), rounded | (write & stuck)
        steps = torch.where(write, k, steps)
        bound_out = torch.where(write, bound, bound_out)
        z_out = z if z_out is None else torch.where(write.reshape(-1, *[1] * (z.ndim - 1)), z, z_out)
        open_ = open_ & ~write
        if not bool(open_.any()):
            break
    residuals = torch.stack([bound for bound, _ in history]) / torch.stack([size for _, size in history]).clamp_min(tiny)
    status = Status.CONVERGED
    unfinished = ~(converged | overflowed | rounded)
    for flags, worse in ((rounded, Status.ROUNDING), (unfinished, Status.MAX_STEPS), (overflowed, Status.DIVERGED)):
        if bool(flags.any()):
            status = worse
    slowest, name = int(steps.max()) if n else 0, type(solver).__name__
    return Solution(z_out, slowest, steps, residuals, converged, status, bound_out, problem.alpha, name)


def _explain(solver, problem: Problem, solution: Solution) -> str:
    """One message: how many samples, how far, why, and what to do."""
    missed = ~solution.converged
    alpha, m, lipschitz = problem.alpha, problem.operator.m, problem.lipschitz
    worst = float(solution.residuals[-1][missed].nan_to_num(math.inf).max())
    head = (
        f"{solution.solver}: {int(missed.sum())} of {len(missed)} samples did not reach tol = {solver.tol:g} "
        f"in {solution.steps} steps (alpha = {alpha:.4g}, worst relative error bound {worst:.3g}). "
    )
    if solution.status is Status.ROUNDING:
        return head + (
            f"{problem.bias.dtype} cannot certify this tolerance for L/m = {lipschitz / m:.3g}; "
            f"use float64 or a tol above {2 * worst:.2g}."
        )
    if (doubt := solver.doubt(problem)) is not None:
        return head + doubt
    if solution.status is Status.DIVERGED:
        return head + "The iterates overflowed; look for huge weights or inputs, or for an operator that is not monotone."
    if len(solution.residuals) > 8:
        recent = solution.residuals[-1][missed].max() / solution.residuals[-8][missed].max()
        rate = float(recent) ** (1.0 / 7.0)
        if rate < 1.0:
            more = math.ceil(math.log(worst / solver.tol) / -math.log(rate)) if rate > 0 else 1
            return head + (
                f"The bound falls by a factor {rate:.3f} a check, about {more} more are needed: raise max_steps, "
                'use alpha="auto" if alpha was fixed by hand, or raise m.'
            )
    return head + 'The bound is not falling yet: raise max_steps, or try alpha="auto".'
