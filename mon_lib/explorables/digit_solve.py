"""A digit's class probabilities and certified error while the solver runs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from ._base import Explorable

__all__ = ["DigitSolve"]


def _array(values: Any) -> np.ndarray:
    """`values` (array, tensor on any device or nested list) as a numpy array."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)


class DigitSolve(Explorable):
    """Choose a digit, slide over the solver's steps, see the classes settle and the error bound fall.

    Parameters
    ----------
    images : (n, height, width) or (n, 1, height, width)
        At most 28 pixels a side and 40 digits; any range, each is stretched to black and white.
    probabilities : (n, steps, classes)
        Class probabilities read off the iterate after each step.
    bounds : (n, steps)
        Certified relative error bound after each step (`Solution.residuals`, transposed).
    labels : (n,)
        The true classes.
    digit, step
        What is shown first; steps count from one.

    Raises
    ------
    ValueError
        If the shapes disagree, if a number is not finite or if there is too much for one page.
    """

    images = traitlets.List(traitlets.Unicode()).tag(sync=True)
    size = traitlets.List(traitlets.Int(), minlen=2, maxlen=2, default_value=[28, 28]).tag(sync=True)
    probabilities = traitlets.List().tag(sync=True)
    bounds = traitlets.List().tag(sync=True)
    labels = traitlets.List(traitlets.Int()).tag(sync=True)
    digit = traitlets.Int(0).tag(sync=True)
    step = traitlets.Int(1).tag(sync=True)

    def __init__(
        self, images: Any, probabilities: Any, bounds: Any, labels: Sequence[int], *, digit: int = 0, step: int = 1
    ) -> None:
        images, probabilities, bounds, labels = map(_array, (images, probabilities, bounds, labels))
        if images.ndim == 4 and images.shape[1] == 1:
            images = images[:, 0]
        n, steps = bounds.shape if bounds.ndim == 2 else (0, 0)
        if not (images.ndim == 3 and len(images) == n and probabilities.shape[:2] == (n, steps) and probabilities.ndim == 3):
            raise ValueError(
                "images must be (n, height, width), probabilities (n, steps, classes) and bounds (n, steps), "
                f"got {images.shape}, {probabilities.shape} and {bounds.shape}"
            )
        if labels.shape != (n,):
            raise ValueError(f"labels must be ({n},), got {labels.shape}")
        if not n or not steps:
            raise ValueError("there is nothing to show: no digit or no step")
        if n > 40 or max(images.shape[1:]) > 28 or steps > 100:
            raise ValueError(f"{n} images of {images.shape[1:]} over {steps} steps: show at most 40, of 28x28, over 100 steps")
        if not all(np.isfinite(a).all() for a in (images, probabilities, bounds)):
            raise ValueError("images, probabilities and bounds must be finite")
        if not (0 <= digit < n and 1 <= step <= steps):
            raise ValueError(f"digit must be below {n} and step from 1 to {steps}, got digit = {digit}, step = {step}")
        low, high = (f(images, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
        grey = np.rint(255 * (images - low) / np.maximum(high - low, np.finfo(float).tiny)).astype(np.uint8)
        super().__init__(
            images=[base64.b64encode(image.tobytes()).decode("ascii") for image in grey],
            size=list(images.shape[1:]),
            probabilities=np.round(probabilities.astype(float), 4).tolist(),
            bounds=[[float(f"{b:.4g}") for b in row] for row in bounds],
            labels=[int(label) for label in labels],
            digit=digit,
            step=step,
        )
