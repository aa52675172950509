"""Smooth activations: prox_{alpha f} solves a scalar equation (see ``_implicit``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import NotProximalError
from ._implicit import Implicit
from .piecewise import _where

__all__ = ["ELU", "Arctan", "Sigmoid", "Softplus", "Softsign", "Tanh"]


def _fraction(x: Tensor, weights: list[float]) -> Tensor:
    """The continued fraction w1 x / (3 + w2 x / (5 + w3 x / (7 + ...))): positive terms, no cancellation."""
    tail = torch.zeros_like(x)
    for k in range(len(weights), 0, -1):
        tail = weights[k - 1] * x / (2 * k + 1 + tail)
    return tail


# tanh t = t/(1 + K) and atan t = t/(1 + K), where K is the fraction in t^2 with these weights (|t| <= 1)
_TANH = [1.0] * 8
_ATAN = [float(k * k) for k in range(1, 23)]


def _rest(t: Tensor, value: Tensor, weights: list[float]) -> Tensor:
    """t - value to full relative accuracy, where value = t/(1 + K(t^2))."""
    tail = _fraction((t * t).clamp(max=1), weights)
    return torch.where(t.abs() <= 1, t * tail / (1 + tail), t - value)


@dataclass(frozen=True)
class Tanh(Implicit):
    """tanh(x). f(z) = z artanh z + log(1 - z^2)/2 - z^2/2 on [-1, 1]."""

    def _value(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.tanh(t)
        return z, _rest(t, z, _TANH)

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return 4 * torch.sigmoid(2 * t) * torch.sigmoid(-2 * t), torch.tanh(t) ** 2

    def _potential(self, z: Tensor) -> Tensor:
        entropy = torch.special.xlog1py(1 + z, z) + torch.special.xlog1py(1 - z, -z)
        return _where(z.abs() <= 1, 0.5 * entropy - 0.5 * z * z)


@dataclass(frozen=True)
class Sigmoid(Implicit):
    """1/(1 + exp(-x)). f(z) = z log z + (1 - z) log(1 - z) - z^2/2 on [0, 1]."""

    def _value(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.sigmoid(t)
        return z, t - z

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        slope = torch.sigmoid(t) * torch.sigmoid(-t)
        return slope, 1 - slope

    def _potential(self, z: Tensor) -> Tensor:
        entropy = torch.special.xlogy(z, z) + torch.special.xlog1py(1 - z, -z)
        return _where((z >= 0) & (z <= 1), entropy - 0.5 * z * z)


@dataclass(frozen=True)
class Softplus(Implicit):
    """log(1 + exp(x)). f(z) = Li2(exp(-z)) - pi^2/6 on z >= 0, with Li2 the dilogarithm."""

    def _value(self, x: Tensor) -> Tensor:
        return torch.logaddexp(x, x.new_zeros(()))  # not F.softplus, which returns x itself beyond 20

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._value(t), -self._value(-t)

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(t), torch.sigmoid(-t)

    def _potential(self, z: Tensor) -> Tensor:
        small = z <= math.log(2)
        p = z.clamp(min=0)
        argument = torch.where(small, -torch.expm1(-p), torch.exp(-p))  # at most 1/2: the series converges fast
        series = torch.zeros_like(z)
        for k in range(54, 0, -1):
            series = argument * (1 / k**2 + series)
        reflected = torch.special.xlogy(p, argument) - series
        return _where(z >= 0, torch.where(small, reflected, series - math.pi**2 / 6))


@dataclass(frozen=True)
class ELU(Implicit):
    """x for x > 0, alpha (exp(x) - 1) below. f(z) = (z + alpha) log(1 + z/alpha) - z - z^2/2 on [-alpha, 0], 0 above.

    The slope is alpha just below 0, so NotProximalError unless 0 <= alpha <= 1. This alpha is the activation's, not
    the step of the prox.
    """

    alpha: float = 1.0

    def __post_init__(self):
        if not 0 <= self.alpha <= 1:
            raise NotProximalError(
                f"ELU(alpha={self.alpha}): the slope just below 0 is {self.alpha}, and a proximal operator has slopes "
                "in [0, 1]; choose alpha there"
            )

    def _value(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        y = 0.5 * t.clamp(-1, 0)
        tail = _fraction(y * y, _TANH)
        near = -2 * y * (y - tail) / (1 + tail - y)  # t - expm1(t), from expm1(t) = 2T/(1 - T) with T = tanh(t/2)
        n = t.clamp(max=0)
        rest = torch.where(t >= -1, near, n - torch.expm1(n))
        return F.elu(t, self.alpha), (1 - self.alpha) * n + self.alpha * rest

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        n = t.clamp(max=0)
        slope = torch.where(t > 0, 1.0, self.alpha * torch.exp(n))
        return slope, torch.where(t > 0, 0.0, (1 - self.alpha) - self.alpha * torch.expm1(n))

    def _potential(self, z: Tensor) -> Tensor:
        if self.alpha == 0:
            return _where(z >= 0, torch.zeros_like(z))
        n = z.clamp(max=0)
        inside = torch.special.xlog1py(n + self.alpha, n / self.alpha) - n - 0.5 * n * n
        return _where(z >= -self.alpha, inside)


@dataclass(frozen=True)
class Softsign(Implicit):
    """``x/(1 + |x|)``. ``f(z) = -|z| - log(1 - |z|) - z^2/2`` on (-1, 1). Here t solves a quadratic."""

    def _value(self, x: Tensor) -> Tensor:
        return F.softsign(x)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        z = F.softsign(t)
        return z, t.abs() * z

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        size = t.abs()
        return (1 + size) ** -2, size / (1 + size) * (1 + 1 / (1 + size))

    @torch.no_grad()
    def _root(self, u: Tensor, alpha: float) -> Tensor:
        # alpha a^2 + (1 - v) a - v = 0 for a = |t|, v = |u|; each sign of 1 - v has its form without cancellation
        v = u.abs()
        gap = 1 - v
        width = torch.hypot(gap, 2 * math.sqrt(alpha) * v.sqrt())
        size = torch.where(gap >= 0, 2 * v / (gap.clamp(min=0) + width), (width - gap) / (2 * alpha))
        return torch.copysign(size, u)

    def _potential(self, z: Tensor) -> Tensor:
        size = z.abs()
        return _where(size < 1, -size - torch.log1p(-size) - 0.5 * z * z)


@dataclass(frozen=True)
class Arctan(Implicit):
    """arctan(x). f(z) = -log cos z - z^2/2 on (-pi/2, pi/2)."""

    def _value(self, x: Tensor) -> Tensor:
        return torch.atan(x)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.atan(t)
        return z, _rest(t, z, _ATAN)

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        length = torch.hypot(torch.ones_like(t), t)
        return length**-2, (t / length) ** 2

    def _potential(self, z: Tensor) -> Tensor:
        return _where(z.abs() < math.pi / 2, -torch.log(torch.cos(z)) - 0.5 * z * z)
