"""What every activation of a monotone equilibrium network is: the proximal operator of a convex function."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from numbers import Real

import torch
from torch import Tensor

__all__ = ["Activation", "check_alpha"]


def check_alpha(alpha: float) -> float:
    """Return alpha as a Python float, or refuse it.

    Raises
    ------
    TypeError
        If alpha is not a number (a tensor is not: pass ``float(alpha)``).
    ValueError
        If alpha is not positive and finite.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise TypeError(f"alpha must be a Python float, not {type(alpha).__name__}: pass float(alpha)")
    alpha = float(alpha)
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha = {alpha}: the step of a proximal operator is positive and finite, for example 1.0")
    return alpha


def check_tensor(x: Tensor, owner: object, method: str = "") -> Tensor:
    """Return x, or raise TypeError if it is not a real floating-point tensor."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x
    what = f"{owner!r}{method}"
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} takes a tensor, not {type(x).__name__}: wrap it in torch.as_tensor")
    raise TypeError(f"{what} takes a real floating-point tensor, not {x.dtype}: convert it with x.float()")


class Activation(ABC):
    r"""An elementwise activation sigma = prox_f with f convex, closed and proper.

    A subclass says what sigma, its slope and prox_{alpha f} are. The public methods are final: they check their
    arguments and compute half-precision input in float32. Activations are immutable values: equal when their
    parameters are, hashable, picklable, and without state.

    Source: MON Theorem 1 and eq. 4; chapter 8 of the book shows which activations qualify.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """sigma(x) = prox_f(x), elementwise, of the shape and dtype of x."""
        return self._value(check_tensor(x, self))

    def prox(self, x: Tensor, alpha: float) -> Tensor:
        r"""prox_{alpha f}(x) = argmin_z 1/2 (x - z)^2 + alpha f(z), elementwise. Exactly sigma(x) for alpha = 1.

        Parameters
        ----------
        x : Tensor
            Any shape, real floating point.
        alpha : float
            Positive and finite, and at least ``tiny``, at most ``max * eps`` of the dtype computed in, which is float32
            for half precision (about 1e-38 to 4e31 in float32): beyond, alpha or its products are 0 or infinite there.

        Raises
        ------
        TypeError
            If x is not a floating-point tensor or alpha not a number.
        ValueError
            If alpha is not positive and finite, or out of the range of the dtype computed in.
        """
        alpha = check_alpha(alpha)
        _check_range(alpha, self._dtype(check_tensor(x, self, ".prox")))
        if alpha == 1:
            return self._value(x)
        return _widened(self._prox, x, alpha)

    def derivative(self, x: Tensor) -> Tensor:
        """The diagonal of the Clarke Jacobian of sigma at x, in [0, 1]; at a kink, the element autograd takes."""
        return _widened(self._derivative, check_tensor(x, self, ".derivative"))

    def prox_derivative(self, x: Tensor, alpha: float) -> Tensor:
        r"""The slope of prox_{alpha f} at x: 1/(1 + alpha D), where 1/(1 + D) is the slope of sigma at the same z.

        Takes the arguments of `prox` and raises its errors, those about the range of alpha included.
        """
        alpha = check_alpha(alpha)
        _check_range(alpha, self._dtype(check_tensor(x, self, ".prox_derivative")))
        if alpha == 1:
            return self.derivative(x)
        return _widened(self._prox_derivative, x, alpha)

    def potential(self, z: Tensor) -> Tensor:
        """f(z), elementwise, and +inf outside the domain of f.

        sigma determines f up to a constant. It is chosen so that f(0) = 0 where 0 lies in the domain; an indicator, as
        of `Clip`, whose domain may miss 0, is 0 on its domain.

        Raises
        ------
        NotImplementedError
            If the activation has no closed form of f.
        """
        return _widened(self._potential, check_tensor(z, self, ".potential"))

    def part(self, rows: slice, ndim: int) -> Activation:
        """The activation for some samples of a batch of states with `ndim` axes: itself, unless it differs among samples."""
        return self

    @abstractmethod
    def _value(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _prox(self, x: Tensor, alpha: float) -> Tensor: ...

    @abstractmethod
    def _derivative(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _prox_derivative(self, x: Tensor, alpha: float) -> Tensor: ...

    def _dtype(self, x: Tensor) -> torch.dtype:
        """What alpha must be representable in when x comes in."""
        return _wide(x.dtype)

    def _potential(self, z: Tensor) -> Tensor:
        raise NotImplementedError(f"{self!r} knows sigma, not a closed form of f")


def _wide(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, and any other dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _widened(function, x: Tensor, *args) -> Tensor:
    """function(x, *args), computed in float32 where x has half precision."""
    wide = _wide(x.dtype)
    return function(x, *args) if wide == x.dtype else function(x.to(wide), *args).to(x.dtype)


def _check_range(alpha: float, dtype: torch.dtype) -> None:
    """Refuse an alpha that rounds to 0 or infinity in dtype, or all but does: alpha / eps stays finite too."""
    info = torch.finfo(dtype)
    if not info.tiny <= alpha <= info.max * info.eps:
        raise ValueError(f"alpha = {alpha} is out of the range of {dtype}: use a step nearer to 1")
