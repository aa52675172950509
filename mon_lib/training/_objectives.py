"""What training makes small, and how it is measured on the test set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .._numbers import check_whole
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
            If there are no images, or the model does not return what the objective takes.
        """


@dataclass(frozen=True)
class Classification(Objective):
    """Cross-entropy of the logits that the model returns, and how often the largest is right."""

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
        return cross_entropy(self._logits(model, x, classes), y)

    def measure(self, model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, float]:
        loss, correct = 0.0, 0
        for x, y in _evaluation(model, images, batch_size):
            logits = self._logits(model, x, len(images.classes))
            loss += float(cross_entropy(logits, y, reduction="sum"))
            correct += int((logits.argmax(1) == y).sum())
        return loss / len(images), correct / len(images)

    @staticmethod
    def _logits(model: nn.Module, x: Tensor, classes: int) -> Tensor:
        logits, expected = model(x), (len(x), classes)
        if _shape(logits) == (len(x),):
            raise ValueError(
                f"the model returned shape {(len(x),)}, one number for each image, expected logits {expected}; a density such as "
                "Glow is trained with objective=training.Density(), measured by training.Density().measure(model, images)"
            )
        if _shape(logits) != expected:
            raise ValueError(f"the model returned logits of shape {_shape(logits)}, expected {expected}, one for each class")
        return logits


@dataclass(frozen=True)
class Density(Objective):
    """The mean of what the model returns for each image, such as the bits per dimension of :class:`mon_lib.flows.Glow`.

    A model of discrete images adds noise. On the test set it is drawn from the same seed each time, so that epochs compare.

    Parameters
    ----------
    seed : int
        From 0 to 2**63 - 1.

    Raises
    ------
    TypeError
        If the seed is no integer.
    ValueError
        If it is out of range.
    """

    seed: int = 0

    def __post_init__(self):
        check_whole("seed", self.seed, "an integer, such as 0")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed = {self.seed} must be from 0 to 2**63 - 1")
        object.__setattr__(self, "seed", int(self.seed))  # of NumPy's it would have another repr, which results record

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
        return self._values(model, x).mean()

    def measure(self, model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, None]:
        device = next(model.parameters(), images.images).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            total = sum(float(self._values(model, x).sum()) for x, _ in _evaluation(model, images, batch_size))
        return total / len(images), None

    @staticmethod
    def _values(model: nn.Module, x: Tensor) -> Tensor:
        values = model(x)
        if _shape(values) != (len(x),):
            raise ValueError(
                f"the model returned shape {_shape(values)}, expected one number for each image, {(len(x),)}; a classifier is "
                "trained with objective=training.Classification(), the default, measured by training.evaluate(model, images)"
            )
        return values


def _shape(returned) -> tuple[int, ...] | str:
    return tuple(returned.shape) if isinstance(returned, Tensor) else f"of no tensor but a {type(returned).__name__}"


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

    On the model's device, or on that of the images where the model has no parameters. A density is measured by
    ``Density().measure``.

    Raises
    ------
    ValueError
        If there are no images, or the model does not return logits ``(batch, classes)``.
    """
    return Classification().measure(model, images, batch_size)
