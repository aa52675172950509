"""Forward-backward, Peaceman-Rachford and Douglas-Rachford (MON Algorithms 1 and 2, appendix A)."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .. import stepsize
from ..certificates import forward_factor, resolvent_factor
from ..operators._base import check_step
from ._problem import Problem
from ._solver import Iteration, Solver

__all__ = ["DouglasRachford", "ForwardBackward", "PeacemanRachford", "Splitting"]


@dataclass(frozen=True)
class Splitting(Solver):
    """A fixed-point iteration u <- T(u) whose fixed points give the zeros.

    Parameters
    ----------
    alpha : float, "auto" or StepSize
        Step size. "auto" chooses it from today's weights (`mon_lib.stepsize`).
    tol : float
        Certified relative error: a sample is done when its bound on ||z - z*|| is at most tol * ||z||. It means the same
        for every solver and every alpha. A state that is zero to working precision is accepted at rounding level.
    max_steps : int
        Most steps.
    check_every : int, optional
        Steps between convergence checks, each of which waits for the device; 1 on a CPU, 4 elsewhere.
    capture : bool
        On CUDA, record one step as a graph and replay it: the same kernels without the cost of launching them one by one.
        Recording costs about three steps, so it pays for small states that take many. No effect on other devices. An
        activation whose prox looks at its values on the host, as `from_callable` may, cannot be recorded.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """

    alpha: float | str | stepsize.StepSize = "auto"
    tol: float = 1e-5
    max_steps: int = 500
    check_every: int | None = None
    capture: bool = False

    def __post_init__(self):
        if not isinstance(self.capture, bool):
            raise TypeError(f"capture = {self.capture!r} must be True or False")
        if isinstance(self.alpha, str):
            if self.alpha != "auto":
                raise ValueError(f'alpha = "{self.alpha}" is unknown; use a positive number, "auto" or a mon_lib.stepsize object')
        elif not isinstance(self.alpha, stepsize.StepSize):
            object.__setattr__(self, "alpha", check_step(self.alpha))
        if not 0.0 < self.tol < 1.0:
            raise ValueError(f"tol = {self.tol} is not a relative error; use a number between 0 and 1, for instance 1e-5")
        for name in ("max_steps", "check_every"):
            value = getattr(self, name)
            if value is None and name == "check_every":
                continue
            if not isinstance(value, (int, float)) or value < 1 or value % 1 != 0:
                raise ValueError(f"{name} = {value} is not a number of steps; it must be a positive integer")
            object.__setattr__(self, name, int(value))

    def with_alpha(self, alpha):
        return dataclasses.replace(self, alpha=alpha)

    def iteration(self, problem, z0):
        kind = _Captured if self.capture and z0.device.type == "cuda" else _FixedPoint
        return kind(self, problem, self.start(problem, z0))

    def start(self, problem: Problem, z0: Tensor) -> Tensor:
        """Where to start for z0: u = 0 for a sample with z0 = 0, as the paper does, and `lift` for the others."""
        if not bool(z0.any()):
            return z0
        nonzero = z0.flatten(1).any(1).reshape(-1, *[1] * (z0.ndim - 1))
        return torch.where(nonzero, self.lift(problem, z0), z0)

    def lift(self, problem: Problem, z: Tensor) -> Tensor:
        """The u that belongs to z: for z = z* it is the fixed point, so a warm start loses nothing."""
        return z - problem.alpha * problem.affine(z)

    @abstractmethod
    def step(self, problem: Problem, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step u -> (T(u), z, e), with z the current estimate and e its certificate vector."""

    def factor(self, problem: Problem) -> float:
        """c with ||z - z*|| <= c ||e||."""
        return resolvent_factor(problem.alpha, problem.operator.m, problem.lipschitz)


class _FixedPoint(Iteration):
    def __init__(self, splitting: Splitting, problem: Problem, u: Tensor):
        self.splitting, self.problem, self.u = splitting, problem, u
        self.factor = splitting.factor(problem)

    def advance(self):
        self.u, z, e = self.splitting.step(self.problem, self.u)
        return z, e, self.factor


class _Captured(_FixedPoint):
    """The same steps from a CUDA graph, which reads and writes u, z and e where they lay when it was recorded."""

    def __init__(self, splitting: Splitting, problem: Problem, u: Tensor):
        super().__init__(splitting, problem, u.clone())
        here, aside = torch.cuda.current_stream(u.device), torch.cuda.Stream(u.device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):  # what is made once (inverses, workspaces) must not become part of the graph
            for _ in range(2):
                splitting.step(problem, self.u)
        here.wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            u_next, self.z, self.e = splitting.step(problem, self.u)
            self.u.copy_(u_next)

    def advance(self):
        self.graph.replay()
        return self.z.clone(), self.e, self.factor


class _Reflected(Splitting):
    """u <- (1 - relaxation) u + relaxation C_A C_f u."""

    relaxation: ClassVar[float]

    def automatic(self):
        return stepsize.SpectralRadius(relaxation=self.relaxation)

    def step(self, problem, u):
        z = problem.prox(u)
        # In place where the tensor is this step's own: passes over memory are what a step costs beside its product.
        gap = problem.resolvent(torch.add(problem.shift, z, alpha=2.0).sub_(u)).sub_(z)
        u_next = torch.add(u, gap, alpha=2.0 * self.relaxation)
        return u_next, z, gap.div_(-problem.alpha)


@dataclass(frozen=True)
class PeacemanRachford(_Reflected):
    """u <- C_A C_f u, z = prox_{alpha f}(u) (MON Algorithm 2; eq. 9 with + alpha (Ux + b), its printed sign is wrong).

    Converges linearly for every alpha > 0. One product with the resolvent a step.
    """

    relaxation = 1.0


@dataclass(frozen=True)
class DouglasRachford(_Reflected):
    """u <- (u + C_A C_f u)/2, z = prox_{alpha f}(u): the averaged form of Peaceman-Rachford.

    Converges also where A is merely monotone. One product with the resolvent a step.
    """

    relaxation = 0.5


@dataclass(frozen=True)
class ForwardBackward(Splitting):
    """z <- prox_{alpha f}(z - alpha A(z)) (MON eq. 8, Algorithm 1 with the prox).

    Converges for 0 < alpha < 2m/L^2 and need not beyond (ledger MON-STEP). One product with W a step, no inverse.
    """

    def automatic(self):
        return stepsize.ContractionFactor()

    def lift(self, problem, z):
        return z

    def step(self, problem, u):
        z = problem.prox(u - problem.alpha * problem.affine(u))
        return z, z, (u - z) / problem.alpha

    def factor(self, problem):
        return forward_factor(problem.alpha, problem.operator.m, problem.lipschitz)

    def doubt(self, problem):
        limit = 2.0 * problem.operator.m / problem.operator.lipschitz() ** 2
        if problem.alpha < limit:
            return None
        return (
            f"alpha is not below 2m/L^2 = {limit:.3g}, so nothing forces forward-backward to converge; "
            'use alpha="auto" or PeacemanRachford, which converges for every alpha.'
        )
