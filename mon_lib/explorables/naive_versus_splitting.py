"""Naive fixed-point iteration against Peaceman-Rachford on a network of two units."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["NaiveVersusSplitting"]


class NaiveVersusSplitting(Explorable):
    """Iterates of z <- relu(Wz + c) and of Peaceman-Rachford, for W = [[0, -s], [s, 0]] and c = (x, 1/20).

    I - W is strongly monotone with m = 1 whatever s is, so there is one equilibrium; at s = 3 the naive iteration goes
    round it for ever (ledger MON-STEP).

    Traits
    ------
    k : int
        The step shown, up to 30.
    s, x : float
        Skew part and input.
    start : list of two floats
        The first iterate of both.
    """

    k = traitlets.Int(9).tag(sync=True)
    s = traitlets.Float(3.0).tag(sync=True)
    x = traitlets.Float(1.0).tag(sync=True)
    start = traitlets.List(traitlets.Float(), default_value=[1.2, 3.6], minlen=2, maxlen=2).tag(sync=True)
