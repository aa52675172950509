"""A small picture on a torus: the response wraps round, until a border of zeros stops it."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["WrapAround"]


class WrapAround(Explorable):
    """The equilibrium of a circular convolution for one bright pixel, with a border held at zero inside the prox.

    W = (1-m)I - g A'A/||A||^2 + h (B-B')/||B|| with one channel, m = 0.5 and g = 3, on a torus of 12 + 2 `border` pixels a
    side.  Beside it, what came round the edge: the difference from the equilibrium with zeros beyond the picture
    (MON section 4.2; ledger MON-PAD).

    Traits
    ------
    border : int
        Width w of the border, 0 to 2.
    k : int
        Width of the kernels of A and B: 3 or 5 (with 1 there is no skew part, and nothing drifts).
    h : float
        Size of the skew part, by which the response drifts to the right (left where it is negative).
    at : list of two floats
        Column and row of the input pixel, rows counted from below; between pixels its light is shared.
    """

    border = traitlets.Int(0, min=0, max=2).tag(sync=True)
    k = traitlets.Enum([3, 5], default_value=3).tag(sync=True)
    h = traitlets.Float(1.5).tag(sync=True)
    at = traitlets.List(traitlets.Float(), default_value=[9.0, 6.0], minlen=2, maxlen=2).tag(sync=True)
