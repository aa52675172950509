"""One short training loop: Adam, the paper's schedules, a history with solver steps, and exactly resumable runs."""

from ._checkpoint import CheckpointError
from ._history import Epoch, History
from ._loop import evaluate, fit
from ._schedules import Constant, OneCycle, Schedule, StepDecay

__all__ = ["CheckpointError", "Constant", "Epoch", "History", "OneCycle", "Schedule", "StepDecay", "evaluate", "fit"]
