"""Operators W with I - W >= mI, their transposes and their resolvents (MON Proposition 1, appendices B and C)."""

from ._base import FrozenOperator, MonotoneOperator, Operator, Resolvent
from .dense import Dense

__all__ = ["Dense", "FrozenOperator", "MonotoneOperator", "Operator", "Resolvent"]
