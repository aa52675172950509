"""Piecewise linear activations: prox_{alpha f} in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import NotProximalError
from ._base import Activation

__all__ = ["Clip", "LeakyReLU", "ReLU", "SoftThreshold"]


def _where(inside: Tensor, value: Tensor | float) -> Tensor:
    """value inside the domain of f, +inf outside."""
    return torch.where(inside, value, math.inf)


@dataclass(frozen=True)
class ReLU(Activation):
    """max(x, 0): the projection onto z >= 0. f is its indicator, so alpha changes nothing."""

    def _value(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return torch.relu(x)

    def _derivative(self, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return self._derivative(x)

    def _potential(self, z: Tensor) -> Tensor:
        return _where(z >= 0, torch.zeros_like(z))


@dataclass(frozen=True)
class Clip(Activation):
    """min(max(x, low), high): the projection onto [low, high]. f is its indicator, so alpha changes nothing.

    Raises ValueError unless low < high; either may be infinite.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self):
        if not self.low < self.high:
            raise ValueError(f"Clip(low={self.low}, high={self.high}): low must be below high")

    def _value(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self.low, self.high)  # not clamp, whose gradient at the bounds differs between releases

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return self._value(x)

    def _derivative(self, x: Tensor) -> Tensor:
        return ((x > self.low) & (x < self.high)).to(x.dtype)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return self._derivative(x)

    def _potential(self, z: Tensor) -> Tensor:
        return _where((z >= self.low) & (z <= self.high), torch.zeros_like(z))


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """x for x > 0, slope * x below. f(z) = (1/slope - 1) z^2 / 2 for z < 0, and 0 above.

    Raises NotProximalError unless 0 <= slope <= 1.
    """

    slope: float = 0.01

    def __post_init__(self):
        if not 0 <= self.slope <= 1:
            raise NotProximalError(
                f"LeakyReLU(slope={self.slope}): a proximal operator has slopes in [0, 1]; choose the slope there"
            )

    def _shrunk(self, alpha: float) -> float:
        return self.slope / (self.slope + alpha * (1 - self.slope))

    def _value(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return F.leaky_relu(x, self._shrunk(alpha))

    def _derivative(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1.0, torch.full_like(x, self.slope))

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return torch.where(x > 0, 1.0, torch.full_like(x, self._shrunk(alpha)))

    def _potential(self, z: Tensor) -> Tensor:
        if self.slope == 0:
            return ReLU()._potential(z)
        return 0.5 * (1 / self.slope - 1) * z.clamp(max=0) ** 2


@dataclass(frozen=True)
class SoftThreshold(Activation):
    """``sign(x) max(|x| - threshold, 0)``. ``f(z) = threshold |z|``, so alpha multiplies the threshold.

    Raises ValueError unless the threshold is finite and not negative.
    """

    threshold: float = 1.0

    def __post_init__(self):
        if not 0 <= self.threshold < math.inf:
            raise ValueError(f"SoftThreshold(threshold={self.threshold}): the threshold is finite and at least 0")

    def _value(self, x: Tensor) -> Tensor:
        return self._prox(x, 1.0)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        # torch refuses a threshold that its dtype cannot hold; the largest number that it can gives 0 just as well
        return F.softshrink(x, min(alpha * self.threshold, torch.finfo(x.dtype).max))

    def _derivative(self, x: Tensor) -> Tensor:
        return (x.abs() > self.threshold).to(x.dtype)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return (x.abs() > alpha * self.threshold).to(x.dtype)

    def _potential(self, z: Tensor) -> Tensor:
        return self.threshold * z.abs()
