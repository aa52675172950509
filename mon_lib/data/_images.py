"""Labelled images in memory, the paper's augmentation, and a deterministic way through them (MON appendix D.2)."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["CropAndFlip", "Images", "batches"]


@dataclass(frozen=True, eq=False)
class CropAndFlip:
    """Zero-pad, crop at random to the old size, flip left and right with probability 1/2 (MON D.2).

    Parameters
    ----------
    padding : int
        Pixels of padding on each side; the paper pads 32 x 32 to 40 x 40.
    fill : float or Tensor
        The padding's value, or one for each channel. A black pixel of a normalised image is ``-mean/std``.
    flip : bool
        Whether to flip; digits should not be.
    """

    padding: int = 4
    fill: float | Tensor = 0.0
    flip: bool = True

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment a batch, each image on its own.

        Parameters
        ----------
        images : Tensor
            Shape ``(batch, channels, height, width)``.
        generator : torch.Generator
            On the CPU; the only source of randomness.

        Returns
        -------
        Tensor
            Of the same shape.
        """
        batch, channels, height, width = images.shape
        p = self.padding
        fill = torch.as_tensor(self.fill, dtype=images.dtype, device=images.device).reshape(1, -1, 1, 1)
        padded = fill.expand(batch, channels, height + 2 * p, width + 2 * p).clone()
        padded[:, :, p : p + height, p : p + width] = images
        top, left = torch.randint(2 * p + 1, (2, batch), generator=generator)
        columns = torch.arange(width).expand(batch, width)
        if self.flip:
            flipped = torch.rand(batch, generator=generator) < 0.5
            columns = torch.where(flipped[:, None], columns.flip(1), columns)
        rows = (top[:, None] + torch.arange(height))[:, :, None].to(images.device)
        columns = (left[:, None] + columns)[:, None, :].to(images.device)
        index = torch.arange(batch, device=images.device)[:, None, None]
        return padded[index, :, rows, columns].permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Images(Dataset):
    """A set of labelled images in memory.

    Attributes
    ----------
    name : str
        What it was loaded as.
    images : Tensor
        Shape ``(n, channels, height, width)``, float32, with mean 0 and standard deviation 1 in each channel of the
        training set (the test set is shifted and scaled by the training set's numbers).
    labels : Tensor
        Shape ``(n,)``, int64.
    classes : tuple of str
        The name of each label.
    mean, std : Tensor
        Shape ``(channels,)``: the training set's, of pixels in [0, 1].
    augment : CropAndFlip or None
        Applied to each training batch by :func:`mon_lib.training.fit`; off unless `augmented` was called.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor
    augment: CropAndFlip | None = None

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.images.shape[1:]))
        augment = "" if self.augment is None else f", augment={self.augment!r}"
        return f"Images({self.name!r}: {len(self)} of {shape}, {len(self.classes)} classes{augment})"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int | slice) -> tuple[Tensor, int] | Images:
        """One image with its label, or for a slice a set of its own.

        Raises
        ------
        TypeError
            If the index is neither.
        """
        if isinstance(index, slice):
            return replace(self, images=self.images[index], labels=self.labels[index])
        try:
            index = operator.index(index)
        except TypeError:
            kind = type(index).__name__
            raise TypeError(f"an index of images is an integer or a slice, not a {kind}; index .images and .labels") from None
        return self.images[index], int(self.labels[index])

    def take(self, n: int) -> Images:
        """The first n images; of mnist-5k, any multiple of ten has equally many of each digit."""
        if not 1 <= n <= len(self):
            raise ValueError(f"n = {n} images were asked for; {self.name} has 1 to {len(self)}")
        return replace(self, images=self.images[:n], labels=self.labels[:n])

    def augmented(self, padding: int = 4, flip: bool = True) -> Images:
        """The same images, to be augmented in training as the paper augments CIFAR-10 (black padding)."""
        return replace(self, augment=CropAndFlip(padding, (-self.mean / self.std), flip))

    def pixels(self) -> Tensor:
        """The images before normalisation, in [0, 1], for showing them."""
        shape = (1, -1, 1, 1)
        return (self.images * self.std.reshape(shape) + self.mean.reshape(shape)).clamp(0.0, 1.0)

    def as_pixels(self) -> Images:
        """The same set with its images in [0, 1] in place of the normalised ones, as a density of pixels wants them."""
        black = torch.zeros_like(self.mean)
        augment = None if self.augment is None else replace(self.augment, fill=black)
        return replace(self, images=self.pixels(), mean=black, std=torch.ones_like(self.std), augment=augment)

    def to(self, device: torch.device | str) -> Images:
        """The same set with its tensors on `device`."""
        names = ("images", "labels", "mean", "std")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def batches(images: Images, batch_size: int, generator: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Go once through a set, in its own order or in a random one.

    Parameters
    ----------
    images : Images
        The set; batches live on its device.
    batch_size : int
        The last batch may be smaller.
    generator : torch.Generator, optional
        On the CPU; draws the order. The same state gives the same batches.

    Yields
    ------
    tuple of Tensor
        ``(batch, channels, height, width)`` and ``(batch,)``.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size} must be a positive integer")
    n = len(images)
    order = None if generator is None else torch.randperm(n, generator=generator).to(images.labels.device)
    for start in range(0, n, batch_size):
        rows = slice(start, start + batch_size) if order is None else order[start : start + batch_size]
        yield images.images[rows], images.labels[rows]
