"""Steps against alpha, predicted and measured."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["StepsVersusAlpha"]


class StepsVersusAlpha(Explorable):
    """Steps that Peaceman-Rachford and forward-backward take to a certified tolerance, over alpha, for a ReLU layer of six units.

    The prediction is log(tol) / log(rho) with rho the mean of rho(C_alpha diag(s)) over three sign vectors (NEW-ALPHA); the rings
    are the paper's halving grid.

    Traits
    ------
    m, g, h : float
        Strong monotonicity, symmetric and skew gain of W.
    tol : float
        Certified relative error at which a solve stops.
    """

    m = traitlets.Float(1.0).tag(sync=True)
    g = traitlets.Float(2.0).tag(sync=True)
    h = traitlets.Float(2.0).tag(sync=True)
    tol = traitlets.Float(1e-5).tag(sync=True)
