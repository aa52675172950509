"""Activations made of another activation, or of a diagonal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ._base import Activation, _wide

__all__ = ["Border", "Diagonal"]


@dataclass(frozen=True)
class Border(Activation):
    """The activation inside, zero on a border of the given width of the last two axes.

    It is the prox of f plus the indicator of {z = 0 on the border}, so zero padding costs a monotone equilibrium
    network nothing: the border goes inside the prox. Source: MON 4.2 (MON-PAD).

    Parameters
    ----------
    activation : Activation
        What to apply inside.
    width : int
        Rows and columns of zeros on every side; x has the shape (..., channels, H, W) with H, W > 2 width.

    Raises
    ------
    ValueError
        If the width is negative, or on use if x has fewer than three axes, so that the border would silence samples, or
        if nothing is left inside the border.
    """

    activation: Activation
    width: int

    def __post_init__(self):
        if not isinstance(self.activation, Activation):
            raise TypeError(f"Border takes an Activation, not {type(self.activation).__name__}")
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 0:
            raise ValueError(f"Border(width={self.width!r}): the width is a whole number, at least 0")

    def part(self, rows: slice, ndim: int) -> Border:
        return Border(self.activation.part(rows, ndim), self.width)

    def _framed(self, function, x: Tensor, *args) -> Tensor:
        width = self.width
        if x.ndim < 3:
            raise ValueError(
                f"Border is for states (channels, height, width), not for a tensor of shape {tuple(x.shape)}: its border "
                "would zero samples; use the activation inside alone"
            )
        if min(x.shape[-2:]) <= 2 * width:
            raise ValueError(
                f"a border of width {width} leaves nothing of shape {tuple(x.shape)}: the last two sizes must be above {2 * width}"
            )
        if width == 0:
            return function(x, *args)
        inside = function(x[..., width:-width, width:-width], *args)
        return F.pad(inside, (width, width, width, width))

    def _value(self, x: Tensor) -> Tensor:
        return self._framed(self.activation, x)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return self._framed(self.activation.prox, x, alpha)

    def _derivative(self, x: Tensor) -> Tensor:
        return self._framed(self.activation.derivative, x)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return self._framed(self.activation.prox_derivative, x, alpha)

    def _potential(self, z: Tensor) -> Tensor:
        outside = z - self._framed(lambda y: y, z)
        return torch.where(outside == 0, self._framed(self.activation.potential, z), torch.inf)


@dataclass(frozen=True, eq=False)
class Diagonal(Activation):
    r"""The linear activation x -> J x, with 0 <= J <= 1 entry by entry.

    It is the prox of f(z) = sum_i D_i z_i^2 / 2 with J = 1/(1 + D), D = infinity where J = 0. The backward pass of an
    equilibrium layer is a splitting problem with this activation.

    Source: MON Theorem 3 and Algorithms 3 and 4 (with the denominator 1 + alpha D).

    Parameters
    ----------
    J : Tensor
        Broadcasts against x. Rounding up to 1 + 4 eps is cut to 1.

    Raises
    ------
    TypeError
        If J is not a floating-point tensor.
    ValueError
        If an entry of J is outside [0, 1] or NaN.
    """

    J: Tensor

    def __post_init__(self):
        if not isinstance(self.J, Tensor):
            raise TypeError(f"Diagonal takes a tensor J, not {type(self.J).__name__}: wrap it in torch.tensor, of floats")
        if not self.J.is_floating_point():
            raise TypeError(f"Diagonal takes a floating-point tensor J, not {self.J.dtype}: convert it with J.float()")
        limit = 1 + 4 * torch.finfo(self.J.dtype).eps
        inside = (self.J >= 0) & self.J.le(limit)
        if not bool(inside.all()):
            worst = self.J.detach()[~inside][0].item()
            raise ValueError(f"Diagonal: an entry of J is {worst}, and the slope of a prox lies in [0, 1]")
        object.__setattr__(self, "J", self.J.clamp(max=1))
        object.__setattr__(self, "_memo", {})

    def __eq__(self, other):
        return isinstance(other, Diagonal) and self.J.dtype == other.J.dtype and torch.equal(self.J, other.J)

    def __hash__(self):
        return hash((Diagonal, self.J.dtype, self.J.shape))

    def __repr__(self):
        return f"Diagonal(J of shape {tuple(self.J.shape)})"

    def part(self, rows: slice, ndim: int) -> Diagonal:
        if self.J.ndim < ndim or len(self.J) == 1:
            return self
        part = object.__new__(Diagonal)  # its entries have been checked
        object.__setattr__(part, "J", self.J[rows])
        object.__setattr__(part, "_memo", {})
        return part

    def _coefficient(self, alpha: float) -> Tensor:
        """J/(J + alpha (1 - J)), kept for the last alpha while J is a constant."""
        if alpha == 1:
            return self.J
        if self._memo.get("alpha") == alpha:
            return self._memo["coefficient"]
        J = self.J.to(_wide(self.J.dtype))
        coefficient = J / (J + alpha * (1 - J))
        if not coefficient.requires_grad:
            self._memo.update(alpha=alpha, coefficient=coefficient)
        return coefficient

    def _dtype(self, x: Tensor) -> torch.dtype:
        return _wide(self.J.dtype)

    def _value(self, x: Tensor) -> Tensor:
        return self.J * x

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return self._coefficient(alpha) * x

    def _derivative(self, x: Tensor) -> Tensor:
        return self.J.expand(x.shape)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return self._coefficient(alpha).expand(x.shape)

    def _potential(self, z: Tensor) -> Tensor:
        penalty = 0.5 * (1 / self.J - 1) * z * z
        return torch.where(z == 0, 0.0, penalty)
