"""W and (I + alpha (I - W))^-1 as one would type them from the paper, for one convolution and for several tiers.

- W is applied by circular padding, `conv2d` and `conv_transpose2d`, and every kernel is normalised at every product (D.2).
- The inverse is applied by the full complex Fourier transform, each complex n x n matrix embedded as a real one of 2n x 2n
  (appendix B, with the alpha that eq. 28 lacks); for several tiers by back substitution and Proposition C1, its output
  channels coupled (appendix C).

Where the print leaves a choice, the baseline has the cheaper one: four products instead of six in Proposition C1, and tiers
packed in one tensor, so that each pointwise part of a step is one pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, pad

from mon_lib import operators

__all__ = ["Inverse", "TextbookConvolution", "TextbookMultiTier"]


def _normalised(kernel: Tensor, factor: Tensor) -> Tensor:
    return factor * kernel / kernel.norm()


def _around(x: Tensor, width: int) -> Tensor:
    return pad(x, (width, width, width, width), mode="circular") if width else x


def _convolve(x: Tensor, kernel: Tensor, stride: int = 1) -> Tensor:
    return conv2d(_around(x, kernel.shape[-1] // 2), kernel, stride=stride)


def _transpose(y: Tensor, kernel: Tensor, stride: int = 1) -> Tensor:
    """The transpose of `_convolve`: pad far enough for every tap that wraps around, then cut."""
    centre = kernel.shape[-1] // 2
    width = -(-centre // stride)
    return conv_transpose2d(_around(y, width), kernel, stride=stride, padding=width * stride + centre, output_padding=stride - 1)


def _spectrum(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """The matrix of a circular convolution at every frequency, ``(H W, outputs, inputs)``; conv2d correlates, hence conj."""
    (H, W), k = size, kernel.shape[-1]
    whole = pad(kernel, (0, W - k, 0, H - k)).roll((-(k // 2), -(k // 2)), (2, 3))
    return torch.fft.fft2(whole).conj().permute(2, 3, 0, 1).flatten(0, 1)


def _real(D: Tensor) -> Tensor:
    """Complex n x n matrices as real 2n x 2n ones."""
    return torch.cat([torch.cat([D.real, -D.imag], 2), torch.cat([D.imag, D.real], 2)], 1)


def _shifted(A: Tensor, B: Tensor, alpha: float, m: float) -> Tensor:
    """(1 + alpha m)I + alpha (A*A - B + B*) at every frequency: eq. 28, corrected."""
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return (1 + alpha * m) * eye + alpha * (A.mH @ A - B + B.mH)


def _analyse(x: Tensor) -> Tensor:
    """``(batch, n, H, W)`` to ``(H W, batch, 2n)``: real parts beside imaginary ones."""
    y = torch.fft.fft2(x).permute(2, 3, 0, 1)
    return torch.cat([y.real, y.imag], 3).flatten(0, 1)


def _synthesise(y: Tensor, size: tuple[int, int]) -> Tensor:
    y = torch.complex(*y.chunk(2, 2)).unflatten(0, size)
    return torch.fft.ifft2(y.permute(2, 3, 0, 1)).real.contiguous()


class Inverse:
    """A product with (I + alpha (I - W))^-1, and with its transpose."""

    def __init__(self, product: Callable, transposed: Callable):
        self.product, self.transposed = product, transposed

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)


class TextbookConvolution:
    """W of one convolution."""

    def __init__(self, operator: operators.Convolution):
        self.operator, self.size = operator, operator.size

    def kernels(self) -> tuple[Tensor, Tensor]:
        W = self.operator
        return _normalised(W.A, W.g.sqrt()), _normalised(W.B, W.h)

    def multiply(self, z: Tensor) -> Tensor:
        A, B = self.kernels()
        return (1 - self.operator.m) * z - _transpose(_convolve(z, A), A) + _convolve(z, B) - _transpose(z, B)

    def inverse(self, alpha: float) -> Inverse:
        A, B = (_spectrum(kernel, self.size) for kernel in self.kernels())
        V = torch.linalg.inv(_real(_shifted(A, B, alpha, self.operator.m)))
        return Inverse(
            lambda x: _synthesise(_analyse(x) @ V.mT, self.size),
            lambda x: _synthesise(_analyse(x) @ V, self.size),
        )


class TextbookMultiTier:
    """W of several tiers."""

    def __init__(self, operator: operators.MultiTier):
        self.operator, self.stride = operator, operator.layout.stride

    def kernels(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        W = self.operator
        A = [_normalised(kernel, g.sqrt()) for kernel, g in zip(W.A, W.g, strict=True)]
        B = [_normalised(kernel, h) for kernel, h in zip(W.B, W.h, strict=True)]
        return A, B, [_normalised(kernel, g.sqrt()) for kernel, g in zip(W.down, W.down_g, strict=True)]

    def down(self, x: Tensor, kernel: Tensor, i: int) -> Tensor:
        """A_{i+1,i} x, embedded in tier i + 1."""
        y, (H, W) = _convolve(x, kernel, self.stride), self.operator.sizes[i + 1]
        return pad(y, (0, W - y.shape[3], 0, H - y.shape[2]))

    def up(self, y: Tensor, kernel: Tensor, i: int) -> Tensor:
        """A_{i+1,i}' y."""
        H, W = self.operator.sizes[i]
        return _transpose(y[:, :, : H // self.stride, : W // self.stride], kernel, self.stride)

    def multiply(self, z: Tensor) -> Tensor:
        (A, B, down), m, out, carried = self.kernels(), self.operator.m, [], None
        for i, x in enumerate(self.operator.split(z)):
            y = (1 - m) * x - _transpose(_convolve(x, A[i]), A[i]) + _convolve(x, B[i]) - _transpose(x, B[i])
            if carried is not None:
                y = y - 2 * _transpose(carried, A[i])
            if i < len(down):
                carried = self.down(x, down[i], i)
                y = y - self.up(carried, down[i], i)
            out.append(y)
        return self.operator.pack(out)

    def inverse(self, alpha: float) -> Inverse:
        A, B, down = self.kernels()
        last = len(down)
        blocks = [self._block(i, A[i], B[i], down[i] if i < last else None, alpha) for i in range(last + 1)]

        def product(z):
            out = []
            for i, (x, block) in enumerate(zip(self.operator.split(z), blocks, strict=True)):
                if i:
                    A, _, down = self.kernels()
                    x = x - 2 * alpha * _transpose(self.down(out[-1], down[i - 1], i - 1), A[i])
                out.append(block(x))
            return self.operator.pack(out)

        def transposed(z):
            out, parts = [], self.operator.split(z)
            for i in reversed(range(last + 1)):
                x = parts[i]
                if i < last:
                    A, _, down = self.kernels()
                    x = x - 2 * alpha * self.up(_convolve(out[0], A[i + 1]), down[i], i)
                out.insert(0, blocks[i].transposed(x))
            return self.operator.pack(out)

        return Inverse(product, transposed)

    def _block(self, i: int, A: Tensor, B: Tensor, down: Tensor | None, alpha: float) -> Inverse:
        """(P + alpha S'S)^-1 for tier i: Proposition C1, with a matrix for all output channels where the print has one each."""
        size, r = self.operator.sizes[i], self.stride
        P = torch.linalg.inv(_real(_shifted(_spectrum(A, size), _spectrum(B, size), alpha, self.operator.m)))
        if down is None:
            return Inverse(lambda x: _synthesise(_analyse(x) @ P.mT, size), lambda x: _synthesise(_analyse(x) @ P, size))
        # The r r frequencies that the strided grid cannot tell apart, side by side.
        order = torch.arange(size[0] * size[1], device=A.device).reshape(r, size[0] // r, r, size[1] // r)
        order = order.permute(1, 3, 0, 2).flatten()
        back, P, S = order.argsort(), P[order], _real(_spectrum(down, size))[order]
        left = alpha * (P @ S.mT)
        K = torch.linalg.inv(r**2 * torch.eye(S.shape[1], dtype=S.dtype, device=S.device) + self._gather(S @ left))

        def product(x):
            y = _analyse(x)[order] @ P.mT
            t = self._gather(y @ S.mT) @ K.mT
            return _synthesise((y - self._spread(t) @ left.mT)[back], size)

        def transposed(x):
            y = _analyse(x)[order]
            t = self._gather(y @ left) @ K
            return _synthesise(((y - self._spread(t) @ S) @ P)[back], size)

        return Inverse(product, transposed)

    def _gather(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (-1, self.stride**2)).sum(1)

    def _spread(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.stride**2, 0)
