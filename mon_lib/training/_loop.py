"""Adam through a set of images, with everything a run needs to be repeated or resumed bit for bit."""

from __future__ import annotations

import math
import os
from numbers import Integral
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from .._numbers import check_number
from ..data import Images
from ._checkpoint import CheckpointError, describe, read, write
from ._checks import check_device, check_place
from ._history import Epoch, History
from ._objectives import Classification, Objective
from ._run import Run
from ._schedules import Constant, Schedule

__all__ = ["fit"]


def fit(
    model: nn.Module,
    train: Images,
    test: Images,
    *,
    epochs: int,
    seed: int,
    objective: Objective | None = None,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    schedule: Schedule | None = None,
    device: torch.device | str | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = True,
    progress: bool = True,
) -> History:
    """Train a model with Adam, a classifier unless told otherwise (MON appendix D.2).

    Parameters
    ----------
    model : nn.Module
        Maps ``(batch, channels, height, width)`` to logits ``(batch, classes)``, or to what the objective takes; trained in
        place. Seed PyTorch before building it.
    train, test : Images
        From :func:`mon_lib.data.load`; if ``train.augment`` is set, each training batch passes through it.
    epochs : int
        Passes through the training set, those of an earlier run in `checkpoint` included.
    seed : int
        Of the order of the batches, the augmentation and whatever draws random numbers inside the model. The caller's
        random state is left alone.
    objective : Objective, optional
        What is made small: :class:`Classification`, the default, or :class:`Density`.
    batch_size : int
        The paper's is 128.
    learning_rate : float
        Where the schedule starts.
    schedule : Schedule, optional
        :class:`StepDecay` or :class:`OneCycle`; default constant.
    device : optional
        Where to train, such as "cpu" or "cuda"; default where the model is.
    checkpoint : path, optional
        A file, written after every epoch, atomically. If it exists the run continues from it: with the same model, data and
        settings the result on a CPU equals that of a run that was never interrupted, bit for bit.
    resume : bool
        If False an existing `checkpoint` is an error.
    progress : bool
        A bar on the terminal; never shown where there is none, as in a notebook.

    Returns
    -------
    History
        All epochs, with losses, accuracy, seconds, solver steps and alpha.

    Raises
    ------
    FloatingPointError
        If the loss is not finite. The model then has the weights from before that batch.
    ConvergenceError
        If an equilibrium layer misses its tolerance, forward or backward; the usual cause is a learning rate so high
        that the weights have run away. Lower it, or allow the solver more steps.
    CheckpointError
        If `checkpoint` is damaged, belongs to another run, or is of a version whose checkpoints had no digest.
    ValueError, TypeError
        If an argument makes no sense, before the model is touched. ValueError also if the model does not return what the
        objective takes, and from the solver of an equilibrium layer, if its weights, its input or the gradient that reaches
        it have become NaN or infinite.
    """
    _check(model, train, test, epochs, batch_size, learning_rate, schedule, seed, objective, checkpoint)
    check_place(model)
    device = None if device is None else check_device(device)
    epochs, batch_size, seed, learning_rate = int(epochs), int(batch_size), int(seed), float(learning_rate)
    if device is not None:
        model.to(device)
    run = Run(model, train, batch_size, learning_rate, schedule or Constant(), seed, objective or Classification())
    path = identity = None
    if checkpoint is not None:
        path, identity = Path(checkpoint), describe(model, train, test, **run.settings())
    test = test.to(run.device)
    was_training = model.training
    with torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []):
        torch.manual_seed(seed)
        if path is not None and path.exists():
            if not resume:
                raise CheckpointError(f"{path} exists; pass resume=True to continue that run or give another path")
            state = read(path, identity)
            done = len(state["history"])
            if done > epochs:
                raise CheckpointError(f"{path} has {done} epochs, more than epochs = {epochs}; give another path")
            run.restore(state)
        elif path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        done = len(run.history)
        bar = tqdm(range(done, epochs), initial=done, total=epochs, disable=None if progress else True)
        try:
            for _ in bar:
                trained = run.train_epoch()
                test_loss, accuracy = run.objective.measure(model, test)
                run.history.append(Epoch(test_loss=test_loss, test_accuracy=accuracy, **trained))
                if path is not None:
                    write(path, identity, run.state())
                shown = {} if accuracy is None else {"accuracy": f"{accuracy:.3f}"}
                bar.set_postfix(loss=f"{trained['train_loss']:.3g}", test=f"{test_loss:.3g}", **shown)
        finally:
            bar.close()
            model.train(was_training)
    return run.history


def _check(model, train, test, epochs, batch_size, learning_rate, schedule, seed, objective, checkpoint) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"{type(model).__name__} has no parameters to train; call requires_grad_() on some")
    for name, images in (("train", train), ("test", test)):
        if not isinstance(images, Images):
            raise TypeError(f"{name} is a {type(images).__name__}; pass what mon_lib.data.load returns")
        if len(images) == 0:
            raise ValueError(f"{name} has no images")
    for name, value, least in (("epochs", epochs, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} = {value!r} must be an integer, at least {least}")
    if seed >= 2**63:
        raise ValueError(f"seed = {seed} is too large; it must be below 2**63")
    check_number("learning_rate", learning_rate, "a learning rate, such as 1e-3")
    if not (learning_rate > 0.0 and math.isfinite(learning_rate)):
        raise ValueError(f"learning_rate = {learning_rate} must be positive and finite, for instance 1e-3")
    if isinstance(schedule, type) and issubclass(schedule, Schedule):
        raise TypeError(f"schedule is the class {schedule.__name__}; pass an object, write {schedule.__name__}(...)")
    if schedule is not None and not isinstance(schedule, Schedule):
        raise TypeError(f"schedule is a {type(schedule).__name__}; pass StepDecay(...), OneCycle(...) or None")
    if objective is not None and not isinstance(objective, Objective):
        shown = objective.__name__ if isinstance(objective, type) else type(objective).__name__
        raise TypeError(f"objective is {shown}; pass an object such as Classification() or Density()")
    if checkpoint is not None and (not str(checkpoint).strip() or Path(checkpoint).is_dir()):
        raise ValueError(f"checkpoint = {str(checkpoint)!r} names no file; pass the path of one, for instance 'run.pt'")
