"""Householder reflections, products of them, and one reflection chosen by its input, f(x) = H(Wx)x ("One Reflection Suffice")."""

from .auxiliary import AuxiliaryReflection, Newton
from .householder import householder
from .invertible import InvertibleReflection, PreparedInvertible
from .products import HouseholderProduct
from .secular import Damped, DampedInverse, Secular, solve_secular

__all__ = [
    "AuxiliaryReflection",
    "Damped",
    "DampedInverse",
    "HouseholderProduct",
    "InvertibleReflection",
    "Newton",
    "PreparedInvertible",
    "Secular",
    "householder",
    "solve_secular",
]
