"""An explicit convolutional network, to compare with."""

from __future__ import annotations

import math

from torch import Tensor, nn

from ._images import check_images, check_multiple, pair
from .classifiers import _positive

__all__ = ["CNN"]


def _pooled(image_size: int | tuple[int, int], pool: int) -> tuple[int, int]:
    """(H, W) of an image that the pooling divides without rest."""
    image = pair(image_size)
    check_multiple(image, pool, f"the readout averages {pool} x {pool} pixels", "; or pass another pool")
    return image


class CNN(nn.Sequential):
    """An explicit network: three convolutions with ReLU, the pooling and readout of `ConvolutionalMON`.

    The first convolution is U and the other two, from n channels to n, stand for A and B, so that equal counts mean nearly
    equal widths.

    Parameters
    ----------
    in_channels : int
        Of the image.
    image_size : int or tuple of int
        H and W of the image, multiples of `pool`.
    channels : int
        Of each of the three layers.
    classes : int
        Number of logits.
    pool : int
        Width of the average pooling.

    Raises
    ------
    ValueError
        If a number is out of its range or the image does not fit. On use, if x has another shape than the network is for.
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_size: int | tuple[int, int] = (28, 28),
        channels: int = 56,
        classes: int = 10,
        *,
        pool: int = 4,
    ):
        _positive(in_channels=in_channels, channels=channels, classes=classes, pool=pool)
        image = _pooled(image_size, pool)
        layers: list[nn.Module] = []
        for before in (in_channels, channels, channels):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
        pooled = channels * math.prod(s // pool for s in image)
        super().__init__(*layers, nn.AvgPool2d(pool), nn.Flatten(), nn.Linear(pooled, classes))
        self.in_channels, self.image_size = in_channels, image

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of images ``(batch, in_channels, H, W)``."""
        check_images(x, (self.in_channels, *self.image_size), self[0].weight)
        return super().forward(x)

    @classmethod
    def matching(
        cls, parameters: int, in_channels: int = 1, image_size: int | tuple[int, int] = (28, 28), classes: int = 10
    ) -> CNN:
        """As many channels as bring the number of parameters closest to `parameters`.

        Against the 84,460 of `ConvolutionalMON` they are 56, and 110 parameters more.

        Raises
        ------
        ValueError
            If one channel alone has more parameters, or a number is out of its range or the image does not fit.
        """
        _positive(in_channels=in_channels, classes=classes)
        pixels = math.prod(s // 4 for s in _pooled(image_size, 4))
        slope = 9 * in_channels + 3 + classes * pixels  # 18 n^2 + slope n + classes parameters
        least = 18 + slope + classes
        if isinstance(parameters, bool) or not isinstance(parameters, int) or parameters < least:
            raise ValueError(f"parameters = {parameters!r} must be an integer, at least {least}: so many has one channel")
        width = (math.sqrt(slope**2 + 72 * (parameters - classes)) - slope) / 36
        below = max(int(width), 1)
        gap = {n: abs(18 * n * n + slope * n + classes - parameters) for n in (below, below + 1)}
        return cls(in_channels, image_size, min(gap, key=gap.get), classes)
