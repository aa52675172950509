"""One widget of every kind, for the tests."""

from __future__ import annotations

import re

import anywidget
import numpy as np

import mon_lib.explorables
from mon_lib.explorables import ConvolutionSolve, DigitSolve, ErrorRace, LatentDials
from mon_lib.explorables._base import Explorable

NAMES = mon_lib.explorables.__all__


def digits(n: int = 3, steps: int = 4) -> DigitSolve:
    """Three blank digits whose classes settle after two steps."""
    probabilities = np.full((n, steps, 10), 0.1)
    probabilities[:, 2:] = np.eye(10)[np.arange(n)][:, None]
    bounds = 10.0 ** -np.arange(steps) * np.arange(1, n + 1)[:, None]
    return DigitSolve(np.arange(n * 16.0).reshape(n, 4, 4), probabilities, bounds, list(range(n)))


def channels(n: int = 2, frames: int = 3, count: int = 2) -> ConvolutionSolve:
    """Bright pixels that fade from one step to the next; the digits moved one to the right, their channels with them."""
    states = np.zeros((n, 2, frames, count, 6, 6))
    for k in range(frames):
        states[:, 0, k, :, 2, 1:3] = states[:, 1, k, :, 2, 2:4] = [1.0, 2.0**-k]
    images = states[:, :, 0, 0, 1:-1, 1:-1] + np.arange(16.0).reshape(4, 4)
    probabilities = np.full((n, 2, frames, 10), 0.1)
    probabilities[:, :, 1:] = np.eye(10)[np.arange(n)][:, None, None]
    bounds = np.broadcast_to(10.0 ** -np.arange(frames), (n, 2, frames))
    labels, steps = list(range(n)), 1 + np.arange(frames)
    return ConvolutionSolve(images, states, probabilities, bounds, labels, steps=steps, border=1, shift=(0, 1))


def race() -> ErrorRace:
    """Two networks, the second with a price for every step and the better error in the end."""
    errors = [[20.0, 12.0, 9.0], [30.0, 14.0, 8.0]]
    return ErrorRace(["one", "many"], ["ours", "paper"], errors, [0.01, 1.0], [0.001, 0.001], images=1000, seconds=4.0)


def dials() -> LatentDials:
    """Two patches of 2 x 3 pixels that come back where both factors are one, and a drawn image."""
    originals = np.arange(36.0).reshape(2, 3, 2, 3) / 255
    drawn = np.full((1, 3, 2, 3), 0.5)
    coarse, fine = np.meshgrid(LatentDials.FACTORS, LatentDials.FACTORS, indexing="ij")
    weight = (0.5 * coarse + 0.5 * fine)[..., None, None, None, None]
    images = np.clip(0.25 + weight * (np.concatenate([originals, drawn]) - 0.25), 0, 1)
    return LatentDials(images, originals, ["one", "two", "drawn"])


def make(name: str) -> Explorable:
    samples = {"DigitSolve": digits, "ConvolutionSolve": channels, "ErrorRace": race, "LatentDials": dials}
    return samples.get(name, getattr(mon_lib.explorables, name))()


def stem(name: str) -> str:
    """The file name of a component."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def state(widget: Explorable) -> dict:
    """The traits that a component adds to anywidget's."""
    values = widget.trait_values()
    return {name: values[name] for name in set(widget.keys) - set(anywidget.AnyWidget().keys) - {"_esm", "_css"}}
