"""What `InvertibleReflection` computes in the eigenbasis of W, with derivatives by hand: no gradient goes through eigh.

Autograd's derivative of eigenvectors divides by differences of eigenvalues, which vanish at W = I. The functions here are
functions of the weight, not of a choice of eigenvectors, and their derivatives in the eigenbasis are finite everywhere.

Notation: W = lambda_min Q diag(mu) Q', mu_i = 1 + delta_i, coordinates x = Q'x, g_i = 2c lambda_i - 1 = r mu_i + delta_i, so that
f(x) = -g x entry by entry. All sums have non-negative terms, so nothing is lost near condition number 2. Coordinates of all vectors
stand side by side as the columns of one matrix ``(d, N)``: every pass runs along memory and every sum is a product of matrices.

These derivatives are not differentiated again: whoever asks for second ones is refused.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._once import once
from .secular import secular_preimage

__all__ = ["Basis", "ForwardLogDet", "Inverse", "Spectrum", "rotate"]


class Basis(NamedTuple):
    """The eigenbasis of W outside the graph.

    Attributes
    ----------
    Q : Tensor
        Columns are eigenvectors, ``(d, d)``.
    inner : Tensor
        Takes x to coordinates, ``inner' x``: Q, or R'Q where a fixed rotation R comes before f.
    delta : Tensor
        lambda/lambda_min - 1, ``(d,)``, ascending from 0.
    smallest : float
        lambda_min.
    theta : Tensor
        Arctangents of the eigenvalues of the symmetric part of the weight, ``(d,)``.
    kappa : float
        The bound on the condition number.
    """

    Q: Tensor
    inner: Tensor
    delta: Tensor
    smallest: float
    theta: Tensor
    kappa: float

    def pulled_back(self, G: Tensor) -> Tensor:
        """The gradient in the weight from the gradient G in W, both ``(d, d)``, G in the eigenbasis.

        W = h(B) for the symmetric part B, h(b) = (1 + kappa)/2 + (kappa - 1)/2 sin(arctan b) on the eigenvalues. The derivative
        of a spectral function (Daleckii and Krein): in the eigenbasis, dW_ij is dB_ij times the divided difference of h. With
        b = tan(theta) that is cos(theta_i) cos(theta_j) cos((theta_i + theta_j)/2) / cos((theta_i - theta_j)/2): no differences.
        """
        a, b = self.theta[:, None], self.theta[None, :]
        slope = 0.25 * (self.kappa - 1.0) * a.cos() * b.cos() * ((a + b) / 2).cos() / ((a - b) / 2).cos()
        return self.Q @ (slope.to(G.dtype) * (G + G.mT)) @ self.Q.mT


def rotate(x: Tensor, M: Tensor, dim: int) -> Tensor:
    """M'x for vectors along axis ``dim``, without a copy of x where the axis is the first or the last in memory."""
    dim %= x.ndim
    last = x.movedim(dim, -1)
    if dim == x.ndim - 1 or last.is_contiguous():
        return (last @ M).movedim(-1, dim)
    return (M.mT @ x.flatten(dim + 1)).view(x.shape)


def _columns(x: Tensor, M: Tensor, dim: int) -> Tensor:
    """M'x as the columns of a matrix ``(d, N)``, for vectors along axis ``dim``."""
    dim, d = dim % x.ndim, len(M)
    last = x.movedim(dim, -1)
    if dim == x.ndim - 1 or last.is_contiguous():
        return M.mT @ last.reshape(-1, d).mT
    return M.mT @ x.movedim(dim, 0).reshape(d, -1)


def _uncolumns(X: Tensor, M: Tensor, like: Tensor, dim: int) -> Tensor:
    """M'X in the shape and the layout that ``_columns(like, ...)`` came from."""
    dim %= like.ndim
    last = like.movedim(dim, -1)
    if dim == like.ndim - 1 or last.is_contiguous():
        return (X.mT @ M).reshape(last.shape).movedim(-1, dim)
    others = [s for axis, s in enumerate(like.shape) if axis != dim]
    return (M.mT @ X).reshape(-1, *others).movedim(0, dim).contiguous()


_REFUSAL = (
    "second derivatives through InvertibleReflection are not implemented, but for those of forward in x; drop "
    "create_graph=True, or differentiate householder(x @ W, x) with a symmetric W of your own where you need them"
)


def _once(gradients: tuple[Tensor | None, ...], *inputs: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients, computed without a graph, tied to the inputs that they depend on."""
    return tuple(None if gradient is None else once(_REFUSAL, gradient, *inputs) for gradient in gradients)


class Spectrum(torch.autograd.Function):
    """W itself, from its eigenvalues ``(d,)``; see `Basis.pulled_back` for its derivative in the weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, values: Tensor, basis: Basis) -> Tensor:
        return (basis.Q * values) @ basis.Q.mT

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis = inputs[2]
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, G: Tensor):
        (weight,), basis = ctx.saved_tensors, ctx.basis
        with torch.no_grad():
            for_weight = basis.pulled_back(basis.Q.mT @ G @ basis.Q).to(weight.dtype)
        return *_once((for_weight,), G, weight), None, None


class _Sums(NamedTuple):
    """What the derivatives at N points have in common: rows ``(N,)``, and g ``(d, N)``, at x / scale."""

    g: Tensor
    r: Tensor
    S0: Tensor  # x'Wx
    S1: Tensor  # -x'A^-1 Wx
    D: Tensor  # ||Wx||^2
    scale: Tensor  # the largest |x_i|; 1 where x = 0
    zero: Tensor


