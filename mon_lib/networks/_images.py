"""Images on their way into a network: their sizes, and the bias of an equilibrium made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Injection", "check_dtype", "check_images", "check_multiple", "pair"]


def pair(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """(H, W) of an image, from one number or two."""
    size = tuple(image_size) if isinstance(image_size, (tuple, list)) else (image_size, image_size)
    if len(size) != 2 or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in size):
        raise ValueError(f"image_size = {image_size!r} must be a positive integer or a pair (H, W) of them")
    return size


def check_dtype(x: Tensor, like: Tensor) -> None:
    """Raise a TypeError unless x has the dtype of the weights; under autocast a layer sees to that itself."""
    if x.dtype == like.dtype or (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        return
    remedy = f"pass x.to({like.dtype})"
    if x.dtype == torch.uint8:
        remedy += " / 255, which is what mon_lib.data.load gives"
    raise TypeError(f"x has dtype {x.dtype} and the weights have {like.dtype}; {remedy}, or move the network with .to(...)")


def check_images(x: Tensor, shape: tuple[int, int, int], like: Tensor) -> None:
    """Raise unless x is a batch of images of this shape, in the dtype of the weights `like`."""
    if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1:] != shape:
        found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x has shape {found}; this network is for images of shape (batch, {', '.join(map(str, shape))})")
    check_dtype(x, like)


def check_multiple(size: tuple[int, int], whole: int, reason: str, remedy: str = "") -> None:
    """Refuse sides that are no multiples of `whole`, and name the nearest that are."""
    if all(s % whole == 0 for s in size):
        return
    below = [max(s // whole, 1) * whole for s in size]
    above = [-(-s // whole) * whole for s in size]
    fit = " and ".join(dict.fromkeys(f"{H} x {W}" for H, W in (below, above)))
    raise ValueError(
        f"image_size = {size} does not fit: {reason}, so each side must be a multiple of {whole}. "
        f"The nearest sizes that fit are {fit}{remedy}."
    )


class Injection(nn.Conv2d):
    """x -> Ux + b: a convolution as wide as the image, with zeros on the border of the state and on later tiers.

    A border that the prox holds at zero needs no bias, so none is computed there. The models that the authors released compute
    U as a circular convolution of the image with its border, which is the same inside.

    Parameters
    ----------
    in_channels, channels, kernel_size : int
        As for `torch.nn.Conv2d`.
    image_size : tuple of int
        H and W of x.
    length : int, optional
        Entries of a packed state; without it the output is ``(batch, channels, H + 2 border, W + 2 border)``.
    """

    def __init__(self, in_channels: int, channels: int, kernel_size: int, image_size: tuple[int, int], length: int | None = None):
        super().__init__(in_channels, channels, kernel_size, padding=kernel_size // 2)
        self.image_size, self.border, self.length = image_size, kernel_size // 2, length

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, (self.in_channels, *self.image_size), self.weight)
        bias = F.pad(super().forward(x), (self.border,) * 4)
        if self.length is None:
            return bias
        bias = bias.flatten(1)
        return F.pad(bias, (0, self.length - bias.shape[1]))
