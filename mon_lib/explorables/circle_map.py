"""One auxiliary reflection of the plane, as a map of the circle."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["CircleMap"]


class CircleMap(Explorable):
    """Angle of f(x) = H(Wx)x against the angle of x, for W = diag(l1, l2): winding number, det J and all preimages of f(x).

    With eigenvalues of opposite signs det J vanishes nowhere and every point has three preimages; with one sign the circle is
    wound once, and folded as soon as their ratio passes 2 (REF Theorem 4; ledger REF-T4, NEW-K2).

    Traits
    ------
    l1, l2 : float
        The eigenvalues of W.
    x : list of two floats
        The point, on the unit circle.
    """

    l1 = traitlets.Float(1.0).tag(sync=True)
    l2 = traitlets.Float(-1.0).tag(sync=True)
    x = traitlets.List(traitlets.Float(), default_value=[0.8, 0.6], minlen=2, maxlen=2).tag(sync=True)
