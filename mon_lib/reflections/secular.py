"""The inverse of f(x) = H(Wx)x for symmetric definite W with condition number below 2: one scalar equation, or a damped loop.

With c = x'Wx/||Wx||^2, y = f(x) = (I - 2cW)x. So x = (I - 2cW)^-1 y, and all that is unknown is the number c: the one root, between
1/lambda_max and 1/lambda_min, of ||(I - 2cW)^-1 y|| = ||y|| (ledger NEW-SEC). The loop is the forward step on -f (ledger NEW-FB).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._numbers import check_number, check_size
from ..errors import ConvergenceError
from ..operators._base import all_finite
from ._checks import check_axis, check_finite, check_vectors

__all__ = ["Damped", "DampedInverse", "Secular", "along", "secular_preimage", "solve_secular"]

MAX_STEPS = 60  # up to 8 for condition numbers up to 1.99; the hardest targets known take 25 at 2 - 1e-12, and 32 where doubles end


class Secular(NamedTuple):
    """The root c of each target and the Newton steps that it took, both of shape ``(...)``: that of y without its vectors' axis."""

    c: Tensor
    steps: Tensor


def along(values: Tensor, ndim: int, dim: int) -> Tensor:
    """A vector of d numbers, shaped so that it broadcasts along axis ``dim`` of a tensor with ``ndim`` axes."""
    return values.view(-1, *([1] * (ndim - 1 - dim % ndim)))


@torch.no_grad()
def solve_secular(eigenvalues: Tensor, y: Tensor, dim: int = -1, max_steps: int = MAX_STEPS) -> Secular:
    """The c with ||(I - 2cW)^-1 y|| = ||y|| between 1/lambda_max and 1/lambda_min, for a symmetric W (ledger NEW-SEC).

    Outside the graph. Where y = 0 every c would do; the largest of the interval is returned.

    Parameters
    ----------
    eigenvalues : Tensor
        Of W, shape ``(d,)``, in any order, all of one sign, the largest modulus below twice the smallest.
    y : Tensor
        Coordinates of the targets in the eigenbasis of W, in the order of the eigenvalues, d along axis ``dim``.
    dim : int
        The axis of the vectors.
    max_steps : int
        Most Newton steps.

    Returns
    -------
    Secular
        c and steps.

    Raises
    ------
    TypeError, ValueError
        If the shapes or dtypes do not fit, if dim or max_steps is no integer, if an entry is not finite, or if W is
        not definite with a condition number below 2.
    ConvergenceError
        If a target is not solved within the steps allowed.

    Examples
    --------
    >>> solve_secular(torch.tensor([1.0, 1.5]), torch.tensor([0.0, -2.0])).c
    tensor(0.6667)
    """
    dim, max_steps = check_axis(dim), check_size("max_steps", max_steps, 0)
    check_vectors("eigenvalues", eigenvalues)
    if eigenvalues.ndim != 1:
        raise ValueError(f"eigenvalues has shape {tuple(eigenvalues.shape)}; pass the eigenvalues of one W, shape (d,)")
    check_finite("y", check_vectors("y", y, len(eigenvalues), dim))
    check_finite("eigenvalues", eigenvalues)
    if y.dtype != eigenvalues.dtype:
        raise TypeError(f"y is {y.dtype}, eigenvalues {eigenvalues.dtype}; convert one of them with .to({y.dtype})")
    low, high = eigenvalues.min(), eigenvalues.max()
    smallest = low if low > 0 else high
    if not (float(low) > 0 or float(high) < 0) or not float(torch.maximum(low / smallest, high / smallest)) < 2:
        raise ValueError(
            f"the eigenvalues run from {float(low):.6g} to {float(high):.6g}; they must have one sign and a ratio below 2, "
            "else f can have several preimages (AuxiliaryReflection.preimages finds them all)"
        )
    excess = (eigenvalues - smallest) / smallest
    _, r, steps = secular_preimage(excess, y, dim, max_steps)
    return Secular(((1 + r) / (2 * smallest)).squeeze(dim), steps.squeeze(dim))


