"""Gradients that refuse to be differentiated again."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["once"]


class _Once(torch.autograd.Function):
    """Passes a gradient on and refuses to be differentiated.

    The inputs that the gradient depends on are its arguments. That keeps the path from the gradient to them: where there is none,
    as after ``once_differentiable``, ``torch.autograd.grad`` and ``torch.func`` take a second derivative for zero.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(refusal: str, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.refusal = inputs[0]

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(ctx.refusal)


def once(refusal: str, gradient: Tensor, *inputs: Tensor) -> Tensor:
    """The gradient, computed without a graph from these inputs; its derivative is a NotImplementedError with this text."""
    return _Once.apply(refusal, gradient, *inputs) if torch.is_grad_enabled() else gradient
