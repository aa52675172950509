r"""prox_{alpha f} from sigma alone, by walking along the graph of the subdifferential of f.

With z = sigma(t) and w = t - sigma(t), the pairs (z, w) are the graph of the subdifferential of f, and
prox_{alpha f}(u) is the z of the one pair with z + alpha w = u. In t that reads alpha t + (1 - alpha) sigma(t) = u.
Written as z + alpha w it loses no digits for small or large alpha.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ._base import Activation

__all__ = ["Implicit"]

CHECK_EVERY = 4  # steps between two looks at the device
PATIENCE = 24  # plain Newton steps before every second step becomes a bisection
MAX_STEPS = 240


class Implicit(Activation):
    """An activation whose prox_{alpha f} solves a scalar equation; a subclass gives sigma and its slope."""

    exact: ClassVar[bool] = True  # False: _split is only accurate relative to t

    @abstractmethod
    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(sigma(t), t - sigma(t)), each to full relative accuracy where the slope comes near 1."""

    @abstractmethod
    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(sigma'(t), 1 - sigma'(t)), differentiable in t."""

    def _root(self, u: Tensor, alpha: float) -> Tensor:
        """The t with sigma(t) + alpha (t - sigma(t)) = u. Outside the graph."""
        return newton_root(self, u, alpha)

    def _prox(self, x: Tensor, alpha: float) -> Tensor:
        return _Resolvent.apply(x, alpha, self)[0]

    def _derivative(self, x: Tensor) -> Tensor:
        return self._slopes(x)[0]

    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        slope, rest = self._slopes(_Resolvent.apply(x, alpha, self)[1])
        return slope / (slope + alpha * rest)


class _Resolvent(torch.autograd.Function):
    """u -> (z, t) with z = sigma(t) and t the root. Differentiable to any order: t is saved as an output."""

    @staticmethod
    def forward(u, alpha, activation):
        t = activation._root(u, alpha)
        return activation._split(t)[0], t

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.alpha, ctx.activation = inputs[1:]
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx, grad_z, grad_t):
        slope, rest = ctx.activation._slopes(*ctx.saved_tensors)
        return (grad_z * slope + grad_t) / (slope + ctx.alpha * rest), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        slope, rest = ctx.activation._slopes(*ctx.saved_tensors)
        tangent = tangent / (slope + ctx.alpha * rest)
        return slope * tangent, tangent

    @staticmethod
    def vmap(info, in_dims, u, alpha, activation):
        return _Resolvent.apply(u, alpha, activation), (in_dims[0], in_dims[0])


@torch.no_grad()
def newton_root(activation: Implicit, u: Tensor, alpha: float) -> Tensor:
    r"""Solve h(t) = sigma(t) + alpha (t - sigma(t)) = u elementwise by Newton's method from t = u.

    The slope of h lies between 1 and alpha, so the residual at u brackets the root; every iterate narrows the bracket,
    and a Newton step that would leave it becomes a bisection. Not-finite entries of u are returned as they are.

    Raises
    ------
    ConvergenceError
        If an entry does not converge: the activation's slope is not what it claims to be.
    """
    eps = torch.finfo(u.dtype).eps
    done = ~torch.isfinite(u)
    t = u.clone(memory_format=torch.contiguous_format)
    below = above = None
    for step in range(MAX_STEPS):
        z, w = activation._split(t)
        slope, rest = activation._slopes(t)
        slope = slope + alpha * rest
        residual = z + alpha * w - u
        if below is None:
            reach = residual * (-2 / min(1.0, alpha))  # twice the distance the slope allows: rounding stays inside
            below, above = t + reach.clamp(max=0), t + reach.clamp(min=0)
        size = z.abs() + alpha * w.abs() + u.abs() + (slope if activation.exact else 1 + alpha) * t.abs()
        done = done | (residual.abs() <= 8 * eps * size)
        high = residual > 0
        above = torch.where(high, t, above)
        below = torch.where(high, below, t)
        move = t - residual / slope
        inside = (move > below) & (move < above)
        if step >= PATIENCE and step % 2:
            inside = torch.zeros_like(inside)
        if (step + 1) % CHECK_EVERY == 0 and bool(done.all()):
            return torch.where(torch.isfinite(move), move, t)  # one last Newton step, harmless where it is zero
        t = torch.where(done, t, torch.where(inside, move, 0.5 * (below + above)))
    from ..errors import ConvergenceError

    worst = u[~done][0].item()
    raise ConvergenceError(
        f"prox of {activation!r} at alpha = {alpha} did not converge at u = {worst}: its slope must lie in [0, 1]"
    )
