"""Semismooth Newton with a splitting as its safeguard (Qi and Sun 1993; ledger NEW-NEWT)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..certificates import norm
from ..operators import FrozenOperator, Operator
from ..operators._base import full_precision
from ..splitting import PeacemanRachford, Problem, Splitting
from ._safeguard import Safeguarded, SafeguardedIteration, check_splitting

__all__ = ["Newton", "newton_step"]

CHUNK_BYTES = 1 << 26  # most memory for the matrices I - JW that are solved at once


@full_precision
def newton_step(operator: Operator, bias: Tensor, activation, z: Tensor) -> Tensor:
    """One unguarded step z + d, (I - JW) d = sigma(Wz + bias) - z, with J the derivative of sigma at Wz + bias.

    J is a diagonal element of the Clarke Jacobian, 0 <= J <= 1, so I - JW is regular wherever I - W >= mI with m > 0
    (MON Theorem 2).  Unguarded steps can cycle; `Newton` cannot.

    Parameters
    ----------
    operator : Operator
        W.
    bias, z : Tensor
        Shape ``(batch, *state_shape)``.
    activation : mon_lib.prox.Activation

    Returns
    -------
    Tensor
        Shape ``(batch, *state_shape)``, outside the graph; NaN for a sample whose matrix is numerically singular.
    """
    with torch.no_grad():
        frozen = operator.frozen()
        everyone = torch.ones(len(z), dtype=torch.bool, device=z.device)
        return z + _direction(frozen, frozen.to_dense(), bias, activation, z, everyone)


def _direction(operator: FrozenOperator, W: Tensor, bias: Tensor, activation, z: Tensor, wanted: Tensor) -> Tensor:
    """Newton's d for the samples in `wanted`, zero for the others; a few matrices I - JW at a time."""
    x = operator(z) + bias
    gap, J = (activation(x) - z).flatten(1)[wanted], activation.derivative(x).flatten(1)[wanted]
    n = len(W)
    eye = torch.eye(n, dtype=W.dtype, device=W.device)
    chunk = max(1, CHUNK_BYTES // (n * n * W.element_size()))
    parts = []
    for gap_part, J_part in zip(gap.split(chunk), J.split(chunk), strict=True):
        d, info = torch.linalg.solve_ex(eye - J_part.unsqueeze(2) * W, gap_part)
        parts.append(torch.where(info.unsqueeze(1) == 0, d, torch.nan))
    direction = torch.zeros_like(z).flatten(1)
    direction[wanted] = torch.cat(parts)
    return direction.reshape(z.shape)


@dataclass(frozen=True)
class Newton(Safeguarded):
    """Newton's method on z = sigma(Wz + bias), one dense solve for each sample and step.

    From the kept point z the trial is `newton_step`; one step of the fallback looks at it and gives its certificate.
    It is kept where the certified bound falls by the factor `decrease`; elsewhere the sample takes the fallback's
    step.

    Why it converges: a fallback step shortens the certificate vector by a factor c < 1 (Peaceman-Rachford:
    ||C_alpha||, because e is a multiple of T(u) - u and T contracts), a kept trial by `decrease`, and after a
    rejected trial a fallback step follows.  So the bound falls at least by max(decrease, c) in every two evaluations,
    from every z0.

    Why it is fast: close to z* a trial misses z* by O(||z - z*||^2), and by nothing if sigma is piecewise affine; its
    bound is at most (1 + c)(1 + alpha L)^2/(2 alpha m) times that error, so from some step on every trial is kept.

    Parameters
    ----------
    fallback : Splitting
        Gives the guarantee, alpha, tol, max_steps and check_every.  Convergence from every z0 needs its steps to
        contract: Peaceman-Rachford and Douglas-Rachford do for every alpha, forward-backward below 2m/L^2.
    decrease : float
        In (0, 1).
    max_size : int
        Most entries of a state.  W is formed as an n x n matrix; beyond a few thousand entries use a splitting.

    Raises
    ------
    TypeError
        If `fallback` is not a splitting.
    ValueError
        If decrease lies outside (0, 1), max_size < 1, or (in `solve`) the state has more than max_size entries.
    """

    fallback: Splitting = PeacemanRachford()  # noqa: RUF009 (frozen)
    decrease: float = 0.5
    max_size: int = 4096

    guard_field = "fallback"

    def __post_init__(self):
        check_splitting(self.fallback, "fallback")
        if not 0.0 < self.decrease < 1.0:
            raise ValueError(f"decrease = {self.decrease} must lie between 0 and 1, for instance 0.5")
        if self.max_size != int(self.max_size) or self.max_size < 1:
            raise ValueError(f"max_size = {self.max_size} is not a number of entries; it must be a positive integer")

    def iteration(self, problem, z0):
        n = problem.operator.state_size
        if n > self.max_size:
            raise ValueError(
                f"Newton would form and factor matrices of {n} x {n}; the limit is max_size = {self.max_size}. "
                "Use mon_lib.splitting.PeacemanRachford, or raise max_size if the memory is there."
            )
        return _NewtonSteps(self, problem, z0)


class _NewtonSteps(SafeguardedIteration):
    def __init__(self, newton: Newton, problem: Problem, z0: Tensor):
        super().__init__(newton.fallback, problem, z0, newton.decrease)
        self.W, self.enough = problem.operator.to_dense(), 0.5 * newton.tol

    def propose(self, u, u_next, keep):
        _, z, _ = self.kept
        # No dense solve where a trial just failed, nor where the sample is as good as done: plain steps are cheaper.
        wanted = keep & (self.factor * self.size > self.enough * norm(z, scaled=True)) & torch.isfinite(self.size)
        if not bool(wanted.any()):
            return u_next, wanted
        problem = self.problem
        target = z + _direction(problem.operator, self.W, problem.bias, problem.activation, z, wanted)
        return self.splitting.lift(problem, target), wanted
