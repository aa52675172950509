"""Faster solves around a splitting, with its certificate and its guarantee: Anderson acceleration and Newton's method.

Both solvers try a bold point, look at it with one step of a splitting, and keep it only where the certificate vector of
that step is shorter by a fixed factor; elsewhere the sample takes the splitting's own step.  So they converge whenever
the splitting does, and a `Solution` of theirs means what every `Solution` means.
"""

from .anderson import Anderson
from .newton import Newton, newton_step

__all__ = ["Anderson", "Newton", "newton_step"]
