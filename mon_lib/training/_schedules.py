"""Learning rates as functions of the position in a run (MON D.2). They keep no state, so a run resumes anywhere."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .._numbers import check_number, check_whole

__all__ = ["Constant", "OneCycle", "Schedule", "StepDecay"]


class Schedule(ABC):
    """Adam's learning rate and first momentum at a position of a run."""

    @abstractmethod
    def at(self, position: float, learning_rate: float) -> tuple[float, float]:
        """The settings of one optimiser step.

        Parameters
        ----------
        position : float
            Epochs done, with the fraction of the current one.
        learning_rate : float
            The rate that `fit` was given.

        Returns
        -------
        tuple of float
            Learning rate and beta1.
        """


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate throughout, with Adam's default momentum."""

    def at(self, position: float, learning_rate: float) -> tuple[float, float]:
        return learning_rate, 0.9


@dataclass(frozen=True)
class StepDecay(Schedule):
    """Divide the learning rate by `factor` after every `every` epochs; the paper's factor is 10.

    Raises
    ------
    TypeError
        If `every` is no integer or `factor` no number.
    ValueError
        If every < 1 or factor <= 0.
    """

    every: int
    factor: float = 10.0

    def __post_init__(self):
        check_whole("every", self.every, "a number of epochs, such as 10")
        check_number("factor", self.factor, "a divisor, such as 10")
        if self.every < 1:
            raise ValueError(f"every = {self.every} epochs must be at least 1")
        if not (self.factor > 0.0 and math.isfinite(self.factor)):
            raise ValueError(f"factor = {self.factor} must be positive and finite")

    def at(self, position: float, learning_rate: float) -> tuple[float, float]:
        return learning_rate / self.factor ** (int(position) // self.every), 0.9


@dataclass(frozen=True)
class OneCycle(Schedule):
    """The paper's single cycle: the rate rises to `peak`, falls back, is held; the momentum does the opposite.

    Both are linear. The paper's numbers are the defaults: 30 epochs up, 30 down, 5 held, beta1 0.95, 0.85, 0.95. Beyond
    the cycle the last values stay.

    Parameters
    ----------
    peak : float
        Largest learning rate; Table D1 uses 0.01 and 0.05.
    up, down, hold : float
        Lengths of the three parts in epochs.
    momentum : tuple of float
        beta1 at the ends and at the peak.

    Raises
    ------
    TypeError
        If `peak`, a length or a momentum is no number.
    ValueError
        If the peak, a length or a momentum makes no sense.
    """

    peak: float
    up: float = 30
    down: float = 30
    hold: float = 5
    momentum: tuple[float, float] = (0.95, 0.85)

    def __post_init__(self):
        check_number("peak", self.peak, "a learning rate, such as 0.01")
        for name in ("up", "down", "hold"):
            check_number(name, getattr(self, name), "a number of epochs, such as 30")
        if not (self.peak > 0.0 and math.isfinite(self.peak)):
            raise ValueError(f"peak = {self.peak} is not a learning rate; it must be positive and finite")
        if min(self.up, self.down) <= 0 or self.hold < 0:
            raise ValueError(f"up = {self.up} and down = {self.down} must be positive, hold = {self.hold} not negative")
        pair = isinstance(self.momentum, Sequence) and len(self.momentum) == 2
        if not pair or not all(0.0 <= check_number("momentum", beta, "two of [0, 1)") < 1.0 for beta in self.momentum):
            raise ValueError(f"momentum = {self.momentum} must be two numbers in [0, 1): beta1 at the ends and at the peak")

    def at(self, position: float, learning_rate: float) -> tuple[float, float]:
        height = max(0.0, min(position / self.up, 1.0 - (position - self.up) / self.down))
        ends, middle = self.momentum
        return learning_rate + height * (self.peak - learning_rate), ends + height * (middle - ends)
