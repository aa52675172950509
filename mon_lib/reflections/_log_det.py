"""f(x) and log|det J(x)| of `InvertibleReflection` in one pass over the vectors; notation of `_eigenbasis`."""

from __future__ import annotations

import functools
import inspect
import math

import torch
from torch import Tensor

from ._eigenbasis import Basis, little, once_only, scale_of
from ._layout import Layout, blocks

__all__ = ["ForwardLogDet"]


@functools.cache
def groups(d: int, kappa: float, dtype: torch.dtype) -> int:
    """Into how many products the d factors g go so that none of them leaves the range of the dtype."""
    limits = torch.finfo(dtype)
    top = min(kappa - 1.0, 1.0 - limits.eps)  # the largest delta; g is between (1 - top)/(1 + top) and 1 + 2 top
    decades = max(math.log((1.0 + top) / (1.0 - top)), math.log1p(2.0 * top))
    return -(-d // max(1, int(-math.log(limits.tiny) / decades)))


class ForwardLogDet(torch.autograd.Function):
    """f(x) = -g x and log|det J(x)| = sum log g_i + log(S1/S0), the simplified REF Lemma 1 (ledger NEW-LADJ); 0 at x = 0.

    With the coordinates divided by the largest, size: 2D = ||Wx||^2, r = rD/D, S0 = x'Wx = D + rD and S1 = -x'A^-1 Wx.
    At x = 0, where f has no Jacobian, it is taken as I - W, as in `householder`.

    Both passes go block by block, and the backward pass computes the coordinates anew: fresh memory costs more than a product.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        layout = Layout.of(x, dim)
        kept, y = x.new_empty(4, *x.movedim(dim, 0).shape[1:]), layout.empty(x)
        logs = _write(layout.matrices(x), basis, y, layout.numbers(kept)).log_().sum(1)
        size, D, rD, S1 = kept
        ladj = logs.view(size.shape).add_((S1 / (D + rD)).log_()).masked_fill_(size == 0, 0)
        return layout.vectors(y), ladj, kept

    @staticmethod
    def vmap(info, in_dims, x: Tensor, weight: Tensor, basis: Basis, dim: int):
        """A batch of tensors of vectors is one tensor of vectors."""
        return ForwardLogDet.apply(x.movedim(in_dims[0], 0), weight, basis, dim if dim < 0 else dim + 1), (0, 0, 1)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(*inputs[:2], output[2])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad: Tensor, grad_ladj: Tensor, _):
        x, weight, kept = ctx.saved_tensors
        with torch.no_grad():
            gradients = _gradients(ctx, grad, grad_ladj, x, kept, weight.dtype)
        return *once_only(gradients, grad, grad_ladj, x, weight), None, None


def _write(points: Tensor, basis: Basis, y: Tensor, sums: Tensor) -> Tensor:
    """Write f at the columns of ``(k, d, m)`` into y; size, D, rD and S1 into ``(4, k, 1, m)``. Return products of the g.

    As few operations as will do and no new memory in the loop: on small blocks either would cost as much as the arithmetic.
    """
    k, d, m = points.shape
    n = groups(d, basis.kappa, y.dtype)
    products, room = y.new_empty(k, n, m), None
    sizes, both, S1 = sums[0], sums[1:3].squeeze(2).movedim(0, 1), sums[3]
    mu, delta = 1 + basis.delta[None], basis.delta[:, None]
    rows = 0.5 * mu * torch.cat([mu, 1 - basis.delta[None]])
    extra = y.new_tensor(little(basis))[:, None]
    into, back = basis.inner.mT, -basis.Q
    for at in blocks(points):
        x, size, D_rD = points[at], sizes[at], both[at]
        k, _, m = x.shape
        if room is None:
            room = y.new_empty(3, *x.shape)
        X, S, g = room if x.shape == room.shape[1:] else room[:, :k, :, :m]
        torch.bmm(into.expand(k, d, d), x, out=X)
        torch.amax(torch.abs(X, out=S), 1, keepdim=True, out=size)
        S.mul_(scale_of(size).reciprocal_())
        torch.baddbmm(extra, rows.expand(k, 2, d), S.mul_(S), out=D_rD)
        torch.mul(mu.mT, D_rD[:, 1:] / D_rD[:, :1], out=g).add_(delta)
        torch.baddbmm(extra[:1], mu.expand(k, 1, d), S.div_(g), out=S1[at])
        torch.prod(g[:, : d // n * n].view(k, d // n, n, m), 1, out=products[at])
        if d % n:
            products[at][:, : d % n].mul_(g[:, d // n * n :])
        torch.bmm(back.expand(k, d, d), g.mul_(X), out=y[at])
    return products


def _gradients(ctx, grad: Tensor, grad_ladj: Tensor, x: Tensor, kept: Tensor, dtype: torch.dtype) -> tuple:
    """In x and in the parameter, for the gradients in y and in the logarithm."""
    basis, layout, for_x, for_W = ctx.basis, Layout.of(x, ctx.dim), None, None
    points, slopes = layout.matrices(x), layout.matrices(grad)
    weight, sums = layout.numbers(grad_ladj), layout.numbers(kept)
    for at in blocks(points):
        X, H = basis.inner.mT @ points[at], basis.Q.mT @ slopes[at]
        inner, G = _parts(ctx, X, H, weight[at], sums[:, *at])
        if ctx.needs_input_grad[0]:
            part = basis.inner @ inner
            for_x = layout.empty(part) if for_x is None else for_x  # from the part, which under vmap has an axis that x lacks
            for_x[at] = part
        if ctx.needs_input_grad[1]:
            for_W = G if for_W is None else for_W + G
    return (
        layout.vectors(for_x) if ctx.needs_input_grad[0] else None,
        basis.pulled_back(for_W / basis.smallest).to(dtype) if ctx.needs_input_grad[1] else None,
    )


def _parts(ctx, X: Tensor, H: Tensor, weight: Tensor, sums: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients in the coordinates X, ``(k, d, m)``, and in W, from these points."""
    size, D, rD, S1 = sums.unbind()
    r, delta = rD / D, ctx.basis.delta[:, None]
    mu = 1 + delta
    row = mu.mT
    scale, weight = scale_of(size), weight.masked_fill(size == 0, 0)
    g, x, S0 = (mu * r).add_(delta), X / scale, D + rD
    over, a, b = g.reciprocal(), weight / S0, weight / S1
    t = x * over
    # The derivative in r of both outputs, and dr = 2/D times ((1 - g) mu x dx  -  g x dW x).
    slope = ((row @ over) * weight - row.square() @ (t * t) * b - row @ (H * x) * scale) / D
    left = (g * slope).add_(a)
    inner = G = None
    if ctx.needs_input_grad[0]:
        inner = (slope - a - left).add_(over * (2 * b)).mul_(x).mul_(mu).div_(scale).sub_(g * H)
    if ctx.needs_input_grad[1]:
        G = ((t * -b) @ t.mT - left.mul_(x).add_(H * ((1 + r) * scale)) @ x.mT).sum(0)
        G.diagonal().add_((over @ (weight * (1 + r)).mT).sum((0, 2)))
    return inner, G


# Torch binds the arguments of every call to the signature of `forward`; working it out anew costs more than a pass over x.
ForwardLogDet.forward.__signature__ = inspect.signature(ForwardLogDet.forward)
