"""An activation, the f of which it is the prox, and prox_{alpha f}."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["ActivationProx"]

_NAMES = ["relu", "leaky", "clip", "soft", "tanh", "sigmoid", "softplus", "elu", "softsign", "arctan"]


class ActivationProx(Explorable):
    """sigma, f and prox_{alpha f} side by side, f(p) being the integral of sigma^-1(q) - q up to p (ledger NEW-PROX).

    At alpha = 1 the prox is sigma.  For ReLU and clip, whose f is an indicator, it stays sigma; for tanh it does not.  The leaky
    ReLU has the slope 0.1.

    Traits
    ------
    activation : "relu", "leaky", "clip", "soft", "tanh", "sigmoid", "softplus", "elu", "softsign" or "arctan"
    alpha, u : float
        Step size, and the point at which the prox is taken.
    """

    activation = traitlets.Enum(_NAMES, default_value="tanh").tag(sync=True)
    alpha = traitlets.Float(6.0).tag(sync=True)
    u = traitlets.Float(2.0).tag(sync=True)
