"""Vectors along any axis as the columns of matrices, block by block, without needless copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Layout", "blocks", "columns", "restored", "rotate", "uncolumns"]

BLOCK = 3 * 2**16  # entries a core: few enough for its cache, so many that the time of a call does not matter
NARROW = 64  # fewer vectors behind the axis than this are not worth a product of matrices of their own


def rotate(x: Tensor, M: Tensor, dim: int) -> Tensor:
    """M'x for vectors along axis ``dim``, without a copy of x where the axis is the first or the last in memory."""
    dim %= x.ndim
    last = x.movedim(dim, -1)
    if dim == x.ndim - 1 or last.is_contiguous():
        return (last @ M).movedim(-1, dim)
    return (M.mT @ x.flatten(dim + 1)).view(x.shape)


def columns(vectors: Tensor, M: Tensor) -> Tensor:
    """M'x as the columns of a matrix ``(d, N)``, for vectors along the first axis."""
    return M.mT @ vectors.reshape(len(M), -1)


def uncolumns(X: Tensor, M: Tensor, like: Tensor) -> Tensor:
    """M'X in the shape of the vectors that the columns of X came from, and a copy along memory into theirs."""
    return ((X.mT @ M).mT if like.stride(0) == 1 else M.mT @ X).view(like.shape)


def restored(vectors: Tensor, like: Tensor, dim: int) -> Tensor:
    """The vectors along axis ``dim``, in memory as in `like`: one after the other, or else contiguous."""
    moved = vectors.movedim(0, dim)
    return moved if like.stride(dim) == 1 else moved.contiguous()


class Layout(NamedTuple):
    """How vectors along an axis of a tensor are the columns of matrices ``(k, d, m)``, without a copy where that is possible.

    Attributes
    ----------
    shape : torch.Size
        Of the tensor.
    dim : int
        The axis, from 0.
    one : bool
        Whether there is one matrix, the transpose of rows in memory; otherwise there is one for all that lies behind the axis.
    rows : bool
        Whether the vectors lie in memory one after the other.
    """

    shape: torch.Size
    dim: int
    one: bool
    rows: bool

    @classmethod
    def of(cls, x: Tensor, dim: int) -> Layout:
        """That of x, and of tensors of its shape that go with it."""
        dim, rows = dim % x.ndim, x.stride(dim) == 1
        return cls(x.shape, dim, rows or x.shape[dim + 1 :].numel() < NARROW, rows)

    @property
    def sizes(self) -> tuple[int, int]:
        """k and m."""
        before, behind = self.shape[: self.dim].numel(), self.shape[self.dim + 1 :].numel()
        return (1, before * behind) if self.one else (before, behind)

    def matrices(self, x: Tensor) -> Tensor:
        """``(k, d, m)`` from vectors."""
        (k, m), d = self.sizes, self.shape[self.dim]
        return x.movedim(self.dim, -1).reshape(1, m, d).mT if self.one else x.reshape(k, d, m)

    def numbers(self, x: Tensor) -> Tensor:
        """``(..., k, 1, m)`` from numbers at the vectors: a view of contiguous ones."""
        k, m = self.sizes
        return x.reshape(*x.shape[: x.ndim - len(self.shape) + 1], k, 1, m)

    def empty(self, like: Tensor) -> Tensor:
        """Room for ``(k, d, m)``, such that `vectors` has little to do."""
        (k, m), d = self.sizes, self.shape[self.dim]
        return like.new_empty(k, m, d).mT if self.one else like.new_empty(k, d, m)

    def vectors(self, X: Tensor) -> Tensor:
        """The tensor that has the columns of X for vectors: one after the other where those of x are, or else contiguous."""
        if not self.one:
            return X.view(self.shape)
        moved = X.mT.reshape(*self.shape[: self.dim], *self.shape[self.dim + 1 :], self.shape[self.dim]).movedim(-1, self.dim)
        return moved if self.rows else moved.contiguous()


def blocks(X: Tensor) -> Iterator[tuple]:
    """Indices of parts of ``(k, d, m)``, none larger than the first: on a CPU of about `BLOCK` entries a core, elsewhere all."""
    k, _, m = X.shape
    pieces = max(1, X.numel() // (BLOCK * torch.get_num_threads())) if X.device.type == "cpu" else 1
    whole = k >= min(pieces, m)
    size = k if whole else m
    step = max(1, -(-size // pieces))
    for i in range(0, max(1, size), step):
        part = slice(i, i + step)
        yield (part,) if whole else (slice(None), slice(None), part)
