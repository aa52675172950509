"""One reflection against its rivals: orthogonal layers, recurrent steps, inverses of images, log-determinants.

Each table says whether the goal set for it was met. Ratios are of things timed in turn, so they hold on a busy machine too;
the times beside them are of this machine, today.
"""

from __future__ import annotations

from typing import Any

import torch

from .reflection_inverse import determinants, inverses
from .reflection_layers import layers, recurrence
from .reflection_memory import memory

__all__ = ["DRY", "run", "tables"]

D, STATE, CHANNELS, SIDE, KAPPA = 784, 170, 48, 32, 1.9  # of the paper's networks; kappa is the default bound
BATCH = 64  # images in a batch of the paper's flow
FULL: dict[str, Any] = {
    "layers": {"d": D, "batches": {32: (600, 15, 3), 128: (200, 15, 3), 512: (60, 10, 3)}},
    "recurrence": {"d": STATE, "batch": 128, "steps": 784, "few": 8, "repeats": 5},
    "inverses": [{"d": CHANNELS, "images": 16, "side": SIDE, "kappa": kappa, "repeats": 3} for kappa in (1.5, KAPPA)],
    "determinants": {"d": CHANNELS, "images": BATCH, "side": SIDE, "kappa": KAPPA, "repeats": 5},
    "memory": {"d": CHANNELS, "side": SIDE, "kappa": KAPPA, "ours": (8, 32, 128), "rivals": (2, 8)},
}
QUICK: dict[str, Any] = {
    "layers": {"d": D, "batches": {32: (15, 5, 1), 128: (15, 3, 0), 512: (7, 3, 0)}},
    "recurrence": {"d": STATE, "batch": 128, "steps": 100, "few": 2, "repeats": 3},
    "inverses": [{"d": CHANNELS, "images": 2, "side": SIDE, "kappa": KAPPA, "repeats": 3}],
    "determinants": {"d": CHANNELS, "images": 2, "side": SIDE, "kappa": KAPPA, "repeats": 3},
    "memory": {"d": CHANNELS, "side": SIDE, "kappa": KAPPA, "ours": (8, 32), "rivals": (2,)},
}
DRY: dict[str, Any] = {
    "layers": {"d": 6, "batches": {3: (1, 1, 1)}},
    "recurrence": {"d": 5, "batch": 2, "steps": 3, "few": 1, "repeats": 1},
    "inverses": [{"d": 4, "images": 1, "side": 3, "kappa": KAPPA, "repeats": 1, "few": 2}],
    "determinants": {"d": 4, "images": 1, "side": 3, "kappa": KAPPA, "repeats": 1, "few": 2},
    "memory": {"d": 4, "side": 8, "kappa": KAPPA, "ours": (1, 2), "rivals": (1,)},
}


def tables(sizes: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Every table that these sizes name, as `FULL`, `QUICK` and `DRY` do; print and return them, and how many goals were met."""
    makers = {"layers": layers, "recurrence": recurrence, "inverses": inverses, "determinants": determinants, "memory": memory}
    out: dict[str, Any] = {}
    for name, cases in sizes.items():
        made = [makers[name](device=device, **case) for case in (cases if isinstance(cases, list) else [cases])]
        out[name] = made if isinstance(cases, list) else made[0]
    parts = [part for value in out.values() for part in (value if isinstance(value, list) else [value])]
    goals = [goal for part in parts for goal in part["goals"]]
    missed = [goal["name"] for goal in goals if not goal["met"]]
    print(f"\n{len(goals) - len(missed)} of {len(goals)} goals met" + "".join(f"\nmissed: {name}" for name in missed))
    return out


def run(quick: bool, device: torch.device) -> dict[str, Any]:
    """Every table; print and return them."""
    return tables(QUICK if quick else FULL, device)
