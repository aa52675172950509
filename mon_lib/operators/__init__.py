"""Operators W with I - W >= mI, their transposes and their resolvents (MON Proposition 1, appendices B and C)."""

from ._base import FrozenOperator, MonotoneOperator, Operator, Resolvent
from ._fourier import FastTransform, MatrixTransform
from .convolution import Convolution
from .dense import Dense
from .multitier import MultiTier

__all__ = [
    "Convolution",
    "Dense",
    "FastTransform",
    "FrozenOperator",
    "MatrixTransform",
    "MonotoneOperator",
    "MultiTier",
    "Operator",
    "Resolvent",
]
