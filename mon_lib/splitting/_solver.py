"""The protocol of a solver, and the loop that every one of them runs in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from .. import stepsize
from ..errors import ConvergenceError
from ..operators import FrozenOperator, Operator
from ..operators._base import all_finite, check_state, check_step
from ..prox import as_activation
from ._loop import solve_in_parts
from ._problem import Problem, Solution, Status
from ._stages import Substitution

__all__ = ["Iteration", "Solver", "check_precision"]


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
            substitution = Substitution.of(problem)
            if substitution is None:
                solution = solve_in_parts(self, problem, z0)
            else:
                solution, problem = substitution.solve(self, z0)
        if throw and solution.status is not Status.CONVERGED:
            raise ConvergenceError(_explain(self, problem, solution), solution)
        return solution


@torch.no_grad()
def _usable(operator: Operator) -> FrozenOperator:
    """The operator at today's weights, or an error that says why no solve is possible with them."""
    if not isinstance(operator, Operator):
        raise TypeError(f"operator is a {type(operator).__name__}; pass a mon_lib.operators object, for instance Dense(87)")
    check_precision(operator)
    with torch.autocast(operator.device.type, enabled=False):
        frozen = operator.frozen()
        parts = [stage.operator for stage in frozen.stages()] or [frozen]
        lipschitz = sum(part.lipschitz_bound() for part in parts)  # what couples two stages is in one of them as well
    if not math.isfinite(lipschitz):
        raise ValueError(
            f"W has a NaN or an infinite entry, or ||I - W|| overflows {operator.dtype}; look at the parameters "
            "(after training: lower the learning rate)"
        )
    return frozen


def check_precision(operator: Operator) -> None:
    """Raise TypeError unless the weights are in a format that can certify a solve."""
    if operator.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"W is {operator.dtype}, which cannot certify a solve; keep W in float32 and use torch.autocast")


def _checked(x: Tensor, operator: Operator, name: str) -> Tensor:
    check_state(x, operator.state_shape, operator.dtype, name)
    if x.device != operator.device:
        raise ValueError(f"{name} is on {x.device}, the operator on {operator.device}; move one with .to()")
    if not all_finite(x):
        raise ValueError(f"{name} has a NaN or an infinite entry; find where it entered, a solve cannot repair it")
    return x.detach()


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
        remedies = [] if problem.bias.dtype == torch.float64 else ["float64"]
        remedies.append(f"a tol above {2 * worst:.2g}" if 2 * worst < 0.5 else "a smaller L/m (a larger m, or smaller weights)")
        return head + (
            f"{problem.bias.dtype} cannot certify this tolerance for L/m = {lipschitz / m:.3g}; use {' or '.join(remedies)}."
        )
    if (doubt := solver.doubt(problem)) is not None:
        return head + doubt
    if worst <= solver.tol:  # of a state below the smallest normal number the relative error is not known
        least = torch.finfo(problem.bias.dtype).tiny
        return head + f"The state is smaller than {least:.0e}, where {problem.bias.dtype} loses its digits; scale the inputs."
    if solution.status is Status.DIVERGED:
        largest = torch.finfo(problem.bias.dtype).max ** 0.5
        return head + (
            f"The iterates, or the squares of entries above {largest:.0e}, overflowed; look for huge weights or inputs, "
            "or for an operator that is not monotone."
        )
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
