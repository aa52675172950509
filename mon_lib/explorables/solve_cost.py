"""What an equilibrium of a convolution costs, counted in explicit convolutions."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["SolveCost"]


class SolveCost(Explorable):
    """Real multiplications of a Peaceman-Rachford step and of a whole solve, over those of one explicit 3x3 convolution.

    A step is two transforms and one product a frequency (MON section 4.2, counted exactly in chapter 12); the transform is a
    fast one or a product with Fourier matrices, whichever is cheaper. The symbol and its inverse come once for a forward and a
    backward pass. The number of steps is the one that alpha = 1/L guarantees for m = 1.

    Traits
    ------
    n, s, b : int
        Channels, pixels along one side, states in the batch.
    L : float
        ||I - W||, at least m = 1.
    tol : float
        Factor by which the distance from the equilibrium is to shrink, forward and backward.
    ratio : float
        Time of one multiplication inside a fast Fourier transform, over one inside a matrix product or a convolution.
    """

    n = traitlets.Int(81, min=1).tag(sync=True)
    s = traitlets.Int(34, min=2).tag(sync=True)
    b = traitlets.Int(128, min=1).tag(sync=True)
    L = traitlets.Float(4.9).tag(sync=True)
    tol = traitlets.Float(1e-2).tag(sync=True)
    ratio = traitlets.Float(12.0).tag(sync=True)
