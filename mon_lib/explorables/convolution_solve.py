"""The channels of a convolutional equilibrium network while the solver runs, for a digit and the same digit moved."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from ._base import Explorable
from .digit_solve import _array

__all__ = ["ConvolutionSolve"]

LARGEST = 200_000  # characters of encoded states: what one page can afford


def _encoded(grey: np.ndarray, top: np.ndarray) -> Any:
    """Numbers from 0 to `top` as bytes: nested lists of base64 texts, one for each picture ``(..., height, width)``."""
    levels = np.rint(255 * grey / np.maximum(top, np.finfo(float).tiny)).astype(np.uint8)

    def encode(part: np.ndarray) -> Any:
        return base64.b64encode(part.tobytes()).decode("ascii") if part.ndim == 2 else [encode(each) for each in part]

    return encode(levels)


class ConvolutionSolve(Explorable):
    """Choose a digit and a channel, slide over the solver's steps, move the digit: state, classes and bound follow.

    Each digit comes twice, as it is and moved by `shift`: position 0 and 1 of the second axis.

    Parameters
    ----------
    images : (n, 2, height, width)
        Any range; each is stretched to black and white.
    states : (n, 2, frames, channels, height + 2 border, width + 2 border)
        Iterates of the solver, the last frame standing for z*; not negative, as after ReLU. A channel has one scale for all
        digits and frames, in 256 levels.
    probabilities : (n, 2, frames, classes)
        Class probabilities read off each iterate.
    bounds : (n, 2, frames)
        Certified relative error bound of each iterate.
    labels : (n,)
        The true classes.
    steps : (frames,)
        After how many steps each frame was taken, increasing.
    border : int
        Width of the border that the prox holds at zero.
    shift : (2,)
        Rows down and columns to the right that the second picture of each digit is moved by.
    digit, channel, frame, moved
        What is shown first.

    Raises
    ------
    ValueError
        If the shapes disagree, if a number is not finite, if a state is negative or not zero on its border, or if there is
        too much for one page.
    """

    images = traitlets.List().tag(sync=True)
    size = traitlets.List(traitlets.Int(), minlen=2, maxlen=2, default_value=[28, 28]).tag(sync=True)
    states = traitlets.List().tag(sync=True)
    border = traitlets.Int(1).tag(sync=True)
    steps = traitlets.List(traitlets.Int()).tag(sync=True)
    probabilities = traitlets.List().tag(sync=True)
    bounds = traitlets.List().tag(sync=True)
    labels = traitlets.List(traitlets.Int()).tag(sync=True)
    shift = traitlets.List(traitlets.Int(), minlen=2, maxlen=2, default_value=[0, 0]).tag(sync=True)
    digit = traitlets.Int(0).tag(sync=True)
    channel = traitlets.Int(0).tag(sync=True)
    frame = traitlets.Int(0).tag(sync=True)
    moved = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        images: Any,
        states: Any,
        probabilities: Any,
        bounds: Any,
        labels: Sequence[int],
        *,
        steps: Sequence[int],
        border: int,
        shift: Sequence[int],
        digit: int = 0,
        channel: int = 0,
        frame: int = 0,
        moved: bool = False,
    ) -> None:
        images, states, probabilities, bounds, labels, steps = map(_array, (images, states, probabilities, bounds, labels, steps))
        shapes = f"images {images.shape}, states {states.shape}, probabilities {probabilities.shape}, bounds {bounds.shape}"
        if states.ndim != 6 or images.ndim != 4 or probabilities.ndim != 4:
            raise ValueError(f"states need six axes, images and probabilities four, got {shapes}")
        n, _, frames, channels, *whole = states.shape
        size = [s - 2 * border for s in whole]
        agree = images.shape == (n, 2, *size) and probabilities.shape[:3] == bounds.shape == (n, 2, frames)
        if not agree or states.shape[1] != 2 or not states.size:
            raise ValueError(f"{shapes} do not describe two positions each of n digits, with a border of {border}")
        if labels.shape != (n,) or steps.shape != (frames,) or bool((np.diff(steps) <= 0).any()):
            raise ValueError(
                f"labels must be ({n},) and steps {frames} increasing numbers, got {labels.shape} and {steps.tolist()}"
            )
        if not all(np.isfinite(a).all() for a in (images, states, probabilities, bounds)):
            raise ValueError("images, states, probabilities and bounds must be finite")
        inside = states[..., border : whole[0] - border, border : whole[1] - border]
        if states.min() < 0 or np.count_nonzero(states) != np.count_nonzero(inside):
            raise ValueError("states must be at least 0, and zero on their border: show the iterates after the prox")
        if (length := 4 * -(-int(np.prod(whole)) // 3) * (states.size // int(np.prod(whole)))) > LARGEST:
            raise ValueError(f"the states take {length} characters, and a page affords {LARGEST}: fewer digits, frames or channels")
        if not (0 <= digit < n and 0 <= channel < channels and 0 <= frame < frames):
            raise ValueError(f"digit = {digit}, channel = {channel}, frame = {frame}: below {n}, {channels} and {frames}, from 0")
        low, high = (f(images, axis=(2, 3), keepdims=True) for f in (np.min, np.max))
        super().__init__(
            images=_encoded(images - low, high - low),
            size=size,
            states=_encoded(states, states.max(axis=(0, 1, 2, 4, 5), keepdims=True)),
            border=border,
            steps=[int(k) for k in steps],
            probabilities=np.round(probabilities.astype(float), 4).tolist(),
            bounds=[[[float(f"{b:.4g}") for b in row] for row in pair] for pair in bounds],
            labels=[int(label) for label in labels],
            shift=[int(s) for s in shift],
            digit=digit,
            channel=channel,
            frame=frame,
            moved=moved,
        )
