"""Operator splitting for 0 in A(z) + df(z), A(z) = (I - W)z - bias (MON Theorem 1, Algorithms 1 and 2, appendix A)."""

from ._problem import Problem, Solution, Status
from ._solver import Iteration, Solver
from .methods import DouglasRachford, ForwardBackward, PeacemanRachford, Splitting

__all__ = [
    "DouglasRachford",
    "ForwardBackward",
    "Iteration",
    "PeacemanRachford",
    "Problem",
    "Solution",
    "Solver",
    "Splitting",
    "Status",
]
