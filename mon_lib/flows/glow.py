"""Glow: actnorm, mixing and coupling, step by step and on several scales (Kingma and Dhariwal 2018; REF section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .._numbers import check_number, check_size
from ..operators._base import all_finite, full_precision
from .transforms import ActNorm, AffineCoupling, Compose, Dequantisation, InvertibleMixing, SplitPrior, Squeeze, Transform
from .transforms._base import check_batch, together

__all__ = ["Glow"]


class _Levels(Transform):
    """Image to latent vector: each level squeezes and mixes, hands half of its channels on, and keeps the rest."""

    def __init__(self, levels: Sequence[Transform], shapes: Sequence[tuple[int, int, int]]):
        super().__init__()
        self.levels, self.shapes = nn.ModuleList(levels), list(shapes)  # what each level returns

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total, kept = x.new_zeros(len(x)), []
        with together(self):
            for i, level in enumerate(self.levels):
                x, ladj = level.forward_and_ladj(x)
                total = total + ladj
                if i + 1 < len(self.levels):
                    x, rest = x.chunk(2, 1)
                    kept.append(rest.flatten(1))
        return torch.cat([*kept, x.flatten(1)], 1), total

    def inverse(self, y: Tensor) -> Tensor:
        sizes = [math.prod(shape) for shape in self.shapes]
        sizes = [size // 2 for size in sizes[:-1]] + sizes[-1:]
        *kept, last = y.split(sizes, 1)
        x = last.unflatten(1, self.shapes[-1])
        for i in reversed(range(len(self.levels))):
            if i + 1 < len(self.levels):
                c, h, w = self.shapes[i]
                x = torch.cat([x, kept[i].unflatten(1, (c // 2, h, w))], 1)
            x = self.levels[i].inverse(x)
        return x


class Glow(nn.Module):
    """A density of images: a bijection to standard normal numbers, learned by maximum likelihood.

    On each level an image is squeezed, then passes `steps` times through actnorm, mixing and coupling; half of the channels
    then leave it, standardised by what the other half says about them.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width; both sides a multiple of 2^levels.
    levels : int
    steps : int
        K, steps on each level.
    hidden : int
        C, hidden channels of a coupling.
    mixing : callable
        Number of channels to `Transform`: InvertibleMixing, HouseholderMixing, FreeMixing or AuxiliaryMixing, or
        ``functools.partial`` of one of them. With AuxiliaryMixing the model is no density (NEW-DENS).
    quantisation : int
        Number of levels of a pixel.

    Attributes
    ----------
    flow : Transform
        Image in [-1/2, 1/2) to latent vector ``(batch, D)``, D = channels x height x width.

    Raises
    ------
    TypeError, ValueError
        If a number is no positive integer or the shape does not fit, with the shapes that would.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 32, 32),
        levels: int = 3,
        steps: int = 8,
        hidden: int = 64,
        mixing: Callable[[int], Transform] = InvertibleMixing,
        quantisation: int = 256,
    ):
        super().__init__()
        levels, steps, hidden = check_size("levels", levels), check_size("steps", steps), check_size("hidden", hidden)
        if isinstance(mixing, nn.Module) or not callable(mixing):
            raise TypeError(
                f"mixing = {mixing!r} makes no transform of a number of channels; pass a class such as "
                "mon_lib.flows.transforms.FreeMixing, or functools.partial of one"
            )
        if len(tuple(image_shape)) != 3:
            raise ValueError(f"image_shape = {image_shape} must be (channels, height, width)")
        c, h, w = (check_size(name, s) for name, s in zip(("channels", "height", "width"), image_shape, strict=True))
        whole = 2**levels
        if h % whole or w % whole:
            below = tuple(max(s // whole, 1) * whole for s in (h, w))
            raise ValueError(
                f"image_shape = {image_shape} does not fit levels = {levels}: each level halves both sides, so they must be "
                f"multiples of {whole}, for instance {(c, *below)}; or use fewer levels"
            )
        self.image_shape = (c, h, w)
        self.dequantisation = Dequantisation(quantisation)
        parts, shapes = [], []
        for i in range(levels):
            c, h, w = 4 * c, h // 2, w // 2
            block: list[Transform] = [Squeeze()]
            for _ in range(steps):
                block += [ActNorm(c), mixing(c), AffineCoupling(c, hidden)]
            if i + 1 < levels:
                block.append(SplitPrior(c))
            parts.append(Compose(*block))
            shapes.append((c, h, w))
            c = c // 2
        self.flow = _Levels(parts, shapes)

    @property
    def entries(self) -> int:
        """D, the number of entries of an image."""
        return math.prod(self.image_shape)

    def _check(self, x: Tensor) -> None:
        check_batch(x)
        if x.shape[1:] != self.image_shape:
            wanted = ", ".join(map(str, self.image_shape))
            raise ValueError(f"x has shape {tuple(x.shape)}; this flow is for images (batch, {wanted})")

    def log_prob(self, y: Tensor) -> Tensor:
        """The logarithm of the density at continuous images in [-1/2, 1/2), in nats.

        Parameters
        ----------
        y : Tensor
            Shape ``(batch, channels, height, width)``; `dequantisation` makes them of pixels.

        Returns
        -------
        Tensor
            Shape ``(batch,)``.
        """
        self._check(y)
        z, ladj = self.flow.forward_and_ladj(y)
        return ladj - 0.5 * (z.square().sum(1) + self.entries * math.log(2.0 * math.pi))

    def bits_per_dim(self, x: Tensor) -> Tensor:
        """What an entry of an image of pixels costs, in bits, averaged over one draw of the noise; smaller is better.

        Parameters
        ----------
        x : Tensor
            Pixels k/255, shape ``(batch, channels, height, width)``.

        Returns
        -------
        Tensor
            Shape ``(batch,)``.
        """
        self._check(x)
        y, ladj = self.dequantisation.forward_and_ladj(x)
        return -(self.log_prob(y) + ladj) / (self.entries * math.log(2.0))

    forward = bits_per_dim

    @torch.no_grad()
    @full_precision
    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """Images of pixels k/255, ``(n, channels, height, width)``.

        Parameters
        ----------
        n : int
        temperature : float
            Factor of the latent vector, at least 0; below 1 the samples are tamer than the model.
        generator : torch.Generator, optional
            On the model's device.

        Raises
        ------
        ValueError
            If n < 1, temperature < 0, or the flow takes the latent vector to something that is not finite.
        NotImplementedError
            If a mixing has no inverse (AuxiliaryMixing).
        """
        n = check_size("n", n)
        if not (check_number("temperature", temperature, "1 for the model itself") >= 0.0 and math.isfinite(temperature)):
            raise ValueError(f"temperature = {temperature} must be a finite number, at least 0; the model itself has 1")
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(f"generator = {generator!r} is none; pass torch.Generator(device).manual_seed(0), for instance")
        like = next(self.parameters())
        z = temperature * torch.randn(n, self.entries, generator=generator, dtype=like.dtype, device=like.device)
        return self.dequantisation.inverse(self._inverted(z, f"temperature = {float(temperature):g} takes"))

    @torch.no_grad()
    @full_precision
    def reconstruct(self, x: Tensor) -> Tensor:
        """Pixels to latent vector and back to pixels: the same image where the inverse is one.

        Most exact in evaluation mode, in which the mixings compute in float64 both ways.

        Raises
        ------
        ValueError
            If the flow takes an image to something that is not finite.
        NotImplementedError
            If a mixing has no inverse (AuxiliaryMixing).
        """
        self._check(x)
        return self.dequantisation.inverse(self._inverted(self.flow(self.dequantisation.centre(x)), "the flow takes"))

    def _inverted(self, z: Tensor, who: str) -> Tensor:
        """The continuous images of latent vectors ``(batch, D)``.

        Raises
        ------
        ValueError
            If one of them is not finite.
        """
        try:
            y = self.flow.inverse(z)
        except ValueError as error:  # a transform met it on the way
            raise ValueError(f"{who} a latent vector or its image out of the range of {z.dtype}; {_TAMER}") from error
        if not all_finite(y):
            count = int((~torch.isfinite(y).flatten(1).all(1)).sum())
            raise ValueError(f"{who} {count} of {len(y)} latent vectors to images that are not finite; {_TAMER}")
        return y


_TAMER = "lower the temperature, or train with a smaller learning rate: the scales of the flow have grown too far"
