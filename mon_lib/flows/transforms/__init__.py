"""Bijections in one protocol: `forward_and_ladj`, `inverse`, `inverse_and_ladj`, and their composition and inversion."""

from ._base import Compose, Inverse, Transform
from .actnorm import ActNorm
from .coupling import AffineCoupling, SplitPrior
from .mixing import AuxiliaryMixing, FreeMixing, HouseholderMixing, InvertibleMixing, random_orthogonal
from .shapes import Dequantisation, Squeeze

__all__ = [
    "ActNorm",
    "AffineCoupling",
    "AuxiliaryMixing",
    "Compose",
    "Dequantisation",
    "FreeMixing",
    "HouseholderMixing",
    "Inverse",
    "InvertibleMixing",
    "SplitPrior",
    "Squeeze",
    "Transform",
    "random_orthogonal",
]
