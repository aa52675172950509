"""One convolution: an iteration beside `nn.Conv2d`, a pass beside the textbook, steps, scaling and memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mon_lib import Equilibrium, data, stepsize
from mon_lib.errors import ConvergenceError
from mon_lib.networks import ConvolutionalMON
from mon_lib.splitting import PeacemanRachford

from .contest import contest
from .harness import table
from .iteration import over_convolution, scaling
from .layers import build, inputs, one_pass, with_solver
from .memory import against_steps, peaks

__all__ = ["cases", "run", "steps", "trained"]

FULL, QUICK = (("54 at 30x30", "81 at 34x34"), 128), (("16 at 18x18",), 16)  # models and batch
HALVINGS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)


def cases(quick: bool) -> list[tuple[str, float]]:
    """Weights and tol of every comparison."""
    return [("hard", 1e-2)] if quick else [(weights, tol) for weights in ("initial", "hard") for tol in (1e-2, 1e-5)]


def trained(channels: int, batches: int, device: torch.device) -> Equilibrium:
    """The layer of a small network after a short training on digits; it starts with four times the usual skew part."""
    torch.manual_seed(0)
    model, digits = ConvolutionalMON(1, (28, 28), channels).to(device), data.load("mnist-5k").to(device)
    with torch.no_grad():
        model.equilibrium.operator.h.mul_(4.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for k in range(batches):
        rows = slice(64 * k % len(digits.labels), 64 * k % len(digits.labels) + 64)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(digits.images[rows]), digits.labels[rows]).backward()
        optimiser.step()
    return model.equilibrium.eval()


def steps(layers: dict[str, Equilibrium], tol: float, batch: int) -> list[dict[str, Any]]:
    """Print and return the steps, forward and backward, at the automatic alpha and at those of the halving search."""
    rows, out = [], []
    for name, layer in layers.items():
        x, v = inputs(layer, batch)
        entry: dict[str, Any] = {"layer": name, "lipschitz": layer.operator.lipschitz(), "alphas": {}}

        def count(alpha, layer=layer, x=x, v=v) -> dict[str, float]:
            runner = with_solver(layer, PeacemanRachford(alpha, tol, 5_000))
            if isinstance(alpha, stepsize.StepSize):
                runner.tune(x)
            one_pass(runner, x, v)
            ahead, back = runner.forward_report, runner.backward_report
            return {"alpha": ahead.alpha, "forward": ahead.steps, "backward": back.steps}

        entry["auto"], entry["halving"] = count("auto"), count(stepsize.Halving())
        for alpha in HALVINGS:
            try:
                entry["alphas"][str(alpha)] = count(alpha)
            except ConvergenceError:  # float32 need not certify tol at every alpha
                entry["alphas"][str(alpha)] = None
        out.append(entry)
        listed = ", ".join("-" if c is None else f"{c['forward']} + {c['backward']}" for c in entry["alphas"].values())
        for rule in ("auto", "halving"):
            row = entry[rule]
            rows.append([f"{name}, {rule}", entry["lipschitz"], row["alpha"], f"{row['forward']} + {row['backward']}", listed])
    print(f"\nsteps, forward + backward, to a certified tol of {tol:g}; batch {batch}")
    print(table(["", "||I - W||", "alpha", "steps", "at 1, 1/2, ..., 1/32"], rows))
    return out


def run(quick: bool, device: torch.device) -> dict[str, Any]:
    """Every table about one convolution; print and return them."""
    models, batch = QUICK if quick else FULL
    largest, few = models[-1], 8 if quick else 16
    out: dict[str, Any] = {"iteration": over_convolution(largest, device, batch, repeats=5 if quick else 9)}
    measured = {model: peaks(model, batch, device) for model in models}
    out |= {"peaks": measured, "passes": list(contest(models, cases(quick), device, batch, 2.0 if quick else 20.0, measured))}
    layers = {f"{largest}, {weights}": build(largest, weights, device) for weights in ("initial", "hard")}
    channels, batches = (4, 8) if quick else (16, 60)
    layers[f"{channels} at 30x30, trained on {batches} batches of digits"] = trained(channels, batches, device)
    out["steps"] = steps(layers, 1e-3, few)
    out["scaling"] = scaling(quick, device)
    out["memory"] = against_steps(largest, batch, device)
    return out
