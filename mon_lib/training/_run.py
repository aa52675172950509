"""The state of a run of training, and one epoch of it."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ..data import batches
from ..equilibrium import Equilibrium
from ..operators._fourier import choices, choose_again
from ..stepsize import Fixed, Halving
from ._history import History

__all__ = ["Run"]


class Run:
    """A run in progress: everything its remaining epochs depend on."""

    def __init__(self, model, train, batch_size, learning_rate, schedule, seed, objective):
        self.model, self.device = model, next(model.parameters()).device
        self.train = train.to(self.device)
        self.batch_size, self.learning_rate, self.schedule, self.seed = batch_size, learning_rate, schedule, seed
        self.objective = objective
        self.layers = [module for module in model.modules() if isinstance(module, Equilibrium)]
        self.optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.order = torch.Generator().manual_seed(seed)
        self.augmentation = torch.Generator().manual_seed(seed + 1)
        self.history = History()

    def settings(self) -> dict:
        """What must agree between the parts of a run, beside the model and the data."""
        names = ("batch_size", "learning_rate", "schedule", "seed", "objective")
        return {name: getattr(self, name) for name in names}

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
        loss = self.objective.loss(self.model, x, y, len(self.train.classes))
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
        choose_again(state["transforms"])
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
