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

__all__ = ["Basis", "ForwardLogDet", "Inverse", "Spectrum", "rotate"]


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


def _total(x: Tensor, dim: int) -> Tensor:
    """The sum over all axes but ``dim``: shape ``(d,)``."""
    others = [axis for axis in range(x.ndim) if axis != dim % x.ndim]
    return x.sum(others) if others else x


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


def _dot(x: Tensor, k: Tensor, dim: int) -> Tensor:
    """The sum of k_i x_i along axis ``dim``, which stays: a product of matrices, several times faster than a sum in passes."""
    dim %= x.ndim
    last = x.movedim(dim, -1)
    if dim == x.ndim - 1 or last.is_contiguous():
        return (last @ k).unsqueeze(dim)
    return (k.unsqueeze(0) @ x.flatten(dim + 1)).unflatten(-1, x.shape[dim + 1 :])


def _sums(x: Tensor, delta: Tensor, dim: int, r: Tensor | None = None) -> _Sums:
    """The sums at x / max|x|; where x = 0 they are those of W = I, so that nothing is divided by zero."""
    largest = torch.maximum(x.amax(dim, keepdim=True), x.amin(dim, keepdim=True).neg())
    zero = largest == 0
    scale = largest.masked_fill(zero, 1)
    x, mu = x / scale, 1 + delta
    square = x.square()
    S0 = _dot(square, mu, dim).masked_fill(zero, 1)
    D = _dot(square, mu.square(), dim).masked_fill(zero, 1)
    if r is None:
        r = _dot(square, mu * (1 - delta), dim).masked_fill(zero, 1) / D
    g = (r * along(mu, x.ndim, dim)).add_(along(delta, x.ndim, dim))
    S1 = _dot(square.div_(g), mu, dim).masked_fill(zero, 1)
    return _Sums(x, along(mu, x.ndim, dim), r, g, S0, S1, D, scale, zero)


def _sum_of_logs(g: Tensor, dim: int) -> Tensor:
    """The sum of log g along axis ``dim``, which stays, from logarithms of products of four: no g is below eps/2."""
    d = g.shape[dim]
    a, b, c, e = (g.narrow(dim, k * (d // 4), d // 4) for k in range(4))
    rest = g.narrow(dim, d - d % 4, d % 4)
    return (a * b).mul_(c).mul_(e).log_().sum(dim, keepdim=True) + rest.log().sum(dim, keepdim=True)


class ForwardLogDet(torch.autograd.Function):
    """f(x) = -g x and log|det J(x)| = sum log g_i + log(S1/S0), the simplified REF Lemma 1 (ledger NEW-LADJ); 0 at x = 0.

    At x = 0, where f has no Jacobian, it is taken as I - W, as in `householder`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, W: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        coordinates = rotate(x, basis.Q, dim)
        s = _sums(coordinates, basis.delta, dim)
        ladj = _sum_of_logs(s.g, dim) + (s.S1 / s.S0).log()
        return rotate(s.g.mul_(coordinates), -basis.Q.mT, dim), ladj.masked_fill(s.zero, 0).squeeze(dim), coordinates

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(output[2])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, weight: Tensor, _):
        (coordinates,) = ctx.saved_tensors
        basis, dim = ctx.basis, ctx.dim
        x, mu, r, g, S0, S1, D, scale, zero = _sums(coordinates, basis.delta, dim)
        weight, h, flat = weight.unsqueeze(dim % x.ndim).masked_fill(zero, 0), rotate(grad, basis.Q, dim), mu.flatten()
        over = g.reciprocal()
        # The derivative in r of both outputs, and dr = 2/D times ((1 - g) mu x dx  -  g x dW x).
        slope = _dot(over, flat, dim) - _dot((x * over).square_(), flat.square(), dim) / S1
        slope = (weight * slope - _dot(h * x, flat, dim) * scale) * (2 / D)
        for_x = for_W = None
        if ctx.needs_input_grad[1]:
            left = (g * slope).add_(weight / S0).mul_(x).add_(h * ((1 + r) * scale))
            G = -_outer(x * over * (weight / S1), x * over, dim) - _outer(left, x, dim)
            G.diagonal().add_(_total(over * (weight * (1 + r)), dim))
            for_W = basis.Q @ G @ basis.Q.mT / basis.smallest
        if ctx.needs_input_grad[0]:
            for_x = over.mul_(2 * weight / S1).add_(slope - 2 * weight / S0).sub_(g * slope).mul_(x / scale)
            for_x = for_x.sub_(h * r.masked_fill(zero, basis.smallest - 1).add_(1)).mul_(mu).add_(h)
            for_x = rotate(for_x, basis.Q.mT, dim)
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
