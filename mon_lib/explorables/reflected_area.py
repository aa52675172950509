"""A disc, its image under one reflection, and the determinant that says how its area changes."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ReflectedArea"]


class ReflectedArea(Explorable):
    """f(x) = H(Wx)x in the plane, W = [[1, -s], [s, lam]]: a disc around x, its image, and det J over the direction of x.

    For lam = 1 f is a rotation and keeps every area.  For s = 0 and 1/2 < lam < 2 the disc is never turned over; beyond,
    it is flattened and turned over where the curve crosses zero (REF Theorem 3, REF Lemma 1; ledger NEW-K2).

    Traits
    ------
    lam, s : float
        Second diagonal entry and skew part of W.
    r : float
        Radius of the disc.
    x : list of two floats
        Its centre.
    """

    lam = traitlets.Float(2.6).tag(sync=True)
    s = traitlets.Float(0.0).tag(sync=True)
    r = traitlets.Float(0.35).tag(sync=True)
    x = traitlets.List(traitlets.Float(), default_value=[1.35, 1.05], minlen=2, maxlen=2).tag(sync=True)
