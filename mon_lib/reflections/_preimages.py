"""All solutions of H(Wx)x = y, from one eigenproblem of size 2d + 1 (ledger NEW-DENS)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._frozen import FrozenReflection, newton_step, scaled

__all__ = ["directions", "preimages"]

SHIFTS = (0.37, -0.61, 1.43, -2.21)  # any number that is no root serves; the best conditioned of four is taken
LOOSE = 1e-3  # a root with a smaller imaginary part, relatively, may be a double real root split by rounding
SINGULAR = 1e-6  # relative size below which y may be in the range of a singular I - tW
POLISH = 12  # most Newton steps for a candidate
EXACT = 1e-10  # residual of a preimage
APART = 1e-6  # distance of two different ones
CHUNK_BYTES = 1 << 26  # most memory for the pencils of the samples that are solved at once


def directions(y: Tensor) -> tuple[Tensor, Tensor]:
    """y/||y||, zero where y is, and ||y||, shape ``(N, 1)``, for each row; no square leaves the range."""
    largest = y.abs().amax(1, keepdim=True)
    y = torch.where(largest > 0, y / largest, 0.0)
    length = torch.linalg.vector_norm(y, dim=1, keepdim=True)
    return torch.where(largest > 0, y / length, 0.0), largest * length


def preimages(f: FrozenReflection, y: Tensor, every: bool = True, rough: float = 0.0) -> list[Tensor]:
    """All x with f(x) = y, for each row of y.

    With t = 2c, f(x) = y says (I - tW)x = y, and f keeps lengths. Conversely (I - tW)x = y and ||x|| = ||y|| give
    t = 2c, unless t = 0. As ||x||^2 - ||y||^2 = (x + y)'(x - y) = t (x + y)'Wx, dividing by t leaves

        (I - tW)x = y,   (I - tW')w = Wx,   y'Wx + y'w = 0,

    the third because w'y = x'W'x. These are linear in (x, w, 1): t is an eigenvalue of a pencil of size 2d + 1.

    Four kinds of solution are no simple root, and are tried as well: x = y, where t = 0 or Wx = 0; (I - W)x = y, where Wx
    is noise; a singular I - tW with y in its range, where x is determined up to a null vector, and that by its length;
    double roots, which rounding moves off the real axis. Every candidate is polished by Newton's method and kept only if f(x) = y.

    Parameters
    ----------
    f : FrozenReflection
        In float64, outside the graph, in range.
    y : Tensor
        Shape ``(N, d)``, float64, finite.
    every : bool
        Whether a continuum of preimages is an error; else some of it are returned.
    rough : float
        Relative residual of a candidate that serves where y has no preimage: f jumps where Wx becomes noise.

    Returns
    -------
    list of Tensor
        N times shape ``(count, d)``, the one closest to y first.

    Raises
    ------
    ValueError
        If there is a continuum of them: an eigenspace of W of dimension two or more orthogonal to y.
    """
    d = y.shape[1]
    norm = torch.linalg.matrix_norm(f.W, 2)
    if norm == 0:
        return list(y.clone().unsqueeze(1))
    W = f.W / norm
    values, left = torch.linalg.eig(W.T)
    real = (values.imag.abs() <= SINGULAR * values.abs()) & (values.abs() > SINGULAR)
    values, left = values[real].real, left[:, real]
    chunk = max(1, CHUNK_BYTES // (8 * len(SHIFTS) * (2 * d + 1) ** 2))
    found: list[Tensor] = []
    for part in y.split(chunk):
        unit, length = directions(part)
        solvable = (length.squeeze(1) > 0).nonzero().squeeze(1)  # the pencil of y = 0 is singular, and x = 0
        of, x = _regular(W, unit[solvable])
        of = solvable[of]
        extra = [
            (k, ends)
            for k, j in ((unit.to(left.dtype) @ left).abs() <= SINGULAR).nonzero().tolist()
            if length[k] > 0 and len(ends := _singular(f, W, unit[k], values[j], every))
        ]
        each = torch.arange(len(part), device=y.device)
        still, _ = torch.linalg.solve_ex(torch.eye(d, dtype=W.dtype, device=W.device) - f.W, unit.T)
        of = torch.cat([each, each, of, *(of.new_full((len(ends),), k) for k, ends in extra)])
        x = torch.cat([unit, still.T, x, *(ends for _, ends in extra)])
        of, x = _polish(f, unit, of, x, rough)
        for k in range(len(part)):
            found.append(_different(x[of == k], unit[k]) * length[k] if length[k] > 0 else part[k : k + 1].clone())
    return found


def _regular(W: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x = (I - tW)^-1 y for the real roots t of the pencils N0 - tN1, and the sample of each.

    By shift and invert: t = shift + 1/s for the eigenvalues s of (N0 - shift N1)^-1 N1.
    """
    N, d = y.shape
    eye, one = torch.eye(d, dtype=W.dtype, device=W.device), y.new_zeros(1, 1)
    N1 = torch.block_diag(W, W.T, one)
    N0 = torch.block_diag(eye, eye, one).repeat(N, 1, 1)
    N0[:, d:-1, :d] = -W
    N0[:, :d, -1] = -y
    N0[:, -1, :d] = y @ W
    N0[:, -1, d:-1] = y
    shifts = torch.tensor(SHIFTS, dtype=W.dtype, device=W.device)
    inverses, info = torch.linalg.inv_ex(N0 - shifts.view(-1, 1, 1, 1) * N1)
    sizes = torch.where(info == 0, torch.linalg.matrix_norm(inverses).nan_to_num(nan=torch.inf), torch.inf)
    best = torch.argmin(sizes, 0)
    rows = torch.arange(N, device=y.device)
    turned = inverses[best, rows] @ N1
    regular = torch.isfinite(sizes[best, rows]) & torch.isfinite(turned).flatten(1).all(1)
    s = torch.linalg.eigvals(torch.where(regular.view(-1, 1, 1), turned, 0.0))  # LAPACK writes to stderr about a NaN
    t = shifts[best].unsqueeze(1) + 1.0 / s
    finite = s.abs() > torch.finfo(W.dtype).eps * s.abs().amax(1, keepdim=True)
    of, root = (finite & (t.imag.abs() <= LOOSE * t.abs())).nonzero().unbind(1)
    t = t.real[of, root].view(-1, 1, 1)
    step = max(1, CHUNK_BYTES // (8 * d * d))
    parts = [torch.linalg.solve_ex(eye - a * W, b)[0] for a, b in zip(t.split(step), y[of].split(step), strict=True)]
    return of, torch.cat(parts)


def _singular(f: FrozenReflection, W: Tensor, y: Tensor, value: Tensor, every: bool) -> Tensor:
    """The solutions with t = 1/value, for an eigenvalue of W with a left eigenvector orthogonal to y."""
    P, S, Qh = torch.linalg.svd(torch.eye(len(y), dtype=W.dtype, device=W.device) - W / value)
    null = SINGULAR * S[0] >= S
    if not bool(null.any()) or (P[:, null].T @ y).norm() > SINGULAR:
        return y[None][:0]
    part = Qh[~null].T @ ((P[:, ~null].T @ y) / S[~null])
    rest = 1.0 - float(part @ part)
    if rest < -SINGULAR:
        return y[None][:0]
    step = max(rest, 0.0) ** 0.5 * Qh[null]
    ends = torch.cat([part + step, part - step])
    if every and len(step) > 1 and rest > SINGULAR and float(scaled(f, ends, y.expand_as(ends))[1].max()) <= EXACT:
        raise ValueError(
            f"y has infinitely many preimages: an eigenspace of W of dimension {len(step)} is orthogonal to it, and x "
            "may turn in it. Move W or y a little, or use inverse(y) for one of them."
        )
    return ends


def _polish(f: FrozenReflection, y: Tensor, of: Tensor, x: Tensor, rough: float) -> tuple[Tensor, Tensor]:
    """The candidates x for the rows ``of`` of y that are preimages, after a few Newton steps."""
    size = torch.linalg.vector_norm(x, dim=1)
    usable = torch.isfinite(size) & (size > 0)
    of, x = of[usable], x[usable]
    step = max(1, CHUNK_BYTES // (8 * x.shape[1] ** 2))
    kept = []
    for target, part in zip(y[of].split(step), x.split(step), strict=True):
        part, residual = scaled(f, part, target)
        for _ in range(POLISH):
            before = residual
            part, residual = newton_step(f, part, target)
            if bool((residual > 0.5 * before).all()):
                break
        kept.append((part, residual))
    residual = torch.cat([left for _, left in kept])
    smallest = residual.new_full((len(y),), torch.inf).scatter_reduce(0, of, residual, "amin")[of]
    good = (residual <= EXACT) | ((residual == smallest) & (residual <= rough))
    return of[good], torch.cat([part for part, _ in kept])[good]


def _different(x: Tensor, y: Tensor) -> Tensor:
    """Each point once, the closest to y first."""
    x = x[torch.argsort(x @ y, descending=True, stable=True)]
    near = (torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") <= APART).tril(-1)
    return x[~near.any(1)]
