"""A Gaussian of the plane, moved by one auxiliary reflection."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["FoldingGaussian"]


class FoldingGaussian(Explorable):
    """Where f(x) = H(Wx)x takes a Gaussian, W = diag(1, kappa), and the density of f(x) on the circle through f(mean).

    Up to kappa = 2 f is one-to-one, and its density is that of x divided by the modulus of det J. Past 2 the plane is
    folded about the second axis: the density is a sum over three preimages between two rays, and infinite on the rays
    (ledger NEW-K2, NEW-DENS).

    Traits
    ------
    kappa : float
        Second eigenvalue of W, the condition number.
    sigma : float
        Standard deviation of the Gaussian.
    mean : list of two floats
    """

    kappa = traitlets.Float(2.7).tag(sync=True)
    sigma = traitlets.Float(0.45).tag(sync=True)
    mean = traitlets.List(traitlets.Float(), default_value=[0.5, 1.3], minlen=2, maxlen=2).tag(sync=True)