def _sums(X: Tensor, basis: Basis, r: Tensor | None = None) -> _Sums:
    """The sums at the columns of X; a column of zeros counts as the first eigenvector, with the r that makes -g = 1 - lambda."""
    delta, mu = basis.delta, 1 + basis.delta
    square = X.abs()
    scale = square.amax(0)
    zero = scale == 0
    scale = scale.masked_fill(zero, 1)
    square = square.div_(scale)
    square = square.mul_(square)
    square[0].add_(zero)
    S0, D, rD = (torch.stack([mu, mu * mu, mu * (1 - delta)]) @ square).unbind()
    if r is None:
        r = (rD / D).masked_fill(zero, max(basis.smallest - 1.0, torch.finfo(X.dtype).eps))
    g = (mu[:, None] * r).add_(delta[:, None])
    return _Sums(g, r, S0, mu @ square.div_(g), D, scale, zero)


def _sum_of_logs(g: Tensor) -> Tensor:
    """The sum of log g over the rows ``(N,)``, from logarithms of products of four: no g is below eps/2."""
    k = len(g) // 4
    total = g[: 4 * k].view(4, k, -1).prod(0).log_().sum(0) if k else 0.0
    return total if 4 * k == len(g) else g[4 * k :].log().sum(0) + total


class ForwardLogDet(torch.autograd.Function):
    """f(x) = -g x and log|det J(x)| = sum log g_i + log(S1/S0), the simplified REF Lemma 1 (ledger NEW-LADJ); 0 at x = 0.

    At x = 0, where f has no Jacobian, it is taken as I - W, as in `householder`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, ...]:
        X = _columns(x, basis.inner, dim)
        g, *rows, zero = _sums(X, basis)
        ladj = (_sum_of_logs(g) + (rows[2] / rows[1]).log()).masked_fill(zero, 0)
        y = _uncolumns(g.mul_(X), -basis.Q.mT, x, dim)
        return y, ladj.reshape([s for axis, s in enumerate(x.shape) if axis != dim % x.ndim]), X, *rows, zero

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(*inputs[:2], *output[2:])
        ctx.mark_non_differentiable(*output[2:])

    @staticmethod
    def backward(ctx, grad: Tensor, grad_ladj: Tensor, *_):
        x, weight, *saved = ctx.saved_tensors
        with torch.no_grad():
            gradients = ForwardLogDet._gradients(ctx, grad, grad_ladj, weight.dtype, *saved)
        return *_once(gradients, grad, grad_ladj, x, weight), None, None

    @staticmethod
    def _gradients(ctx, grad: Tensor, weight: Tensor, dtype: torch.dtype, X, r, S0, S1, D, scale, zero) -> tuple:
        """In x and in the parameter, for the gradient in y and the weight of the logarithm."""
        basis, mu = ctx.basis, 1 + ctx.basis.delta
        g = (mu[:, None] * r).add_(basis.delta[:, None])
        over, x, H = g.reciprocal(), X / scale, _columns(grad, basis.Q, ctx.dim)
        weight, t = weight.reshape(-1).masked_fill(zero, 0), x * over
        a, b = weight / S0, weight / S1
        # The derivative in r of both outputs, and dr = 2/D times ((1 - g) mu x dx  -  g x dW x).
        slope = ((mu @ over) * weight - (mu * mu) @ (t * t) * b - mu @ (H * x) * scale) * (2 / D)
        left = (g * slope).add_(a).mul_(x)
        for_x = for_weight = None
        if ctx.needs_input_grad[1]:
            G = (t * -b) @ t.mT - (left + H * ((1 + r) * scale)) @ x.mT
            G.diagonal().add_(over @ (weight * (1 + r)))
            for_weight = basis.pulled_back(G / basis.smallest).to(dtype)
        if ctx.needs_input_grad[0]:
            inner = (x * (slope - a)).sub_(left).add_(t * (2 * b))
            inner = inner.mul_(mu[:, None]).div_(scale).sub_(g * H)
            for_x = _uncolumns(inner, basis.inner.mT, grad, ctx.dim)
        return for_x, for_weight


class Inverse(torch.autograd.Function):
    """x with f(x) = y by the secular equation; its derivative is that of the implicit function, J^-1 (dy - (df/dW) dW)."""

    @staticmethod
    def forward(y: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        X, r, _ = secular_preimage(basis.delta, _columns(y, basis.Q, dim), 0)
        return _uncolumns(X, basis.inner.mT, y, dim), X, r[0]

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(*inputs[:2], *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, grad: Tensor, *_):
        y, weight, X, r = ctx.saved_tensors
        with torch.no_grad():
            gradients = Inverse._gradients(ctx, grad, weight.dtype, X, r)
        return *_once(gradients, grad, y, weight), None, None

    @staticmethod
    def _gradients(ctx, grad: Tensor, dtype: torch.dtype, X: Tensor, r: Tensor) -> tuple:
        """In y and in the parameter, for the gradient in x."""
        basis, mu = ctx.basis, (1 + ctx.basis.delta)[:, None]
        g, r, _, S1, D, scale, zero = _sums(X, basis, r)
        x, H = X / scale, _columns(grad, basis.inner, ctx.dim)
        # J' = A - 2 b u' with u = Wx, b = (u - cWu)/||u||^2; Sherman-Morrison, with 1 - 2u'A^-1 b = S1/S0 (det J/det A).
        along_x = (mu * x * H / g).sum(0) / S1
        w = ((1 + r) * along_x * mu * x * (1 - g) - H) / g
        for_weight = None
        if ctx.needs_input_grad[1]:
            turned = (1 + r) * w - 2 * (mu * x * w).sum(0) / D * g * x
            G = turned.masked_fill(zero, 0) @ (x * scale).mT
            for_weight = basis.pulled_back(G / basis.smallest).to(dtype)
        return _uncolumns(w, basis.Q.mT, grad, ctx.dim), for_weight
