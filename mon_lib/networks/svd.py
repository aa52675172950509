"""Layers in the form of a singular value decomposition, U diag(sigma) V'x; the orthogonal maps are passed as objects (REF 3.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import parametrizations

from ..reflections import AuxiliaryReflection
from ..reflections._checks import check_orthogonal, check_size, check_vectors

__all__ = ["Cayley", "MatrixExponential", "SVDClassifier", "SVDLayer", "UniformDraw"]


def _draw(parameter: Tensor, d: int) -> Tensor:
    """Fill from U(-1/sqrt(d), 1/sqrt(d)) (REF B.1)."""
    return nn.init.uniform_(parameter, -(d**-0.5), d**-0.5)


class _Formed(nn.Module, ABC):
    """x -> Qx with an orthogonal matrix Q that is formed from a free matrix, once for each batch (abstract).

    The map is that of :func:`torch.nn.utils.parametrizations.orthogonal`. It reads the free matrix below its diagonal, so
    about half of the d^2 parameters have no effect. They are drawn from U(-1/sqrt(d), 1/sqrt(d)) (REF B.1).
    """

    def __init__(self, d: int):
        super().__init__()
        self.d = check_size("d", d)
        self.map = self._map(nn.Linear(self.d, self.d, bias=False, device="meta")).parametrizations.weight[0]
        self.weight = nn.Parameter(_draw(torch.empty(self.d, self.d), self.d))

    @staticmethod
    @abstractmethod
    def _map(module: nn.Module) -> nn.Module:
        """PyTorch's parametrisation, registered on a module for its shape alone."""

    def to_dense(self) -> Tensor:
        """Q, shape ``(d, d)``."""
        return self.map(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Qx for x of shape ``(..., d)``; a wrong shape or dtype is an error that names it."""
        return linear(check_vectors("x", x, self.d), self.to_dense())

    def inverse(self, y: Tensor) -> Tensor:
        """Q'y for y of shape ``(..., d)``."""
        return linear(check_vectors("y", y, self.d), self.to_dense().mT)

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """x -> Qx with Q formed now, for use many times in one forward pass; gradients flow through it."""
        Q = self.to_dense()
        return lambda x: linear(check_vectors("x", x, self.d), Q)

    def extra_repr(self) -> str:
        return f"d={self.d}"


class Cayley(_Formed):
    """x -> Qx with Q = (I - A/2)^-1 (I + A/2) and A = L - L', L the part of `weight` below its diagonal.

    A rotation without the eigenvalue -1. Forming it takes one LU factorisation and d right-hand sides.

    Parameters
    ----------
    d : int
        Entries of x.

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer.
    """

    @classmethod
    def from_orthogonal(cls, U: Tensor) -> Cayley:
        """The map x -> Ux: its weight is the lower half of 2(U - I)(U + I)^-1.

        Raises
        ------
        TypeError, ValueError
            If U, of shape ``(d, d)``, is not orthogonal, or has an eigenvalue -1 to the rounding of its dtype.
        """
        U = check_orthogonal("U", U)
        made, eye = cls(U.shape[0]).to(U), torch.eye(U.shape[0], dtype=torch.float64, device=U.device)
        wide = U.double()
        if float(torch.linalg.svdvals(wide + eye)[-1]) < 16 * torch.finfo(U.dtype).eps ** 0.5:
            raise ValueError("U has an eigenvalue -1, where no Cayley transform exists; pass a rotation without half turns")
        with torch.no_grad():
            made.weight.copy_(2.0 * torch.linalg.solve(wide + eye, wide - eye, left=False).tril(-1))
        return made

    @staticmethod
    def _map(module: nn.Module) -> nn.Module:
        return parametrizations.orthogonal(module, orthogonal_map="cayley", use_trivialization=False)


class MatrixExponential(_Formed):
    """x -> Qx with Q = exp(A) and A = L - L', L the part of `weight` below its diagonal.

    Any rotation. Its gradient is an exponential of a matrix twice as large.

    Parameters
    ----------
    d : int
        Entries of x.

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer.
    """

    @staticmethod
    def _map(module: nn.Module) -> nn.Module:
        return parametrizations.orthogonal(module, orthogonal_map="matrix_exp", use_trivialization=False)


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
    >>> bool(UniformDraw(Cayley)(4).weight.abs().max() <= 0.5)
    True
    """

    def __init__(self, make: Callable[[int], nn.Module]):
        self.make = make

    def __call__(self, d: int) -> nn.Module:
        module = _make(self.make, d)
        for parameter in module.parameters():
            _draw(parameter, d)
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
        If a size is not a positive integer; if `orthogonal` makes no module.

    Examples
    --------
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
