"""What `InvertibleReflection` computes in the eigenbasis of W, with derivatives by hand: no gradient goes through eigh.

Autograd's derivative of eigenvectors divides by differences of eigenvalues, which vanish at W = I. The functions here are
functions of W, not of a choice of eigenvectors, and their derivatives in the eigenbasis are finite everywhere.

Notation: W = lambda_min Q diag(mu) Q', mu_i = 1 + delta_i, coordinates x = Q'x, g_i = 2c lambda_i - 1 = r mu_i + delta_i, so that
f(x) = -g x entry by entry. All sums have non-negative terms, so nothing is lost near condition number 2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .secular import along, secular_preimage

__all__ = ["Basis", "Inverse", "LogDet", "Spectrum", "rotate"]


class Basis(NamedTuple):
    """The eigenbasis of W outside the graph: Q ``(d, d)`` with columns of eigenvectors, delta ``(d,)``, lambda_min a number."""

    Q: Tensor
    delta: Tensor
    smallest: float


def rotate(x: Tensor, M: Tensor, dim: int) -> Tensor:
    """M'x for vectors along axis ``dim``, without a copy of x where the axis is the first or the last in memory."""
    dim %= x.ndim
    last = x.movedim(dim, -1)
    if dim == x.ndim - 1 or last.is_contiguous():
        return (last @ M).movedim(-1, dim)
    return (M.mT @ x.flatten(dim + 1)).view(x.shape)


def _outer(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """The sum of a b' over all vectors along axis ``dim``: shape ``(d, d)``."""
    dim %= a.ndim
    last = a.movedim(dim, -1)
    if dim == a.ndim - 1 or last.is_contiguous():
        return last.reshape(-1, a.shape[dim]).mT @ b.movedim(dim, -1).reshape(-1, a.shape[dim])
    found = a.flatten(dim + 1) @ b.flatten(dim + 1).mT
    return found.flatten(0, -3).sum(0) if found.ndim > 2 else found


class Spectrum(torch.autograd.Function):
    """W = h(B) for the symmetric part B of the weight, h(b) = (1 + kappa)/2 + (kappa - 1)/2 sin(arctan b) on the eigenvalues.

    The derivative of a spectral function (Daleckii and Krein): in the eigenbasis, dW_ij is dB_ij times the divided difference of h.
    With b = tan(theta) that is cos(theta_i) cos(theta_j) cos((theta_i + theta_j)/2) / cos((theta_i - theta_j)/2): no differences.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, Q: Tensor, theta: Tensor, values: Tensor, kappa: float) -> Tensor:
        return (Q * values) @ Q.mT

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        weight, Q, theta, _, kappa = inputs
        ctx.save_for_backward(Q, theta)
        ctx.kappa, ctx.dtype = kappa, weight.dtype

    @staticmethod
    @once_differentiable
    def backward(ctx, G: Tensor):
        Q, theta = ctx.saved_tensors
        a, b = theta[:, None], theta[None, :]
        slope = 0.5 * (ctx.kappa - 1.0) * a.cos() * b.cos() * ((a + b) / 2).cos() / ((a - b) / 2).cos()
        G = Q @ (slope.to(G.dtype) * (Q.mT @ (0.5 * (G + G.mT)) @ Q)) @ Q.mT
        return G.to(ctx.dtype), None, None, None, None


class _Sums(NamedTuple):
    """What the derivatives at points x (coordinates) have in common; one entry along ``dim`` but for x, mu and g."""

    x: Tensor
    mu: Tensor
    r: Tensor
    g: Tensor
    S0: Tensor  # x'Wx
    S1: Tensor  # -x'A^-1 Wx
    D: Tensor  # ||Wx||^2
    scale: Tensor
    zero: Tensor


def _sums(x: Tensor, delta: Tensor, dim: int, r: Tensor | None = None) -> _Sums:
    """The sums at x / max|x|; where x = 0 they are those of W = I, so that nothing is divided by zero."""
    largest = x.abs().amax(dim, keepdim=True)
    zero = largest == 0
    scale = largest.masked_fill(zero, 1)
    x, delta = x / scale, along(delta, x.ndim, dim)
    mu = 1 + delta
    mx = mu * x
    S0 = (mx * x).sum(dim, keepdim=True).masked_fill(zero, 1)
    D = mx.square().sum(dim, keepdim=True).masked_fill(zero, 1)
    if r is None:
        r = (mx * x * (1 - delta)).sum(dim, keepdim=True).masked_fill(zero, 1) / D
    g = r * mu + delta
    return _Sums(x, mu, r, g, S0, (mx * x / g).sum(dim, keepdim=True).masked_fill(zero, 1), D, scale, zero)


class LogDet(torch.autograd.Function):
    """log|det J(x)| = sum log g_i + log(S1/S0), the simplified REF Lemma 1 (ledger NEW-LADJ); 0 at x = 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, W: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor]:
        coordinates = rotate(x, basis.Q, dim)
        s = _sums(coordinates, basis.delta, dim)
        ladj = s.g.log().sum(dim, keepdim=True) + (s.S1 / s.S0).log()
        return ladj.masked_fill(s.zero, 0).squeeze(dim), coordinates

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, weight: Tensor, _):
        (coordinates,) = ctx.saved_tensors
        basis, dim = ctx.basis, ctx.dim
        s = _sums(coordinates, basis.delta, dim)
        x, mu, r, g, S0, S1, D, scale, zero = s
        weight = weight.unsqueeze(dim % x.ndim).masked_fill(zero, 0)
        slope = (mu / g).sum(dim, keepdim=True) - (mu * x / g).square().sum(dim, keepdim=True) / S1  # in r
        for_x = for_W = None
        if ctx.needs_input_grad[0]:
            for_x = 2 * weight / scale * mu * x * (1 / (g * S1) - 1 / S0 + slope * (1 - g) / D)
            for_x = rotate(for_x, basis.Q.mT, dim)
        if ctx.needs_input_grad[1]:
            G = -_outer(weight / S1 * x / g, x / g, dim) - _outer(weight * (1 / S0 + 2 * slope / D * g) * x, x, dim)
            G.diagonal().add_((weight * (1 + r) / g).movedim(dim, -1).reshape(-1, len(G)).sum(0))
            for_W = basis.Q @ G @ basis.Q.mT / basis.smallest
        return for_x, for_W, None, None


