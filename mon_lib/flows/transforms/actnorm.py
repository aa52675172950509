"""A scale and an offset for each channel, set by the first batch (Kingma and Dhariwal 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._base import Transform, check_images

__all__ = ["ActNorm"]


class ActNorm(Transform):
    """y = exp(s) (x - b) in every channel; the first batch in training mode sets s and b so that y has mean 0 and variance 1.

    That happens once, in `forward_and_ladj`, and `state_dict` remembers that it has; before it the transform is the identity.

    Parameters
    ----------
    channels : int

    Attributes
    ----------
    log_scale, offset : nn.Parameter
        s and b, ``(channels,)``.
    initialised : Tensor
        Whether a batch has set them, 0 or 1; a buffer, so that it is saved and loaded.

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
        # Not a bool: torch.optim.swa_utils subtracts buffers.
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))
        self._seen: tuple[Tensor, int] | None = None

    def known(self) -> bool:
        """Whether a batch has set the parameters. A GPU is asked once, not at each call, which would stop it."""
        flag = self.initialised
        version = 0 if flag.is_inference() else flag._version
        # The same tensor, not written to since: a module can be called with the buffers of another.
        if self._seen is not None and self._seen[0] is flag and self._seen[1] == version:
            return True
        if not bool(flag):
            return False
        self._seen = flag, version
        return True

    def forget(self) -> None:
        """Back to the identity, for another first batch."""
        with torch.no_grad():
            for tensor in (self.log_scale, self.offset, self.initialised):
                tensor.zero_()

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
            self.initialised.fill_(1)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        if self.training and not self.known():
            self._initialise(x)
        scale = self.log_scale.exp().reshape(1, -1, 1, 1)
        return (x - self.offset.reshape(1, -1, 1, 1)) * scale, self._ladj(x)

    def _ladj(self, x: Tensor) -> Tensor:
        return (self.log_scale.sum() * (x.shape[2] * x.shape[3])).expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        # Divided by the rounded scale that forward multiplies by: the rounding of exp(-s) would stretch every pixel alike.
        return y / self.log_scale.exp().reshape(1, -1, 1, 1) + self.offset.reshape(1, -1, 1, 1)

    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.inverse(y), -self._ladj(y)  # not by way of forward_and_ladj, which might set the parameters in between
