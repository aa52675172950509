"""H(Wx)x for one value of W: the autograd function, and the pieces of its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..operators._base import full_precision
from ._checks import working_dtype

__all__ = ["FrozenReflection", "newton_step", "scaled"]

NOISE = 4.0  # ||Wx|| below this many eps ||W||_F ||x|| is rounding error; see AuxiliaryReflection
FRACTIONS = 8  # the line search tries 1, 1/2, ..., 2^-7 of a step
FAR = 300  # binary exponent beyond which products of entries of W may leave the range of float64
# Private to torch, so not relied upon: without it every call takes the general way.
_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


@dataclass(frozen=True)
class FrozenReflection:
    """f(x) = H(Wx)x on rows x, shape ``(N, d)``, with W as it is now.

    Attributes
    ----------
    W : Tensor
        Shape ``(d, d)``, in the dtype of the computation.
    noise : float or Tensor
        At or below which ||Wx||/(||W||_F ||x||) is a rounding error; or, of shape ``(2,)``, the same for ||Wx||/||x||, and
        1/(2c) where it is one.
    """

    W: Tensor
    noise: float | Tensor

    @classmethod
    def of(cls, weight: Tensor, dtype: torch.dtype | None = None) -> FrozenReflection:
        """The reflection of a weight, computed in `dtype`; what is noise depends on the dtype of the weight."""
        own = working_dtype(weight.dtype)
        return cls(weight.to(own if dtype is None else dtype), NOISE * torch.finfo(own).eps)

    @full_precision
    def for_many(self) -> FrozenReflection:
        """The same map, which has summed ||W||_F once for all its calls."""
        return FrozenReflection(self.W, torch.stack(_noise(self.W.detach(), self.noise)))

    def in_range(self) -> FrozenReflection:
        """The same map outside the graph, with W brought near 1 by a power of two where products could leave the range.

        The scale of W matters only where Wx is noise, so that W = I - U, which is never far from 1, stays as it is.
        """
        W, noise = self.W.detach(), self.for_many().noise
        exponent = int(torch.frexp(W.abs().max()).exponent)
        if abs(exponent) <= FAR:
            return FrozenReflection(W, noise)
        W, noise = W.clone(), noise.clone()
        for half in (-(exponent // 2), exponent // 2 - exponent):  # 2^-exponent itself may not be a number
            W.mul_(2.0**half)
            noise.mul_(2.0**half)
        return FrozenReflection(W, noise)

    def __call__(self, x: Tensor) -> Tensor:
        """f(x)."""
        return self.parts(x)[0] if _transforms_active() else _Value.apply(x, self.W, self.noise)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """y = x - 2a u, u = Wx/||Wx||, a = x'u, ||Wx||, and 1, the last three ``(N, 1)``.

        Where Wx is noise they are x - 2cWx with the c of `noise`, 2cWx, 1/2, 1/(2c) and 0.
        """
        return _Parts.apply(x, self.W, self.noise)

    def value_and_jacobian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) and J, shape ``(N, d, d)``.

        REF Theorem 3 with A = I - 2cW and v^ = W'x/||Wx|| as one rank-one change, J = A - 2 u^ (A'u^ + v^)'; and A alone
        where Wx is noise.
        """
        y, u, a, length, above = self.parts(x)
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        A, u = eye - (2.0 * a / length).unsqueeze(2) * self.W, above * u
        b = (u.unsqueeze(1) @ A).squeeze(1) + above * ((x @ self.W) / length)
        return y, A - 2.0 * u.unsqueeze(2) * b.unsqueeze(1)

    def jacobian(self, x: Tensor) -> Tensor:
        """J, shape ``(N, d, d)``."""
        return self.value_and_jacobian(x)[1]


class _Parts(torch.autograd.Function):
    """x, W, noise -> the parts of f.

    What the backward pass keeps is an output with a gradient of its own, so that it can be differentiated again. Where Wx is
    noise only y has a gradient. Whoever calls the function keeps autocast away.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, W: Tensor, noise: float | Tensor):
        return _parts(x, W, noise)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        x, W, _ = inputs
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, W, *output)

    @staticmethod
    @full_precision
    def backward(ctx, *gradients):
        return _gradients(ctx, ctx.saved_tensors, *gradients)


class _Value(torch.autograd.Function):
    """x, W, noise -> y alone: in a small batch, where each output is felt, a few hundredths faster. It knows no torch.func."""

    @staticmethod
    def forward(ctx, x: Tensor, W: Tensor, noise: float | Tensor):
        parts = _parts(x, W, noise)
        ctx.save_for_backward(x, W, *parts)
        ctx.noise = noise
        return parts[0]

    @staticmethod
    @full_precision
    def backward(ctx, g):
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated, and through all of the parts
            x, W = saved[:2]
            saved = (x, W, *_Parts.apply(x, W, ctx.noise))
        return _gradients(ctx, saved, g)


def _parts(x: Tensor, W: Tensor, noise: float | Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One product with W, as in a linear layer, and as few operations beside it as will do: in a small batch each is felt.

    Lengths are summed in float64: a square of float32 numbers neither overflows nor vanishes there. Vectors in float64
    are divided by their largest entry first.
    """
    noise, floor = _noise(W, noise)  # before the product, which then finds W in the cache
    u = x @ W.mT
    length = _length(u)
    above = length > _length(x) * noise
    length = torch.where(above, length, floor).to(x.dtype)
    u = u.div_(length)
    a = torch.where(above, _dot(x, u), 0.5)
    return torch.addcmul(x, u, a, value=-2.0), u, a, length, above.to(x.dtype)


