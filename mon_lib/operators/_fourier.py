"""Real two-dimensional Fourier transforms that put a circular convolution in blocks (MON appendix B.1).

A spectrum holds the frequencies (u, v) with 0 <= u < H and 0 <= v <= W/2, which determine the others of a real state; v is
the slower index. It is one batch of matrices ``(frequencies, batch, channels)``, and a convolution one batched product.
For v = 0 and v = W/2 both (u, v) and (-u, v) are kept; they are conjugate to each other, so a maximum over the frequencies
is not changed by the repetition.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "FastTransform",
    "Fourier",
    "MatrixTransform",
    "check_transform",
    "choices",
    "choose_again",
    "choose_transform",
    "half",
    "image",
    "phases",
    "symbol",
]


def half(n: int) -> int:
    """How many of the n frequencies of a real signal determine the others."""
    return n // 2 + 1


def symbol(kernel: Tensor, size: tuple[int, int], rows: Tensor, columns: Tensor) -> Tensor:
    """The matrices by which a circular convolution acts at the frequencies (rows[f], columns[f]).

    The convolution is the one of `torch.nn.functional.conv2d` on a circularly padded input,
    (Az)[i, j] = sum_{p, q} A[p, q] z[i + p - c, j + q - c], with c half the kernel's width.

    Parameters
    ----------
    kernel : Tensor
        Shape ``(outputs, inputs, k, k)``, k odd.
    size : tuple of int
        H and W.
    rows, columns : Tensor
        Integer frequencies, both of shape ``(F,)``.

    Returns
    -------
    Tensor
        Complex, shape ``(F, outputs, inputs)``; differentiable in the kernel.

    Raises
    ------
    TypeError
        If the kernel is neither float32 nor float64.
    """
    _check_format(kernel.dtype)
    k = kernel.shape[-1]
    taps = torch.arange(k, device=kernel.device) - k // 2

    def angle(frequency, n):
        # The phase modulo n, before it becomes a float: no rounding grows with the frequency.
        return torch.remainder(frequency[:, None] * taps, n).double() * (2.0 * math.pi / n)

    phase = (angle(rows, size[0])[:, :, None] + angle(columns, size[1])[:, None, :]).flatten(1)
    waves = torch.cat([phase.cos(), phase.sin()]).to(kernel.dtype)
    parts = (waves @ kernel.flatten(0, 1).flatten(1).T).reshape(2, len(rows), *kernel.shape[:2])
    return torch.complex(parts[0], parts[1])


def _check_format(dtype: torch.dtype) -> None:
    """Raise TypeError for a format without Fourier transforms."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"the kernels are {dtype}, which no Fourier transform here takes; keep them in float32 or float64")


