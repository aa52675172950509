"""Networks that race: the error of each by epoch and by second, at any batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from ..figures import COLOURS
from ._base import Explorable

__all__ = ["ErrorRace"]


class ErrorRace(Explorable):
    """Slide the clock and the batch size: which network has the smaller error by then?

    A step takes `once` seconds and `each` seconds for every image of its batch, so an epoch of n images in batches of N takes
    ceil(n/N) once + n each. The errors by epoch stay those that were measured, at whatever batch size that was.

    Parameters
    ----------
    labels : sequence of str
        Names of the networks; the first is the one that the others are compared with.
    colours : sequence of str
        Their keys in `mon_lib.figures.COLOURS`.
    errors : (networks, epochs)
        Test error in per cent after each epoch.
    once, each : (networks,)
        Seconds of a step whatever its batch is, and of one image; positive.
    images : int
        Images of an epoch.
    batch : float
        Shown first, from 8 to 1024; rounded to an integer.
    seconds : float
        The clock that is shown first, from 0.001 to 10000.

    Raises
    ------
    ValueError
        If the shapes disagree, a colour is not in the palette, or a number is not finite or out of range.
    """

    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    colours = traitlets.List(traitlets.Unicode()).tag(sync=True)
    errors = traitlets.List().tag(sync=True)
    once = traitlets.List(traitlets.Float()).tag(sync=True)
    each = traitlets.List(traitlets.Float()).tag(sync=True)
    images = traitlets.Int(1000, min=1).tag(sync=True)
    batch = traitlets.Float(128.0, min=8.0, max=1024.0).tag(sync=True)
    seconds = traitlets.Float(10.0, min=1e-3, max=1e4).tag(sync=True)

    def __init__(
        self,
        labels: Sequence[str],
        colours: Sequence[str],
        errors: Any,
        once: Any,
        each: Any,
        *,
        images: int,
        batch: float = 128.0,
        seconds: float = 10.0,
    ) -> None:
        errors, once, each = (np.asarray(values, dtype=float) for values in (errors, once, each))
        n = len(labels)
        if (
            n < 2
            or len(colours) != n
            or errors.ndim != 2
            or len(errors) != n
            or not once.shape == each.shape == (n,)
            or not errors.size
        ):
            raise ValueError(
                f"{n} labels, {len(colours)} colours, errors {errors.shape}, once {once.shape} and each {each.shape} do not "
                "describe the same networks, at least two: pass one label, colour, row and pair of seconds for each"
            )
        if unknown := [colour for colour in colours if colour not in COLOURS]:
            raise ValueError(f"colours hold {unknown[0]!r}; choose from {', '.join(COLOURS)}")
        if not (np.isfinite(errors).all() and errors.min() >= 0 and errors.max() <= 100):
            raise ValueError("errors must be per cent, from 0 to 100")
        if not all(np.isfinite(s).all() and s.min() > 0 for s in (once, each)):
            raise ValueError(f"once = {once.tolist()} and each = {each.tolist()} must be positive seconds")
        super().__init__(
            labels=list(labels),
            colours=list(colours),
            errors=np.round(errors, 3).tolist(),
            once=[float(f"{s:.4g}") for s in once],
            each=[float(f"{s:.4g}") for s in each],
            images=images,
            batch=float(min(max(batch, 8.0), 1024.0)),
            seconds=float(min(max(seconds, 1e-3), 1e4)),
        )
