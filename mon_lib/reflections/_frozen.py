"""H(Wx)x for one value of W: the autograd function, and the pieces of its Jacobian."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from ..operators._base import full_precision
from ._checks import working_dtype

__all__ = ["FrozenReflection"]

NOISE = 4.0  # ||Wx|| below this many eps ||W||_F ||x|| is rounding error; see AuxiliaryReflection


@dataclass(frozen=True)
class FrozenReflection:
    """f(x) = H(Wx)x on rows x, shape ``(N, d)``, with W as it is now.

    Attributes
    ----------
    W : Tensor
        Shape ``(d, d)``, in the dtype of the computation.
    noise : Tensor
        ||Wx||/||x|| at or below which Wx is a rounding error, shape ``()``.
    """

    W: Tensor
    noise: Tensor

    @classmethod
    @full_precision
    def of(cls, weight: Tensor, dtype: torch.dtype | None = None) -> FrozenReflection:
        """The reflection of a weight, computed in `dtype`; what is noise depends on the dtype of the weight."""
        eps = torch.finfo(working_dtype(weight.dtype)).eps
        W = weight.to(working_dtype(weight.dtype) if dtype is None else dtype)
        entries = W.detach().flatten()
        return cls(W, torch.nan_to_num(torch.dot(entries, entries).sqrt() * (NOISE * eps), nan=0.0, posinf=0.0))

    def __call__(self, x: Tensor) -> Tensor:
        """f(x)."""
        return self.parts(x)[0]

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """y = x - 2a u^, u^ = Wx/||Wx||, a = x'u^, ||Wx||, and 1 or, where Wx is noise, 0; the last three ``(N, 1)``."""
        return _Reflect.apply(x, self.W, self.noise)

    def value_and_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) and J, shape ``(N, d, d)``.

        REF Theorem 3 with A = I - 2cW and v^ = W'x/||Wx|| as one rank-one change, J = A - 2 u^ (A'u^ + v^)'; and I - W
        where Wx is noise.
        """
        y, u, a, length, keep = self.parts(x)
        noise = keep == 0  # there c = 1/2 and no quotient, since its derivative may overflow
        length = length.masked_fill(noise, 1.0)
        c = a.masked_fill(noise, 0.5) / length
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        A, u = eye - (2.0 * c).unsqueeze(2) * self.W, keep * u
        b = (u.unsqueeze(1) @ A).squeeze(1) + keep * ((x @ self.W) / length)
        return y, A - 2.0 * u.unsqueeze(2) * b.unsqueeze(1)

    def jacobian(self, x: Tensor) -> Tensor:
        """J, shape ``(N, d, d)``."""
        return self.value_and_jacobian(x)[1]


class _Reflect(torch.autograd.Function):
    """x, W, noise -> the parts of f.

    Three products with matrices, as in a linear layer, and a few passes over ``(N, d)``. What the backward pass keeps is
    an output with a gradient of its own, so that it can be differentiated again. Where Wx is noise a = ||Wx||/2, so that
    y = x - Wx, and no other output has a gradient.

    Lengths are summed in float64: a square of float32 numbers neither overflows nor vanishes there.
    """

    generate_vmap_rule = True

    @staticmethod
    @full_precision
    def forward(x: Tensor, W: Tensor, noise: Tensor):
        u = x @ W.mT
        exact = torch.linalg.vector_norm(u, dim=-1, keepdim=True, dtype=torch.float64)
        small = exact <= noise * torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
        length = exact.clamp_min(torch.finfo(x.dtype).tiny).to(x.dtype)
        u = u.div_(length)
        a = torch.where(small, 0.5 * length, (x * u).sum(-1, keepdim=True))
        return torch.addcmul(x, u, a, value=-2.0), u, a, length, (~small).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        x, W, _ = inputs
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, W, *output)

    @staticmethod
    @full_precision
    def backward(ctx, g, g_u, g_a, g_length, _):
        x, W, y, u, a, length, keep = ctx.saved_tensors
        g = torch.zeros_like(y) if g is None else g
        s = -2.0 * (g * u).sum(-1, keepdim=True)
        s = keep * (s if g_a is None else s + g_a)
        q = torch.addcmul(y * (s / length), g, a / length, value=-2.0)  # the gradient in Wx
        if g_a is not None:
            q = q + keep * g_a * (a / length) * u
        if g_u is not None:
            q = q + keep / length * (g_u - (u * g_u).sum(-1, keepdim=True) * u)
        if g_length is not None:
            q = q + keep * g_length * u
        for_x = torch.addmm(torch.addcmul(g, u, s), q, W) if ctx.needs_input_grad[0] else None
        for_W = q.mT @ x if ctx.needs_input_grad[1] else None
        return for_x, for_W, None


# Torch binds the arguments of every call to the signature of `forward`; working it out anew costs more than a pass over x.
_Reflect.forward.__signature__ = inspect.signature(_Reflect.forward)
