"""A solver with the alpha it chose last, and what its solves cost: the part of the layer that is not about gradients."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from . import stepsize
from .certificates import norm
from .errors import ConvergenceError
from .operators import FrozenOperator
from .splitting import Solution, Solver

__all__ = ["NONE", "Report", "Tuned"]

NONE = -1.0  # in a saved state: no alpha has been chosen yet


@dataclass(frozen=True)
class Report:
    """What one solve cost and reached: numbers only, no tensor and no graph.

    Attributes
    ----------
    solver : str
    alpha : float
        Step size used.
    steps : int
        Steps of the slowest sample.
    residual : float
        Largest certified relative error of the batch, over the samples with z != 0.
    error_bound : float
        Largest certified absolute error of the batch.
    seconds : float
        Wall time of the solve, with the choice of alpha where it was made.
    tuned : bool
        Whether alpha was chosen anew in this solve.
    """

    solver: str
    alpha: float
    steps: int
    residual: float
    error_bound: float
    seconds: float
    tuned: bool


class Tuned:
    """A solver and the alpha it last chose. Choosing costs more than a solve, so a choice serves many solves.

    A stale alpha cannot make an answer wrong: every solve is certified. It can make one slow, or, for forward-backward
    only, make it fail; then alpha is chosen anew and the solve repeated before anything is raised.
    """

    def __init__(self, solver: Solver, every: int):
        self.solver, self.every, self.alpha, self.uses = solver, every, None, 0

    @property
    def automatic(self) -> bool:
        alpha = self.solver.alpha
        return alpha == "auto" or (isinstance(alpha, stepsize.StepSize) and not isinstance(alpha, stepsize.Fixed))

    def state(self) -> list[float]:
        """The choice as numbers, with a fingerprint of the solver that it was made for."""
        return [NONE if self.alpha is None else self.alpha, float(self.uses), float(zlib.crc32(repr(self.solver).encode()))]

    def restore(self, state: list[float]) -> None:
        """Take over a choice that was made for the same solver; leave any other alone."""
        alpha, uses, fingerprint = state
        if self.automatic and alpha > 0 and fingerprint == self.state()[2]:
            self.alpha, self.uses = alpha, int(uses)

    def solve(self, operator: FrozenOperator, bias: Tensor, activation, count: bool) -> tuple[Solution, Report]:
        start = time.perf_counter()
        reused = self.automatic and self.alpha is not None and self.uses < self.every
        if self.automatic and not reused:
            self.tune(operator, bias, activation)
        solver = self.solver.with_alpha(self.alpha) if self.automatic else self.solver
        try:
            solution = solver.solve(operator, bias, activation)
        except ConvergenceError:
            if not reused:
                raise
            self.tune(operator, bias, activation)
            reused = False
            solution = self.solver.with_alpha(self.alpha).solve(operator, bias, activation)
        self.uses += count
        size = norm(solution.z, scaled=True)
        relative = torch.where(size > 0, solution.error_bound / size, torch.zeros_like(size))
        report = Report(
            solver=solution.solver,
            alpha=solution.alpha,
            steps=solution.steps,
            residual=float(relative.max()) if size.numel() else 0.0,
            error_bound=float(solution.error_bound.max()) if size.numel() else 0.0,
            seconds=time.perf_counter() - start,
            tuned=self.automatic and not reused,
        )
        return solution, report

    def tune(self, operator: FrozenOperator, bias: Tensor, activation) -> None:
        self.alpha, self.uses = self.solver.choose_alpha(operator, bias, activation), 0
