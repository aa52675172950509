"""Anderson acceleration, type II, around the fixed-point map of any splitting (Anderson 1965; Walker and Ni 2011)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..certificates import norm
from ..splitting import PeacemanRachford, Problem, Splitting
from ._safeguard import Safeguarded, SafeguardedIteration, check_splitting

__all__ = ["Anderson"]


@dataclass(frozen=True)
class Anderson(Safeguarded):
    """Extrapolate from the last `memory` differences of the iteration u <- T(u) of a splitting.

    With f(u) = T(u) - u, and dU, dF the differences of the last points and of their f, the trial point is

        u + damping f - (dU + damping dF) gamma,     gamma = argmin ||f - dF gamma||.

    Each sample has its own small least-squares problem, so no sample influences another.  A trial is kept only if the
    certificate vector e at it is shorter than at the point kept before (see `SafeguardedIteration`); f is a multiple
    of e for all three splittings, so that is a shorter residual.  Where T contracts, the solve converges whatever the
    extrapolation does; where it does not (forward-backward beyond 2m/L^2), nothing is promised, and `max_steps` ends
    it.

    One evaluation of T a step, like the splitting; besides it 2 * memory stored states and about memory^2 products of
    vectors a sample.  Little is gained on Peaceman-Rachford at a good alpha, more on the other two.

    Parameters
    ----------
    solver : Splitting
        Gives T, alpha, tol, max_steps and check_every.
    memory : int
        Number of differences.
    damping : float
        In (0, 1]; 1 takes the whole step along f.
    regularisation : float
        Tikhonov term of the least-squares problem, whose columns are scaled to norm 1; at least the dtype's eps is
        used.

    Raises
    ------
    TypeError
        If `solver` is not a splitting.
    ValueError
        If memory < 1, damping lies outside (0, 1] or regularisation is negative.
    """

    solver: Splitting = PeacemanRachford()  # noqa: RUF009 (frozen)
    memory: int = 5
    damping: float = 1.0
    regularisation: float = 1e-10

    guard_field = "solver"

    def __post_init__(self):
        check_splitting(self.solver, "solver")
        if self.memory != int(self.memory) or self.memory < 1:
            raise ValueError(
                f"memory = {self.memory} is not a number of differences; it must be a positive integer, for instance 5"
            )
        if not 0.0 < self.damping <= 1.0:
            raise ValueError(f"damping = {self.damping} must lie in (0, 1]; 1 takes the whole step")
        if not 0.0 <= self.regularisation < float("inf"):
            raise ValueError(f"regularisation = {self.regularisation} must be zero or positive, for instance 1e-10")

    def iteration(self, problem, z0):
        return _Extrapolation(self, problem, z0)


class _Extrapolation(SafeguardedIteration):
    """The history is a ring of consecutive differences; a slot not yet filled is zero and gets the weight zero."""

    def __init__(self, anderson: Anderson, problem: Problem, z0: Tensor):
        super().__init__(anderson.solver, problem, z0, decrease=0.99)
        batch, n = z0.flatten(1).shape
        self.memory, self.damping = int(anderson.memory), anderson.damping
        self.regularisation = max(anderson.regularisation, torch.finfo(z0.dtype).eps)
        self.dU = z0.new_zeros(batch, self.memory, n)
        self.dF = z0.new_zeros(batch, self.memory, n)
        self.last: tuple[Tensor, Tensor] | None = None
        self.count = 0

    def propose(self, u, u_next, keep):
        point, f = u.flatten(1), (u_next - u).flatten(1)
        if self.last is None:
            self.last = (point, f)
            return u_next, torch.zeros_like(keep)
        du, df = point - self.last[0], f - self.last[1]
        scale = norm(df, scaled=True).unsqueeze(1)
        usable = torch.isfinite(scale) & torch.isfinite(du).all(1, keepdim=True) & (scale > 0)
        slot = self.count % self.memory
        self.dU[:, slot] = torch.where(usable, du / scale, 0.0)
        self.dF[:, slot] = torch.where(usable, df / scale, 0.0)
        self.last, self.count = (point, f), self.count + 1
        gram = self.dF @ self.dF.mT
        gram.diagonal(dim1=1, dim2=2).add_(self.regularisation)
        gamma, _ = torch.linalg.solve_ex(gram, self.dF @ f.unsqueeze(2))
        step = self.damping * f - ((self.dU + self.damping * self.dF).mT @ gamma).squeeze(2)
        return (point + step).reshape(u.shape), torch.ones_like(keep)