class Inverse(torch.autograd.Function):
    """x with f(x) = y by the secular equation; its derivative is that of the implicit function, J^-1 (dy - (df/dW) dW)."""

    @staticmethod
    def forward(y: Tensor, W: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        coordinates, r, _ = secular_preimage(basis.delta, rotate(y, basis.Q, dim), dim)
        return rotate(coordinates, basis.Q.mT, dim), coordinates, r

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, *_):
        coordinates, r = ctx.saved_tensors
        basis, dim = ctx.basis, ctx.dim
        x, mu, r, g, _, S1, D, scale, zero = _sums(coordinates, basis.delta, dim, r)
        grad = rotate(grad, basis.Q, dim)
        # J' = A - 2 b u' with u = Wx, b = (u - cWu)/||u||^2; Sherman-Morrison, with 1 - 2u'A^-1 b = S1/S0 (det J/det A).
        along_x = (mu * x * grad / g).sum(dim, keepdim=True) / S1
        w = ((1 + r) * along_x * mu * x * (1 - g) - grad) / g
        for_W = None
        if ctx.needs_input_grad[1]:
            turned = (1 + r) * w - 2 * (mu * x * w).sum(dim, keepdim=True) / D * g * x
            G = _outer(turned.masked_fill(zero, 0), x * scale, dim)
            for_W = basis.Q @ G @ basis.Q.mT / basis.smallest
        return rotate(w, basis.Q.mT, dim), for_W, None, None