def phases(x: Tensor, r: int) -> Tensor:
    """``(batch, n, r H, r W)`` to its r x r phases, the images of every r-th pixel, as channels: ``(batch, r r n, H, W)``."""
    if r == 1:
        return x
    return x.unflatten(3, (-1, r)).unflatten(2, (-1, r)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


def image(x: Tensor, r: int) -> Tensor:
    """The inverse of `phases`."""
    if r == 1:
        return x
    return x.unflatten(1, (r, r, -1)).permute(0, 3, 4, 1, 5, 2).flatten(4, 5).flatten(2, 3)


class Fourier(ABC):
    """A transform of one size, and the products of its spectra with one matrix a frequency.

    Parameters
    ----------
    size : tuple of int
        H and W.
    dtype, device
        Of the states.
    r : int
        States have r H x r W pixels, and what is transformed are their r x r phases, as channels (see `phases`).
    """

    def __init__(self, size: tuple[int, int], dtype: torch.dtype, device: torch.device, r: int = 1):
        _check_format(dtype)
        self.size, self.dtype, self.device, self.r = size, dtype, device, r

    def over_phases(self, r: int) -> Fourier:
        """The same transform of the phases of images r times as large."""
        return type(self)(self.size, self.dtype, self.device, r)

    @abstractmethod
    def forward(self, x: Tensor, conjugate: bool = False) -> Tensor:
        """The spectrum ``(F, batch, r r channels)`` of x, ``(batch, channels, r H, r W)``, or its conjugate."""

    @abstractmethod
    def inverse(self, spectrum: Tensor, conjugate: bool = False) -> Tensor:
        """The state of a spectrum, or of a conjugate one: the inverse of `forward`."""

    def apply(self, blocks: Tensor, x: Tensor, adjoint: bool = False) -> Tensor:
        """The operator with these matrices, or its transpose, applied to states.

        Parameters
        ----------
        blocks : Tensor
            Complex, ``(F, outputs, inputs)``.
        x : Tensor
            ``(batch, inputs, H, W)``, or ``(batch, outputs, H, W)`` for the transpose.
        adjoint : bool
            Multiply by the conjugate transposes. The conjugation is done on the spectra, where it is free.
        """
        if adjoint:
            return self.inverse(torch.bmm(self.forward(x, conjugate=True), blocks), conjugate=True)
        return self.inverse(torch.bmm(self.forward(x), blocks.mT))

    def pull(self, blocks: Tensor, x: Tensor, v: Tensor, adjoint: bool, wanted) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of <v, apply(blocks, x, adjoint)> with respect to x and the blocks, where `wanted`.

        With X and V the spectra of x and v, that of a block is V'X^* (its conjugate transpose for the transpose), times 1/(H W)
        and the number of frequencies that the half spectrum stands for: two, and one where v = 0 or W/2. No inverse transform.
        """
        of_x = self.apply(blocks, v, not adjoint) if wanted[0] else None
        if not wanted[1]:
            return of_x, None
        H, W = self.size
        left, right = (self.forward(x), self.forward(v)) if adjoint else (self.forward(v), self.forward(x))
        weight = torch.full((half(W), 1, 1, 1), 2.0 / (H * W), dtype=self.dtype, device=self.device)
        weight[0] *= 0.5
        if W % 2 == 0:
            weight[-1] *= 0.5
        of_blocks = torch.bmm(left.mT, right.conj()).unflatten(0, (half(W), H)) * weight
        return of_x, of_blocks.flatten(0, 1)


class FastTransform(Fourier):
    """The fast Fourier transform."""

    def forward(self, x: Tensor, conjugate: bool = False) -> Tensor:
        x = phases(x, self.r)
        y = torch.fft.rfft2(x).permute(3, 2, 0, 1)
        return (y.conj() if conjugate else y).reshape(-1, *x.shape[:2]).resolve_conj()

    def inverse(self, spectrum: Tensor, conjugate: bool = False) -> Tensor:
        H, W = self.size
        y = (spectrum.conj() if conjugate else spectrum).reshape(half(W), H, *spectrum.shape[1:])
        return image(torch.fft.irfft2(y.permute(2, 3, 1, 0), s=(H, W)), self.r)


@lru_cache(maxsize=64)
def _waves(
    size: tuple[int, int], r: int, dtype: torch.dtype, device: torch.device, conjugate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The three matrices of `MatrixTransform`; constants, so a cache of them cannot go stale."""
    with torch.inference_mode(False):  # a tensor made inside inference mode could not serve a later backward pass

        def angles(n):
            index = torch.arange(n)
            return torch.remainder(index[:, None] * index, n).double() * (2.0 * math.pi / n)

        H, W = size
        sign = 1.0 if conjugate else -1.0
        angle = angles(W)[:, : half(W)]
        along = torch.stack([angle.cos(), sign * angle.sin()], 2)  # (w, v, part)
        weight = torch.full((1, half(W), 1), 2.0 / W, dtype=torch.float64)
        weight[:, 0] = 1.0 / W  # this frequency is its own conjugate, and so is W/2 where W is even
        if W % 2 == 0:
            weight[:, -1] = 1.0 / W
        # Every r-th pixel of a row of r W belongs to one phase; with zeros at the others, the rows need no rearranging.
        apart = torch.eye(r, dtype=torch.float64)
        back = torch.kron((weight * along).flatten(1), apart).unflatten(1, (-1, r)).transpose(1, 2).flatten(1).T.contiguous()
        along = torch.kron(along.flatten(1), apart).unflatten(1, (-1, r)).transpose(1, 2).flatten(1)
        angle = angles(H)
        across = torch.complex(angle.cos(), sign * angle.sin())
        return along.to(device, dtype).contiguous(), across.to(device, dtype.to_complex()), back.to(device, dtype)


class MatrixTransform(Fourier):
    """The transform as matrix products: a real one along each row of the image, a complex one along each column.

    A transform of length n then costs n operations a point instead of log n, but at the speed of matrix products, and the
    state is rearranged once each way. For images of a few dozen pixels it wins on a processor.
    """

    def forward(self, x: Tensor, conjugate: bool = False) -> Tensor:
        (H, W), r, (b, n) = self.size, self.r, x.shape[:2]
        along, across, _ = _waves(self.size, r, self.dtype, self.device, conjugate)
        y = torch.view_as_complex((x.reshape(-1, r * W) @ along).reshape(b, n, H, r, r, half(W), 2))
        y = y.permute(5, 2, 0, 3, 4, 1).reshape(half(W), H, -1)
        return torch.matmul(across, y).reshape(-1, b, r * r * n)

    def inverse(self, spectrum: Tensor, conjugate: bool = False) -> Tensor:
        (H, W), r, b = self.size, self.r, spectrum.shape[1]
        _, across, _ = _waves(self.size, r, self.dtype, self.device, not conjugate)
        back = _waves(self.size, r, self.dtype, self.device, conjugate)[2]
        y = torch.matmul(across / H, spectrum.reshape(half(W), H, -1)).reshape(half(W), H, b, r, r, -1)
        y = torch.view_as_real(y.permute(2, 5, 1, 3, 4, 0).contiguous())
        return (y.reshape(-1, 2 * r * half(W)) @ back).reshape(b, -1, r * H, r * W)


def check_transform(transform: object) -> None:
    """Raise TypeError unless it is None or a kind of `Fourier`."""
    if transform is not None and not (isinstance(transform, type) and issubclass(transform, Fourier)):
        raise TypeError(f"transform = {transform!r} is no transform; pass FastTransform, MatrixTransform or None to measure")


_CHOICES: dict[tuple, type[Fourier]] = {}


def choose_transform(size: tuple[int, int], channels: int, dtype: torch.dtype, device: torch.device) -> Fourier:
    """The faster transform for products of this size, measured once a process.

    What is kept is the choice. The two agree to rounding, and the tests hold them to it.
    """
    key = (size, channels, dtype, device)
    if key not in _CHOICES:
        kinds = (MatrixTransform, FastTransform)
        seconds = _seconds([kind(size, dtype, device) for kind in kinds], channels)
        _CHOICES[key] = kinds[seconds.index(min(seconds))]
    return _CHOICES[key](size, dtype, device)


def choices() -> list[list]:
    """What has been chosen in this process, in plain values, for a checkpoint: two transforms differ in their rounding."""
    return [[*size, n, str(dtype), str(device), kind.__name__] for (size, n, dtype, device), kind in _CHOICES.items()]


def choose_again(listed: list[list]) -> None:
    """Take over what `choices` said in another process."""
    kinds = {kind.__name__: kind for kind in (MatrixTransform, FastTransform)}
    for H, W, n, dtype, device, name in listed:
        _CHOICES[((H, W), n, getattr(torch, dtype.removeprefix("torch.")), torch.device(device))] = kinds[name]


def _seconds(candidates: list[Fourier], channels: int) -> list[float]:
    """The time of one product with a block for each frequency, the best of five after one to warm up.

    The candidates take turns, so that a slow moment of the machine hits all of them.
    """
    (H, W), dtype, device = candidates[0].size, candidates[0].dtype, candidates[0].device
    batch = max(1, min(16, (1 << 21) // (channels * H * W)))
    # No random numbers: a measurement must not move the generator that seeds a model.
    x, best = torch.ones(batch, channels, H, W, dtype=dtype, device=device), [math.inf] * len(candidates)
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        eye = torch.eye(channels, dtype=dtype.to_complex(), device=device)
        blocks = eye.expand(H * half(W), -1, -1).contiguous()
        for trial in range(6):
            for k, fourier in enumerate(candidates):
                start = time.perf_counter()
                fourier.apply(blocks, x)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                if trial:
                    best[k] = min(best[k], time.perf_counter() - start)
    return best
