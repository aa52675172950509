"""The experiments: what is trained on what, how, and which claim it answers. To add one, add a line to `_ENTRIES`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from ..flows import Glow
from ..flows.transforms import AuxiliaryMixing, FreeMixing, HouseholderMixing, InvertibleMixing
from ..networks import (
    CNN,
    TABLE_D1,
    Architecture,
    Cayley,
    ConvolutionalMON,
    FullyConnectedMON,
    MatrixExponential,
    MultiTierMON,
    PixelSequence,
    ReflectionRNN,
    SVDClassifier,
    UniformDraw,
    cayley_initialisation,
)
from ..reflections import AuxiliaryReflection, HouseholderProduct
from ..training import Constant, Density, OneCycle, StepDecay
from ._recipes import Experiment, Recipe

__all__ = ["EXPERIMENTS", "find"]


# Table 1 in the text of the paper that we have; the other accuracies of its MONs are lost there.
_TABLE_1 = {
    "mnist-fully-connected": 0.982,
    "mnist-multi-tier": 0.989,
    "cifar10-multi-tier": 0.718,
    "cifar10-multi-tier-large": 0.897,
}
_DIGITS = Recipe(
    "mnist-5k", epochs=6, learning_rate=1e-3, schedule=OneCycle(peak=0.01, up=2, down=3, hold=1), batch_size=64, train=1000
)
_SHORT, _SHORTEST = OneCycle(peak=0.01, up=1, down=2, hold=1), OneCycle(peak=0.01, up=1, down=1, hold=0)
_GREY = (("in_channels", 1), ("image_size", (28, 28)))


def _of_table_d1(row: Architecture) -> Experiment:
    paper = Recipe(row.data, row.epochs, row.learning_rate, row.schedule, augmented=row.augmented)
    quick = _DIGITS
    if row.data != "mnist":
        # Colour images need a download, and these networks time: their quick runs see digits, and only show that all works.
        images, epochs, cycle = (500, 4, _SHORT) if row.parameters < 500_000 else (256, 2, _SHORTEST)
        quick = replace(_DIGITS, train=images, test=images, epochs=epochs, schedule=cycle, options=_GREY)
    question = f"What accuracy does this network of Table D1 reach on {row.data}?"
    return Experiment(row.name, "MON-TAB1", question, row.build, row.parameters, paper, quick, _TABLE_1.get(row.name))


# Four networks of nearly the same size: the question is what the structure of W is worth.
_EQUAL_SIZE: Mapping[str, tuple[str, Callable[..., nn.Module], int]] = {
    "fully-connected": ("a dense W", FullyConnectedMON, 84_313),
    "single": ("a convolution as W", partial(ConvolutionalMON, channels=56), 84_460),
    "multi-tier": ("a W on three scales", partial(MultiTierMON, channels=(16, 32, 32)), 81_394),
    "cnn": ("an explicit convolutional network", partial(CNN.matching, 84_460), 84_570),
}


def _equal_size(data: str, kind: str, paper: Recipe, quick: Recipe) -> Experiment:
    what, network, parameters = _EQUAL_SIZE[kind]
    question = f"What accuracy does {what} reach on {data} with about 84,000 parameters?"
    return Experiment(f"{data}-{kind}", "MON-TAB1", question, network, parameters, paper, quick)


# Six norm-preserving maps of 784 units each. The paper has Adam's default rate and no word on epochs and batch size; a matrix
# that is formed once a batch gets cheaper with its size, so the quick run takes few large batches.
_SVD: Mapping[str, tuple[str, Callable[[int], nn.Module]]] = {
    "auxiliary": ("one auxiliary reflection a map", AuxiliaryReflection),
    "householder": ("784 reflections a map", partial(HouseholderProduct, k=784)),
    "householder-uniform": (
        "784 reflections a map, drawn as the paper draws them,",
        UniformDraw(partial(HouseholderProduct, k=784)),
    ),
    "cayley": ("Cayley maps", Cayley),
    "exponential": ("matrix exponentials", MatrixExponential),
}


def _svd(kind: str) -> Experiment:
    what, orthogonal = _SVD[kind]
    question = f"What error does an SVD network with {what} reach, by epoch and by second?"
    paper, quick = Recipe("mnist", 20, 1e-3, Constant()), Recipe("mnist-5k", 6, 1e-3, Constant(), batch_size=250, train=1000)
    network = partial(SVDClassifier, orthogonal=orthogonal)
    return Experiment(f"svd-mnist-5k-{kind}", "REF-31", question, network, 3_698_138, paper, quick)


# Glow as in appendix B.3, with what mixes the channels of a pixel exchanged. The quick run sees patches of two photographs.
_GLOW: Mapping[str, tuple[str, Callable[[int], nn.Module], int, float | None]] = {
    "free": ("free 1x1 convolutions", FreeMixing, 736_332, 3.66),
    "householder": ("orthogonal 1x1 convolutions, products of reflections,", HouseholderMixing, 711_468, None),
    "kappa-1.5": ("reflections under the paper's condition", partial(InvertibleMixing, kappa=1.5), 711_468, None),
    "kappa-1.9": ("reflections with condition number below 1.9", partial(InvertibleMixing, kappa=1.9), 711_468, None),
    "auxiliary": ("free auxiliary reflections, which are no bijections,", AuxiliaryMixing, 711_468, None),
}


def _glow(kind: str) -> Experiment:
    what, mixing, parameters, reported = _GLOW[kind]
    question = f"How many bits per dimension does Glow with {what} need?"
    paper = Recipe("cifar10", 80, 1e-3, Constant(), batch_size=64, objective=Density())
    small = (("image_shape", (3, 16, 16)), ("levels", 2), ("steps", 4), ("hidden", 32))
    cycle = OneCycle(peak=3e-3, up=2, down=5, hold=1)
    quick = Recipe("photo-patches", 8, 1e-3, cycle, batch_size=64, options=small, objective=Density())
    network = partial(Glow, mixing=mixing)
    return Experiment(f"glow-photo-patches-{kind}", "REF-33", question, network, parameters, paper, quick, reported)


# Pixel by pixel, a thousand digits of 14 x 14 in the quick run. All but the single mirror begin at one rotation.
_RNN: Mapping[str, tuple[str, Callable[[Tensor], nn.Module], int]] = {
    "auxiliary": ("one auxiliary reflection", AuxiliaryReflection.from_orthogonal, 31_120),
    "one-reflection": ("one reflection", lambda U: HouseholderProduct(len(U), 1), 2_390),
    "many-reflections": ("170 reflections", HouseholderProduct.from_orthogonal, 31_120),
    "orthogonal": ("an orthogonal matrix", Cayley.from_orthogonal, 31_120),
}


def _recurrent(transition: Callable[[Tensor], nn.Module], hidden: int = 170, shrink: int = 1) -> ReflectionRNN:
    U = cayley_initialisation(hidden)
    model = ReflectionRNN(1, hidden, transition=nn.Identity(), read=PixelSequence(1, shrink))
    model.transition = transition(U)  # last: whatever this draws, all else is the same with the same seed
    return model


def _rnn(kind: str) -> Experiment:
    what, transition, parameters = _RNN[kind]
    question = f"What error does a recurrent network with {what} a step reach on digits, pixel by pixel?"
    paper = Recipe("mnist", 70, 5e-4, Constant())
    options = (("hidden", 64), ("shrink", 2))
    quick = Recipe("mnist-5k", 30, 5e-4, OneCycle(peak=2e-3, up=10, down=20, hold=0), batch_size=50, train=1000, options=options)
    return Experiment(f"rnn-mnist-5k-{kind}", "REF-32", question, partial(_recurrent, transition), parameters, paper, quick)


_ENTRIES = (
    *(_of_table_d1(row) for row in TABLE_D1.values()),
    *(_equal_size("mnist-5k", kind, Recipe("mnist-5k", 40, 1e-3, StepDecay(10)), _DIGITS) for kind in _EQUAL_SIZE),
    *(
        _equal_size(
            "fashion-mnist",
            kind,
            Recipe("fashion-mnist", 40, 1e-3, StepDecay(10)),
            replace(_DIGITS, data="fashion-mnist", test=1000),
        )
        for kind in _EQUAL_SIZE
    ),
    *map(_svd, _SVD),
    *map(_rnn, _RNN),
    *map(_glow, _GLOW),
)

EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in _ENTRIES}
"""Name to `Experiment`."""


def find(name: str) -> Experiment:
    """The experiment of this name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(str(name), EXPERIMENTS, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; python -m mon_lib.experiments list shows them"
        raise ValueError(f"no experiment is called {name!r}{hint}")
    return EXPERIMENTS[name]
