"""All solutions of H(Wx)x = y, from one eigenproblem of size 2d + 1 (ledger NEW-DENS)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._frozen import FrozenReflection
from ._newton import newton_step, scaled

__all__ = ["preimages"]

SHIFTS = (0.37, -0.61, 1.43, -2.21)  # any number that is no root serves; the best conditioned of four is taken
LOOSE = 1e-3  # a root with a smaller imaginary part, relatively, may be a double real root split by rounding
SINGULAR = 1e-6  # relative size below which y may be in the range of a singular I - tW
POLISH = 12  # most Newton steps for a candidate
EXACT = 1e-10  # residual of a preimage
APART = 1e-6  # distance of two different ones


def preimages(f: FrozenReflection, y: Tensor) -> Tensor:
    """All x with f(x) = y.

    With t = 2c, f(x) = y says (I - tW)x = y, and f keeps lengths. Conversely (I - tW)x = y and ||x|| = ||y|| give
    t = 2c, unless t = 0. As ||x||^2 - ||y||^2 = (x + y)'(x - y) = t (x + y)'Wx, dividing by t leaves

        (I - tW)x = y,   (I - tW')w = Wx,   y'Wx + y'w = 0,

    the third because w'y = x'W'x. These are linear in (x, w, 1): t is an eigenvalue of a pencil of size 2d + 1.

    Three kinds of solution are no simple root, and are tried as well: x = y, where t = 0 or Wx = 0; a singular I - tW
    with y in its range, where x is determined up to a null vector, and that by its length; double roots, which rounding
    moves off the real axis. Every candidate is polished by Newton's method and kept only if f(x) = y.

    Parameters
    ----------
    f : FrozenReflection
        In float64, outside the graph.
    y : Tensor
        Shape ``(d,)``, float64, finite.

    Returns
    -------
    Tensor
        Shape ``(count, d)``, the one closest to y first.

    Raises
    ------
    ValueError
        If there is a continuum of them: an eigenspace of W of dimension two or more orthogonal to y.
    """
    length = y.norm()
    norm = torch.linalg.matrix_norm(f.W, 2)
    if length == 0 or norm == 0:
        return y.clone().unsqueeze(0)
    y, W = y / length, f.W / norm
    candidates = [y.unsqueeze(0), *_regular(W, y), *_singular(f, W, y)]
    x = torch.cat(candidates)
    size = torch.linalg.vector_norm(x, dim=1)
    x = x[torch.isfinite(size) & (size > 0)]
    target = y.expand_as(x)
    x, residual = scaled(f, x, target)
    for _ in range(POLISH):
        before = residual
        x, residual = newton_step(f, x, target)
        if bool((residual > 0.5 * before).all()):
            break
    x = x[residual <= EXACT]
    x = x[torch.argsort(x @ y, descending=True, stable=True)]
    found: list[Tensor] = []
    for one in x:
        if all((one - other).norm() > APART for other in found):
            found.append(one)
    return torch.stack(found) * length if found else x * length


def _regular(W: Tensor, y: Tensor) -> list[Tensor]:
    """x = (I - tW)^-1 y for the real roots t of the pencil N0 - tN1, by shift and invert: t = shift + 1/s."""
    d = len(y)
    eye, empty = torch.eye(d, dtype=W.dtype, device=W.device), torch.zeros_like(W)
    column, none = y.unsqueeze(1), torch.zeros_like(y).unsqueeze(1)
    N0 = torch.cat(
        [
            torch.cat([eye, empty, -column], 1),
            torch.cat([-W, eye, none], 1),
            torch.cat([(y @ W).unsqueeze(0), column.T, torch.zeros_like(column[:1])], 1),
        ]
    )
    N1 = torch.block_diag(W, W.T, torch.zeros_like(column[:1]))
    shifts = torch.tensor(SHIFTS, dtype=W.dtype, device=W.device)
    inverses, info = torch.linalg.inv_ex(N0 - shifts.view(-1, 1, 1) * N1)
    sizes = torch.where(info == 0, torch.linalg.matrix_norm(inverses).nan_to_num(nan=torch.inf), torch.inf)
    best = int(torch.argmin(sizes))
    s = torch.linalg.eigvals(inverses[best] @ N1)
    s = s[s.abs() > torch.finfo(W.dtype).eps * s.abs().max()]
    t = shifts[best] + 1.0 / s
    t = t.real[t.imag.abs() <= LOOSE * t.abs()]
    x, _ = torch.linalg.solve_ex(eye - t.view(-1, 1, 1) * W, y.expand(len(t), d))
    return [x]


def _singular(f: FrozenReflection, W: Tensor, y: Tensor) -> list[Tensor]:
    """The solutions with I - tW singular: t = 1/lambda for a real eigenvalue with a left eigenvector orthogonal to y."""
    eye = torch.eye(len(y), dtype=W.dtype, device=W.device)
    values, left = torch.linalg.eig(W.T)
    real = (values.imag.abs() <= SINGULAR * values.abs()) & (values.abs() > SINGULAR)
    orthogonal = (left.T @ y.to(left.dtype)).abs() <= SINGULAR
    found = []
    for value in values[real & orthogonal].real:
        P, S, Qh = torch.linalg.svd(eye - W / value)
        null = SINGULAR * S[0] >= S
        if not bool(null.any()) or (P[:, null].T @ y).norm() > SINGULAR:
            continue
        part = Qh[~null].T @ ((P[:, ~null].T @ y) / S[~null])
        rest = 1.0 - float(part @ part)
        if rest < -SINGULAR:
            continue
        step = max(rest, 0.0) ** 0.5 * Qh[null]
        ends = torch.cat([part + step, part - step])
        if len(step) > 1 and rest > SINGULAR and float(scaled(f, ends, y.expand_as(ends))[1].max()) <= EXACT:
            raise ValueError(
                f"y has infinitely many preimages: an eigenspace of W of dimension {len(step)} is orthogonal to it, and x "
                "may turn in it. Move W or y a little, or use inverse(y) for one of them."
            )
        found.append(ends)
    return found
