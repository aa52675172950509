"""Newton's method for H(Wx)x = y, with a line search and restarts (REF A.2.1 has neither)."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

import torch
from torch import Tensor

from .._numbers import check_size
from .._once import once
from ..errors import ConvergenceError
from ._frozen import FrozenReflection, newton_step, scaled
from ._preimages import directions, preimages

__all__ = ["Implicit", "Newton"]

CHUNK_BYTES = 1 << 26  # most memory for the Jacobians that are factored at once
STARTS = 64  # points of each kind from which the closest is taken after a stall
STALLED = 0.9  # a step that leaves more of the residual than this leads nowhere
NAMED = 8  # most samples that a message names


@dataclass(frozen=True)
class Newton:
    """Newton's method, started at y or -y, whichever is closer, and at other points where it stalls.

    It returns one preimage. Where there are several, which one depends on W and on the start, and a good residual is no
    sign that there is only one (ledger NEW-DENS); `AuxiliaryReflection.preimages` returns all. Every sample is solved on
    its own, in float64, and the starts are the same in every call.

    There is always one if W is invertible: f(-x) = -f(x), so f has odd degree on the sphere (Borsuk) and covers it. Samples
    that are not solved after max_steps get, of all their preimages, the one closest to the best point that was reached.
    That is an eigenproblem of size 2d + 1 for each of them.

    Parameters
    ----------
    tol : float, optional
        Largest ||f(x) - y||/||y||, in float64 before x is rounded to the dtype of y. Where not given, 16 sqrt(d) eps of
        that dtype.
    max_steps : int
        Most steps for a sample, one factorisation of a d x d matrix each, over all its starts.

    Raises
    ------
    TypeError, ValueError
        If tol is no positive number or max_steps no positive integer.
    """

    tol: float | None = None
    max_steps: int = 50

    def __post_init__(self):
        if self.tol is not None and (isinstance(self.tol, bool) or not isinstance(self.tol, numbers.Real)):
            kind = type(self.tol).__name__
            raise TypeError(f"tol = {self.tol!r} is {kind}; pass a positive number, for instance 1e-6, or None to follow the dtype")
        if self.tol is not None and not 0.0 < self.tol < math.inf:
            raise ValueError(f"tol = {self.tol} must be positive and finite, for instance 1e-6; None follows the dtype")
        check_size("max_steps", self.max_steps)

    def solve(self, f: FrozenReflection, y: Tensor, eps: float) -> Tensor:
        """A preimage of each row.

        Parameters
        ----------
        f : FrozenReflection
            In float64, outside the graph, in range.
        y : Tensor
            Shape ``(N, d)``, float64, finite.
        eps : float
            Of the dtype in which y was given.

        Raises
        ------
        ConvergenceError
            If no preimage within tol was found for a sample; the message names the rows.
        """
        d = y.shape[1]
        tol = 16.0 * math.sqrt(d) * eps if self.tol is None else self.tol
        y, length = directions(y)
        x = y.clone()  # zero rows stay zero
        chunk = max(1, CHUNK_BYTES // (d * d * y.element_size()))
        left = [part for part in (length.squeeze(1) > 0).nonzero().squeeze(1).split(chunk) if len(part)]
        residual = y.new_zeros(len(y))
        for part in left:
            x[part], residual[part] = self._solve(f, y[part], tol)
        missed = (residual > tol).nonzero().squeeze(1)
        if len(missed):
            for k, others in zip(missed.tolist(), preimages(f, y[missed], every=False), strict=True):
                gaps = scaled(f, others, y[k].expand_as(others))[1]
                if len(others := others[gaps <= tol]):
                    x[k] = others[torch.linalg.vector_norm(others - x[k], dim=1).argmin()]
                    residual[k] = 0.0
            missed = (residual > tol).nonzero().squeeze(1)
        if len(missed):
            rows = ", ".join(map(str, missed[:NAMED].tolist())) + (", ..." if len(missed) > NAMED else "")
            raise ConvergenceError(
                f"no preimage was found for {len(missed)} of {len(y)} samples, rows {rows} of y.reshape(-1, {d}): relative "
                f"residual {float(residual.max()):.3g}, tol = {tol:.3g}, max_steps = {self.max_steps}. One exists if W is "
                "invertible, and else y may have none. A larger tol settles for less, a larger max_steps tries more starts; "
                "leave these rows out for the others."
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


class Implicit(torch.autograd.Function):
    """f(x) - y, x, W, noise -> x, with the implicit derivative -J^-1 of x in f(x) - y.

    The value is x itself: a Newton step, which has the same derivative, would move it where J is nearly singular.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gap, x, W, noise):
        return x.clone()  # not a view: the caller may write into the output

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, v):
        gap, x, W, noise = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(v.device.type, enabled=False):
            step = max(1, CHUNK_BYTES // (8 * x.shape[1] ** 2))
            f, parts = FrozenReflection(W, noise), []
            for start, right in zip(x.split(step), v.split(step), strict=True):
                solved, info = torch.linalg.solve_ex(f.jacobian(start).mT, -right)
                solved = torch.where((info == 0).unsqueeze(1), solved, torch.nan)
                parts.append(torch.where((right == 0).all(1, keepdim=True), 0.0, solved))
            solved = torch.cat(parts)
        return once(_REFUSAL, solved, v, gap), None, None, None


_REFUSAL = (
    "second derivatives through AuxiliaryReflection.inverse are not implemented; drop create_graph=True, or "
    "differentiate f.jacobian and f.forward_and_ladj at the solution, which are differentiable"
)
