"""One widget of every kind, for the tests."""

from __future__ import annotations

import re

import anywidget
import numpy as np

import mon_lib.explorables
from mon_lib.explorables import DigitSolve
from mon_lib.explorables._base import Explorable

NAMES = mon_lib.explorables.__all__


def digits(n: int = 3, steps: int = 4) -> DigitSolve:
    """Three blank digits whose classes settle after two steps."""
    probabilities = np.full((n, steps, 10), 0.1)
    probabilities[:, 2:] = np.eye(10)[np.arange(n)][:, None]
    bounds = 10.0 ** -np.arange(steps) * np.arange(1, n + 1)[:, None]
    return DigitSolve(np.arange(n * 16.0).reshape(n, 4, 4), probabilities, bounds, list(range(n)))


def make(name: str) -> Explorable:
    return digits() if name == "DigitSolve" else getattr(mon_lib.explorables, name)()


def stem(name: str) -> str:
    """The file name of a component."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def state(widget: Explorable) -> dict:
    """The traits that a component adds to anywidget's."""
    values = widget.trait_values()
    return {name: values[name] for name in set(widget.keys) - set(anywidget.AnyWidget().keys) - {"_esm", "_css"}}
