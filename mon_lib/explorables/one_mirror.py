"""A rotation as one mirror that moves with its point."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["OneMirror"]


class OneMirror(Explorable):
    """f(x) = H(Wx)x with W = I - U, U a rotation of the plane, and what eps in its denominator does near the fixed point 0.

    The mirror stands between x and Ux and turns with x, so the flag is turned and not mirrored (REF Theorem 1). With eps
    the image of a ray starts along the ray: the Jacobian at 0 is I, for every eps (ledger REF-T1).

    Traits
    ------
    x : list of two floats
        The point.
    angle : float
        Of the rotation U, in degrees.
    eps : float
        Added to ||Wx||^2.
    """

    x = traitlets.List(traitlets.Float(), default_value=[0.9, 0.2], minlen=2, maxlen=2).tag(sync=True)
    angle = traitlets.Float(100.0).tag(sync=True)
    eps = traitlets.Float(0.3).tag(sync=True)
