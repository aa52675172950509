"""What a recurrent state keeps of its beginning under four transitions."""

from __future__ import annotations

import traitlets

from ._base import Explorable

__all__ = ["MemoryOrbit"]


class MemoryOrbit(Explorable):
    """A state in the plane without input: h <- H(Wh)h, h <- (I - W)h, h <- Uh and h <- H(v)h, with W = I - U + s diag(1, 0).

    The reflections and the rotation U keep the norm of h at every setting, the free matrix I - W only at s = 0, where the
    first three are the same map. What becomes of a small turn of the first state is another matter: with one reflection
    chosen by its input it may die out or grow (ledger REF-32).

    Traits
    ------
    theta : float
        Angle of the rotation U.
    s : float
        How far W is from I - U.
    steps : int
        Steps shown, up to 60.
    start : list of two floats
        The first state.
    """

    theta = traitlets.Float(0.3).tag(sync=True)
    s = traitlets.Float(-0.1).tag(sync=True)
    steps = traitlets.Int(30).tag(sync=True)
    start = traitlets.List(traitlets.Float(), default_value=[1.0, 0.2], minlen=2, maxlen=2).tag(sync=True)
