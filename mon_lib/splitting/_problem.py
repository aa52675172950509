"""What a solver is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor

from ..operators import FrozenOperator, Resolvent

__all__ = ["Problem", "Solution", "Status"]


class Status(Enum):
    """How a solve ended; for a batch, the worst of its samples."""

    CONVERGED = "the certified error bound reached tol * ||z|| for every sample"
    ROUNDING = "tol lies below what this dtype can resolve for this operator"
    MAX_STEPS = "max_steps ended the solve"
    DIVERGED = "the iterates overflowed or became NaN"


@dataclass(frozen=True)
class Solution:
    """The result of a solve.

    Attributes
    ----------
    z : Tensor
        Shape ``(batch, *state_shape)``; each sample as it was when it converged.
    steps : int
        Steps of the slowest sample. Where W has stages (the tiers of `mon_lib.operators.MultiTier`), each is solved by itself,
        and steps are those of the stage that took most.
    sample_steps : Tensor
        Shape ``(batch,)``; steps of each sample.
    residuals : Tensor
        Shape ``(checks, batch)``; the certified error bound relative to ||z|| at every check, the last one repeated where other
        samples took longer.
    converged : Tensor
        Shape ``(batch,)``, bool.
    status : Status
        The worst over the batch.
    error_bound : Tensor
        Shape ``(batch,)``; ||z - z*|| is at most this (ledger NEW-CERT).
    alpha : float
        The step size that was used.
    solver : str
        The solver's name.
    """

    z: Tensor
    steps: int
    sample_steps: Tensor
    residuals: Tensor
    converged: Tensor
    status: Status
    error_bound: Tensor
    alpha: float
    solver: str


@dataclass(frozen=True)
class Problem:
    """Find z with 0 in (I - W)z - bias + df(z), at one step size.

    Attributes
    ----------
    operator : FrozenOperator
        W at fixed weights.
    bias : Tensor
        Shape ``(batch, *state_shape)``.
    activation : mon_lib.prox.Activation
        sigma = prox_f.
    alpha : float
        Step size.
    solved_size, solved_bound : Tensor, optional
        Of a stage of a larger problem (`FrozenOperator.stages`): the norm of the stages already solved, and the bound on their
        error and on what rounding brings from them, each ``(batch,)``.
    """

    operator: FrozenOperator
    bias: Tensor
    activation: object
    alpha: float
    solved_size: Tensor | None = None
    solved_bound: Tensor | None = None

    @cached_property
    def resolvent(self) -> Resolvent:
        """(I + alpha (I - W))^-1."""
        return self.operator.resolvent(self.alpha)

    @cached_property
    def shift(self) -> Tensor:
        """alpha * bias, which every resolvent step adds."""
        return self.alpha * self.bias

    @cached_property
    def lipschitz(self) -> float:
        """An upper bound on ||I - W||."""
        return self.operator.lipschitz_bound()

    def part(self, rows: slice) -> Problem:
        """The same problem for some of the samples."""
        solved = [None if s is None else s[rows] for s in (self.solved_size, self.solved_bound)]
        return Problem(self.operator, self.bias[rows], self.activation.part(rows, self.bias.ndim), self.alpha, *solved)

    def target(self, tol: float, size: Tensor) -> Tensor:
        """What a bound on the error may be where the norm of the solution is `size`.

        For a stage: so much that all stages up to this one keep the tolerance together.
        """
        if self.solved_size is None:
            return tol * size
        whole = tol * torch.hypot(size, self.solved_size)
        rest = (whole - self.solved_bound).clamp_min(0.0).sqrt() * (whole + self.solved_bound).sqrt()
        return torch.where(self.solved_bound <= whole, rest, tol * size)  # where they have missed it, it is missed

    def affine(self, z: Tensor) -> Tensor:
        """A(z) = (I - W)z - bias."""
        return z - self.operator(z) - self.bias

    def prox(self, u: Tensor) -> Tensor:
        """prox_{alpha f}(u). Not sigma, which is right only for alpha = 1 or an indicator f (ledger MON-EQ8)."""
        return self.activation.prox(u, self.alpha)
