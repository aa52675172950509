"""What training makes small, and how it is measured on the test set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..data import Images, batches

__all__ = ["Classification", "Density", "Objective", "evaluate"]


class Objective(ABC):
    """A loss of batches, and a measure of a model on a set of images."""

    @abstractmethod
    def loss(self, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
        """The mean loss of images x ``(batch, channels, height, width)`` with labels y ``(batch,)``."""

    @abstractmethod
    def measure(self, model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, float | None]:
        """Mean loss and accuracy of the model in evaluation mode; None where there is no accuracy.

        Raises
        ------
        ValueError
            If there are no images.
        """


@dataclass(frozen=True)
class Classification(Objective):
    """Cross-entropy of the logits that the model returns, and how often the largest is right."""

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
        logits, expected = model(x), (len(y), classes)
        if logits.shape != expected:
            raise ValueError(f"the model returned logits of shape {tuple(logits.shape)}, expected {expected}")
        return cross_entropy(logits, y)

    def measure(self, model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, float]:
        loss, correct = 0.0, 0
        for x, y in _evaluation(model, images, batch_size):
            logits = model(x)
            loss += float(cross_entropy(logits, y, reduction="sum"))
            correct += int((logits.argmax(1) == y).sum())
        return loss / len(images), correct / len(images)


@dataclass(frozen=True)
class Density(Objective):
    """The mean of what the model returns for each image, such as the bits per dimension of :class:`mon_lib.flows.Glow`.

    A model of discrete images adds noise. On the test set it is drawn from the same seed each time, so that epochs compare.

    Parameters
    ----------
    seed : int
    """

    seed: int = 0

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
        values = model(x)
        if values.shape != (len(x),):
            raise ValueError(f"the model returned shape {tuple(values.shape)}, expected one number for each image, {(len(x),)}")
        return values.mean()

    def measure(self, model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, None]:
        device = next(model.parameters(), images.images).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            total = sum(float(model(x).sum()) for x, _ in _evaluation(model, images, batch_size))
        return total / len(images), None


def _evaluation(model: nn.Module, images: Images, batch_size: int):
    """Batches on the model's device, without a graph, the model in evaluation mode and then back in the one that it was in."""
    if len(images) == 0:
        raise ValueError(f"{images.name} has no images here; evaluate the model on at least one")
    was_training = model.training
    device = next(model.parameters(), images.images).device
    model.eval()
    try:
        with torch.no_grad():
            yield from batches(images.to(device), batch_size)
    finally:
        model.train(was_training)


def evaluate(model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, float]:
    """Mean cross-entropy and accuracy in [0, 1] of a classifier; leaves it in the mode it was in.

    On the model's device, or on that of the images where the model has no parameters.

    Raises
    ------
    ValueError
        If there are no images.
    """
    return Classification().measure(model, images, batch_size)
