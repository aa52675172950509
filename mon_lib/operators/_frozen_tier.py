"""One tier of a multi-tier operator by itself, at weights that no longer change."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ._base import FrozenOperator, Memo, Resolvent, check_state, check_step, full_precision
from ._fourier import Fourier
from ._norms import largest_singular_value, norm_bounds
from ._parts import in_parts
from ._substitution import solve_block
from ._tiers import Tier

__all__ = ["FrozenTier"]


class FrozenTier(FrozenOperator):
    """W_ii = (1-m)I - A_ii'A_ii - A_{i+1,i}'A_{i+1,i} + B_ii - B_ii' on flat states ``(batch, n H W)``.

    Its phases turn it into one matrix for each frequency of the small grid, so its norms are exact.

    Parameters
    ----------
    tier : Tier
    fourier : Fourier
        Of the tier's small grid.
    symbols : tuple
        W_ii without its strided part, A_ii (not used here) and A_{i+1,i}, as `MultiTier` computes them; of the untransposed
        operator in either case.
    m : float
        A constant with I - W_ii >= mI; taken at its word.
    """

    def __init__(self, tier: Tier, fourier: Fourier, symbols, m: float, _transpose: FrozenTier | None = None):
        self.tier, self.m, self.state_shape = tier, m, (tier.channels * tier.size[0] * tier.size[1],)
        self._fourier, self._symbols, self._transpose = fourier.over_phases(tier.r), symbols, _transpose
        # A transposed pair shares what it holds, all of it of the untransposed operator.
        self._memo: Memo = Memo() if _transpose is None else _transpose._memo
        self._shared: dict = {} if _transpose is None else _transpose._shared
        self._flipped = _transpose is not None and not _transpose._flipped

    dtype = property(lambda self: self._fourier.dtype)
    device = property(lambda self: self._symbols[0].device)

    @property
    def T(self) -> FrozenTier:
        if self._transpose is not None:
            return self._transpose
        return FrozenTier(self.tier, self._fourier, self._symbols, self.m, self)

    @full_precision
    def _blocks(self) -> Tensor:
        """W_ii at each frequency of the small grid, ``(F, r r n, r r n)``."""
        if "blocks" not in self._shared:
            unstrided, _, S = self._symbols
            with torch.no_grad():
                block = self.tier.merge(unstrided)
                self._shared["blocks"] = block if S is None else torch.baddbmm(block, S.mH, S, alpha=-1.0)
        return self._shared["blocks"]

    def _identity(self) -> Tensor:
        return torch.eye(self.tier.width, dtype=self.dtype.to_complex(), device=self.device)

    def _apply(self, blocks: Tensor, adjoint: bool, x: Tensor) -> Tensor:
        def product(part, matrices):
            images = part.unflatten(1, (self.tier.channels, *self.tier.size))
            return self._fourier.apply(matrices[0], images, adjoint).flatten(1)

        return in_parts(product, x, [blocks])

    @full_precision
    def __call__(self, z: Tensor) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        return self._apply(self._blocks(), self._flipped, z)

    @full_precision
    def _inverse(self, alpha: float) -> Tensor:
        return self._memo.get(alpha, lambda: solve_block(self.tier, self._symbols[0], self._symbols[2], alpha)[0])

    @full_precision
    def resolvent(self, alpha: float) -> Resolvent:
        alpha = check_step(alpha)
        with torch.no_grad():
            blocks = self._inverse(alpha)
        check = partial(check_state, state_shape=self.state_shape, dtype=self.dtype, name="x")
        return Resolvent(alpha, partial(self._apply, blocks, self._flipped), partial(self._apply, blocks, not self._flipped), check)

    def lipschitz(self) -> float:
        return largest_singular_value(self._identity() - self._blocks())

    def lipschitz_bound(self) -> float:
        """An upper bound on L, within a factor (r r n)^(1/16)."""
        if "bound" not in self._shared:
            self._shared["bound"] = float(norm_bounds(self._identity() - self._blocks(), squarings=2).max())
        return self._shared["bound"]

    def forward_norm(self, alpha: float) -> float:
        alpha = check_step(alpha)
        return largest_singular_value((1.0 - alpha) * self._identity() + alpha * self._blocks())

    def cayley_norm(self, alpha: float) -> float:
        with torch.no_grad():
            return largest_singular_value(2.0 * self._inverse(check_step(alpha)) - self._identity())

    @full_precision
    def monotonicity(self) -> float:
        gap = self._identity() - 0.5 * (self._blocks() + self._blocks().mH)
        return float(torch.linalg.eigvalsh(gap)[:, 0].min())
