"""The scalar equation of the inverse of a reflection: its poles, its interval, its root, and what happens beyond two."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["SecularRoot"]


class SecularRoot(Explorable):
    """||(I - 2cW)^-1 y|| = ||y|| for W = diag(1, lambda_2, kappa), over c.

    Below kappa = 2 no pole lies in the interval [1/kappa, 1] and there is one root, to which Newton's method climbs on the concave
    1/||x(c)|| (ledger NEW-SEC). Beyond 2 the pole of lambda_1 enters and y can have several preimages, of which Newton's method on
    f finds one.

    Traits
    ------
    kappa : float
        Condition number, 1 to 4.
    middle : float
        Where lambda_2 lies between 1 (0) and kappa (1).
    y1, y2, y3 : float
        Shares of y along the eigenvectors; only their ratios matter.
    """

    kappa = traitlets.Float(1.9, min=1.0, max=4.0).tag(sync=True)
    middle = traitlets.Float(0.5, min=0.0, max=1.0).tag(sync=True)
    y1 = traitlets.Float(0.1, min=0.0, max=1.0).tag(sync=True)
    y2 = traitlets.Float(0.2, min=0.0, max=1.0).tag(sync=True)
    y3 = traitlets.Float(0.9, min=0.0, max=1.0).tag(sync=True)