@torch.no_grad()
def secular_preimage(excess: Tensor, y: Tensor, dim: int = -1, max_steps: int = MAX_STEPS) -> tuple[Tensor, Tensor, Tensor]:
    """The preimages themselves, with everything in the eigenbasis of W.

    With delta_i = lambda_i/lambda_min - 1 and the unknown r = 2 c lambda_min - 1, the denominators 2 c lambda_i - 1 are
    r (1 + delta_i) + delta_i: sums of non-negative numbers, which lose no digits however close the condition number is to 2.
    1/||x(r)|| is increasing and concave, so Newton's method climbs from a lower bound of the root to the root and never passes it.
    Two lower bounds: (2 - kappa)/kappa, and for each i the r at which the one entry x_i would be as long as y.

    Parameters
    ----------
    excess : Tensor
        delta, shape ``(d,)``, the smallest 0 and the largest below 1.
    y, dim, max_steps
        As for `solve_secular`; not checked.

    Returns
    -------
    x, r, steps : Tensor
        Coordinates of the preimages, shape of y; root and steps with one entry along axis ``dim``.
    """
    eps = torch.finfo(y.dtype).eps
    top = float(excess.max())
    low, delta = (1.0 - top) / (1.0 + top), along(excess, y.ndim, dim)
    largest = y.abs().amax(dim, keepdim=True)
    zero = largest == 0
    size = (y / largest.masked_fill(zero, 1)).abs_()
    size.div_(size.square().sum(dim, keepdim=True).sqrt_().masked_fill_(zero, 1))  # |y|/||y||, also where ||y||^2 overflows
    r = ((size * (1 - 4 * eps) - delta * (1 + 4 * eps)) / (1 + delta)).amax(dim, keepdim=True)
    r = r.clamp_(low, 1.0).masked_fill_(zero, 1)
    pole, weight = delta / (1 + delta), size.div_(1 + delta).square_()
    steps = torch.zeros_like(r, dtype=torch.int64)
    for step in range(max_steps + 1):
        q = torch.add(pole, r).reciprocal_()
        terms = q.square().mul_(weight)
        square = terms.sum(dim, keepdim=True)  # ||x||^2/||y||^2
        over = square.sqrt() - 1
        rest = (over.abs() > 8 * eps) & ~zero
        if (step % 2 == 0 or step == max_steps) and not bool(rest.any()):  # a look at the device every other step
            break
        move = square * over / terms.mul_(q).sum(dim, keepdim=True)
        r = torch.where(rest, (r + move).clamp_(low, 1.0), r)
        steps += rest
    else:
        raise ConvergenceError(
            f"the secular equation of {int(rest.sum())} of {rest.numel()} targets is not solved after {max_steps} steps; "
            "allow more steps, or use float64"
        )
    return y / -(r * (1 + delta) + delta), r, steps


class Damped(NamedTuple):
    """Preimages, shape of y, and the steps that each took, shape ``(...)``."""

    x: Tensor
    steps: Tensor


