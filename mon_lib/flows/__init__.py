"""Normalizing flows: bijections with their log-determinants, and Glow (REF sections 2.1 and 3.3, appendix B.3)."""

from . import transforms
from .glow import Glow

__all__ = ["Glow", "transforms"]
