"""The complementary cones of a 2x2 matrix."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ComplementaryCones"]


class ComplementaryCones(Explorable):
    """The four cones of z = relu(Wz + c) in the plane of c, for M = I - W = [[m, k - s], [k + s, m]].

    Each c in the cone of an active set has an equilibrium with just those units active.  While M is a P-matrix, which it is
    when monotone, the cones tile the plane.  Past k^2 = m^2 + s^2 they do not: with k > 0 some c have three equilibria, with
    k < 0 some have two and some none (ledger NEW-LCP).

    Traits
    ------
    m, s, k : float
        Diagonal, skew part and symmetric coupling; M is monotone for abs(k) <= m.
    c : list of two floats
        The input.
    """

    m = traitlets.Float(1.0).tag(sync=True)
    s = traitlets.Float(0.5).tag(sync=True)
    k = traitlets.Float(0.3).tag(sync=True)
    c = traitlets.List(traitlets.Float(), default_value=[0.9, 1.8], minlen=2, maxlen=2).tag(sync=True)
