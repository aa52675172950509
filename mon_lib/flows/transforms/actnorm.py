"""A scale and an offset for each channel, set by the first batch (Kingma and Dhariwal 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._base import Transform, check_images

__all__ = ["ActNorm"]


class ActNorm(Transform):
    """y = exp(s) (x - b) in every channel; the first batch in training mode sets s and b so that y has mean 0 and variance 1.

    That happens once, and `state_dict` remembers that it has; before it the transform is the identity.

    Parameters
    ----------
    channels : int

    Attributes
    ----------
    log_scale, offset : nn.Parameter
        s and b, ``(channels,)``.
    initialised : Tensor
        Whether a batch has set them; a buffer, so that it is saved and loaded.

    Raises
    ------
    ValueError
        If channels < 1. On use, if x has other channels, or if the first batch has a constant or non-finite channel.
    """

    def __init__(self, channels: int):
        super().__init__()
        if isinstance(channels, bool) or not isinstance(channels, int) or channels < 1:
            raise ValueError(f"channels = {channels!r} must be a positive integer")
        self.channels = channels
        self.log_scale = nn.Parameter(torch.zeros(channels))
        self.offset = nn.Parameter(torch.zeros(channels))
        self.register_buffer("initialised", torch.tensor(False))
        self._known = False  # what the buffer says, once it has been seen to be true: asking a GPU each time would stop it

    def _initialise(self, x: Tensor) -> None:
        with torch.no_grad():
            values = x.detach().transpose(0, 1).flatten(1).double()
            mean, std = values.mean(1), values.std(1, correction=0)
            fine = torch.isfinite(mean) & (std > 1e-6 * (1e-300 + mean.abs()))
            if not bool(fine.all()):
                bad = (~fine).nonzero().flatten().tolist()
                raise ValueError(
                    f"channels {bad} of the first batch are constant or not finite, so they cannot be scaled to unit "
                    "variance; begin with a larger batch of real data"
                )
            self.offset.copy_(mean)
            self.log_scale.copy_(-std.log())
            self.initialised.fill_(True)

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        self._known = False

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        if self.training and not self._known:
            if not bool(self.initialised):
                self._initialise(x)
            self._known = True
        scale = self.log_scale.exp().reshape(1, -1, 1, 1)
        y = (x - self.offset.reshape(1, -1, 1, 1)) * scale
        return y, (self.log_scale.sum() * (x.shape[2] * x.shape[3])).expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        return y * (-self.log_scale).exp().reshape(1, -1, 1, 1) + self.offset.reshape(1, -1, 1, 1)
