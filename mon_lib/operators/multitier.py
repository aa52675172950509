"""The multi-tier operator: convolutions at several scales, coupled downwards (MON section 4.3, appendix C)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .._numbers import whole
from ._base import MonotoneOperator, check_state, full_precision
from ._fourier import Fourier, check_transform, choose_transform
from ._frozen_multitier import FrozenMultiTier
from ._kernels import check_kernel, check_size, new_kernel, positive_raw, root, scaled, skew_kernel
from ._substitution import multiply, operator_blocks
from ._tiers import Layout, Tier

__all__ = ["FrozenMultiTier", "MultiTier"]


class MultiTier(MonotoneOperator):
    """W z for a packed state of several tiers, with I - W >= mI at every value of the parameters.

    W is block lower bidiagonal (MON C1 to C5):

        W_ii = (1-m)I - A_ii'A_ii - A_{i+1,i}'A_{i+1,i} + B_ii - B_ii',      W_{i+1,i} = -2 A_{i+1,i+1}'A_{i+1,i},

    the last W_ii without its strided term. A_ii and B_ii are circular convolutions of stride 1, A_{i+1,i} one of the given
    stride. Every kernel is normalised, as in appendix D.2: A_ii = sqrt(g) A/||A||, A_{i+1,i} = sqrt(g) D/||D||, B_ii = h B/||B||
    with a scalar each and ||.|| the Frobenius norm of the kernel. g = softplus of its raw value is positive.

    With ``border=0`` each tier has the size of the one before over the stride. With a border each tier keeps it: 34, 18, 10 for
    border 1 and stride 2, which is the geometry behind Table D1. The strided convolution then gives 17 x 17, embedded with
    zeros in 18 x 18. The embedding E is an isometry, E'E = I, so A_{i+1,i}'A_{i+1,i} and with it Proposition C1 are unchanged.

    The state is one tensor ``(batch, n)``: the tiers one after another, each flattened from ``(channels, H, W)``. `split` and
    `pack` convert.

    Parameters
    ----------
    channels : sequence of int
        Of each tier, two tiers or more.
    size : tuple of int
        H and W of the first tier, borders included.
    kernel_size : int
        Width of every kernel, odd.
    m : float
        Strong monotonicity constant of I - W, positive.
    border : int
        Pixels on each side of every tier that a prox is to hold at zero (`interior` marks the others); W itself knows only
        the sizes.
    stride : int
        From each tier to the next.
    transform : type, optional
        As for `Convolution`.
    dtype, device
        Of the parameters.

    Attributes
    ----------
    A, B : ParameterList
        One kernel ``(n_i, n_i, k, k)`` for each tier.
    down : ParameterList
        The kernels D of A_{i+1,i}, ``(n_{i+1}, n_i, k, k)``.
    g_raw, h, down_g_raw : Parameter
        Scalars of A, B and D, one for each kernel.

    Raises
    ------
    ValueError
        If a number is out of its range, or the size does not fit; the message names sizes that do.
    """

    def __init__(
        self,
        channels: tuple[int, ...] = (16, 32, 60),
        size: tuple[int, int] = (34, 34),
        kernel_size: int = 3,
        m: float = 1.0,
        border: int = 0,
        stride: int = 2,
        *,
        transform=None,
        dtype=None,
        device=None,
    ):
        counts = tuple(channels) if isinstance(channels, (tuple, list)) else ()
        if len(counts) < 2 or any((whole(n) or 0) < 1 for n in counts):
            raise ValueError(
                f"channels = {channels!r}; pass a positive integer for each of two or more tiers, for instance (16, 32, 60)"
            )
        check_transform(transform)
        if (whole(stride) or 0) < 1:
            raise ValueError(f"stride = {stride!r} must be a positive integer, for instance 2")
        if (-1 if whole(border) is None else border) < 0:
            raise ValueError(f"border = {border!r} must be a whole number of pixels, at least 0")
        layout = Layout(tuple(int(n) for n in counts), check_size(size), int(border), int(stride))
        self.kernel_size = check_kernel(kernel_size, layout.sizes[-1], "last tier")
        super().__init__((sum(layout.lengths),), m)
        self.layout, self.transform, k = layout, transform, self.kernel_size
        pairs = list(zip(layout.channels, layout.channels[1:], strict=False))
        self.A = nn.ParameterList(new_kernel(n, n, k, dtype, device) for n in layout.channels)
        self.B = nn.ParameterList(new_kernel(n, n, k, dtype, device) for n in layout.channels)
        self.down = nn.ParameterList(new_kernel(after, n, k, dtype, device) for n, after in pairs)
        # Start at the same W as without normalisation: g = ||A||^2 and h = ||B||.
        self.g_raw = nn.Parameter(torch.stack([positive_raw(A.detach().square().sum()) for A in self.A]))
        self.h = nn.Parameter(torch.stack([B.detach().norm() for B in self.B]))
        self.down_g_raw = nn.Parameter(torch.stack([positive_raw(D.detach().square().sum()) for D in self.down]))

    channels = property(lambda self: self.layout.channels, doc="Channels of each tier.")
    sizes = property(lambda self: self.layout.sizes, doc="(H, W) of each tier.")
    g = property(lambda self: softplus(self.g_raw), doc="The positive factors of A_ii'A_ii/||A_ii||^2.")
    down_g = property(lambda self: softplus(self.down_g_raw), doc="The positive factors of A_{i+1,i}'A_{i+1,i}.")

    def split(self, z: Tensor) -> tuple[Tensor, ...]:
        """A packed state ``(batch, n)`` as one view ``(batch, channels, H, W)`` for each tier."""
        check_state(z, self.state_shape, z.dtype, "z")
        return self.layout.split(z)

    def pack(self, tiers) -> Tensor:
        """One ``(batch, channels, H, W)`` for each tier as a packed state ``(batch, n)``; the inverse of `split`.

        Raises
        ------
        ValueError
            If the tiers are not those of this operator.
        """
        tiers = list(tiers)
        shapes = [(n, *size) for n, size in zip(self.channels, self.sizes, strict=True)]
        found = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in tiers]
        if [f[1:] for f in found] != shapes or len({f[0] for f in found}) != 1:
            raise ValueError(f"the tiers have shapes {found}; expected (batch, *s) for s in {shapes}, with one batch for all")
        return self.layout.pack(tiers)

    def interior(self, width: int | None = None) -> Tensor:
        """Which entries of a packed state lie inside a border of this width in every tier: bool, ``(n,)``."""
        width, masks = self.layout.border if width is None else width, []
        if not isinstance(width, int) or width < 0:
            raise ValueError(f"width = {width!r} must be a whole number of pixels, at least 0")
        for n, (H, W) in zip(self.channels, self.sizes, strict=True):
            mask = torch.zeros(1, n, H, W, dtype=torch.bool, device=self.device)
            mask[:, :, width : H - width, width : W - width] = True
            masks.append(mask)
        return self.layout.pack(masks)[0]

    def _tiers(self) -> list[Tier]:
        last = len(self.channels) - 1
        return [
            Tier(n, s, self.layout.stride if i < last else 1)
            for i, (n, s) in enumerate(zip(self.channels, self.sizes, strict=True))
        ]

    def _transforms(self, tiers: list[Tier]) -> list[Fourier]:
        if self.transform is not None:
            return [self.transform(tier.grid, self.dtype, self.device) for tier in tiers]
        return [choose_transform(tier.grid, tier.width, self.dtype, self.device) for tier in tiers]

    def _symbols(self, tiers: list[Tier]) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """For each tier W_ii without its strided part and A_ii at each frequency, and A_{i+1,i} from phases."""
        symbols = []
        for i, tier in enumerate(tiers):
            A = tier.symbols(scaled(self.A[i], root(self.g[i])))
            skew = tier.symbols(skew_kernel(scaled(self.B[i], self.h[i]), 1.0 - self.m))
            S = tier.strided(scaled(self.down[i], root(self.down_g[i]))) if i < len(self.down) else None
            symbols.append((skew - A.mH @ A, A, S))
        return symbols

    @full_precision
    def _product(self, z: Tensor, adjoint: bool) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        tiers = self._tiers()
        blocks = operator_blocks(tiers, self._symbols(tiers))
        return multiply(self.layout, tiers, self._transforms(tiers), blocks, z, adjoint)

    def forward(self, z: Tensor) -> Tensor:
        """W z, shape ``(batch, n)``, differentiable in z and the parameters."""
        return self._product(z, adjoint=False)

    def transposed(self, z: Tensor) -> Tensor:
        """W' z, shape ``(batch, n)``."""
        return self._product(z, adjoint=True)

    @full_precision
    def frozen(self) -> FrozenMultiTier:
        with torch.no_grad():
            tiers = self._tiers()
            return FrozenMultiTier(self.layout, self.m, tiers, self._transforms(tiers), self._symbols(tiers))

    def lipschitz(self) -> float:
        """An upper bound on L, a percent above it at most (see `FrozenMultiTier`)."""
        return super().lipschitz()

    def forward_norm(self, alpha: float) -> float:
        """||I - alpha (I - W)||_2 or up to a percent more (see `FrozenMultiTier`)."""
        return super().forward_norm(alpha)

    def cayley_norm(self, alpha: float) -> float:
        """||C_alpha||_2 or up to a percent more (see `FrozenMultiTier`)."""
        return super().cayley_norm(alpha)

    def extra_repr(self) -> str:
        layout = self.layout
        return (
            f"channels={layout.channels}, size={layout.size}, kernel_size={self.kernel_size}, m={self.m}, "
            f"border={layout.border}, stride={layout.stride}"
        )
