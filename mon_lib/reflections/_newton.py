"""Newton's method for H(Wx)x = y, with a line search and restarts (REF A.2.1 has neither)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConvergenceError
from ._checks import check_size
from ._frozen import FrozenReflection

__all__ = ["Newton", "newton_step", "scaled"]

CHUNK_BYTES = 1 << 26  # most memory for the Jacobians that are factored at once
FRACTIONS = 8  # the line search tries 1, 1/2, ..., 2^-7 of a step
STARTS = 64  # points of each kind from which the closest is taken after a stall
STALLED = 0.9  # a step that leaves more of the residual than this leads nowhere


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


@dataclass(frozen=True)
class Newton:
    """Newton's method, started at y or -y, whichever is closer, and at other points where it stalls.

    It returns one preimage. Where there are several, which one depends on W and on the start, and a good residual is no
    sign that there is only one (ledger NEW-DENS); `AuxiliaryReflection.preimages` returns all. Every sample is solved on
    its own, in float64, and the starts are the same in every call.

    There is always one if W is invertible: f(-x) = -f(x), so f has odd degree on the sphere (Borsuk) and covers it.

    Parameters
    ----------
    tol : float, optional
        Largest ||f(x) - y||/||y||. Where not given, 16 sqrt(d) eps of the dtype of y.
    max_steps : int
        Most steps for a sample, one factorisation of a d x d matrix each, over all its starts.

    Raises
    ------
    TypeError, ValueError
        If tol is not positive or max_steps no positive integer.
    """

    tol: float | None = None
    max_steps: int = 50

    def __post_init__(self):
        if self.tol is not None and not 0.0 < self.tol < math.inf:
            raise ValueError(f"tol = {self.tol} must be positive and finite, for instance 1e-6; None follows the dtype")
        check_size("max_steps", self.max_steps)

    def solve(self, f: FrozenReflection, y: Tensor, eps: float) -> Tensor:
        """A preimage of each row.

        Parameters
        ----------
        f : FrozenReflection
            In float64, outside the graph.
        y : Tensor
            Shape ``(N, d)``, float64, finite.
        eps : float
            Of the dtype in which y was given.

        Raises
        ------
        ConvergenceError
            If a sample does not reach tol.
        """
        d = y.shape[1]
        tol = 16.0 * math.sqrt(d) * eps if self.tol is None else self.tol
        length = torch.linalg.vector_norm(y, dim=1, keepdim=True)
        y = torch.where(length > 0, y / length.clamp_min(torch.finfo(y.dtype).tiny), 0.0)
        x = y.clone()  # zero rows stay zero
        chunk = max(1, CHUNK_BYTES // (d * d * y.element_size()))
        left = [part for part in (length.squeeze(1) > 0).nonzero().squeeze(1).split(chunk) if len(part)]
        failed, worst = 0, 0.0
        for part in left:
            x[part], residual = self._solve(f, y[part], tol)
            failed += int((residual > tol).sum())
            worst = max(worst, float(residual.max()))
        if failed:
            raise ConvergenceError(
                f"no preimage was found within max_steps = {self.max_steps} for {failed} of {len(y)} samples: relative "
                f"residual {worst:.3g}, tol = {tol:.3g}. One exists if W is invertible: preimages(y) finds all there are, a "
                "larger max_steps tries more starts, and a larger tol settles for less."
            )
        return x * length

    def _solve(self, f: FrozenReflection, y: Tensor, tol: float) -> tuple[Tensor, Tensor]:
        image = f(y)
        x, residual = scaled(f, torch.where((_dot(image, y) >= 0), y, -y), y)
        best, best_residual = x.clone(), residual.clone()
        generator = torch.Generator().manual_seed(0)
        active = (best_residual > tol).nonzero().squeeze(1)
        for _ in range(self.max_steps):
            if not len(active):
                break
            moved, after = newton_step(f, x[active], y[active])
            better = after < best_residual[active]
            best[active[better]], best_residual[active[better]] = moved[better], after[better]
            stalled = after > STALLED * residual[active]
            again, gap = scaled(f, _start(f, y[active], generator), y[active])
            x[active] = torch.where(stalled.unsqueeze(1), again, moved)
            residual[active] = torch.where(stalled, gap, after)
            active = active[best_residual[active] > tol]
        return best, best_residual


def _start(f: FrozenReflection, y: Tensor, generator: torch.Generator) -> Tensor:
    """For each row the closest of some random points and their negatives; f(-x) = -f(x)."""
    points = torch.randn(STARTS, y.shape[1], generator=generator, dtype=y.dtype).to(y.device)
    solved, info = torch.linalg.solve_ex(f.W, points.mT)  # f turns fastest where Wx is short: half of the starts go there
    points = torch.cat([points, torch.where(info == 0, solved.mT, points)])
    points = points / points.norm(dim=1, keepdim=True)
    cosines = y @ f(points).mT
    best = cosines.abs().argmax(1, keepdim=True)
    return torch.sign(cosines.gather(1, best)) * points[best.squeeze(1)]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)
