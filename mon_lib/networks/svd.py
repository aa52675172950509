"""Layers in the form of a singular value decomposition, U diag(sigma) V'x; the orthogonal maps are passed as objects (REF 3.1)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .._numbers import check_size
from ..reflections import AuxiliaryReflection
from ._images import check_dtype
from .formed import draw_uniform

__all__ = ["SVDClassifier", "SVDLayer", "UniformDraw"]


class SVDLayer(nn.Module):
    """x -> U(sigma * V(x)), with two norm-preserving maps U and V: U Sigma V'x where they are orthogonal matrices.

    V is itself the second factor: where the paper writes V' it is a member of the same family. If U and V keep the norm of
    every vector, then min|sigma| ||x|| <= ||y|| <= max|sigma| ||x||.

    Parameters
    ----------
    d : int
        Entries of x.
    orthogonal : callable
        d -> nn.Module from ``(..., d)`` to ``(..., d)``; called once for U and once for V.

    Attributes
    ----------
    U, V : nn.Module
    sigma : nn.Parameter
        Shape ``(d,)``, drawn from U(0.99, 1.01) (REF B.1), free to become anything.

    Raises
    ------
    TypeError
        If `orthogonal` is a module, or cannot be called, or does not make a module.
    """

    def __init__(self, d: int, orthogonal: Callable[[int], nn.Module] = AuxiliaryReflection):
        super().__init__()
        self.d = check_size("d", d)
        self.U, self.V = _make(orthogonal, self.d), _make(orthogonal, self.d)
        self.sigma = nn.Parameter(torch.empty(self.d).uniform_(0.99, 1.01))

    def forward(self, x: Tensor) -> Tensor:
        """y of shape ``(..., d)``, as x."""
        return self.U(self.sigma * self.V(x))


def _make(orthogonal: Callable[[int], nn.Module], d: int) -> nn.Module:
    if isinstance(orthogonal, nn.Module) or not callable(orthogonal):
        raise TypeError(
            f"orthogonal is a {type(orthogonal).__name__}; pass what makes a module from d, as AuxiliaryReflection "
            "or functools.partial(HouseholderProduct, k=d)"
        )
    made = orthogonal(d)
    if not isinstance(made, nn.Module):
        raise TypeError(
            f"orthogonal({d}) returned a {type(made).__name__}; it must return a torch.nn.Module from (..., {d}) to itself"
        )
    return made


class UniformDraw:
    """d -> a module whose parameters are drawn from U(-1/sqrt(d), 1/sqrt(d)), as REF B.1 prints it for all maps.

    `AuxiliaryReflection`, `Cayley` and `MatrixExponential` draw so by themselves. A product of reflections has longer vectors
    of its own: their length changes no value, but Adam moves every entry by about its rate, and so turns a short vector far
    and a long one little.

    Parameters
    ----------
    make : callable
        d -> nn.Module.

    Examples
    --------
    >>> from mon_lib.networks import Cayley
    >>> bool(UniformDraw(Cayley)(4).weight.abs().max() <= 0.5)
    True
    """

    def __init__(self, make: Callable[[int], nn.Module]):
        self.make = make

    def __call__(self, d: int) -> nn.Module:
        module = _make(self.make, d)
        for parameter in module.parameters():
            draw_uniform(parameter, d)
        return module


class SVDClassifier(nn.Sequential):
    """Image classifier of layers U Sigma V'x with ReLU after each, and a final linear map (REF 3.1 and B.1).

    As we read it: a ReLU also stands before the final map, with which the last orthogonal matrix would otherwise merge.
    The defaults are the paper's network with six auxiliary reflections.

    Parameters
    ----------
    features : int
        Entries of one input, flattened; all layers have this width.
    classes : int
        Number of logits.
    layers : int
        Each with two orthogonal maps.
    orthogonal : callable
        d -> nn.Module, as for `SVDLayer`: `AuxiliaryReflection`, `Cayley`, `MatrixExponential`, or
        ``functools.partial(HouseholderProduct, k=784)``.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer; if `orthogonal` makes no module. On use: ValueError for samples without
        `features` entries each, TypeError for another dtype than that of the weights.

    Examples
    --------
    >>> from mon_lib.networks import Cayley
    >>> model = SVDClassifier(features=6, classes=3, orthogonal=Cayley)
    >>> model(torch.zeros(2, 1, 2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        features: int = 784,
        classes: int = 10,
        layers: int = 3,
        orthogonal: Callable[[int], nn.Module] = AuxiliaryReflection,
    ):
        features, classes, layers = check_size("features", features), check_size("classes", classes), check_size("layers", layers)
        hidden = [module for _ in range(layers) for module in (SVDLayer(features, orthogonal), nn.ReLU())]
        super().__init__(nn.Flatten(), *hidden, nn.Linear(features, classes))
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of a batch whose samples have `features` entries, in any shape."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x is {type(x).__name__}; pass a torch.Tensor of shape (batch, {self.features})")
        if x.ndim < 2 or math.prod(x.shape[1:]) != self.features:
            found = "no axis for a batch" if x.ndim < 2 else f"vectors of {math.prod(x.shape[1:])}"
            raise ValueError(
                f"x has shape {tuple(x.shape)}: {found}; pass a batch of shape (batch, {self.features}), or of images with as "
                "many entries, and one sample as x[None]"
            )
        check_dtype(x, self[-1].weight)
        return super().forward(x)