def _gradients(ctx, saved: tuple[Tensor, ...], g, g_u=None, g_a=None, g_length=None, _=None) -> tuple[Tensor | None, ...]:
    """Those of x, W and noise, for gradients of the parts, of which None is zero."""
    x, W, y, u, a, length, above = saved
    g = torch.zeros_like(y) if g is None else g
    s = _dot(g, u) if g_a is None else _dot(g, u) - 0.5 * g_a
    inverse = above / length
    # -1/2 of the gradient in Wx. y/||Wx|| first: s/||Wx|| overflows where x is small and g large.
    q = torch.addcmul((y * inverse) * s, g, a / length)
    if g_a is not None:
        q = q - 0.5 * inverse * a * g_a * u
    if g_u is not None:
        q = q - 0.5 * inverse * (g_u - _dot(u, g_u) * u)
    if g_length is not None:
        q = q - 0.5 * above * g_length * u
    for_x = for_W = None
    if ctx.needs_input_grad[0]:
        for_x = torch.addmm(torch.addcmul(g, u, s * above, value=-2.0), q, W, alpha=-2.0)
    if ctx.needs_input_grad[1]:
        for_W = torch.addmm(W, q.mT, x, beta=0.0, alpha=-2.0)
    return for_x, for_W, None


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """a'b for each row, shape ``(N, 1)``."""
    return (a * b).sum(-1, keepdim=True)  # faster than vecdot on a processor


def _noise(W: Tensor, noise: float | Tensor) -> tuple[Tensor, ...]:
    """||Wx||/||x|| at or below which Wx is a rounding error, 0 where ||W||_F^2 is no number of the dtype; and 1/(2c) there.

    c = 1/2 as for W = I - U, and less where ||W||_F is above 2 sqrt(d), as for no I - U: an error of that size would show.
    """
    if isinstance(noise, Tensor):
        return noise.unbind()
    entries = W.reshape(-1)
    norm = torch.dot(entries, entries).sqrt_()  # faster than vector_norm on a processor
    return (norm * noise).nan_to_num_(nan=0.0, posinf=0.0), norm.mul_(0.5 * len(W) ** -0.5).clamp_min_(1.0)


def _length(x: Tensor) -> Tensor:
    """||x|| in float64 for each row, shape ``(N, 1)``."""
    if x.dtype != torch.float64:
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
    largest = x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return largest * torch.linalg.vector_norm(x / largest, dim=-1, keepdim=True)


def scaled(f: FrozenReflection, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x over ||f(x)||, and the distance of its image from the unit vector y, for each row."""
    z = f(x)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return x / length, torch.linalg.vector_norm(z / length - y, dim=-1)


def newton_step(f: FrozenReflection, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The best point of a damped Newton step from x towards f(x) = y, and its residual.

    f(sx) = s f(x), so every trial point is put where ||f(x)|| = 1. J is factored as a whole: the Sherman-Morrison
    formula on A would divide by a nearly singular A where J is regular, and A has to be factored for each sample too.

    Parameters
    ----------
    f : FrozenReflection
    x, y : Tensor
        Shape ``(N, d)``, with ||f(x)|| = ||y|| = 1.

    Returns
    -------
    tuple of Tensor
        Shapes ``(N, d)`` and ``(N,)``; x itself where no fraction of the step comes closer.
    """
    image, J = f.value_and_jacobian(x)
    direction, info = torch.linalg.solve_ex(J, y - image)
    usable = torch.isfinite(direction).all(1) & (info == 0)
    direction = torch.where(usable.unsqueeze(1), direction, 0.0)
    fractions = torch.cat([direction.new_zeros(1), 0.5 ** torch.arange(FRACTIONS, dtype=x.dtype, device=x.device)])
    trials = (x + fractions.view(-1, 1, 1) * direction).flatten(0, 1)
    trials, residuals = scaled(f, trials, y.repeat(len(fractions), 1))
    best = torch.argmin(residuals.view(len(fractions), -1).nan_to_num(nan=torch.inf), 0)
    chosen = best * len(x) + torch.arange(len(x), device=x.device)
    return trials[chosen], residuals[chosen]
