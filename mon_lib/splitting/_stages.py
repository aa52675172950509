"""Substitution: where W is block triangular, its equilibrium is found block by block (after MON appendix C).

z_1 = sigma(W_11 z_1 + bias_1) knows nothing of the other blocks, and z_{i+1} only of z_i, through W_{i+1,i} z_i in its bias.
Each block is an equilibrium of its own, with a smaller ||I - W_ii||, so it takes fewer steps, each of them smaller.

The certificate stays one of the whole: with the bias that the block before really gave, what block i leaves is the i-th part
of one vector r in A(z) + df(z) for the whole z, and strong monotonicity gives ||z - z*|| <= ||r||/m. So the errors that the
blocks certify add up in squares, and none of them is multiplied by a coupling.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import prox
from ..certificates import norm
from ._loop import solve_in_parts, worst
from ._problem import Problem, Solution, Status

__all__ = ["Substitution", "restricted"]

POINTWISE = (
    prox.ReLU, prox.Clip, prox.LeakyReLU, prox.SoftThreshold, prox.Tanh, prox.Sigmoid, prox.Softplus, prox.ELU, prox.Softsign,
    prox.Arctan,
)  # fmt: skip


def restricted(activation: prox.Activation, entries: slice) -> prox.Activation | None:
    """The activation of some entries of states ``(batch, n)``; None where it is not known what it does to them."""
    if type(activation) in POINTWISE:
        return activation
    if type(activation) is prox.Masked:
        inside, mask = restricted(activation.activation, entries), activation.mask
        return None if inside is None else prox.Masked(inside, mask if mask.shape[-1:] == (1,) else mask[..., entries])
    if type(activation) is prox.Diagonal:
        return prox.Diagonal(activation.J if activation.J.shape[-1:] == (1,) else activation.J[..., entries])
    return None


@dataclass(frozen=True)
class Substitution:
    """A problem whose W has stages, with the activation of each of them."""

    problem: Problem
    activations: list[prox.Activation]

    @classmethod
    def of(cls, problem: Problem) -> Substitution | None:
        """None where the problem has to be solved as one."""
        activations = [restricted(problem.activation, stage.entries) for stage in problem.operator.stages()]
        return cls(problem, activations) if activations and None not in activations else None

    def solve(self, solver, z0: Tensor) -> tuple[Solution, Problem]:
        """The solution of the whole, and the problem of the first stage that missed its tolerance, or else of the last one."""
        whole, z, solutions, sizes, bounds = self.problem, torch.empty_like(z0), [], [], []
        blamed, eps = None, torch.finfo(z0.dtype).eps
        for stage, activation in zip(whole.operator.stages(), self.activations, strict=True):
            bias, solved = whole.bias[:, stage.entries].contiguous(), ()
            if solutions:
                shift = stage.coupling(solutions[-1].z)
                bias = bias + shift  # a new tensor: of one sample, contiguous() is the caller's own
                # The product is rounded, and what the bias cancels of it its norm no longer shows.
                bounds.append(norm(shift, scaled=True) * (eps / whole.operator.m))
                solved = _joint(sizes), _joint(bounds)
            problem = Problem(stage.operator, bias, activation, whole.alpha, *solved)
            solution = solve_in_parts(solver, problem, z0[:, stage.entries].contiguous())
            if blamed is None or blamed[1] is Status.CONVERGED:
                blamed = problem, solution.status
            z[:, stage.entries] = solution.z
            solutions.append(solution)
            sizes.append(norm(solution.z, scaled=True))
            bounds.append(solution.error_bound)
        return _joined(z, solutions, sizes, _joint(bounds), whole.alpha), blamed[0]


def _joint(sizes: list[Tensor]) -> Tensor:
    """The root of the sum of squares, without squares that underflow."""
    return functools.reduce(torch.hypot, sizes)


def _joined(z: Tensor, solutions: list[Solution], sizes: list[Tensor], bound: Tensor, alpha: float) -> Solution:
    checks, size = max(len(s.residuals) for s in solutions), _joint(sizes)
    # A stage that is done keeps its last bound.
    padded = [torch.cat([s.residuals, s.residuals[-1:].expand(checks - len(s.residuals), -1)]) for s in solutions]
    bounds = _joint([residuals * own for residuals, own in zip(padded, sizes, strict=True)])
    return Solution(
        z=z,
        steps=max(s.steps for s in solutions),
        sample_steps=torch.stack([s.sample_steps for s in solutions]).amax(0),
        residuals=bounds / size.clamp_min(torch.finfo(size.dtype).tiny),
        converged=torch.stack([s.converged for s in solutions]).all(0),
        status=worst([s.status for s in solutions]),
        error_bound=bound,
        alpha=alpha,
        solver=solutions[0].solver,
    )
