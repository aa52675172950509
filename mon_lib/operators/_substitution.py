"""Back substitution through the tiers, each inverted by Woodbury's identity (MON appendix C, corrected)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._base import full_precision
from ._fourier import Fourier
from ._norms import inverse, solution
from ._parts import in_parts
from ._tiers import Layout, Tier

__all__ = ["multiply", "operator_blocks", "resolvent_blocks", "solve_block", "sweep", "sweep_gradients"]


def solve_block(tier: Tier, unstrided: Tensor, S: Tensor | None, alpha: float) -> tuple[Tensor, Tensor | None]:
    """(P + alpha S*S)^-1 and S times it, for P = (1 + alpha)I - alpha `unstrided` (MON Proposition C1, corrected).

    Woodbury's identity: with K = I + alpha S P^-1 S*, the inverse is P^-1 - alpha P^-1 S* K^-1 S P^-1. P is inverted at each
    frequency of the large grid, K at each frequency of the small one. K couples all n' output channels of S, since each of
    them reads the same inputs; the print inverts one matrix and repeats it for each channel.

    Parameters
    ----------
    tier : Tier
    unstrided : Tensor
        W_ii without its strided part, ``(F, r r, n, n)``.
    S : Tensor, optional
        ``(F, n', r r n)``; none for the last tier.
    alpha : float

    Returns
    -------
    tuple
        ``(F, r r n, r r n)`` and ``(F, n', r r n)``.
    """
    n = unstrided.shape[-1]
    P = (1.0 + alpha) * torch.eye(n, dtype=unstrided.dtype, device=unstrided.device) - alpha * unstrided
    within = tier.merge(inverse(P))
    if S is None:
        return within, None
    right = S @ within
    left = within @ S.mH
    K = torch.eye(S.shape[1], dtype=S.dtype, device=S.device) + alpha * (S @ left)
    image = solution(K, right)  # also S times the inverse: I - alpha S P^-1 S* K^-1 = K^-1
    return within - alpha * (left @ image), image


def sweep(tiers: list[Tier], transforms: list[Fourier], blocks: list[Tensor], parts: list[Tensor], adjoint: bool) -> list[Tensor]:
    """Apply a block lower bidiagonal operator tier by tier, or its adjoint in the opposite order.

    At tier i the blocks map (z_i, t_i) to (y_i, s_i), where t_i is s_{i-1} embedded in the tier's grid; the first tier
    has no t and the last no s. The adjoint runs through the adjoint blocks, so it is exact.
    """
    out: list[Tensor] = [None] * len(parts)
    carried = None
    for i in reversed(range(len(parts))) if adjoint else range(len(parts)):
        tier, fourier = tiers[i], transforms[i]
        x = tier.phases(parts[i])
        if carried is not None:
            x = torch.cat([x, tiers[i + 1].cropped(carried, tier.grid) if adjoint else tier.embedded(carried)], 1)
        y = fourier.apply(blocks[i], x, adjoint)
        out[i], carried = tier.image(y[:, : tier.width]), y[:, tier.width :]
    return out


def sweep_gradients(
    tiers: list[Tier], transforms: list[Fourier], blocks: list[Tensor], parts: list[Tensor], v: list[Tensor], adjoint: bool, wanted
) -> tuple[list[Tensor] | None, list[Tensor | None]]:
    """The gradients of <v, sweep(...)> with respect to the parts and to the blocks, where `wanted`: a bool for the parts, then one
    for each block.

    Of the product only what one tier hands to the next is computed again, and of the gradients of the inputs only what is
    handed back, unless those of the parts are wanted too.
    """
    count = len(parts)
    order = list(reversed(range(count))) if adjoint else list(range(count))
    inputs, carried = {}, None
    for i in order:
        tier, x = tiers[i], tiers[i].phases(parts[i])
        if carried is not None:
            x = torch.cat([x, tiers[i + 1].cropped(carried, tier.grid) if adjoint else tier.embedded(carried)], 1)
        inputs[i] = x
        if i != order[-1]:
            onwards = blocks[i][:, :, tier.width :] if adjoint else blocks[i][:, tier.width :]
            carried = transforms[i].apply(onwards, x, adjoint)
    of_parts, of_blocks, handed = [None] * count, [None] * count, None
    for i in reversed(order):
        tier, fourier, g = tiers[i], transforms[i], tiers[i].phases(v[i])
        if handed is not None:
            g = torch.cat([g, handed], 1)
        if wanted[1 + i]:
            of_blocks[i] = fourier.pull(blocks[i], inputs[i], g, adjoint, (False, True))[1]
        first = i == order[0]
        if wanted[0]:
            of_x = fourier.apply(blocks[i], g, not adjoint)
            of_parts[i], back = tier.image(of_x[:, : tier.width]), of_x[:, tier.width :]
        elif not first:
            back = fourier.apply(blocks[i][:, tier.width :] if adjoint else blocks[i][:, :, tier.width :], g, not adjoint)
        if not first:  # through the adjoint of what embedded it
            handed = tiers[i + 1].embedded(back) if adjoint else tier.cropped(back, tiers[i - 1].grid)
    return (of_parts if wanted[0] else None), of_blocks


def operator_blocks(tiers: list[Tier], symbols) -> list[Tensor]:
    """W as blocks for `sweep`: (z_i, t_i) -> (W_ii z_i - 2 A_ii' t_i, A_{i+1,i} z_i)."""
    blocks = []
    for i, (tier, (unstrided, A, S)) in enumerate(zip(tiers, symbols, strict=True)):
        block = tier.merge(unstrided)
        if S is not None:
            block = torch.cat([block - S.mH @ S, S], 1)
        if i:
            beside = -2.0 * tier.merge(A).mH
            if S is not None:
                beside = torch.cat([beside, torch.zeros_like(S)], 1)
            block = torch.cat([block, beside], 2)
        blocks.append(block)
    return blocks


def resolvent_blocks(tiers: list[Tier], symbols, alpha: float) -> list[Tensor]:
    """(I + alpha(I - W))^-1 by back substitution (MON C6 and C7), as blocks for `sweep`.

    Tier i solves V_i x_i = z_i - 2 alpha A_ii' t_i, with t_i = A_{i,i-1} x_{i-1}, and hands on A_{i+1,i} x_i.
    """
    blocks = []
    for i, (tier, (unstrided, A, S)) in enumerate(zip(tiers, symbols, strict=True)):
        within, image = solve_block(tier, unstrided, S, alpha)
        block = within if image is None else torch.cat([within, image], 1)
        if i:
            block = torch.cat([block, -2.0 * alpha * (block @ tier.merge(A).mH)], 2)
        blocks.append(block)
    return blocks


@full_precision
def multiply(layout: Layout, tiers, transforms, blocks: list[Tensor], z: Tensor, adjoint: bool) -> Tensor:
    """The operator with these blocks, or its transpose, applied to packed states."""

    def product(part, matrices):
        return layout.pack(sweep(tiers, transforms, matrices, layout.split(part), adjoint))

    def pull(part, matrices, v, wanted):
        split = layout.split
        of_parts, of_blocks = sweep_gradients(tiers, transforms, matrices, split(part), split(v), adjoint, wanted)
        return [None if of_parts is None else layout.pack(of_parts), *of_blocks]

    return in_parts(product, z, blocks, pull)
