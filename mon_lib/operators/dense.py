"""The dense operator W = (1-m)I - A'A + B - B' (MON Proposition 1, section 4.1, appendix D.2)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .._numbers import whole
from ..errors import NotMonotoneError
from ._base import FrozenOperator, Memo, MonotoneOperator, Resolvent, check_monotonicity, check_state, check_step, full_precision
from ._norms import inverse, unit

__all__ = ["Dense", "FrozenDense"]


class Dense(MonotoneOperator):
    """W z for vectors z, with I - W >= mI at every value of the parameters.

    ``normalised=False``: W = (1-m)I - A'A + B - B' (MON eq. 5).
    ``normalised=True``: W = (1-m)I - g A'A/||A||^2 + h (B - B')/||B|| with Frobenius norms (MON D.2). The paper learns
    g freely, and a negative g breaks Proposition 1; here g = softplus(g_raw) is never negative.

    Parameters
    ----------
    n : int
        Number of hidden units.
    m : float
        Strong monotonicity constant of I - W, positive.
    normalised : bool
        Whether the weights are normalised as in appendix D.2.
    dtype, device
        Of the parameters.

    Attributes
    ----------
    A, B : Parameter
        Shape ``(n, n)``.
    g_raw, h : Parameter
        Scalars, only where normalised.

    Raises
    ------
    ValueError
        If n < 1 or m <= 0.
    """

    def __init__(self, n: int, m: float = 1.0, *, normalised: bool = True, dtype=None, device=None):
        if (whole(n) or 0) < 1:
            raise ValueError(f"n = {n!r} is not a number of hidden units; it must be a positive integer")
        super().__init__((int(n),), m)
        n = int(n)
        # torch.nn.Linear's own initial distribution: uniform of variance 1/(3n), so ||A'A|| and ||B - B'|| are about 1.
        bound = 1.0 / math.sqrt(n)
        self.A = nn.Parameter(torch.empty(n, n, dtype=dtype, device=device).uniform_(-bound, bound))
        self.B = nn.Parameter(torch.empty(n, n, dtype=dtype, device=device).uniform_(-bound, bound))
        self.normalised = bool(normalised)
        if self.normalised:
            # Start at the same W as without normalisation: g = ||A||^2 and h = ||B||.
            g = self.A.detach().square().sum()
            self.g_raw = nn.Parameter(g + torch.log(-torch.expm1(-g)))
            self.h = nn.Parameter(self.B.detach().norm())

    @classmethod
    def from_matrix(cls, W: Tensor, m: float) -> Dense:
        """The parameters of a given W (the converse half of MON Proposition 1, constructively).

        A is the symmetric square root of (1-m)I - (W + W')/2 and B = W/2, since B - B' is then the skew part of W.

        Parameters
        ----------
        W : Tensor
            Shape ``(n, n)``, real floating point.
        m : float
            Positive constant with I - W >= mI.

        Raises
        ------
        NotMonotoneError
            If the smallest eigenvalue of I - (W + W')/2 lies below m by more than rounding.
        ValueError, TypeError
            If W is not a finite, square, floating-point matrix or m <= 0.
        """
        m = check_monotonicity(m)
        if not isinstance(W, Tensor) or not W.dtype.is_floating_point:
            raise TypeError(f"W is {getattr(W, 'dtype', type(W).__name__)}; pass a floating-point torch.Tensor")
        if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
            raise ValueError(f"W has shape {tuple(W.shape)}; it must be square, (n, n)")
        W = W.detach()
        if not bool(torch.isfinite(W).all()):
            raise ValueError("W has a NaN or an infinite entry; replace it before asking for A and B")
        n = W.shape[0]
        eye = torch.eye(n, dtype=W.dtype, device=W.device)
        values, vectors = torch.linalg.eigh((1.0 - m) * eye - 0.5 * (W + W.T))
        # What rounding the entries of W and the eigenvalue solver can do to an eigenvalue; more is a refusal.
        slack = 4 * n**0.5 * torch.finfo(W.dtype).eps * (float(values.abs().max()) + float(W.abs().max()) + m)
        if float(values[0]) < -slack:
            smallest = float(values[0]) + m
            safe, shift = smallest - 1e-5 * abs(smallest), (m - smallest) * (1.0 + 1e-5)  # still true once printed
            raise NotMonotoneError(
                f"I - W >= mI fails: the smallest eigenvalue of I - (W + W')/2 is {smallest:.6g}, below m = {m:.6g}. "
                + (f"Use m <= {safe:.6g}, or " if smallest > 0 else "No m > 0 is possible: ")
                + f"subtract a multiple of the identity from W (at least {shift:.6g})."
            )
        operator = cls(n, m, normalised=False, dtype=W.dtype, device=W.device)
        with torch.no_grad():
            operator.A.copy_((vectors * values.clamp_min(0.0).sqrt()) @ vectors.T)
            operator.B.copy_(0.5 * W)
        return operator

    @property
    def g(self) -> Tensor:
        """The positive factor of A'A/||A||^2 (only where normalised)."""
        return softplus(self.g_raw)

    @full_precision
    def to_dense(self) -> Tensor:
        eye = torch.eye(self.A.shape[0], dtype=self.A.dtype, device=self.A.device)
        A, B, g, h = self.A, self.B, 1.0, 1.0
        if self.normalised:
            A, B, g, h = unit(A), unit(B), self.g, self.h
        gram, skew = g * (A.T @ A), h * (B - B.T)
        return (1.0 - self.m) * eye - gram + skew

    @full_precision
    def forward(self, z: Tensor) -> Tensor:
        """W z, shape ``(batch, n)``, differentiable in z and the parameters."""
        check_state(z, self.state_shape, self.dtype, "z")
        return z @ self.to_dense().T

    @full_precision
    def transposed(self, z: Tensor) -> Tensor:
        """W' z, shape ``(batch, n)``."""
        check_state(z, self.state_shape, self.dtype, "z")
        return z @ self.to_dense()

    @full_precision
    def frozen(self) -> FrozenDense:
        with torch.no_grad():
            return FrozenDense(self.to_dense().detach(), self.m)

    def extra_repr(self) -> str:
        return f"n={self.state_shape[0]}, m={self.m}, normalised={self.normalised}"


class FrozenDense(FrozenOperator):
    """W as one matrix that no longer changes.

    Parameters
    ----------
    W : Tensor
        Shape ``(n, n)``.
    m : float
        A constant with I - W >= mI; taken at its word (use `Dense.from_matrix` to have it checked).
    """

    def __init__(self, W: Tensor, m: float, _transpose: FrozenDense | None = None):
        self.matrix, self.m, self.state_shape = W, m, (W.shape[0],)
        # A transposed pair shares one cache of inverses: the backward pass reuses the forward pass's.
        self._inverses: Memo = Memo() if _transpose is None else _transpose._inverses
        self._bound = None if _transpose is None else _transpose._bound
        self._flipped = _transpose is not None and not _transpose._flipped
        self._transpose = _transpose

    dtype = property(lambda self: self.matrix.dtype)
    device = property(lambda self: self.matrix.device)

    @property
    def T(self) -> FrozenDense:
        return self._transpose if self._transpose is not None else FrozenDense(self.matrix.T, self.m, self)

    @full_precision
    def __call__(self, z: Tensor) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        return z @ self.matrix.T

    def to_dense(self) -> Tensor:
        return self.matrix.clone()

    def _shifted(self, alpha: float) -> Tensor:
        """I + alpha (I - W)."""
        eye = torch.eye(self.matrix.shape[0], dtype=self.dtype, device=self.device)
        return (1.0 + alpha) * eye - alpha * self.matrix

    @full_precision
    def _inverse(self, alpha: float) -> Tensor:
        """(I + alpha (I - W))^-1, computed once for each alpha and shared with the transpose."""

        def invert():
            found = inverse(self._shifted(alpha))
            return found.T if self._flipped else found

        kept = self._inverses.get(alpha, invert)
        return kept.T if self._flipped else kept

    def resolvent(self, alpha: float) -> Resolvent:
        alpha = check_step(alpha)
        matrix = self._inverse(alpha)
        check = partial(check_state, state_shape=self.state_shape, dtype=self.dtype, name="x")
        return Resolvent(alpha, full_precision(lambda x: x @ matrix.T), full_precision(lambda x: x @ matrix), check)

    def lipschitz(self) -> float:
        eye = torch.eye(self.matrix.shape[0], dtype=self.dtype, device=self.device)
        return _two_norm(eye - self.matrix)

    @full_precision
    def lipschitz_bound(self) -> float:
        """An upper bound on L within a factor n^(1/32): ||G||_2 = rho(M)^(1/2) <= ||M^8||_F^(1/16) for M = G'G.

        Four products instead of a singular value decomposition, which would cost more than the solve it serves.
        """
        if self._bound is None:
            G = torch.eye(self.matrix.shape[0], dtype=self.dtype, device=self.device) - self.matrix
            gram = G.T @ G
            scale = gram.norm()  # keeps the powers from overflowing
            power = gram / scale.clamp_min(torch.finfo(self.dtype).tiny)
            for _ in range(3):
                power = power @ power
            self._bound = float((scale * power.norm() ** 0.125).sqrt()) * (1.0 + 1e3 * torch.finfo(self.dtype).eps)
        return self._bound

    def forward_norm(self, alpha: float) -> float:
        return _two_norm(self._shifted(-check_step(alpha)))

    def cayley_norm(self, alpha: float) -> float:
        eye = torch.eye(self.matrix.shape[0], dtype=self.dtype, device=self.device)
        return _two_norm(2.0 * self._inverse(check_step(alpha)) - eye)

    def monotonicity(self) -> float:
        eye = torch.eye(self.matrix.shape[0], dtype=self.dtype, device=self.device)
        return float(torch.linalg.eigvalsh(eye - 0.5 * (self.matrix + self.matrix.T))[0])


def _two_norm(M: Tensor) -> float:
    """||M||_2, infinite where an entry is NaN or infinite."""
    return float(torch.linalg.matrix_norm(M, ord=2)) if bool(torch.isfinite(M).all()) else math.inf
