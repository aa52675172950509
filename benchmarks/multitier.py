"""Several tiers: an iteration beside a convolution of each tier, a pass beside the textbook, steps and memory."""

from __future__ import annotations

from typing import Any

import torch

from .contest import contest
from .convolution import cases, steps
from .iteration import over_convolution
from .layers import build
from .memory import against_steps, peaks

__all__ = ["run"]

FULL, QUICK = ("(16, 32, 60) at 34x34", 128), ("(8, 16, 16) at 18x18", 16)  # model and batch


def run(quick: bool, device: torch.device) -> dict[str, Any]:
    """Every table about several tiers; print and return them."""
    model, batch = QUICK if quick else FULL
    out: dict[str, Any] = {"iteration": over_convolution(model, device, batch, repeats=5 if quick else 9)}
    measured = {model: peaks(model, batch, device)}
    out |= {"peaks": measured, "passes": list(contest((model,), cases(quick), device, batch, 2.0 if quick else 20.0, measured))}
    layers = {f"{model}, {weights}": build(model, weights, device) for weights in ("initial", "hard")}
    out["steps"] = steps(layers, 1e-3, 8 if quick else 16)
    out["memory"] = against_steps(model, batch, device)
    return out
