"""The inverse of an `InvertibleReflection` to the last digits of float32: the loop in float32, all else in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from ...reflections._eigenbasis import Basis, Inverse
from ...reflections._layout import columns, restored, uncolumns
from ...reflections.secular import secular_preimage

__all__ = ["RefinedInverse"]


class RefinedInverse(Inverse):
    """`Inverse`, with the root of the secular equation found in float32 and moved by one Newton step in float64.

    In float32 alone the loop stops once ||x|| is within 8 eps of ||y||, always on the same side of it, and over the pixels and the
    steps of a flow that adds up. Newton's step squares the error, and the loop, which is most of the work, stays cheap.

    Arguments, results and derivatives are those of `Inverse` with y, weight and basis in float64; entries of y must be within the
    range of float32. Up to condition numbers of 2 - 1e-4 the error is below the rounding of float32; beyond, the first root is too
    rough for one step.
    """

    @staticmethod
    def forward(y: Tensor, weight: Tensor, basis: Basis, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        targets, delta = y.movedim(dim, 0), basis.delta[:, None]
        Y = columns(targets, basis.Q)
        single = basis.delta.float().clamp_(max=1.0 - torch.finfo(torch.float32).eps)
        r = secular_preimage(single, Y.float(), 0)[1].double()
        g = torch.addcmul(delta, 1 + delta, r)
        square = (Y / g).square_()
        over = square.sum(0) - Y.square().sum(0)  # ||x||^2 - ||y||^2, and minus its derivative in r
        fall = (2 * (1 + basis.delta)) @ square.div_(g)
        # Both are 0 where y = 0; what rounding adds to a root at the border stays inside.
        r = r[0] + over / fall.clamp_(min=torch.finfo(y.dtype).tiny)
        r = r.clamp_(min=(1 - basis.delta[-1]) / (1 + basis.delta[-1])).clamp_(max=1.0)
        X = Y / torch.addcmul(delta, 1 + delta, r).neg_()
        return restored(uncolumns(X, basis.inner.mT, targets), y, dim), X, r
