"""Norms of block-diagonal operators, and of operators known only by their products; never in a short format."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._base import full_precision

__all__ = ["inverse", "lanczos", "largest_singular_value", "norm_bounds", "solution", "unit"]


def unit(kernel: Tensor) -> Tensor:
    """kernel/||kernel|| by the Frobenius norm, at every scale of the kernel; a zero kernel stays zero, with finite gradients."""
    largest = kernel.detach().abs().max()  # squares of what is divided by it neither overflow nor vanish
    scaled = kernel / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(scaled)
    return scaled / torch.where(norm > 0, norm, 1.0)


def inverse(blocks: Tensor) -> Tensor:
    """The inverse of each block, NaN where it is numerically singular, so that a solve says that it overflowed."""
    found, info = torch.linalg.inv_ex(blocks)
    return torch.where((info == 0)[..., None, None], found, torch.nan)


def solution(blocks: Tensor, right: Tensor) -> Tensor:
    """blocks^-1 right for each block, NaN where it is numerically singular."""
    found, info = torch.linalg.solve_ex(blocks, right)
    return torch.where((info == 0)[..., None, None], found, torch.nan)


def _sizes(blocks: Tensor) -> Tensor:
    """||M||_F for each block; of real and imaginary parts side by side, without the modulus of every complex entry."""
    entries = torch.view_as_real(blocks) if blocks.is_complex() else blocks
    return torch.linalg.vector_norm(entries.flatten(1), dim=1)


@full_precision
def norm_bounds(blocks: Tensor, squarings: int = 3) -> Tensor:
    """An upper bound on ||M||_2 for each block M, within a factor n^(1/(4q)) for q = 2^squarings.

    ||M||_2 = rho(M*M)^(1/2) <= ||(M*M)^q||_F^(1/(2q)). Products only; a singular value decomposition of every block
    would cost more than the solve it serves.

    Parameters
    ----------
    blocks : Tensor
        Shape ``(F, rows, columns)``, real or complex; the smaller of M*M and MM* is formed.
    squarings : int
        How often M*M is squared.

    Returns
    -------
    Tensor
        Shape ``(F,)``, real; rounding is allowed for.
    """
    gram = blocks.mH @ blocks if blocks.shape[-1] <= blocks.shape[-2] else blocks @ blocks.mH
    info = torch.finfo(gram.dtype)
    scale = _sizes(gram).clamp_min(info.tiny)  # keeps the powers from overflowing
    power = gram / scale[:, None, None]
    for _ in range(squarings):
        power = power @ power
    bound = (scale * _sizes(power) ** (0.5**squarings)).sqrt()
    return bound * (1.0 + 1e3 * info.eps)


@full_precision
def largest_singular_value(blocks: Tensor) -> float:
    """max_f ||M_f||_2, exact to rounding: only blocks whose bound reaches the best value so far are decomposed.

    Parameters
    ----------
    blocks : Tensor
        Shape ``(F, rows, columns)``, real or complex.

    Returns
    -------
    float
        Infinite where an entry is NaN or infinite, or a square overflows.
    """
    bounds, order = norm_bounds(blocks).sort(descending=True)
    if not bool(torch.isfinite(bounds).all()):
        return math.inf  # a NaN would compare as smaller than everything
    best, start, chunk = 0.0, 0, 4
    while start < len(order) and float(bounds[start]) > best:
        part = blocks[order[start : start + chunk]]
        gram = part.mH @ part if part.shape[-1] <= part.shape[-2] else part @ part.mH
        best = max(best, float(torch.linalg.eigvalsh(gram)[:, -1].max().clamp_min(0.0).sqrt()))
        start, chunk = start + chunk, 32
    return best


@full_precision
def lanczos(apply, shape: tuple[int, ...], like: Tensor, steps: int, *, starts: int = 8, upper: bool = True) -> float:
    """The largest eigenvalue of a symmetric operator A >= 0, known by its products; with `upper` a bound from above.

    Lanczos's method from several random starts at once, with full reorthogonalisation. Its value theta never exceeds the
    eigenvalue. From one start in N dimensions, the probability that k steps leave theta below (1 - t) times the eigenvalue
    is under 1.648 sqrt(N) exp(-(2k - 1) sqrt(t)) (Kuczynski and Wozniakowski 1992), and independent starts
    multiply their probabilities. t is chosen such that theta/(1 - t) fails with a probability below 1e-12; where the
    steps exhaust the space, theta is the eigenvalue to rounding and t = 0.

    Parameters
    ----------
    apply : callable
        The product, on ``(starts, *shape)``.
    shape : tuple of int
        Of one state.
    like : Tensor
        For dtype and device.
    steps : int
        Products from each start.
    starts : int
        Number of starts.
    upper : bool
        Whether to divide by 1 - t.

    Returns
    -------
    float
        Infinite where a product is NaN or infinite.
    """
    generator, size, info = torch.Generator().manual_seed(0), math.prod(shape), torch.finfo(like.dtype)
    vector = torch.randn(starts, size, generator=generator, dtype=torch.float64).to(like.device, like.dtype)
    vector = vector / torch.linalg.vector_norm(vector, dim=1, keepdim=True)
    exhausted, steps = steps >= size, min(steps, size)
    basis = vector.new_zeros(starts, steps, size)
    matrix = vector.new_zeros(starts, steps, steps)
    for k in range(steps):
        basis[:, k] = vector
        image = apply(vector.reshape(starts, *shape)).reshape(starts, size)
        matrix[:, k, k] = (vector * image).sum(1)
        scale = matrix.abs().amax((1, 2))
        for _ in range(2):  # twice is enough
            known = basis[:, : k + 1]
            image = image - (known.mT @ (known @ image[:, :, None]))[:, :, 0]
        length = torch.linalg.vector_norm(image, dim=1)
        go_on = length > 100.0 * info.eps * scale
        if not bool(go_on.any()):
            exhausted = True
            break
        if k + 1 < steps:
            # A start whose space is exhausted goes on with zeros, which leave its largest value alone.
            matrix[:, k, k + 1] = matrix[:, k + 1, k] = torch.where(go_on, length, 0.0)
            vector = torch.where(go_on[:, None], image / length.clamp_min(info.tiny)[:, None], 0.0)
    if not bool(torch.isfinite(matrix).all()):
        return math.inf
    value = float(torch.linalg.eigvalsh(matrix)[:, -1].max())
    if exhausted or not upper:
        return value
    root = (math.log(1.648 * size**0.5) + 12.0 * math.log(10.0) / starts) / (2 * steps - 1)
    if root >= 1.0:
        raise ValueError(f"{steps} steps from {starts} starts bound nothing in {size} dimensions; use more of them")
    return value / (1.0 - root**2)
