"""Two tiers of one unit each, and how strongly they may be coupled."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["TwoTiers"]


class TwoTiers(Explorable):
    """Numerical range and equilibria of I - W = [[m + a^2 + 1, theta up], [theta (1 - up), m + 1]].

    This is a multi-tier operator with A_11 = a, A_21 = A_22 = 1 and the factor theta in place of 2 (MON appendix C; ledger
    MON-C4). I - W >= mI exactly for abs(theta) <= 2 sqrt(1 + a^2), whatever share of the coupling goes up; the equilibrium of
    the ReLU network is unique for every theta as long as the coupling goes one way only.

    Traits
    ------
    theta : float
        The factor of the coupling.
    m : float
        Strong monotonicity constant that the parameterisation promises.
    a : float
        A_11.
    up : float in [0, 1]
        The share of the coupling that goes from the second tier to the first.
    alone : list of two floats
        The equilibrium without coupling, which fixes the input.
    """

    theta = traitlets.Float(2.0).tag(sync=True)
    m = traitlets.Float(0.3).tag(sync=True)
    a = traitlets.Float(0.0).tag(sync=True)
    up = traitlets.Float(0.0).tag(sync=True)
    alone = traitlets.List(traitlets.Float(), default_value=[1.2, 1.3], minlen=2, maxlen=2).tag(sync=True)
