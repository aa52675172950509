"""The implicit gradient, and what an unconverged solve makes of it."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ImplicitGradient"]


class ImplicitGradient(Explorable):
    """The loss of the equilibrium of a two-unit tanh network over a parameter theta, with three tangents.

    The implicit gradient at the equilibrium; the same formula at the point after k Peaceman-Rachford steps, which is the
    slope of no curve at all; and the gradient unrolled through those k steps, which is the slope of another curve
    (MON Theorem 2; ledger MON-T2).

    Traits
    ------
    theta : float
        The parameter, a bias.
    steps : int
        Solver steps k, up to 30.
    alpha : float
        Step size of the solver.
    """

    theta = traitlets.Float(-2.0).tag(sync=True)
    steps = traitlets.Int(2).tag(sync=True)
    alpha = traitlets.Float(0.2).tag(sync=True)