class DampedInverse:
    """x <- x + t (f(x) - y): the forward step on the strongly monotone operator x -> y - f(x) (ledger NEW-FB).

    For W = W' with condition number at most kappa < 2, every step shrinks the distance to the preimage by the factor `rate`, and
    ||f(x) - y|| / m with m = 2/kappa - 1 bounds that distance. Both constants are attained, so neither can be improved.

    f(sx) = s f(x), so every target is solved at the scale where its largest entry is 1: no norm overflows or vanishes.

    Parameters
    ----------
    kappa : float
        A bound on the condition number, at least 1 and below 2.
    t : float, optional
        The step, positive and below 2/(2 kappa - 1); kappa/(kappa^2 - kappa + 1), which has the least factor, where not given.
    tol : float
        The error allowed, relative to ||y|| = ||x||.
    max_steps : int
        Most evaluations of f, one more than the steps. Twice what tol takes in exact arithmetic is never exceeded: beyond it
        rounding keeps the residual up, or kappa is no bound.

    Attributes
    ----------
    m, rate : float
        2/kappa - 1 and max(1 - tm, t (2 kappa - 1) - 1).

    Raises
    ------
    TypeError, ValueError
        If kappa, t, tol or max_steps is no number, or out of range.
    """

    def __init__(self, kappa: float, t: float | None = None, *, tol: float = 1e-4, max_steps: int = 100_000):
        if not 1.0 <= check_number("kappa", kappa, "1 <= kappa < 2") < 2.0:
            raise ValueError(f"kappa = {kappa!r} is out of range; f is strongly monotone up to sign for 1 <= kappa < 2 only")
        self.kappa = kappa = float(kappa)
        self.m, lipschitz = 2.0 / kappa - 1.0, 2.0 * kappa - 1.0
        best = kappa / (kappa * kappa - kappa + 1.0)
        self.t = best if t is None else float(check_number("t", t, f"0 < t < {2.0 / lipschitz:.4g}"))
        if not 0.0 < self.t < 2.0 / lipschitz:
            raise ValueError(f"t = {t!r} does not contract at kappa = {kappa}; choose 0 < t < {2.0 / lipschitz:.4g}")
        if not (check_number("tol", tol, "a relative error, such as 1e-4") > 0.0 and math.isfinite(tol)):
            raise ValueError(f"tol = {tol!r} must be positive and finite; pass a relative error, such as 1e-4")
        self.rate = max(1.0 - self.t * self.m, self.t * lipschitz - 1.0)
        self.tol, self.max_steps = float(tol), check_size("max_steps", max_steps)
        # From -y, at most 2||y|| away, ||f(x) - y|| is at most 2 lipschitz rate^k ||y|| after k steps.
        share = min(self.m * self.tol / (2.0 * lipschitz), 1.0)
        exact = math.log(share) / math.log(self.rate) if self.rate > 0.0 and share > 0.0 else 1.0
        self._limit = min(self.max_steps, 2 * math.ceil(exact) + 2)

    @torch.no_grad()
    def __call__(self, f: Callable[[Tensor], Tensor], y: Tensor, dim: int = -1) -> Damped:
        """The preimages of y, outside the graph; d along axis ``dim``.

        Raises
        ------
        TypeError, ValueError
            If y does not hold finite vectors, if its dtype is too coarse for tol, or if f returns what is not finite.
        ConvergenceError
            If a bound on an error is above tol after the steps allowed.
        """
        dim = check_axis(dim)
        check_finite("y", check_vectors("y", y, None, dim))
        eps = torch.finfo(y.dtype).eps
        if self.m * self.tol < eps:
            within = 10 * eps / (self.m * min(self.t, 1.0))
            raise ValueError(
                f"tol = {self.tol:.3g} is out of reach in {y.dtype}: at kappa = {self.kappa} it asks for a residual of "
                f"{self.m * self.tol:.3g}, and f is rounded by {eps:.3g}; pass tol of {within:.3g} or more"
                + ("" if y.dtype == torch.float64 else ", or y (and f) in float64")
            )
        largest = y.abs().amax(dim, keepdim=True)
        largest = largest.masked_fill(largest == 0, 1)
        y = y / largest
        size = y.norm(dim=dim, keepdim=True)
        x, steps = -y, torch.zeros_like(size, dtype=torch.int64)
        for _ in range(self._limit):
            move = f(x) - y
            if not all_finite(move):
                raise ValueError("f gave a NaN or an infinite entry for a finite x; find where it comes from")
            rest = ~(move.norm(dim=dim, keepdim=True) <= self.m * self.tol * size)
            if not bool(rest.any()):
                return Damped(x * largest, steps.squeeze(dim))
            x = torch.where(rest, x + self.t * move, x)
            steps += rest
        remedy = "allow more steps or a larger tol"
        if self._limit < self.max_steps:
            finer = "" if y.dtype == torch.float64 else "float64 or "
            remedy = f"more do not help against rounding in {y.dtype}: use {finer}a larger tol"
        raise ConvergenceError(
            f"{int(rest.sum())} of {rest.numel()} targets are not solved to tol = {self.tol} after {self._limit} steps of "
            f"factor {self.rate:.6g}; {remedy}, and check that W has condition number <= {self.kappa}"
        )
