"""What `InvertibleReflection` computes in the eigenbasis of W, with derivatives by hand: no gradient goes through eigh.

Autograd's derivative of eigenvectors divides by differences of eigenvalues, which vanish at W = I. The functions here are
functions of the weight, not of a choice of eigenvectors, and their derivatives in the eigenbasis are finite everywhere.

Notation: W = lambda_min Q diag(mu) Q', mu_i = 1 + delta_i, coordinates x = Q'x, g_i = 2c lambda_i - 1 = r mu_i + delta_i, so that
f(x) = -g x entry by entry. All sums have non-negative terms, so nothing is lost near condition number 2. Coordinates of all vectors
stand side by side as the columns of one matrix ``(d, N)``: every pass runs along memory and every sum is a product of matrices.

These derivatives are not differentiated again: whoever asks for second ones is refused.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
from torch import Tensor

from .._once import once
from ._layout import blocks, columns, placed, restored, uncolumns
from .secular import secular_preimage

__all__ = ["Basis", "ForwardLogDet", "Inverse", "Spectrum"]


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
        cos, half = self.theta.cos(), self.theta / 2
        slope = (half[:, None] + half).cos_() / (half[:, None] - half).cos_() * cos * (0.25 * (self.kappa - 1.0) * cos)[:, None]
        return self.Q @ (slope.to(G.dtype) * (G + G.mT)) @ self.Q.mT


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


def _weights(basis: Basis) -> tuple[Tensor, Tensor, Tensor]:
    """mu and delta, ``(d, 1)``, and the rows whose products with squares of coordinates are D and rD, ``(2, d)``."""
    mu = 1 + basis.delta
    return mu[:, None], basis.delta[:, None], 0.5 * mu * torch.stack([mu, 1 - basis.delta])


def _sums(X: Tensor, basis: Basis, weights: tuple[Tensor, ...], r: Tensor | None = None) -> tuple[Tensor, ...]:
    """Rows size, D, rD, r, S1 at the columns of X / size, and g ``(d, N)``.

    size is the largest |x_i|, 2D = ||Wx||^2, S1 = -x'A^-1 Wx, and S0 = x'Wx is D + rD. A column of zeros counts as the first
    eigenvector, with the r that makes -g = 1 - lambda.
    """
    (mu, delta, rows), square = weights, X.abs()
    size = square.amax(0)
    zero = size == 0
    square.div_(size.masked_fill(zero, 1))
    square.mul_(square)
    square[0].add_(zero)
    D, rD = (rows @ square).unbind()
    if r is None:
        r = (rD / D).masked_fill_(zero, max(basis.smallest - 1.0, torch.finfo(X.dtype).eps))
    g = (mu * r).add_(delta)
    return size, D, rD, r, (mu.mT @ square.div_(g))[0], g


def _sum_of_logs(g: Tensor) -> Tensor:
    """The sum of log g over the rows ``(N,)``, from logarithms of products of four: no g is below eps/2."""
    k = len(g) // 4
    total = g[: 4 * k].view(4, k, g.shape[1]).prod(0).log_().sum(0) if k else 0.0
    return total if 4 * k == len(g) else g[4 * k :].log().sum(0) + total


class ForwardLogDet(torch.autograd.Function):
    """f(x) = -g x and log|det J(x)| = sum log g_i + log(S1/S0), the simplified REF Lemma 1 (ledger NEW-LADJ); 0 at x = 0.

    At x = 0, where f has no Jacobian, it is taken as I - W, as in `householder`.

    Both passes go block by block, and the backward pass computes the coordinates anew: fresh memory costs more than a product.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor]:
        points, weights, back, y, kept = x.movedim(dim, 0), _weights(basis), -basis.Q.mT, None, None
        for at, block in blocks(points):
            X = columns(block, basis.inner)
            *sums, g = _sums(X, basis, weights)
            kept = placed(kept, torch.stack([_sum_of_logs(g), *sums]).view(6, *block.shape[1:]), at, points[:1])
            y = placed(y, uncolumns(g.mul_(X), back, block), at, points)
        logs, size, D, rD, _, S1 = kept
        ladj = (logs + (S1 / (D + rD)).log_()).masked_fill_(size == 0, 0)
        return restored(y, x, dim), ladj, kept

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.basis, ctx.dim = inputs[2:]
        ctx.save_for_backward(*inputs[:2], output[2])
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, grad: Tensor, grad_ladj: Tensor, _):
        x, weight, kept = ctx.saved_tensors
        with torch.no_grad():
            gradients = ForwardLogDet._gradients(ctx, grad, grad_ladj, x, kept, weight.dtype)
        return *_once(gradients, grad, grad_ladj, x, weight), None, None

    @staticmethod
    def _gradients(ctx, grad: Tensor, grad_ladj: Tensor, x: Tensor, kept: Tensor, dtype: torch.dtype) -> tuple:
        """In x and in the parameter, for the gradients in y and in the logarithm."""
        basis, dim, for_x, for_W = ctx.basis, ctx.dim, None, None
        points = x.movedim(dim, 0)
        for at, block, H, weight, sums in blocks(points, grad.movedim(dim, 0), grad_ladj[None], kept):
            X, H = columns(block, basis.inner), columns(H, basis.Q)
            inner, G = ForwardLogDet._parts(ctx, X, H, weight.reshape(-1), sums.reshape(6, -1))
            if ctx.needs_input_grad[0]:
                for_x = placed(for_x, uncolumns(inner, basis.inner.mT, block), at, points)
            if ctx.needs_input_grad[1]:
                for_W = G if for_W is None else for_W + G
        return (
            restored(for_x, x, dim) if ctx.needs_input_grad[0] else None,
            basis.pulled_back(for_W / basis.smallest).to(dtype) if ctx.needs_input_grad[1] else None,
        )

    @staticmethod
    def _parts(ctx, X: Tensor, H: Tensor, weight: Tensor, sums: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The gradients in the coordinates X, ``(d, N)``, and in W, from these points."""
        _, size, D, rD, r, S1 = sums.unbind()
        zero, delta = size == 0, ctx.basis.delta[:, None]
        mu = 1 + delta
        row = mu.mT
        scale, weight = size.masked_fill(zero, 1), weight.masked_fill(zero, 0)
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
            G = (t * -b) @ t.mT - left.mul_(x).add_(H * ((1 + r) * scale)) @ x.mT
            G.diagonal().add_(over @ (weight * (1 + r)))
        return inner, G


class Inverse(torch.autograd.Function):
    """x with f(x) = y by the secular equation; its derivative is that of the implicit function, J^-1 (dy - (df/dW) dW)."""

    @staticmethod
    def forward(y: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        targets = y.movedim(dim, 0)
        X, r, _ = secular_preimage(basis.delta, columns(targets, basis.Q), 0)
        return restored(uncolumns(X, basis.inner.mT, targets), y, dim), X, r[0]

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
        size, D, _, _, S1, g = _sums(X, basis, _weights(basis), r)
        zero = size == 0
        scale = size.masked_fill(zero, 1)
        vectors = grad.movedim(ctx.dim, 0)
        x, H = X / scale, columns(vectors, basis.inner)
        # J' = A - 2 b u' with u = Wx, b = (u - cWu)/||u||^2; Sherman-Morrison, with 1 - 2u'A^-1 b = S1/S0 (det J/det A).
        along_x = (mu * x * H / g).sum(0) / S1
        w = ((1 + r) * along_x * mu * x * (1 - g) - H) / g
        for_weight = None
        if ctx.needs_input_grad[1]:
            turned = (1 + r) * w - (mu * x * w).sum(0) / D * g * x
            G = turned.masked_fill(zero, 0) @ (x * scale).mT
            for_weight = basis.pulled_back(G / basis.smallest).to(dtype)
        return restored(uncolumns(w, basis.Q.mT, vectors), grad, ctx.dim), for_weight


# Torch binds the arguments of every call to the signature of `forward`; working it out anew costs more than a pass over x.
for _function in (Spectrum, ForwardLogDet, Inverse):
    _function.forward.__signature__ = inspect.signature(_function.forward)
