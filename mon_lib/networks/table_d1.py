"""The networks of MON Table D1 by name, with what the table says about their training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import nn

from ..training import OneCycle, Schedule, StepDecay
from .classifiers import FullyConnectedMON
from .convolutional import ConvolutionalMON, MultiTierMON

__all__ = ["TABLE_D1", "Architecture"]


@dataclass(frozen=True)
class Architecture:
    """One column of Table D1.

    Attributes
    ----------
    name : str
        Its key in `TABLE_D1`.
    data : str
        What `mon_lib.data.load` calls the data set.
    parameters : int
        What our model has.
    printed : int
        What the table says.
    epochs : int
        Passes through the training set.
    learning_rate : float
        Where the schedule starts.
    schedule : Schedule
        As `mon_lib.training.fit` takes it.
    augmented : bool
        Whether training images are shifted and flipped (`mon_lib.data.CropAndFlip`).
    printed_channels : str
        The channels or units as the table has them.
    model : type
        The network.
    options : tuple
        Its arguments, as pairs of name and value.
    """

    name: str
    data: str
    parameters: int
    printed: int
    epochs: int
    learning_rate: float
    schedule: Schedule
    augmented: bool
    printed_channels: str
    model: Callable[..., nn.Module]
    options: tuple[tuple[str, object], ...]

    def build(self, **kwargs) -> nn.Module:
        """The network, with further or other arguments of its class, such as ``solver`` or ``m``."""
        return self.model(**{**dict(self.options), **kwargs})


_IMAGES = {"mnist": (1, (28, 28)), "svhn": (3, (32, 32)), "cifar10": (3, (32, 32))}


def _row(name: str, size: int, model, channels, schedule: Schedule, rate: float = 1e-3, printed: str | None = None) -> Architecture:
    data = name.split("-")[0]
    in_channels, image_size = _IMAGES[data]
    options = {"in_channels": in_channels, "image_size": image_size, "channels": channels}
    if model is FullyConnectedMON:
        options = {"in_features": 784, "units": channels}
    large = isinstance(schedule, OneCycle)
    text = str(channels) if printed is None else printed
    epochs = 65 if large else 40
    return Architecture(name, data, size, size, epochs, rate, schedule, large, text, model, tuple(options.items()))


_ROWS = (
    _row("mnist-fully-connected", 84_313, FullyConnectedMON, 87, StepDecay(10)),
    # The table prints 54 channels, which make 79,500 parameters; 56 make the number of parameters that it prints.
    _row("mnist-single", 84_460, ConvolutionalMON, 56, StepDecay(10), printed="54"),
    _row("mnist-multi-tier", 81_394, MultiTierMON, (16, 32, 32), StepDecay(10)),
    _row("svhn-single", 172_218, ConvolutionalMON, 81, StepDecay(25)),
    _row("svhn-multi-tier", 170_194, MultiTierMON, (16, 32, 60), StepDecay(10)),
    _row("cifar10-single", 172_218, ConvolutionalMON, 81, StepDecay(25)),
    _row("cifar10-multi-tier", 170_194, MultiTierMON, (16, 32, 60), StepDecay(10), 1e-2),
    _row("cifar10-single-large", 853_612, ConvolutionalMON, 200, OneCycle(0.01)),
    _row("cifar10-multi-tier-large", 1_014_546, MultiTierMON, (64, 128, 128), OneCycle(0.05)),
)

TABLE_D1: Mapping[str, Architecture] = MappingProxyType({row.name: row for row in _ROWS})
"""Name to `Architecture`, in the order of the data sets."""
