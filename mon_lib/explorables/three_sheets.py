"""The mass of one auxiliary reflection next to a singular W, and the samples that do not see it."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ThreeSheets"]


class ThreeSheets(Explorable):
    """f(x) = H(Wx)x for W = diag(t, 2, ..., 2): the preimages of y, and E|det J| from uniform and from importance samples.

    At t = 0 W is I - Q for the Q that fixes the first axis and turns the others round, and f is Q. On either side of zero two
    small caps about the axis each cover half of the sphere once more (ledger NEW-DENS). The picture shows the plane of y and
    the axis, to which all preimages belong; the mass is that of dimension d.

    Traits
    ------
    t : float
        The first eigenvalue of W.
    d : int
        Dimension, from 2 to 12.
    y : list of two floats
        The target, on the unit circle; the first entry is along the axis.
    """

    t = traitlets.Float(-0.1).tag(sync=True)
    d = traitlets.Int(6).tag(sync=True)
    y = traitlets.List(traitlets.Float(), default_value=[-0.6, 0.8], minlen=2, maxlen=2).tag(sync=True)
