"""The numerical range of W against the line Re = 1 - m."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["NumericalRange"]


class NumericalRange(Explorable):
    """Numerical range and eigenvalues of W = (1-m)I - g A'A/||A||^2 + h (B-B')/||B|| for fixed 4x4 A and B.

    No choice of A, B, g > 0 or h takes it past the vertical line Re = 1 - m (MON Proposition 1; ledger MON-P1, MON-WN).

    Traits
    ------
    m, g, h : float
        Strong monotonicity, symmetric and skew gain.
    free : float in [0, 1]
        The share of a matrix that was not built so.
    """

    m = traitlets.Float(0.5).tag(sync=True)
    g = traitlets.Float(5.0).tag(sync=True)
    h = traitlets.Float(2.5).tag(sync=True)
    free = traitlets.Float(0.0).tag(sync=True)
