"""Householder reflections, products of them, and one reflection chosen by its input, f(x) = H(Wx)x ("One Reflection Suffice")."""

from .auxiliary import AuxiliaryReflection, Newton
from .householder import householder
from .invertible import InvertibleReflection
from .products import HouseholderProduct
from .secular import DampedInverse, solve_secular

__all__ = [
    "AuxiliaryReflection",
    "DampedInverse",
    "HouseholderProduct",
    "InvertibleReflection",
    "Newton",
    "householder",
    "solve_secular",
]
