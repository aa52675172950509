"""The errors of the library. Each message names the value that is wrong and what to do about it."""

from __future__ import annotations

__all__ = ["ConvergenceError", "NotMonotoneError", "NotProximalError"]


class NotMonotoneError(ValueError):
    """A matrix W violates I - W >= mI, so it has no parameters A and B (MON Proposition 1)."""


class NotProximalError(ValueError):
    """A function is not the proximal operator of a convex function, so MON Theorem 1 does not cover it."""


class ConvergenceError(RuntimeError):
    """A solve ended before it reached its tolerance.

    Attributes
    ----------
    solution : mon_lib.splitting.Solution
        What was reached, with the history of the residuals.
    """

    def __init__(self, message: str, solution=None):
        super().__init__(message)
        self.solution = solution

    def __reduce__(self):
        return type(self), (self.args[0], self.solution)
