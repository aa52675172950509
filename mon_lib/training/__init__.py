"""One short training loop: Adam, the paper's schedules, a history with solver steps, and exactly resumable runs."""

from ._checkpoint import CheckpointError
from ._history import Epoch, History
from ._loop import fit
from ._objectives import Classification, Density, Objective, evaluate
from ._schedules import Constant, OneCycle, Schedule, StepDecay

__all__ = [
    "CheckpointError",
    "Classification",
    "Constant",
    "Density",
    "Epoch",
    "History",
    "Objective",
    "OneCycle",
    "Schedule",
    "StepDecay",
    "evaluate",
    "fit",
]
