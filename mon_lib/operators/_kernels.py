"""Kernels of convolutions: their sizes, first values and scalars (MON appendix D.2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .._numbers import whole
from ._norms import unit

__all__ = ["check_kernel", "check_size", "new_kernel", "positive_raw", "root", "scaled", "skew_kernel"]


def check_size(size) -> tuple[int, int]:
    """Return (H, W).

    Raises
    ------
    ValueError
        If it is not a pair of positive integers.
    """
    if not isinstance(size, (tuple, list, torch.Size)) or len(size) != 2 or any((whole(s) or 0) < 1 for s in size):
        raise ValueError(f"size = {size!r} is not an image size; pass two positive integers, for instance size=(30, 30)")
    return int(size[0]), int(size[1])


def check_kernel(kernel_size: int, size: tuple[int, int], what: str = "image") -> int:
    """Return the width k of a kernel.

    Raises
    ------
    ValueError
        If k is even, below 1 or wider than the image.
    """
    if (whole(kernel_size) or 0) < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size = {kernel_size!r} has no central pixel; use an odd number, for instance 3")
    if kernel_size > min(size):
        raise ValueError(
            f"kernel_size = {kernel_size} is wider than the {what}, {size[0]} x {size[1]}, and would meet itself; "
            f"use an odd number up to {min(size)}"
        )
    return int(kernel_size)


def new_kernel(outputs: int, inputs: int, k: int, dtype=None, device=None) -> nn.Parameter:
    """A kernel from `torch.nn.Conv2d`'s own initial distribution: uniform of variance 1/(3 inputs k^2)."""
    bound = 1.0 / (k * math.sqrt(inputs))
    return nn.Parameter(torch.empty(outputs, inputs, k, k, dtype=dtype, device=device).uniform_(-bound, bound))


def positive_raw(g: Tensor) -> Tensor:
    """The raw value whose softplus is g."""
    return g + torch.log(-torch.expm1(-g))


def root(g: Tensor) -> Tensor:
    """The square root of g, with a finite slope also where softplus has underflowed to zero."""
    return (g + torch.finfo(g.dtype).tiny).sqrt()


def scaled(kernel: Tensor, factor: Tensor) -> Tensor:
    """factor kernel/||kernel||."""
    return factor * unit(kernel)


def skew_kernel(B: Tensor, diagonal: float) -> Tensor:
    """The kernel of diagonal I + B - B'. The transpose of a convolution has its kernel turned by half a turn."""
    k = B.shape[-1]
    centre = torch.zeros_like(B[0, 0])
    centre[k // 2, k // 2] = diagonal
    eye = torch.eye(B.shape[0], dtype=B.dtype, device=B.device)
    return B - B.transpose(0, 1).flip(2, 3) + eye[:, :, None, None] * centre
