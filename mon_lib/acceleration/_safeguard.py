"""Trial points, judged sample by sample by the certificate that one step of a splitting gives at any point."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import torch
from torch import Tensor

from ..certificates import norm
from ..splitting import Iteration, Problem, Solver, Splitting

__all__ = ["Safeguarded", "SafeguardedIteration", "check_splitting"]


def check_splitting(splitting: object, name: str) -> None:
    """Raise unless `splitting` is one.

    Raises
    ------
    TypeError
        If it is anything but an instance of `mon_lib.splitting.Splitting`.
    """
    if not isinstance(splitting, Splitting):
        raise TypeError(
            f"{name} is {splitting!r}; pass a splitting: mon_lib.splitting.PeacemanRachford(), DouglasRachford() "
            "or ForwardBackward()"
        )


class Safeguarded(Solver):
    """A solver that takes alpha, tol, max_steps and check_every from the splitting that guards it.

    A subclass is a frozen dataclass and names the field of that splitting in `guard_field`.
    """

    guard_field: str

    @property
    def guard(self) -> Splitting:
        """The splitting whose steps the solver falls back to."""
        return getattr(self, self.guard_field)

    alpha = property(lambda self: self.guard.alpha)
    tol = property(lambda self: self.guard.tol)
    max_steps = property(lambda self: self.guard.max_steps)
    check_every = property(lambda self: self.guard.check_every)

    def with_alpha(self, alpha):
        return dataclasses.replace(self, **{self.guard_field: self.guard.with_alpha(alpha)})

    def automatic(self):
        return self.guard.automatic()


class SafeguardedIteration(Iteration):
    """Evaluate, keep or reject, propose; every sample on its own.

    Each evaluation is one step T of the splitting at a point u, and yields T(u), z and the certificate vector e.  A
    point is kept if it is T of the point kept before it, or if it is a trial with ||e|| <= decrease * ||e of the kept
    point||. After a rejected trial the next point is T of the kept one, already at hand.  Where T shortens e by a
    factor c < 1, as Peaceman-Rachford does for every alpha, the kept ||e|| therefore falls by max(decrease, c) < 1 at
    least once in every two evaluations, whatever is proposed: the iteration converges linearly.  A NaN is never kept
    in place of a number.

    Parameters
    ----------
    splitting : Splitting
    problem : Problem
    z0 : Tensor
        Shape ``(batch, *state_shape)``.
    decrease : float
        In (0, 1).
    """

    def __init__(self, splitting: Splitting, problem: Problem, z0: Tensor, decrease: float):
        self.splitting, self.problem, self.decrease = splitting, problem, decrease
        self.factor = splitting.factor(problem)
        self.u = splitting.start(problem, z0)
        self.is_trial = torch.zeros(len(z0), dtype=torch.bool, device=z0.device)
        self.kept: tuple[Tensor, Tensor, Tensor] | None = None  # T(u), z and e of the point kept last
        self.size: Tensor | None = None  # its ||e||
        self.rejected = torch.zeros(len(z0), dtype=torch.long, device=z0.device)  # trials that were thrown away

    def advance(self):
        result = self.splitting.step(self.problem, self.u)
        size = norm(result[2], scaled=True)  # tiny states are judged by numbers that do not underflow
        if self.kept is None:
            keep, self.kept, self.size = ~self.is_trial, result, size
        else:
            keep = ~self.is_trial | (size <= self.decrease * self.size)
            self.rejected += ~keep
            column = keep.reshape(-1, *[1] * (self.u.ndim - 1))
            self.kept = tuple(torch.where(column, new, old) for new, old in zip(result, self.kept, strict=True))
            self.size = torch.where(keep, size, self.size)
        u_next, z, e = self.kept
        trial, wanted = self.propose(self.u, result[0], keep)
        self.is_trial = wanted & keep & torch.isfinite(trial.flatten(1)).all(1)
        self.u = torch.where(self.is_trial.reshape(-1, *[1] * (self.u.ndim - 1)), trial, u_next)
        return z, e, self.factor

    @abstractmethod
    def propose(self, u: Tensor, u_next: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Trial points, ``(batch, *state_shape)``, and for which samples to try them, ``(batch,)`` bool.

        Parameters
        ----------
        u, u_next : Tensor
            The point just evaluated and T of it, kept or not.
        keep : Tensor
            Shape ``(batch,)``, bool: whether it was kept.  Samples that were not take the plain step in any case.
        """
