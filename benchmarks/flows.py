"""Glow with reflections against Glow with free 1x1 convolutions: a step of training, samples, reconstructions.

Ratios are of things timed in turn, so they hold on a busy machine too; the times beside them are of this machine, today.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib.flows import Glow
from mon_lib.flows.transforms import FreeMixing, HouseholderMixing, InvertibleMixing, Transform

from .harness import alternate, table
from .reflection_goal import Goal, judge
from .reflection_inverse import invertible

__all__ = ["DRY", "glow", "models", "run"]

KAPPA, AT_MOST = 1.9, 1.5
FREE, OURS = "free 1x1 convolution", f"reflection, kappa {KAPPA}"
BOOK = {"image_shape": (3, 16, 16), "levels": 2, "steps": 3, "hidden": 24}
PAPER = {"image_shape": (3, 32, 32), "levels": 3, "steps": 8, "hidden": 64}  # appendix B.3
FULL: dict[str, Any] = {
    "book": {"shape": BOOK, "batch": 64, "repeats": 40},
    "paper": {"shape": PAPER, "batch": 64, "repeats": 5},
}
QUICK: dict[str, Any] = {"book": {"shape": BOOK, "batch": 64, "repeats": 12}}
DRY: dict[str, Any] = {
    "book": {"shape": {"image_shape": (3, 4, 4), "levels": 1, "steps": 1, "hidden": 2}, "batch": 2, "repeats": 1},
}


def reflections(channels: int, kappa: float) -> Transform:
    """An `InvertibleMixing` whose W uses its bound: at initialisation its inverse would be too easy."""
    mixing = InvertibleMixing(channels, kappa)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        mixing.reflection.weight.copy_(invertible(channels, kappa).weight)
    return mixing


def models(shape: dict[str, Any], images: Tensor) -> dict[str, Glow]:
    """The same flow with each mixing, after one look at the images, which sets its actnorms."""
    kinds: dict[str, Callable[[int], Transform]] = {
        FREE: FreeMixing,
        "product of reflections": HouseholderMixing,
        "reflection, kappa 1.5": partial(reflections, kappa=1.5),
        OURS: partial(reflections, kappa=KAPPA),
    }
    out = {}
    for name, mixing in kinds.items():
        torch.manual_seed(0)
        out[name] = Glow(mixing=mixing, **shape).to(images.device)
        with torch.no_grad():
            out[name](images)
    return out


def train_step(model: nn.Module, optimiser: torch.optim.Optimizer, images: Tensor) -> None:
    """One step of training, as :func:`mon_lib.training.fit` takes it."""
    optimiser.zero_grad()
    model(images).mean().backward()
    optimiser.step()


def glow(title: str, shape: dict[str, Any], batch: int, repeats: int, device: torch.device) -> dict[str, Any]:
    """Time training, sampling and reconstructing with every mixing in turn; print and return times and ratios."""
    whole = torch.randint(256, (batch, *shape["image_shape"]), generator=torch.Generator().manual_seed(1))
    images = (whole.float() / 255).to(device)
    flows = models(shape, images)
    calls = {
        "training": {
            name: partial(train_step, model, torch.optim.Adam(model.parameters(), 1e-5), images) for name, model in flows.items()
        },
        "sampling": {name: partial(model.sample, batch) for name, model in flows.items()},
        "reconstructing": {name: partial(model.reconstruct, images) for name, model in flows.items()},
    }
    c, h, w = shape["image_shape"]
    print(f"\nGlow for {batch} images {c}x{h}x{w}, levels {shape['levels']}, steps {shape['steps']}, hidden {shape['hidden']}")
    times = {task: alternate(each, repeats=repeats, warmup=3) for task, each in calls.items()}
    ratios = {task: {name: row["median"] / rows[FREE]["median"] for name, row in rows.items()} for task, rows in times.items()}
    header = ["", *(f"{task}, {what}" for task in times for what in ("ms", "over free"))]
    rows = [[name, *(v for task in times for v in (1e3 * times[task][name]["median"], ratios[task][name]))] for name in flows]
    print(table(header, rows))
    goals = judge([Goal(f"{title} Glow, a step of training: {OURS}, over {FREE}", ratios["training"][OURS], at_most=AT_MOST)])
    return {"shape": {**shape}, "batch": batch, "times": times, "ratios": ratios, "goals": goals}


def run(quick: bool, device: torch.device) -> dict[str, Any]:
    """Every table; print and return them."""
    return {name: glow(name, device=device, **case) for name, case in (QUICK if quick else FULL).items()}
