"""The multi-tier operator at weights that no longer change."""

from __future__ import annotations

from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from ._base import FrozenOperator, Memo, Resolvent, Stage, check_state, check_step, full_precision
from ._frozen_tier import FrozenTier
from ._norms import lanczos
from ._parts import samples_per_part
from ._substitution import multiply, operator_blocks, resolvent_blocks
from ._tiers import Layout

__all__ = ["FrozenMultiTier"]

PRODUCTS = 60  # of each start, where a norm is wanted to a percent
FEW_PRODUCTS = 8  # and where half of it will do


class FrozenMultiTier(FrozenOperator):
    """W by its blocks in the Fourier domain, which no longer change.

    Norms are Lanczos estimates raised to upper bounds: see `mon_lib.operators._norms.lanczos`. They exceed the norm by a
    percent at most and fall short of it with a probability below 1e-12 over the random starts, for states of up to a million
    entries; for states of up to sixty they are exact to rounding.
    """

    def __init__(self, layout: Layout, m: float, tiers, transforms, symbols, _transpose: FrozenMultiTier | None = None):
        self.layout, self.m, self.state_shape = layout, m, (sum(layout.lengths),)
        self._tiers, self._transforms, self._symbols, self._transpose = tiers, transforms, symbols, _transpose
        # A transposed pair shares what it holds, all of it of the untransposed operator.
        self._memo: Memo = Memo() if _transpose is None else _transpose._memo
        self._shared: dict = {} if _transpose is None else _transpose._shared
        self._flipped = _transpose is not None and not _transpose._flipped

    dtype = property(lambda self: self._transforms[0].dtype)
    device = property(lambda self: self._symbols[0][0].device)

    @property
    def T(self) -> FrozenMultiTier:
        if self._transpose is not None:
            return self._transpose
        return FrozenMultiTier(self.layout, self.m, self._tiers, self._transforms, self._symbols, self)

    def _apply(self, blocks: list[Tensor], adjoint: bool, x: Tensor) -> Tensor:
        return multiply(self.layout, self._tiers, self._transforms, blocks, x, adjoint)

    @full_precision
    def __call__(self, z: Tensor) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        if "blocks" not in self._shared:
            with torch.no_grad():
                self._shared["blocks"] = operator_blocks(self._tiers, self._symbols)
        return self._apply(self._shared["blocks"], self._flipped, z)

    def stages(self) -> list[Stage]:
        """Tier by tier, the last one first where W is transposed. The stages keep what they invert, and share it with W'."""
        if "tiers" not in self._shared:
            with torch.no_grad():
                self._shared["tiers"] = [
                    FrozenTier(*parts, self.m) for parts in zip(self._tiers, self._transforms, self._symbols, strict=True)
                ]
        ends, order = list(accumulate(self.layout.lengths)), range(len(self._tiers))
        found = []
        for i in reversed(order) if self._flipped else order:
            entries, tier = slice(ends[i] - self.layout.lengths[i], ends[i]), self._shared["tiers"][i]
            upper = i if self._flipped else i - 1
            coupling = partial(self._coupled, upper) if found else None
            found.append(Stage(entries, tier.T if self._flipped else tier, coupling))
        return found

    @full_precision
    def _coupled(self, i: int, x: Tensor) -> Tensor:
        """W_{i+1,i} x for x of tier i, flat, or its transpose applied to x of tier i + 1."""
        upper, lower = self._tiers[i], self._tiers[i + 1]
        if len(x) == 0:  # transforms refuse it
            return x.new_zeros(0, self.layout.lengths[i if self._flipped else i + 1])
        ahead, behind = (f.over_phases(t.r) for f, t in zip(self._transforms[i : i + 2], (upper, lower), strict=True))
        across = self._transforms[i]
        A, S = self._merged(i + 1), self._symbols[i][2]

        def down(part, blocks):
            s = across.inverse(torch.bmm(ahead.forward(part.unflatten(1, (upper.channels, *upper.size))), blocks[1].mT))
            return behind.apply(blocks[0], lower.grown(s), adjoint=True).flatten(1)

        def up(part, blocks):
            y = behind.apply(blocks[0], part.unflatten(1, (lower.channels, *lower.size)))
            s = across.forward(lower.shrunk(y, upper.grid), conjugate=True)
            return ahead.inverse(torch.bmm(s, blocks[1]), conjugate=True).flatten(1)

        with torch.no_grad():
            size = samples_per_part(x)
            return -2.0 * torch.cat([(up if self._flipped else down)(part, (A, S)) for part in x.split(size)])

    def _merged(self, i: int) -> Tensor:
        """A_ii as it acts on phases."""
        key = ("A", i)
        if key not in self._shared:
            with torch.no_grad():
                self._shared[key] = self._tiers[i].merge(self._symbols[i][1])
        return self._shared[key]

    @full_precision
    def resolvent(self, alpha: float) -> Resolvent:
        alpha = check_step(alpha)
        with torch.no_grad():
            blocks = self._memo.get(alpha, lambda: resolvent_blocks(self._tiers, self._symbols, alpha))
        check = partial(check_state, state_shape=self.state_shape, dtype=self.dtype, name="x")
        return Resolvent(alpha, partial(self._apply, blocks, self._flipped), partial(self._apply, blocks, not self._flipped), check)

    def _norm(self, product, adjoint, steps: int = PRODUCTS) -> float:
        with torch.no_grad():
            return lanczos(lambda x: adjoint(product(x)), self.state_shape, self._symbols[0][0].real, steps) ** 0.5

    def lipschitz(self) -> float:
        """An upper bound on L, a percent above it at most (see the class)."""
        return self._norm(lambda x: x - self(x), lambda x: x - self.T(x))

    def lipschitz_bound(self) -> float:
        """An upper bound on L within 1.5 times of it, by few products, with the same probability as `lipschitz`."""
        if "bound" not in self._shared:
            self._shared["bound"] = self._norm(lambda x: x - self(x), lambda x: x - self.T(x), FEW_PRODUCTS)
        return self._shared["bound"]

    def forward_norm(self, alpha: float) -> float:
        """||I - alpha (I - W)||_2 or up to a percent more (see the class)."""
        a = check_step(alpha)
        return self._norm(lambda x: (1.0 - a) * x + a * self(x), lambda x: (1.0 - a) * x + a * self.T(x))

    def cayley_norm(self, alpha: float) -> float:
        """||C_alpha||_2 or up to a percent more (see the class)."""
        R = self.resolvent(alpha)
        return self._norm(lambda x: 2.0 * R(x) - x, lambda x: 2.0 * R.T(x) - x)

    def monotonicity(self) -> float:
        """The smallest eigenvalue of the symmetric part of I - W; beyond a thousand entries Lanczos's estimate, from above."""
        n = self.state_size
        with torch.no_grad():
            if n <= 1024:
                gap = torch.eye(n, dtype=self.dtype, device=self.device) - self.to_dense()
                return float(torch.linalg.eigvalsh(0.5 * (gap + gap.T))[0])
            top = self.lipschitz_bound()
            like = self._symbols[0][0].real
            drop = lanczos(
                lambda x: (top - 1.0) * x + 0.5 * (self(x) + self.T(x)), self.state_shape, like, 2 * PRODUCTS, upper=False
            )
            return top - drop
