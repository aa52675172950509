"""Affine couplings: half of the channels says how the other half is scaled and moved (Dinh et al. 2017)."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from ._base import Transform, check_images

__all__ = ["AffineCoupling", "SplitPrior"]


def _halves(channels: int, who: str) -> int:
    if isinstance(channels, bool) or not isinstance(channels, int) or channels < 2 or channels % 2:
        raise ValueError(
            f"channels = {channels!r} cannot be halved, and {who} needs two equal halves; use an even number, "
            "for instance by squeezing the image first"
        )
    return channels // 2


def _last(inputs: int, outputs: int) -> nn.Conv2d:
    """A convolution that begins as zero, so that what it steers begins as the same map for every input."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _steered(network: nn.Module, x1: Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """The two halves of what a network says of x1, ``(batch, channels, H, W)``.

    Autocast is for training alone: a short format answers in steps, and x1 on the way back is not quite that on the way there.
    """
    with nullcontext() if training else torch.autocast(x1.device.type, enabled=False):
        return network(x1).chunk(2, 1)


class AffineCoupling(Transform):
    """(x1, x2) -> (x1, s(x1) * (x2 + t(x1))) with 0 < s < 1, as in Glow.

    s = sigmoid(r + 2) and t come from a small network: a 3x3 and a 1x1 convolution with ReLU, then a 3x3 one that starts at
    zero.

    Parameters
    ----------
    channels : int
        Even.
    hidden : int
        Channels of the hidden layers.

    Raises
    ------
    ValueError
        If channels is odd or a number is not positive; on use, if x has other channels.
    """

    def __init__(self, channels: int, hidden: int = 64):
        super().__init__()
        half = _halves(channels, "a coupling")
        if isinstance(hidden, bool) or not isinstance(hidden, int) or hidden < 1:
            raise ValueError(f"hidden = {hidden!r} must be a positive integer")
        self.channels = channels
        self.network = nn.Sequential(
            nn.Conv2d(half, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(), _last(hidden, channels)
        )

    def _logit_and_shift(self, x1: Tensor) -> tuple[Tensor, Tensor]:
        raw, shift = _steered(self.network, x1, self.training)
        return raw + 2.0, shift

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        x1, x2 = x.chunk(2, 1)
        logit, shift = self._logit_and_shift(x1)
        return torch.cat([x1, (x2 + shift) * logit.sigmoid()], 1), logsigmoid(logit).flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        y1, y2 = y.chunk(2, 1)
        logit, shift = self._logit_and_shift(y1)
        return torch.cat([y1, y2 / logit.sigmoid() - shift], 1)


class SplitPrior(Transform):
    """(x1, x2) -> (x1, (x2 - mean(x1)) / std(x1)): what is left over of x2 once x1 is known.

    Glow splits x2 off here, with a Gaussian prior whose mean and variance it learns from x1. Standardising it and giving it a
    standard normal prior is the same model, and keeps the whole flow one bijection between an image and standard normal numbers.

    Parameters
    ----------
    channels : int
        Even.

    Raises
    ------
    ValueError
        If channels is odd; on use, if x has other channels.
    """

    def __init__(self, channels: int):
        super().__init__()
        half = _halves(channels, "a split")
        self.channels = channels
        self.prior = _last(half, channels)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        x1, x2 = x.chunk(2, 1)
        mean, log_std = _steered(self.prior, x1, self.training)
        return torch.cat([x1, (x2 - mean) * (-log_std).exp()], 1), -log_std.flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        y1, y2 = y.chunk(2, 1)
        mean, log_std = _steered(self.prior, y1, self.training)
        return torch.cat([y1, y2 * log_std.exp() + mean], 1)
