"""Adam through a set of images, with everything a run needs to be repeated or resumed bit for bit."""

from __future__ import annotations

import math
import os
import time
from numbers import Integral, Real
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from ..data import Images, batches
from ..equilibrium import Equilibrium
from ..operators._fourier import choices, choose_again
from ..stepsize import Fixed, Halving
from ._checkpoint import CheckpointError, describe, read, write
from ._history import Epoch, History
from ._schedules import Constant, Schedule

__all__ = ["evaluate", "fit"]


def fit(
    model: nn.Module,
    train: Images,
    test: Images,
    *,
    epochs: int,
    seed: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    schedule: Schedule | None = None,
    device: torch.device | str | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: bool = True,
    progress: bool = True,
) -> History:
    """Train a classifier with Adam and cross-entropy (MON appendix D.2).

    Parameters
    ----------
    model : nn.Module
        Maps ``(batch, channels, height, width)`` to logits ``(batch, classes)``; trained in place. Seed PyTorch before
        building it.
    train, test : Images
        From :func:`mon_lib.data.load`; if ``train.augment`` is set, each training batch passes through it.
    epochs : int
        Passes through the training set, those of an earlier run in `checkpoint` included.
    seed : int
        Of the order of the batches, the augmentation and whatever draws random numbers inside the model. The caller's
        random state is left alone.
    batch_size : int
        The paper's is 128.
    learning_rate : float
        Where the schedule starts.
    schedule : Schedule, optional
        :class:`StepDecay` or :class:`OneCycle`; default constant.
    device : optional
        Where to train; default where the model is.
    checkpoint : path, optional
        Written after every epoch, atomically. If it exists the run continues from it: with the same model, data and
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
        If `checkpoint` is damaged or belongs to another run.
    ValueError, TypeError
        If an argument makes no sense. ValueError also from the solver of an equilibrium layer, if its weights, its input
        or the gradient that reaches it have become NaN or infinite.
    """
    _check(model, train, test, epochs, batch_size, learning_rate, schedule, seed)
    epochs, batch_size, seed, learning_rate = int(epochs), int(batch_size), int(seed), float(learning_rate)
    if device is not None:
        model.to(device)
    run = _Run(model, train, batch_size, learning_rate, schedule or Constant(), seed)
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
                test_loss, accuracy = evaluate(model, test)
                run.history.append(Epoch(test_loss=test_loss, test_accuracy=accuracy, **trained))
                if path is not None:
                    write(path, identity, run.state())
                bar.set_postfix(loss=f"{trained['train_loss']:.3g}", accuracy=f"{accuracy:.3f}")
        finally:
            bar.close()
            model.train(was_training)
    return run.history


def evaluate(model: nn.Module, images: Images, batch_size: int = 512) -> tuple[float, float]:
    """Mean cross-entropy and accuracy in [0, 1] of a model; leaves it in the mode it was in.

    On the model's device, or on that of the images where the model has no parameters.

    Raises
    ------
    ValueError
        If there are no images.
    """
    if len(images) == 0:
        raise ValueError(f"{images.name} has no images here; evaluate the model on at least one")
    was_training = model.training
    device = next(model.parameters(), images.images).device
    model.eval()
    loss, correct = 0.0, 0
    try:
        with torch.no_grad():
            for x, y in batches(images.to(device), batch_size):
                logits = model(x)
                loss += float(cross_entropy(logits, y, reduction="sum"))
                correct += int((logits.argmax(1) == y).sum())
    finally:
        model.train(was_training)
    return loss / len(images), correct / len(images)


