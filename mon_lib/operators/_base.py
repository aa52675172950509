"""What every operator W with I - W >= mI offers, whatever its structure."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from .._numbers import check_number
from ._pieces import Memo, Resolvent, Stage

__all__ = [
    "FrozenOperator",
    "Memo",
    "MonotoneOperator",
    "Resolvent",
    "Stage",
    "all_finite",
    "check_monotonicity",
    "check_state",
    "check_step",
    "full_precision",
]


def full_precision(function):
    """The function with autocast off on every kind of device: a norm or an inverse in a short format certifies nothing."""

    @functools.wraps(function)
    def inner(*args, **kwargs):
        if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return inner


def all_finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite (this waits for a GPU)."""
    # One sum is much cheaper than a flag for each entry. It is not finite where an entry is not, and may overflow where all are.
    return bool(torch.isfinite(x.detach().sum())) or bool(torch.isfinite(x).all())


def check_step(alpha: float) -> float:
    """Return alpha as a float.

    Raises
    ------
    TypeError
        If alpha is not a number.
    ValueError
        If alpha is not a positive, finite number.
    """
    try:
        value = float(alpha.detach() if isinstance(alpha, Tensor) else alpha)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"alpha = {alpha!r} is not a number; pass a positive float, for instance alpha=1.0") from None
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(f"alpha = {alpha} is not a step size; it must be a positive, finite number, for instance alpha=1.0")
    return value


def check_monotonicity(m: float) -> float:
    """Return m as a float.

    Raises
    ------
    TypeError
        If m is no number.
    ValueError
        If m is not a positive, finite number.
    """
    value = float(check_number("m", m, "a positive strong monotonicity constant, such as 1.0"))
    if not (value > 0.0 and math.isfinite(value)):
        raise ValueError(
            f"m = {m} is not a strong monotonicity constant; it must be positive and finite, for instance m=1.0. "
            "With m <= 0 the equilibrium need not exist or be unique."
        )
    return value


def check_state(x: Tensor, state_shape: tuple[int, ...], dtype: torch.dtype, name: str) -> None:
    """Raise if `x` is not a batch of states.

    Raises
    ------
    TypeError
        If `x` is not a tensor of the operator's dtype.
    ValueError
        If the shape is not ``(batch, *state_shape)``.
    """
    if isinstance(x, Tensor) and x.shape[1:] == state_shape and x.ndim > len(state_shape) and x.dtype == dtype:
        return
    expected = "(batch, " + ", ".join(map(str, state_shape)) + ")"
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; pass a torch.Tensor of shape {expected}")
    if x.shape[1:] != torch.Size(state_shape) or x.ndim != len(state_shape) + 1:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, the operator acts on {expected}; "
            "add the batch dimension with unsqueeze(0) or change the operator's size"
        )
    if x.dtype != dtype:
        raise TypeError(f"{name} is {x.dtype}, the operator is {dtype}; convert one of them with .to({dtype})")


class Operator(ABC):
    """The interface shared by an operator, its transpose and its frozen copy."""

    state_shape: tuple[int, ...]
    m: float

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the weights."""

    @property
    @abstractmethod
    def T(self) -> Operator:
        """The transposed operator, on the same weights."""

    @abstractmethod
    def frozen(self) -> FrozenOperator:
        """The same operator with today's weights, outside the graph."""

    @property
    def state_size(self) -> int:
        """The number n of entries of one state."""
        return math.prod(self.state_shape)

    def lipschitz(self) -> float:
        """The Lipschitz constant L = ||I - W||_2 of z -> (I - W)z, exact to rounding."""
        return self.frozen().lipschitz()

    def forward_norm(self, alpha: float) -> float:
        """||I - alpha (I - W)||_2, the factor of a forward step (MON eq. 8), exact to rounding."""
        return self.frozen().forward_norm(alpha)

    def cayley_norm(self, alpha: float) -> float:
        """||C_alpha||_2 with C_alpha = 2 (I + alpha (I - W))^-1 - I (MON eq. A5), exact to rounding."""
        return self.frozen().cayley_norm(alpha)

    def monotonicity(self) -> float:
        """The smallest eigenvalue of the symmetric part of I - W; at least m, up to rounding of ||I - W|| times eps."""
        return self.frozen().monotonicity()

    def resolvent(self, alpha: float) -> Resolvent:
        """R(x) = (I + alpha (I - W))^-1 x at today's weights (MON eq. A6 without its shift).

        Parameters
        ----------
        alpha : float
            Positive step size.

        Returns
        -------
        Resolvent
            A callable on ``(batch, *state_shape)`` with a transpose ``.T``. It keeps today's weights: after an
            optimiser step ask for a new one.
        """
        return self.frozen().resolvent(alpha)

    def to_dense(self) -> Tensor:
        """W as a matrix of shape ``(n, n)``, acting on flattened states; differentiable in the weights."""
        n = self.state_size
        eye = torch.eye(n, dtype=self.dtype, device=self.device).reshape(n, *self.state_shape)
        return self(eye).reshape(n, n).T


class MonotoneOperator(Operator, nn.Module):
    """W with I - W >= mI at every value of its parameters (MON Proposition 1).

    A subclass sets `state_shape` and `m`, and implements `forward` (Wz, differentiable in z and the parameters),
    `transposed` (W'z, likewise) and `frozen`.
    """

    def __init__(self, state_shape: tuple[int, ...], m: float):
        nn.Module.__init__(self)
        self.state_shape = tuple(state_shape)
        self.m = check_monotonicity(m)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def T(self) -> Transpose:
        return Transpose(self)

    @abstractmethod
    def transposed(self, z: Tensor) -> Tensor:
        """W'z for z of shape ``(batch, *state_shape)``."""


class Transpose(Operator):
    """W' on the weights of W. Not a module: it owns nothing."""

    def __init__(self, operator: MonotoneOperator):
        self._operator = operator
        self.state_shape = operator.state_shape
        self.m = operator.m

    dtype = property(lambda self: self._operator.dtype)
    device = property(lambda self: self._operator.device)
    T = property(lambda self: self._operator)

    def __call__(self, z: Tensor) -> Tensor:
        return self._operator.transposed(z)

    def frozen(self) -> FrozenOperator:
        return self._operator.frozen().T


class FrozenOperator(Operator):
    """An operator whose weights no longer change; products and resolvents are precomputed and shared.

    The resolvents are memoised here and nowhere else: the cache dies with the weights it was computed from.
    """

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """Wz for z of shape ``(batch, *state_shape)``."""

    @abstractmethod
    def lipschitz_bound(self) -> float:
        """A cheap upper bound on `lipschitz`, for certificates."""

    def frozen(self) -> FrozenOperator:
        return self

    def stages(self) -> list[Stage]:
        """The diagonal blocks of a block bidiagonal W, in the order of substitution; none where W is no such operator."""
        return []
