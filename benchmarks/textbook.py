"""The equilibrium layer as one would type it from the paper: the baseline of the convolutional benchmarks.

It shares the parameters of a `mon_lib.Equilibrium` and nothing else. Neither tuned nor crippled: W and its inverse are those
of `benchmarks.textbook_operators`; the inverse is formed once for each forward pass and kept for the backward pass; the loops
are Algorithms 2 and 4 (with the denominator 1 + alpha D) and stop once the whole batch moves by no more than tol,
relatively, asking the device after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from mon_lib import Equilibrium, operators

from .textbook_operators import Inverse, TextbookConvolution, TextbookMultiTier

__all__ = ["Textbook", "iterates"]


def iterates(inverse: Callable, shift: Tensor | None, prox: Callable, like: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Algorithms 2 and 4: z after each step, and by how much the whole batch moved in it, relatively."""
    z = u = torch.zeros_like(like)
    while True:
        half = 2 * z - u
        u = 2 * inverse(half if shift is None else half + shift) - half
        before, z = z, prox(u)
        yield z, ((z - before).norm() / z.norm()).item()


class Textbook(nn.Module):
    """x -> z* for a layer with ReLU, a border of zeros allowed.

    Parameters
    ----------
    layer : Equilibrium
        Whose operator, injection and border to take; a `Convolution` or a `MultiTier`.
    alpha : float
        Step size, for ever.
    tol : float
        Relative change of the whole batch at which both loops stop.
    backward_tol : float, optional
        Of the backward loop, where it differs.
    max_steps : int
        The only guard against a tol that is never reached.

    Attributes
    ----------
    steps, backward_steps : int
        Of the last passes.
    """

    def __init__(self, layer: Equilibrium, alpha: float, tol: float, backward_tol: float | None = None, max_steps: int = 2_000):
        super().__init__()
        form = TextbookMultiTier if isinstance(layer.operator, operators.MultiTier) else TextbookConvolution
        self.operator, self.injection, self.form = layer.operator, layer.injection, form(layer.operator)
        self.alpha, self.tol, self.backward_tol = alpha, tol, tol if backward_tol is None else backward_tol
        self.max_steps, self.steps, self.backward_steps = max_steps, 0, 0
        one = torch.ones(1, *layer.operator.state_shape, dtype=layer.operator.dtype, device=layer.operator.device)
        inside = layer.activation.derivative(one)  # ReLU's slope at one, or nothing on the border
        self.mask = None if bool(inside.all()) else inside

    def relu(self, u: Tensor) -> Tensor:
        """ReLU inside the border, zero on it."""
        return torch.relu(u) if self.mask is None else torch.relu(u).mul_(self.mask)

    def slope(self, pre: Tensor) -> Tensor:
        """J, the derivative of `relu`."""
        J = (pre > 0).to(pre.dtype)
        return J if self.mask is None else J.mul_(self.mask)

    def ahead(self, V: Inverse, bias: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Algorithm 2."""
        return iterates(V, self.alpha * bias, self.relu, bias)

    def back(self, V: Inverse, J: Tensor, v: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Algorithm 4, for D = (1 - J)/J, and 0 where J = 0."""
        inside, denominator, shift = J > 0, 1 + self.alpha * (1 - J) / J.clamp_min(1e-30), self.alpha * v
        return iterates(V.transposed, None, lambda u: torch.where(inside, (u + shift) / denominator, 0.0), v)

    def until(self, loop: Iterator[tuple[Tensor, float]], tol: float) -> tuple[Tensor, int]:
        """Run a loop until it moves by no more than tol."""
        for k, (z, change) in enumerate(loop, 1):
            if not change > tol or k >= self.max_steps:
                return z, k
        raise AssertionError("the loop has no end of its own")

    def forward(self, x: Tensor) -> Tensor:
        """z*, differentiable in x and in the parameters."""
        bias = self.injection(x)
        with torch.no_grad():
            V = self.form.inverse(self.alpha)
            z, self.steps = self.until(self.ahead(V, bias), self.tol)
        return _Implicit.apply(self.form.multiply(z) + bias, z, V, self)


class _Implicit(torch.autograd.Function):
    """pre = Wz* + bias -> z*. The gradient at pre is what Algorithm 4 returns (ledger MON-A4)."""

    @staticmethod
    def forward(ctx, pre, z, V, model):
        ctx.save_for_backward(pre)
        ctx.V, ctx.model = V, model
        return z.clone()

    @staticmethod
    def backward(ctx, v):
        (pre,), model = ctx.saved_tensors, ctx.model
        u, model.backward_steps = model.until(model.back(ctx.V, model.slope(pre), v), model.backward_tol)
        return u, None, None, None
