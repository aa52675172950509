"""The geometry of a multi-tier operator, and its convolutions in the Fourier domain (MON appendix C).

A strided convolution maps r x r neighbouring pixels to one. So the grid of a tier is cut into its r x r phases, and the
phases become channels of the small grid, on which the strided convolution has stride 1. On the large grid the r x r
frequencies f + (a H/r, b W/r), which the small grid cannot tell apart, form one block; `Tier.merge` turns blocks that are
diagonal in them into blocks that act on the phases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ._fourier import half, image, phases, symbol

__all__ = ["Layout", "Tier"]


@dataclass(frozen=True)
class Layout:
    """Channels and sizes of all tiers, and where each lies in the packed state.

    Raises
    ------
    ValueError
        If the sizes do not fit; the message names sizes that do.
    """

    channels: tuple[int, ...]
    size: tuple[int, int]
    border: int
    stride: int

    def __post_init__(self):
        border, stride, levels = self.border, self.stride, len(self.channels)
        if (2 * border) % stride:
            raise ValueError(
                f"border = {border} does not fit stride = {stride}: twice the border must be a multiple of the stride; "
                f"use border=0 or border={stride if stride % 2 else stride // 2}"
            )
        whole = stride ** (levels - 1)
        if all(s > 2 * border and (s - 2 * border) % whole == 0 for s in self.size):
            return

        def nearest(s):
            if s > 2 * border and (s - 2 * border) % whole == 0:
                return [s, s]
            below = 2 * border + (s - 2 * border) // whole * whole
            return [t for t in (below, below + whole) if t > 2 * border]

        fit = [f"{a} x {b}" for a, b in zip(*(nearest(s) for s in self.size), strict=False)]
        raise ValueError(
            f"size = {self.size} does not fit {levels} tiers of stride {stride} with border = {border}: each side less its two "
            f"borders must be a positive multiple of {whole}. The nearest sizes that fit are {' and '.join(fit)}."
        )

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(H, W) of each tier."""
        frame = 2 * self.border
        return tuple(tuple((s - frame) // self.stride**i + frame for s in self.size) for i in range(len(self.channels)))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Entries of each tier."""
        return tuple(n * H * W for n, (H, W) in zip(self.channels, self.sizes, strict=True))

    def split(self, z: Tensor) -> tuple[Tensor, ...]:
        """``(batch, n)`` to one ``(batch, channels, H, W)`` for each tier."""
        parts = z.split(self.lengths, 1)
        return tuple(p.unflatten(1, (n, *s)) for p, n, s in zip(parts, self.channels, self.sizes, strict=True))

    def pack(self, tiers) -> Tensor:
        """The inverse of `split`."""
        return torch.cat([tier.flatten(1) for tier in tiers], 1)


@dataclass(frozen=True)
class Tier:
    """One tier: its images in and out of the Fourier domain, with r x r phases as channels (r = 1 for the last tier).

    Parameters
    ----------
    channels : int
        n.
    size : tuple of int
        H and W, multiples of r.
    r : int
        Stride of the convolution that leaves the tier.
    """

    channels: int
    size: tuple[int, int]
    r: int

    @property
    def grid(self) -> tuple[int, int]:
        """(H/r, W/r)."""
        return self.size[0] // self.r, self.size[1] // self.r

    @property
    def width(self) -> int:
        """Channels on the small grid: n r^2."""
        return self.channels * self.r**2

    def phases(self, x: Tensor) -> Tensor:
        """``(batch, n, H, W)`` to ``(batch, r r n, H/r, W/r)``."""
        return phases(x, self.r)

    def image(self, x: Tensor) -> Tensor:
        """The inverse of `phases`."""
        return image(x, self.r)

    def grown(self, s: Tensor) -> Tensor:
        """``(batch, n, h, w)`` on a grid at most as large as the tier, with zeros beyond it. An isometry."""
        return pad(s, (0, self.size[1] - s.shape[3], 0, self.size[0] - s.shape[2]))

    def shrunk(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """The adjoint of `grown`."""
        return x[:, :, : grid[0], : grid[1]]

    def embedded(self, s: Tensor) -> Tensor:
        """`grown`, to phases."""
        return self.phases(self.grown(s))

    def cropped(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """The adjoint of `embedded`."""
        return self.shrunk(self.image(x), grid)

    def _frequencies(self, device) -> tuple[Tensor, Tensor]:
        """Rows and columns of the frequencies of the large grid, each ``(F, r r)``: block by block of the small grid."""
        h, w = self.grid
        step, shape = torch.arange(self.r, device=device), (half(w), h, self.r, self.r)
        rows = (torch.arange(h, device=device)[:, None] + h * step)[None, :, :, None]  # (u, a)
        columns = (torch.arange(half(w), device=device)[:, None] + w * step)[:, None, None, :]  # (v, b)
        return rows.expand(shape).reshape(-1, self.r**2), columns.expand(shape).reshape(-1, self.r**2)

    def symbols(self, kernel: Tensor) -> Tensor:
        """The matrices of an unstrided convolution at every frequency: ``(F, r r, outputs, inputs)``."""
        rows, columns = self._frequencies(kernel.device)
        return symbol(kernel, self.size, rows.flatten(), columns.flatten()).unflatten(0, rows.shape)

    def _twiddles(self, like: Tensor) -> Tensor:
        """T[f, a, p]: what phase p of an image contributes to frequency a of block f. T*T = r^2 I."""
        rows, columns = self._frequencies(like.device)
        phase = torch.arange(self.r, device=like.device)
        p, q = phase.repeat_interleave(self.r), phase.repeat(self.r)
        H, W = self.size
        turns = (rows[..., None] * p % H).double() / H + (columns[..., None] * q % W).double() / W
        angle = -2.0 * math.pi * turns
        return torch.complex(angle.cos(), angle.sin()).to(like.dtype)

    def merge(self, symbols: Tensor) -> Tensor:
        """An unstrided convolution as it acts on phases: ``(F, r r, n', n)`` to ``(F, r r n', r r n)``."""
        if self.r == 1:
            return symbols[:, 0]
        T, (F, a, rows, columns) = self._twiddles(symbols), symbols.shape
        weights = (T.conj()[:, :, :, None] * T[:, :, None, :]).flatten(2).mT / a  # (F, (p, q), a)
        merged = (weights @ symbols.flatten(2)).reshape(F, a, a, rows, columns)
        return merged.transpose(2, 3).reshape(F, a * rows, a * columns)

    def strided(self, kernel: Tensor) -> Tensor:
        """The convolution of stride r, from phases to the small grid: ``(F, n', r r n)``."""
        symbols = self.symbols(kernel)
        T, (F, a, rows, columns) = self._twiddles(symbols), symbols.shape
        merged = (T.mT / a) @ symbols.flatten(2)  # (F, p, (n', n))
        return merged.reshape(F, a, rows, columns).transpose(1, 2).reshape(F, rows, a * columns)
