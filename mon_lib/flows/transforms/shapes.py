"""Transforms that move entries about, and the one that makes whole numbers continuous."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._base import Transform, check_images

__all__ = ["Dequantisation", "Squeeze"]


class Squeeze(Transform):
    """Two by two pixels become four channels: ``(batch, c, H, W)`` to ``(batch, 4c, H/2, W/2)``.

    Raises
    ------
    ValueError
        On use, if H or W is odd.
    """

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, None)
        H, W = x.shape[2:]
        if H % 2 or W % 2:
            raise ValueError(f"images of {H} x {W} pixels cannot be squeezed: both sides must be even; crop or pad them")
        # Not pixel_unshuffle, which refuses an empty batch.
        blocks = x.reshape(len(x), x.shape[1], H // 2, 2, W // 2, 2).permute(0, 1, 3, 5, 2, 4)
        return blocks.reshape(len(x), 4 * x.shape[1], H // 2, W // 2), x.new_zeros(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, None, "y")
        if y.shape[1] % 4:
            raise ValueError(f"y has {y.shape[1]} channels; what a squeeze returns has a multiple of four")
        (n, c, h, w) = y.shape
        return y.reshape(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)


class Dequantisation(Transform):
    """Pixels k/(levels - 1), k = 0 ... levels - 1, to continuous values in [-1/2, 1/2) and back to the same k.

    y = (k + u)/levels - 1/2 with u uniform on [0, 1) from PyTorch's random numbers. The density of k + u averaged over u is a
    lower bound on the logarithm of the probability of k (Theis et al. 2016), so a flow is scored in whole numbers. In evaluation
    mode u is drawn all the same; `centre` takes u = 1/2.

    Parameters
    ----------
    levels : int
        256 for bytes.

    Raises
    ------
    ValueError
        If levels is below 2 or above 2^16. On use, if a pixel is not one of these values. On loading, if the state dict is that
        of another number of levels.
    TypeError
        On use, if the dtype of the pixels is too coarse for the levels.
    """

    def __init__(self, levels: int = 256):
        super().__init__()
        if isinstance(levels, bool) or not isinstance(levels, int) or not 2 <= levels <= 2**16:
            raise ValueError(f"levels = {levels!r} must be an integer from 2 to 2**16, the most that float32 keeps apart here")
        self.levels = levels

    def _whole(self, x: Tensor) -> Tensor:
        check_images(x, None)
        # A quarter of a level is lost at each border to rounding at most, so that k survives.
        if torch.finfo(x.dtype).eps * self.levels > 0.25:
            raise TypeError(f"x is {x.dtype}, which does not keep {self.levels} levels apart; pass x.float()")
        scaled = x * (self.levels - 1)
        k = scaled.round()
        # A quarter of a level: rounding of a pixel that was normalised and back is thousands of times smaller.
        if not bool(((k >= 0) & (k <= self.levels - 1) & ((scaled - k).abs() < 0.25)).all()):
            raise ValueError(
                f"x has values that are no pixels k/{self.levels - 1} with k = 0 ... {self.levels - 1}; "
                "pass Images.pixels(), or bytes divided by 255"
            )
        return k

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """y, and the logarithm of the volume that one step of k takes: -log(levels) for each entry."""
        k = self._whole(x)
        low, high = k / self.levels - 0.5, (k + 1.0) / self.levels - 0.5
        # Next to the border of two levels, rounding would take y to the other one.
        margin = torch.finfo(k.dtype).eps
        y = torch.maximum(torch.minimum(low + torch.rand_like(k) / self.levels, high - margin), low + margin)
        return y, k.new_full((len(k),), -math.prod(k.shape[1:]) * math.log(self.levels))

    def centre(self, x: Tensor) -> Tensor:
        """y with u = 1/2, the same at every call."""
        return (self._whole(x) + 0.5) / self.levels - 0.5

    def inverse(self, y: Tensor) -> Tensor:
        """The pixels that y was made of; values beyond the range go to the nearest level."""
        check_images(y, None, "y")
        k = ((y + 0.5) * self.levels).floor().clamp(0, self.levels - 1)
        return k / (self.levels - 1)

    def extra_repr(self) -> str:
        return f"levels={self.levels}"

    def get_extra_state(self) -> Tensor:
        """The number of levels, for the state dict: other levels make another model of the same weights."""
        return torch.tensor(self.levels, dtype=torch.int32, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Raise ValueError if the state dict is that of another number of levels."""
        if int(state) != self.levels:
            raise ValueError(
                f"the state dict is that of {int(state)} levels, the module has {self.levels}; load it into a module with "
                f"levels = {int(state)} (Glow calls it quantisation)"
            )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *rest) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *rest)
        if (key := f"{prefix}_extra_state") in missing_keys:  # state dicts from before the levels were in them
            missing_keys.remove(key)
