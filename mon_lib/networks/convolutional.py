"""Convolutional image classifiers: the two equilibrium networks of MON sections 4.2 and 4.3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from .. import prox
from ..equilibrium import Equilibrium
from ..operators import Convolution, MultiTier
from ..splitting import PeacemanRachford, Solver
from ._images import Injection, check_multiple, pair
from .classifiers import _positive

__all__ = ["ConvolutionalMON", "MultiTierMON"]


class ConvolutionalMON(nn.Module):
    """x -> z* -> logits, with z* = sigma(Wz* + Ux + b), W and U convolutions, and logits W_o AvgPool(z*) + b_o.

    The state is the image with a border of half a kernel, which the prox holds at zero, so that the circular W pads with
    zeros (MON 4.2). A, B and U have one kernel width. 56 channels are the 84,460 parameters that Table D1 prints for MNIST
    beside "54", and 81 the 172,218 of SVHN and CIFAR-10. Source: MON sections 4.2 and D.1.

    Parameters
    ----------
    in_channels : int
        Of the image.
    image_size : int or tuple of int
        H and W of the image.
    channels : int
        Of z.
    classes : int
        Number of logits.
    kernel_size : int
        Width of the kernels, odd.
    m : float
        Strong monotonicity of I - W; the paper uses 1 throughout.
    activation : mon_lib.prox.Activation, optional
        sigma inside the border; default ReLU.
    solver : Solver, optional
        Default ``PeacemanRachford(tol=1e-3)``, as for `FullyConnectedMON`.
    pool : int
        Width of the average pooling before the readout.
    crop : bool
        True pools the state without its border. False pools it with its border, from the top left corner, and cuts what is
        left over, as the models that the authors released do.

    Attributes
    ----------
    equilibrium : Equilibrium
        x -> z*, ``(batch, channels, H + 2 border, W + 2 border)``.
    readout : nn.Linear
        The pooled z* -> logits.
    border : int
        Half the kernel width.

    Raises
    ------
    ValueError
        If a number is out of its range or the image does not fit; the message names sizes that do. On use, if x has another
        shape than the network is for.

    Examples
    --------
    >>> from mon_lib.networks import count_parameters
    >>> count_parameters(ConvolutionalMON())
    84460
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = (28, 28),
        channels: int = 56,
        classes: int = 10,
        kernel_size: int = 3,
        m: float = 1.0,
        activation: prox.Activation | None = None,
        solver: Solver | None = None,
        *,
        pool: int = 4,
        crop: bool = True,
    ):
        super().__init__()
        _positive(in_channels=in_channels, channels=channels, classes=classes, kernel_size=kernel_size, pool=pool)
        image, self.border = pair(image_size), kernel_size // 2
        state = tuple(s + 2 * self.border for s in image)
        if crop:
            check_multiple(image, pool, f"the readout averages {pool} x {pool} pixels", "; or pass another pool, or crop=False")
        elif min(state) < pool:
            raise ValueError(f"pool = {pool} is wider than the state, {state[0]} x {state[1]}; pass a smaller one")
        self.image_size, self.pool, self.crop = image, pool, crop
        self.equilibrium = Equilibrium(
            Convolution(channels, state, kernel_size, m),
            Injection(in_channels, channels, kernel_size, image),
            prox.Border(_activation(activation), self.border),
            PeacemanRachford(tol=1e-3) if solver is None else solver,
        )
        self.readout = nn.Linear(channels * math.prod(s // pool for s in (image if crop else state)), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of images ``(batch, in_channels, H, W)``."""
        z, border = self.equilibrium(x), self.border
        if self.crop and border:
            z = z[..., border:-border, border:-border]
        return self.readout(F.avg_pool2d(z, self.pool).flatten(1))

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}, pool={self.pool}, crop={self.crop}"


class MultiTierMON(nn.Module):
    """x -> z* -> logits, with z* = sigma(Wz* + Ux + b) on several scales, each half the size of the one before.

    U feeds the first tier only, b is zero on the others, and the logits are W_o z*_last + b_o. Every tier keeps a border of
    half a kernel, which the prox holds at zero, and the readout sees the whole last tier, border included: so say the
    counts of Table D1, 81,394 for the defaults. Source: MON sections 4.3, C and D.1.

    Parameters
    ----------
    in_channels : int
        Of the image.
    image_size : int or tuple of int
        H and W of the image, multiples of 2^(tiers - 1).
    channels : sequence of int
        Of each tier, two tiers or more.
    classes : int
        Number of logits.
    kernel_size : int
        Width of the kernels, odd.
    m : float
        Strong monotonicity of I - W; the paper uses 1 throughout.
    activation : mon_lib.prox.Activation, optional
        sigma inside the borders; default ReLU.
    solver : Solver, optional
        Default ``PeacemanRachford(tol=1e-3)``, as for `FullyConnectedMON`.

    Attributes
    ----------
    equilibrium : Equilibrium
        x -> z*, packed, ``(batch, n)``; ``equilibrium.operator.split`` gives the tiers.
    readout : nn.Linear
        The last tier, flattened -> logits.
    border : int
        Half the kernel width.

    Raises
    ------
    ValueError
        If a number is out of its range or the image does not fit; the message names sizes that do. On use, if x has another
        shape than the network is for.

    Examples
    --------
    >>> from mon_lib.networks import count_parameters
    >>> count_parameters(MultiTierMON())
    81394
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = (28, 28),
        channels: Sequence[int] = (16, 32, 32),
        classes: int = 10,
        kernel_size: int = 3,
        m: float = 1.0,
        activation: prox.Activation | None = None,
        solver: Solver | None = None,
    ):
        super().__init__()
        if not isinstance(channels, (tuple, list)) or len(channels) < 2:
            raise ValueError(f"channels = {channels!r}; pass a positive integer for each of two or more tiers, as (16, 32, 32)")
        counts = {f"channels[{i}]": n for i, n in enumerate(channels)}
        _positive(in_channels=in_channels, classes=classes, kernel_size=kernel_size, **counts)
        image, self.border, tiers = pair(image_size), kernel_size // 2, len(channels)
        check_multiple(image, 2 ** (tiers - 1), f"each of {tiers} tiers has half the size of the one before")
        operator = MultiTier(tuple(channels), tuple(s + 2 * self.border for s in image), kernel_size, m, self.border)
        self.image_size = image
        self.equilibrium = Equilibrium(
            operator,
            Injection(in_channels, channels[0], kernel_size, image, operator.state_size),
            prox.Masked(_activation(activation), operator.interior()),
            PeacemanRachford(tol=1e-3) if solver is None else solver,
        )
        self._last = channels[-1] * math.prod(operator.sizes[-1])
        self.readout = nn.Linear(self._last, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of images ``(batch, in_channels, H, W)``."""
        return self.readout(self.equilibrium(x)[:, -self._last :])

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}"


def _activation(activation: prox.Activation | None) -> prox.Activation:
    return prox.ReLU() if activation is None else prox.as_activation(activation)
