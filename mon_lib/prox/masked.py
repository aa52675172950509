"""The activation of a state of which some entries are zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._base import Activation
from .piecewise import Clip, ReLU

__all__ = ["Masked"]


@dataclass(frozen=True, eq=False, repr=False)
class Masked(Activation):
    """The activation where a mask is true, zero elsewhere (outside a graph a NaN may stay one, wherever it is).

    Like `Border` it is the prox of f plus the indicator of {z = 0 where the mask is false}, for states that are not one
    picture, such as the packed state of `mon_lib.operators.MultiTier` with its `interior`. Source: MON 4.2 (MON-PAD).

    Parameters
    ----------
    activation : Activation
        What to apply where the mask is true.
    mask : Tensor
        Bool; its axes are the last ones of x, and an axis of length one is repeated. It is copied, and follows the device
        of x.

    Raises
    ------
    TypeError
        If the activation is none, or the mask is no bool tensor.
    ValueError
        On use, if the mask does not fit x.
    """

    activation: Activation
    mask: Tensor

    def __post_init__(self):
        if not isinstance(self.activation, Activation):
            raise TypeError(f"Masked takes an Activation, not {type(self.activation).__name__}")
        if not isinstance(self.mask, Tensor) or self.mask.dtype is not torch.bool:
            kind = self.mask.dtype if isinstance(self.mask, Tensor) else type(self.mask).__name__
            raise TypeError(f"Masked takes a bool tensor as its mask, not {kind}: pass, for instance, mask > 0")
        self.__setstate__({"activation": self.activation, "mask": self.mask.detach().clone()})

    def __getstate__(self):
        return {"activation": self.activation, "mask": self.mask}

    def __setstate__(self, state):
        self.__dict__.update(state, _there={})  # what is on other devices stays out of copies and files

    def __eq__(self, other):
        same = isinstance(other, Masked) and self.activation == other.activation
        return same and torch.equal(self.mask.cpu(), other.mask.cpu())

    def __hash__(self):
        return hash((Masked, self.activation, self.mask.shape))

    def __repr__(self):
        mask = self.mask
        return f"Masked({self.activation!r}, {int(mask.sum())} of {mask.numel()} entries of shape {tuple(mask.shape)})"

    def part(self, rows: slice, ndim: int) -> Masked:
        mask = self.mask[rows] if self.mask.ndim == ndim and len(self.mask) > 1 else self.mask
        inside = self.activation.part(rows, ndim)
        # Itself where possible, with what it keeps.
        return self if mask is self.mask and inside is self.activation else Masked(inside, mask)

    def _for(self, x: Tensor) -> Tensor:
        """The mask on the device of x."""
        mask = self.mask
        fits = mask.ndim <= x.ndim and all(k in (1, n) for k, n in zip(reversed(mask.shape), reversed(x.shape), strict=False))
        if not fits:
            raise ValueError(
                f"the mask has shape {tuple(mask.shape)} and x {tuple(x.shape)}: the axes of the mask must be the last ones of x, "
                "or of length one"
            )
        if mask.device == x.device:
            return mask
        return self._kept(x.device, lambda: mask.to(x.device))

    def _kept(self, key, make):
        if key not in self._there:
            with torch.inference_mode(False):  # a graph may want it later
                self._there[key] = make()
        return self._there[key]

    def _only(self, function, x: Tensor, *args) -> Tensor:
        return torch.where(self._for(x), function(x, *args), 0.0)

    def _projection(self, x: Tensor, function, *args) -> Tensor:
        """A projection onto an interval, or onto {0}: one pass with bounds for each entry, where no graph is wanted."""
        kind, mask = type(self.activation), self._for(x)
        if torch.is_grad_enabled() or kind not in (ReLU, Clip):
            return self._only(function, x, *args)
        ends = (0.0, torch.inf) if kind is ReLU else (self.activation.low, self.activation.high)
        low, high = self._kept((x.device, x.dtype), lambda: [mask.to(x.dtype).masked_fill(mask, end) for end in ends])
        return torch.clamp(x, low, high)

    def _value(self, x: Tensor) -> Tensor:
        return self._projection(x, self.activation)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return self._projection(x, self.activation.prox, alpha)

    def _derivative(self, x: Tensor) -> Tensor:
        return self._only(self.activation.derivative, x)

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        return self._only(self.activation.prox_derivative, x, alpha)

    def _dtype(self, x: Tensor) -> torch.dtype:
        return self.activation._dtype(x)

    def _potential(self, z: Tensor) -> Tensor:
        return torch.where(self._for(z) | (z == 0), self._only(self.activation.potential, z), torch.inf)
