"""What `InvertibleReflection` computes in the eigenbasis of W, with derivatives by hand: no gradient goes through eigh.

Autograd's derivative of eigenvectors divides by differences of eigenvalues, which vanish at W = I. The functions here are
functions of the weight, not of a choice of eigenvectors, and their derivatives in the eigenbasis are finite everywhere.

Notation: W = lambda_min Q diag(mu) Q', mu_i = 1 + delta_i, coordinates x = Q'x, g_i = 2c lambda_i - 1 = r mu_i + delta_i, so that
f(x) = -g x entry by entry. All sums have non-negative terms, so nothing is lost near condition number 2. Coordinates of vectors
stand side by side as the columns of a matrix: every pass runs along memory and every sum is a product of matrices.

These derivatives are not differentiated again: whoever asks for second ones is refused.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
from torch import Tensor

from .._once import once
from ._layout import columns, restored, uncolumns
from .secular import secular_preimage

__all__ = ["Basis", "Inverse", "Spectrum", "little", "once_only", "scale_of"]


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


def once_only(gradients: tuple[Tensor | None, ...], *inputs: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients, computed without a graph, tied to the inputs that they depend on."""
    return tuple(None if gradient is None else once(_REFUSAL, gradient, *inputs) for gradient in gradients)


def scale_of(size: Tensor) -> Tensor:
    """What coordinates are divided by, from the largest |x_i|: not 0, and squares of the quotients are in range."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)


def little(basis: Basis) -> tuple[float, float]:
    """What is added to D and to S1, and to rD: below their rounding, unless x = 0.

    There the quotients are numbers with them, and r the one that makes -g = 1 - lambda.
    """
    limits = torch.finfo(basis.delta.dtype)
    least = limits.tiny / limits.eps
    return least, least * max(basis.smallest - 1.0, limits.eps)


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
        return *once_only((for_weight,), G, weight), None, None


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
        return *once_only(gradients, grad, y, weight), None, None

    @staticmethod
    def _gradients(ctx, grad: Tensor, dtype: torch.dtype, X: Tensor, r: Tensor) -> tuple:
        """In y and in the parameter, for the gradient in x."""
        basis, delta, (extra, _) = ctx.basis, ctx.basis.delta[:, None], little(ctx.basis)
        mu, size, vectors = 1 + delta, X.abs().amax(0), grad.movedim(ctx.dim, 0)
        scale, g = scale_of(size), (mu * r).add_(delta)
        x, H = X / scale, columns(vectors, basis.inner)
        square = x.square()
        D, S1 = (0.5 * mu.square()).mT @ square + extra, mu.mT @ square.div_(g) + extra
        # J' = A - 2 b u' with u = Wx, b = (u - cWu)/||u||^2; Sherman-Morrison, with 1 - 2u'A^-1 b = S1/S0 (det J/det A).
        along_x = (mu * x * H / g).sum(0) / S1
        w = ((1 + r) * along_x * mu * x * (1 - g) - H) / g
        for_weight = None
        if ctx.needs_input_grad[1]:
            turned = (1 + r) * w - (mu * x * w).sum(0) / D * g * x
            G = turned.masked_fill(size == 0, 0) @ (x * scale).mT
            for_weight = basis.pulled_back(G / basis.smallest).to(dtype)
        return restored(uncolumns(w, basis.Q.mT, vectors), grad, ctx.dim), for_weight


# Torch binds the arguments of every call to the signature of `forward`; working it out anew costs more than a pass over x.
for _function in (Spectrum, Inverse):
    _function.forward.__signature__ = inspect.signature(_function.forward)