class _Run:
    """A run in progress: everything its remaining epochs depend on."""

    def __init__(self, model, train, batch_size, learning_rate, schedule, seed):
        self.model, self.device = model, next(model.parameters()).device
        self.train = train.to(self.device)
        self.batch_size, self.learning_rate, self.schedule, self.seed = batch_size, learning_rate, schedule, seed
        self.layers = [module for module in model.modules() if isinstance(module, Equilibrium)]
        self.optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.order = torch.Generator().manual_seed(seed)
        self.augmentation = torch.Generator().manual_seed(seed + 1)
        self.history = History()

    def settings(self) -> dict:
        """What must agree between the parts of a run, beside the model and the data."""
        return {name: getattr(self, name) for name in ("batch_size", "learning_rate", "schedule", "seed")}

    def train_epoch(self) -> dict:
        """One epoch; returns the fields of `Epoch` that training gives."""
        self.model.train()
        for layer in self.layers:
            # A fixed alpha stays; the halving search needs inputs, so the layer sees to it at its own solves.
            if not isinstance(layer.solver.alpha, (float, int, Fixed, Halving)):
                layer.tune()
        steps = math.ceil(len(self.train) / self.batch_size)
        total = forward = backward = 0.0
        alpha = [None] * len(self.layers)
        start = self._now()
        for k, (x, y) in enumerate(batches(self.train, self.batch_size, self.order)):
            rate = self._set_rate(len(self.history) + k / steps)
            if self.train.augment is not None:
                x = self.train.augment(x, self.augmentation)
            # A layer that did not solve in this batch still shows the report of its last solve, which must not count.
            old = [(layer.forward_report, layer.backward_report) for layer in self.layers]
            total += self._step(x, y, k, rate) * len(y)
            for i, layer in enumerate(self.layers):
                if layer.forward_report is not old[i][0]:
                    forward += layer.forward_report.steps
                    alpha[i] = float(layer.forward_report.alpha)
                if layer.backward_report is not old[i][1]:
                    backward += layer.backward_report.steps
        return {
            "epoch": len(self.history) + 1,
            "train_loss": total / len(self.train),
            "learning_rate": rate,
            "forward_steps": forward / steps,
            "backward_steps": backward / steps,
            "alpha": tuple(alpha),
            "seconds": self._now() - start,
        }

    def _set_rate(self, position: float) -> float:
        # plain floats: a checkpoint read with weights_only=True takes no NumPy scalar
        rate, beta = map(float, self.schedule.at(position, self.learning_rate))
        for group in self.optimiser.param_groups:
            group["lr"], group["betas"] = rate, (beta, group["betas"][1])
        return rate

    def _step(self, x: Tensor, y: Tensor, k: int, rate: float) -> float:
        """One step of Adam; returns the loss before it."""
        logits = self.model(x)
        expected = (len(y), len(self.train.classes))
        if logits.shape != expected:
            raise ValueError(f"the model returned logits of shape {tuple(logits.shape)}, expected {expected}")
        loss = cross_entropy(logits, y)
        value = loss.item()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value} in epoch {len(self.history) + 1}, batch {k + 1}: lower learning_rate or the "
                f"schedule's peak (the rate is {rate:.3g} now)"
            )
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return value

    def state(self) -> dict:
        """For a checkpoint."""
        random = {
            "torch": torch.get_rng_state(),
            "order": self.order.get_state(),
            "augmentation": self.augmentation.get_state(),
        }
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": random,
            "transforms": choices(),
            "history": self.history.to_list(),
        }

    def restore(self, state: dict) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        choose_again(state.get("transforms", []))
        random = state["random"]
        torch.set_rng_state(random["torch"])
        self.order.set_state(random["order"])
        self.augmentation.set_state(random["augmentation"])
        if self.device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"], self.device)
        self.history = History.from_list(state["history"])

    def _now(self) -> float:
        """The time once the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _check(model, train, test, epochs, batch_size, learning_rate, schedule, seed) -> None:
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
    if isinstance(learning_rate, bool) or not isinstance(learning_rate, Real):
        raise TypeError(f"learning_rate is a {type(learning_rate).__name__}; it must be a number, for instance 1e-3")
    if not (learning_rate > 0.0 and math.isfinite(learning_rate)):
        raise ValueError(f"learning_rate = {learning_rate} must be positive and finite, for instance 1e-3")
    if isinstance(schedule, type) and issubclass(schedule, Schedule):
        raise TypeError(f"schedule is the class {schedule.__name__}; pass an object, write {schedule.__name__}(...)")
    if schedule is not None and not isinstance(schedule, Schedule):
        raise TypeError(f"schedule is a {type(schedule).__name__}; pass StepDecay(...), OneCycle(...) or None")
