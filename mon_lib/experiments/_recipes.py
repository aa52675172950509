"""What an experiment is: a network, the data and the training of its two profiles, and the claim that it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..data import Images, load
from ..training import Classification, Density, Objective, Schedule

__all__ = ["PROFILES", "Experiment", "Recipe"]

PROFILES = ("quick", "paper")
CLASSIFICATION = Classification()


@dataclass(frozen=True)
class Recipe:
    """The data of a run and how to train on it, for `mon_lib.training.fit`.

    Attributes
    ----------
    data : str
        What :func:`mon_lib.data.load` calls the set.
    epochs : int
    learning_rate : float
        Where the schedule starts.
    schedule : Schedule
    batch_size : int
    augmented : bool
        Whether training images are shifted and flipped.
    train, test : int or None
        How many images of each half, from its beginning; None for all.
    options : tuple
        Further arguments of the model, as pairs, where these images are not those that it is made for.
    objective : Objective
        What training makes small. A density gets pixels in [0, 1], a classifier normalised images.
    """

    data: str
    epochs: int
    learning_rate: float
    schedule: Schedule
    batch_size: int = 128
    augmented: bool = False
    train: int | None = None
    test: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    objective: Objective = CLASSIFICATION

    def load(self, root=None) -> tuple[Images, Images]:
        """The training and the test images; the errors are those of :func:`mon_lib.data.load`."""
        train, test = (load(self.data, half, root) for half in (True, False))
        train = train if self.train is None else train.take(self.train)
        test = test if self.test is None else test.take(self.test)
        if isinstance(self.objective, Density):
            train, test = train.as_pixels(), test.as_pixels()
        return (train.augmented() if self.augmented else train), test

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {
            "data": self.data,
            "train": self.train,
            "test": self.test,
            "augmented": self.augmented,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "schedule": repr(self.schedule),
            # Only where there are any, so that older results stay those of the same recipe; lists, as JSON gives them back.
            **({"options": {k: list(v) if isinstance(v, tuple) else v for k, v in self.options}} if self.options else {}),
            **({"objective": repr(self.objective)} if self.objective != CLASSIFICATION else {}),
        }


@dataclass(frozen=True)
class Experiment:
    """A network, two recipes, and what they are to answer.

    Attributes
    ----------
    name : str
        Its key in `EXPERIMENTS`.
    claim : str
        An id of the ledger.
    question : str
        What the run answers.
    network : callable
        Makes the model.
    parameters : int
        What the model of the profile "paper" has.
    paper : Recipe
        The whole set and the paper's training.
    quick : Recipe
        Minutes on a CPU: less data, or other data, and fewer epochs.
    reported : float or None
        The test accuracy, or the bits per dimension, that the paper reports for the profile "paper"; None where it has none,
        or where the text that we have of it lost the number.
    """

    name: str
    claim: str
    question: str
    network: Callable[..., nn.Module]
    parameters: int
    paper: Recipe
    quick: Recipe
    reported: float | None = None

    def recipe(self, profile: str) -> Recipe:
        """The recipe of a profile.

        Raises
        ------
        ValueError
            If the profile is neither "quick" nor "paper".
        """
        if profile not in PROFILES:
            raise ValueError(f"profile = {profile!r} is not one of {', '.join(PROFILES)}")
        return getattr(self, profile)

    def build(self, profile: str) -> nn.Module:
        """The untrained model, drawn from PyTorch's random numbers."""
        return self.network(**dict(self.recipe(profile).options))
