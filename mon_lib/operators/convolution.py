"""The convolutional operator W = (1-m)I - A'A + B - B', A and B circular convolutions (MON section 4.2, appendix B)."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .._numbers import whole
from ._base import FrozenOperator, Memo, MonotoneOperator, Resolvent, check_state, check_step, full_precision
from ._fourier import Fourier, check_transform, choose_transform, half, symbol
from ._kernels import check_kernel, check_size, new_kernel, positive_raw, root, scaled, skew_kernel
from ._norms import inverse, largest_singular_value, norm_bounds
from ._parts import in_parts

__all__ = ["Convolution", "FrozenConvolution"]


class Convolution(MonotoneOperator):
    """W z for images z of shape ``(channels, H, W)``, with I - W >= mI at every value of the parameters.

    W = (1-m)I - g A'A/||A||^2 + h (B - B')/||B||, with A and B circular convolutions of stride 1 and ||.|| the Frobenius
    norm of the kernel, the root of the sum of its squared entries; H W ||A||^2 is the squared Frobenius norm of A as a
    matrix. g = softplus(g_raw) is never negative. The Fourier transform turns W into one n x n matrix a frequency
    (MON eq. 27 and 28), and the resolvent into one inverse a frequency:

        (1 + alpha m)I + alpha (g A^*A/||A||^2 - h (B - B^*)/||B||),

    where A and B now stand for their matrices at the frequency. The print lacks the alpha of the last two terms.

    Parameters
    ----------
    channels : int
        Number n of hidden channels.
    size : tuple of int
        H and W. Add the border of `mon_lib.prox.Border` to the size of the picture.
    kernel_size : int
        Width of A and B, odd; W then reaches kernel_size - 1 pixels in each direction.
    m : float
        Strong monotonicity constant of I - W, positive.
    transform : type, optional
        `MatrixTransform` or `FastTransform`; by default the one measured to be faster here, once a process.
    dtype, device
        Of the parameters.

    Attributes
    ----------
    A, B : Parameter
        Kernels of shape ``(n, n, k, k)``.
    g_raw, h : Parameter
        Scalars.

    Raises
    ------
    ValueError
        If a number is out of its range.
    """

    def __init__(
        self, channels: int, size: tuple[int, int], kernel_size: int = 3, m: float = 1.0, *, transform=None, dtype=None, device=None
    ):
        if (whole(channels) or 0) < 1:
            raise ValueError(f"channels = {channels!r} is not a number of channels; it must be a positive integer")
        size, n = check_size(size), int(channels)
        check_transform(transform)
        self.kernel_size = check_kernel(kernel_size, size)
        super().__init__((n, *size), m)
        self.size, self.channels, self.transform = size, n, transform
        self.A = new_kernel(n, n, self.kernel_size, dtype, device)
        self.B = new_kernel(n, n, self.kernel_size, dtype, device)
        # Start at the same W as without normalisation: g = ||A||^2 and h = ||B||.
        self.g_raw = nn.Parameter(positive_raw(self.A.detach().square().sum()))
        self.h = nn.Parameter(self.B.detach().norm())

    @property
    def g(self) -> Tensor:
        """The positive factor of A'A/||A||^2."""
        return softplus(self.g_raw)

    def _fourier(self) -> Fourier:
        if self.transform is not None:
            return self.transform(self.size, self.dtype, self.device)
        return choose_transform(self.size, self.channels, self.dtype, self.device)

    @full_precision
    def symbol(self) -> Tensor:
        """W's matrix at each frequency (u, v) with v <= W/2, v the slower index: complex, ``(F, n, n)``, differentiable."""
        H, W = self.size
        rows = torch.arange(H, device=self.device).repeat(half(W))
        columns = torch.arange(half(W), device=self.device).repeat_interleave(H)
        # Scalars, the skew part and the identity go into the kernels, which are small beside their symbols.
        A = symbol(scaled(self.A, root(self.g)), self.size, rows, columns)
        skew = symbol(skew_kernel(scaled(self.B, self.h), 1.0 - self.m), self.size, rows, columns)
        return torch.baddbmm(skew, A.mH, A, alpha=-1.0)

    def _product(self, z: Tensor, adjoint: bool) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        return multiply(self._fourier(), self.symbol(), z, adjoint)

    def forward(self, z: Tensor) -> Tensor:
        """W z, shape ``(batch, n, H, W)``, differentiable in z and the parameters."""
        return self._product(z, adjoint=False)

    def transposed(self, z: Tensor) -> Tensor:
        """W' z, shape ``(batch, n, H, W)``."""
        return self._product(z, adjoint=True)

    def frozen(self) -> FrozenConvolution:
        with torch.no_grad():
            return FrozenConvolution(self.symbol().detach(), self.state_shape, self.m, self._fourier(), self.kernel_size - 1)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, size={self.size}, kernel_size={self.kernel_size}, m={self.m}"


