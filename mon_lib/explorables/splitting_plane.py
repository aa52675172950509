"""The three splittings in the plane."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["SplittingPlane"]


class SplittingPlane(Explorable):
    """Paths of forward-backward, Peaceman-Rachford and Douglas-Rachford on A(z) = Gz - b, with G = [[m, -s], [s, m]].

    The vector b keeps the solution in its place.  Past alpha = 2m/L^2 forward-backward no longer arrives; the other two always do
    (MON App. A; ledger MON-STEP, MON-PR).

    Traits
    ------
    alpha, m, s : float
        Step size, strong monotonicity and skew part.
    f : "orthant" or "l1"
        The indicator of the non-negative orthant (its prox is ReLU) or the l1 norm.
    steps : int
        How many steps the paths show, up to 60.
    start : list of two floats
        The first u.
    """

    alpha = traitlets.Float(0.3).tag(sync=True)
    m = traitlets.Float(0.5).tag(sync=True)
    s = traitlets.Float(1.5).tag(sync=True)
    f = traitlets.Enum(["orthant", "l1"], default_value="orthant").tag(sync=True)
    steps = traitlets.Int(20).tag(sync=True)
    start = traitlets.List(traitlets.Float(), default_value=[2.6, 2.2], minlen=2, maxlen=2).tag(sync=True)
