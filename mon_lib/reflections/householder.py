"""The Householder reflection H(v)x = x - 2 v v'x/||v||^2, with a value and a derivative at v = 0."""

from __future__ import annotations

import torch
from torch import Tensor

from ._checks import check_vectors, working_dtype

__all__ = ["householder"]


def householder(v: Tensor, x: Tensor) -> Tensor:
    """H(v)x, the mirror image of x in the hyperplane orthogonal to v (REF section 1.1), and H(0) = I.

    The length of v does not matter, also where its square would overflow or vanish.

    At v = 0 no derivative in v exists, and a convention takes its place: d/dx = I and d/dv = -I. It is the one that
    REF Theorem 1 needs: along every curve with ||x|| = ||y|| the reflection H(x - y)x equals y = x - v (REF Lemma 5),
    so ``householder(x - U(x), x)`` has the Jacobian of U also where Ux = x. A small number in the denominator has the
    right value there and the Jacobian I.

    Parameters
    ----------
    v, x : Tensor
        Shape ``(..., d)``, broadcast against each other. Real; float16 and bfloat16 are computed in float32.

    Returns
    -------
    Tensor
        Shape ``(..., d)``, in the dtype that v and x promote to. Differentiable any number of times, in both modes, and
        under ``torch.func``.

    Raises
    ------
    TypeError
        If an argument is no real floating-point tensor.
    ValueError
        If the last dimensions differ or are empty, or the others do not broadcast.

    Examples
    --------
    >>> householder(torch.tensor([1.0, -1.0]), torch.tensor([3.0, 0.0]))
    tensor([0., 3.])
    """
    check_vectors("x", x)
    check_vectors("v", v, x.shape[-1])
    try:
        torch.broadcast_shapes(v.shape, x.shape)
    except RuntimeError:
        shapes = f"v has shape {tuple(v.shape)} and x {tuple(x.shape)}"
        raise ValueError(f"{shapes}, which do not broadcast; give their leading axes equal sizes, or 1") from None
    dtype = torch.promote_types(v.dtype, x.dtype)
    wide = working_dtype(dtype)
    return _Householder.apply(v.to(wide), x.to(wide)).to(dtype)


class _Householder(torch.autograd.Function):
    """H(v)x. Only products of entries and sums: autocast has nothing to shorten."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, x: Tensor) -> Tensor:
        w, _, _ = _scaled(v)
        return _reflect(w, x)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g: Tensor):
        v, x = ctx.saved_tensors
        w, size, zero = _scaled(v)
        for_v = for_x = None
        if ctx.needs_input_grad[1]:
            for_x = _sum_to(_reflect(w, g), x.shape)
        if ctx.needs_input_grad[0]:
            for_v = _sum_to(torch.where(zero, -g, _slope(w, x, g) / size), v.shape)
        return for_v, for_x

    @staticmethod
    def jvp(ctx, dv: Tensor | None, dx: Tensor | None) -> Tensor:
        v, x = ctx.saved_tensors
        w, size, zero = _scaled(v)
        moved = torch.zeros_like(x) if dx is None else _reflect(w, dx)
        if dv is None:
            return moved + torch.zeros_like(v)  # the shape of the result
        dw = dv / size
        a, b = _along(w, x), _along(w, dw)
        turned = -2.0 * (a * dw + w * (_dot(dw, x) / _square(w)) - 2.0 * a * b * w)
        return moved + torch.where(zero, -dv, turned)


def _scaled(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """v over its largest entry, that entry (1 where v = 0), and whether v = 0. The scale is a constant to autograd."""
    size = v.detach().abs().amax(-1, keepdim=True)
    zero = size == 0
    size = size.masked_fill(zero, 1.0)
    return v / size, size, zero


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _square(w: Tensor) -> Tensor:
    """||w||^2, at least 1 unless w = 0; then 1, so that H(0) = I."""
    square = _dot(w, w)
    return square.masked_fill(square == 0, 1.0)


def _along(w: Tensor, x: Tensor) -> Tensor:
    """The coefficient of w in the projection of x onto it."""
    return _dot(w, x) / _square(w)


def _reflect(w: Tensor, x: Tensor) -> Tensor:
    return x - 2.0 * _along(w, x) * w


def _slope(w: Tensor, x: Tensor, g: Tensor) -> Tensor:
    """The gradient in w of <g, H(w)x>: -2 (a g + b x - 2 ab w) with a, b the coefficients of x and g along w."""
    a, b = _along(w, x), _along(w, g)
    return -2.0 * (a * g + b * x - 2.0 * a * b * w)


def _sum_to(g: Tensor, shape: torch.Size) -> Tensor:
    """The gradient, summed over the axes along which its argument was repeated."""
    if g.shape == shape:
        return g
    g = g.sum(tuple(range(g.ndim - len(shape)))) if g.ndim > len(shape) else g
    repeated = tuple(axis for axis, length in enumerate(shape) if length == 1 and g.shape[axis] != 1)
    return g.sum(repeated, keepdim=True) if repeated else g
