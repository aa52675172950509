"""Mirrors of the plane, one after the other."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["MirrorStack"]


class MirrorStack(Explorable):
    """A flag at x in k mirrors, each turned by theta against the one before; the first is orthogonal to v.

    An even number of mirrors is a rotation by k theta, wherever v points; an odd number is one mirror. In the plane two
    mirrors are enough for everything (REF section 1; ledger REF-INTRO).

    Traits
    ------
    v, x : list of two floats
        The normal of the first mirror, and the place of the flag.
    k : int
        Number of mirrors.
    theta : float
        Degrees from one mirror to the next.
    """

    v = traitlets.List(traitlets.Float(), default_value=[-0.5, 1.1], minlen=2, maxlen=2).tag(sync=True)
    x = traitlets.List(traitlets.Float(), default_value=[1.6, -0.2], minlen=2, maxlen=2).tag(sync=True)
    k = traitlets.Int(2).tag(sync=True)
    theta = traitlets.Float(40.0).tag(sync=True)
