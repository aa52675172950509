"""A product over a batch, on a processor a few samples at a time, whose gradient keeps no intermediate result.

Every sample passes through several stages (transform, product with a matrix for each frequency, inverse transform). A few
samples at a time stay in the processor's cache through all of them. For the gradient the stages of a part are computed
again, so that nothing of the size of the batch is kept but the states themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._base import full_precision

__all__ = ["in_parts", "samples_per_part"]

PART_BYTES = 6 << 20  # a part of the batch that stays in a processor's last cache through all stages


def samples_per_part(x: Tensor) -> int:
    """How many samples of x pass through the stages together: all of them but on a processor."""
    if x.device.type != "cpu":
        return max(1, len(x))
    return max(16, PART_BYTES // max(x[:1].numel() * x.element_size(), 1))


def in_parts(product: Callable, x: Tensor, blocks: list[Tensor], pull: Callable | None = None) -> Tensor:
    """product(x, blocks) for x of shape ``(batch, ...)``, differentiable in x and the blocks.

    Parameters
    ----------
    product : callable
        ``product(part, blocks)`` is of the shape and dtype of `part` and treats every sample alone.
    x : Tensor
        Shape ``(batch, ...)``.
    blocks : list of Tensor
        What all samples share.
    pull : callable, optional
        ``pull(part, blocks, v, wanted)`` are the gradients with respect to the part and the blocks, None where `wanted`, one
        bool for each of them, is false. By default autograd finds them.
    """
    if len(x) == 0:  # transforms refuse it; its gradients are zeros, as for any other layer
        return x + sum(block.real.sum() for block in blocks) * 0.0
    size = samples_per_part(x)
    if len(x) <= size:
        return product(x, blocks)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *blocks)):
        return _Product.apply(product, pull or _by_autograd(product), size, x, *blocks)
    return _forward(product, x, blocks, size)


def _forward(product, x: Tensor, blocks, size: int) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for part, target in zip(x.split(size), out.split(size), strict=True):
        target.copy_(product(part, blocks))
    return out


def _by_autograd(product: Callable) -> Callable:
    def pull(part, blocks, v, wanted):
        leaves = [t.detach().requires_grad_(w) for t, w in zip((part, *blocks), wanted, strict=True)]
        with torch.enable_grad():
            out = product(leaves[0], leaves[1:])
        found = iter(torch.autograd.grad(out, [t for t in leaves if t.requires_grad], v))
        return [next(found) if w else None for w in wanted]

    return pull


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, product, pull, size, x, *blocks):
        ctx.save_for_backward(x, *blocks)
        ctx.product, ctx.pull, ctx.size = product, pull, size
        return _forward(product, x, blocks, size)

    @staticmethod
    @full_precision  # the stages are computed again here, perhaps under autocast
    def backward(ctx, v):
        (x, *blocks), wanted = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():  # a second derivative is wanted: autograd has to see every stage
            inputs = [t for t, w in zip((x, *blocks), wanted, strict=True) if w]
            found = iter(torch.autograd.grad(ctx.product(x, blocks), inputs, v, create_graph=True))
            return None, None, None, *(next(found) if w else None for w in wanted)
        out_x = torch.empty_like(x, memory_format=torch.contiguous_format) if wanted[0] else None
        out = [torch.zeros_like(b) if w else None for b, w in zip(blocks, wanted[1:], strict=True)]
        for start in range(0, len(x), ctx.size):
            rows = slice(start, start + ctx.size)
            of_part, *of_blocks = ctx.pull(x[rows], blocks, v[rows], wanted)
            if wanted[0]:
                out_x[rows] = of_part
            for total, one in zip(out, of_blocks, strict=True):
                if one is not None:
                    total += one
        return None, None, None, out_x, *out
