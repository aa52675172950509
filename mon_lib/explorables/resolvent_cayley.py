"""Resolvent and Cayley operator of a 2x2 operator."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ResolventCayley"]


class ResolventCayley(Explorable):
    """The unit circle and its images under G, R = (I + alpha G)^-1 and C = 2R - I, for G = [[m, -s], [s, m + t]].

    For a pure rotation (m = t = 0) the Cayley operator is an isometry, whatever alpha is (MON App. A; ledger MON-A5).

    Traits
    ------
    m, s, t, alpha : float
        Strong monotonicity, skew part, stretch and step size.
    point : list of two floats
        A point x, shown with Gx, Rx and Cx.
    """

    m = traitlets.Float(0.4).tag(sync=True)
    s = traitlets.Float(1.2).tag(sync=True)
    t = traitlets.Float(0.5).tag(sync=True)
    alpha = traitlets.Float(1.0).tag(sync=True)
    point = traitlets.List(traitlets.Float(), default_value=[0.8, 0.6], minlen=2, maxlen=2).tag(sync=True)
