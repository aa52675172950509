"""Vectors along any axis as the columns of matrices, block by block, without needless copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["blocks", "columns", "placed", "restored", "rotate", "uncolumns"]

BLOCK = 2**17  # entries a core: few enough for its cache, so many that the time of a call does not matter


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


def blocks(vectors: Tensor, *others: Tensor) -> Iterator[tuple]:
    """Parts of ``(d, ...)``, the same of others, and their place: on a CPU of about `BLOCK` entries a core, elsewhere all."""
    pieces = vectors.numel() // (BLOCK * torch.get_num_threads())
    if pieces < 2 or vectors.ndim == 1 or vectors.device.type != "cpu":
        yield ..., vectors, *others
        return
    sizes = vectors.shape[1:]
    axis = next((k for k, size in enumerate(sizes) if size >= pieces), sizes.index(max(sizes)))
    pieces = min(pieces, sizes[axis])
    for k in range(pieces):
        at = (slice(None),) * (axis + 1) + (slice(k * sizes[axis] // pieces, (k + 1) * sizes[axis] // pieces),)
        yield at, *(x[at] for x in (vectors, *others))


def placed(out: Tensor | None, part: Tensor, at: Any, like: Tensor) -> Tensor:
    """The tensor ``(., ...)`` over the points of `like` with this part of it written; made when the first one comes.

    In memory as `like` where it has as many rows, contiguous elsewhere.
    """
    if at is ...:
        return part
    if out is None:  # from the part, which under vmap may have an axis that `like` lacks
        shape = len(part), *like.shape[1:]
        same = len(part) == len(like)
        out = part.new_empty_strided(shape, torch.empty_like(like, device="meta").stride()) if same else part.new_empty(shape)
    out[at].copy_(part)
    return out