@full_precision
def multiply(fourier: Fourier, blocks: Tensor, z: Tensor, adjoint: bool) -> Tensor:
    """The convolution with these matrices, or its transpose, applied to ``(batch, channels, H, W)``."""
    return in_parts(
        lambda part, matrices: fourier.apply(matrices[0], part, adjoint),
        z,
        [blocks],
        lambda part, matrices, v, wanted: fourier.pull(matrices[0], part, v, adjoint, wanted),
    )


class FrozenConvolution(FrozenOperator):
    """W by its matrices at each frequency, which no longer change.

    Parameters
    ----------
    symbol : Tensor
        Complex, ``(F, n, n)``, in the order of `Convolution.symbol`; of the untransposed operator in either case.
    state_shape : tuple of int
        ``(n, H, W)``.
    m : float
        A constant with I - W >= mI; taken at its word.
    fourier : Fourier
        The transform to multiply with.
    reach : int
        How many pixels W reaches in each direction: the degree of its symbol as a trigonometric polynomial.
    """

    def __init__(self, symbol: Tensor, state_shape, m: float, fourier: Fourier, reach: int, _transpose=None):
        self.symbol, self.state_shape, self.m = symbol, tuple(state_shape), m
        self._fourier, self._reach, self._transpose = fourier, reach, _transpose
        # A transposed pair shares its inverses, those of the untransposed operator, and the symbol.
        self._memo: Memo = Memo() if _transpose is None else _transpose._memo
        self._flipped = _transpose is not None and not _transpose._flipped
        self._bound = None if _transpose is None else _transpose._bound

    dtype = property(lambda self: self._fourier.dtype)
    device = property(lambda self: self.symbol.device)

    @property
    def T(self) -> FrozenConvolution:
        if self._transpose is not None:
            return self._transpose
        return FrozenConvolution(self.symbol, self.state_shape, self.m, self._fourier, self._reach, self)

    def _apply(self, blocks: Tensor, adjoint: bool, x: Tensor) -> Tensor:
        return multiply(self._fourier, blocks, x, adjoint)

    def __call__(self, z: Tensor) -> Tensor:
        check_state(z, self.state_shape, self.dtype, "z")
        return self._apply(self.symbol, self._flipped, z)

    def _identity(self) -> Tensor:
        return torch.eye(self.state_shape[0], dtype=self.symbol.dtype, device=self.device)

    def _shifted(self, alpha: float) -> Tensor:
        """I + alpha (I - W) at each frequency, untransposed."""
        return (1.0 + alpha) * self._identity() - alpha * self.symbol

    @full_precision
    def resolvent(self, alpha: float) -> Resolvent:
        alpha = check_step(alpha)
        with torch.no_grad():
            blocks = self._memo.get(alpha, lambda: inverse(self._shifted(alpha)))
        check = partial(check_state, state_shape=self.state_shape, dtype=self.dtype, name="x")
        return Resolvent(alpha, partial(self._apply, blocks, self._flipped), partial(self._apply, blocks, not self._flipped), check)

    def lipschitz(self) -> float:
        """L = max over the frequencies of ||I - W_f||_2, exact to rounding."""
        return largest_singular_value(self._identity() - self.symbol)

    def lipschitz_bound(self) -> float:
        """An upper bound on L, within 1.5 of it for up to 256 channels.

        The factor is n^(1/32) for the norms (`norm_bounds`), times 1/cos(pi d/N) for each axis on which only N equispaced
        frequencies are looked at: on the others a trigonometric polynomial of degree d stays below that multiple
        (Ehlich and Zeller 1964). N is at least 7d, or every frequency is looked at.
        """
        if self._bound is None:
            n, H, W = self.state_shape
            (row_step, row_factor), (column_step, column_factor) = _thin(H, self._reach), _thin(W, self._reach)
            grid = self.symbol.reshape(half(W), H, n, n)[::column_step, ::row_step].reshape(-1, n, n)
            G = torch.eye(n, dtype=grid.dtype, device=self.device) - grid
            self._bound = float(norm_bounds(G).max()) * row_factor * column_factor
        return self._bound

    @full_precision
    def forward_norm(self, alpha: float) -> float:
        return largest_singular_value(self._shifted(-check_step(alpha)))

    @full_precision
    def cayley_norm(self, alpha: float) -> float:
        return largest_singular_value(2.0 * inverse(self._shifted(check_step(alpha))) - self._identity())

    @full_precision
    def monotonicity(self) -> float:
        gap = self._identity() - 0.5 * (self.symbol + self.symbol.mH)
        return float(torch.linalg.eigvalsh(gap)[:, 0].min())


def _thin(n: int, degree: int) -> tuple[int, float]:
    """How many frequencies to step over, and the factor that pays for it."""
    step = max(t for t in range(1, n + 1) if n % t == 0 and (t == 1 or n // t >= 7 * max(degree, 1)))
    return step, 1.0 if step == 1 else 1.0 / math.cos(math.pi * degree * step / n)
