"""Peak memory of the inverse and of the log-determinant of an invertible reflection, beside their rivals.

On a CPU everything is measured in one process of its own, as in `benchmarks.memory`:
``python -m benchmarks.reflection_memory '[{"kind": "inverse", ...}, ...]'`` prints one measurement a case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .harness import table
from .layers import child
from .memory import _peak
from .reflection_goal import Goal, judge
from .reflection_inverse import invertible, pixels
from .reflection_rivals import log_det, newton

__all__ = ["measure", "memory"]

RIVALS = {"newton": "inverse", "slogdet": "ladj"}  # and what of ours each is beside
AT_MOST = 1.25  # growth of the peak over growth of the pixels


@torch.no_grad()
def measure(kind: str, d: int, kappa: float, images: int, side: int, device: str) -> dict[str, int]:
    """The peak of one call above what was held before, in this process.

    Parameters
    ----------
    kind : str
        ``"inverse"`` or ``"ladj"`` for ours, ``"newton"`` or ``"slogdet"`` for the rivals with all Jacobians at once.
    """
    layer = invertible(d, kappa, device)
    W, y = layer.to_dense(), torch.randn(images, d, side, side, device=device)
    x = pixels(y) if kind in RIVALS else y
    calls: dict[str, Callable[[Tensor], Any]] = {
        "inverse": layer.inverse,
        "ladj": layer.forward_and_ladj,
        "newton": lambda x: newton(W, x, 2, len(x)),
        "slogdet": lambda x: log_det(W, x),
    }
    calls[kind](x[:1])  # libraries and code are loaded before the count starts
    before = _peak(device, reset=True)
    kept = calls[kind](x)
    bytes_ = _peak(device) - before
    del kept
    return {"images": images, "pixels": images * side**2, "bytes": bytes_}


def memory(d: int, side: int, kappa: float, ours: Sequence[int], rivals: Sequence[int], device: torch.device) -> dict[str, Any]:
    """Measure growing batches of images, `ours` and `rivals` of them; print and return the peaks."""
    common = {"d": d, "kappa": kappa, "side": side, "device": str(device)}
    kinds = {"inverse": ours, "newton": rivals, "ladj": ours, "slogdet": rivals}
    cases = [{"kind": kind, "images": images, **common} for kind, counts in kinds.items() for images in counts]
    runs = _apart(cases) if device.type == "cpu" else [measure(**case) for case in cases]
    out: dict[str, Any] = {"state_bytes_a_pixel": 4 * d, **{kind: [] for kind in kinds}}
    rows, goals = [], []
    for case, run in zip(cases, runs, strict=True):
        out[case["kind"]].append(run)
        rows.append([case["kind"], run["pixels"], run["bytes"] / 2**20, run["bytes"] / run["pixels"] / (4 * d)])
    print(f"\npeak memory above what was held before, {d} channels, {side}x{side}, kappa {kappa:g}, float32")
    print(table(["", "pixels", "MiB", "vectors a pixel"], rows))
    for kind in RIVALS.values():
        small, large = out[kind][0], out[kind][-1]
        growth = (large["bytes"] / max(small["bytes"], 1)) / (large["pixels"] / small["pixels"])
        name = f"{kind}: growth of the peak over growth of the pixels, {small['pixels']} to {large['pixels']}"
        goals.append(Goal(name, growth, at_most=AT_MOST))
    return {**out, "goals": judge(goals)}


def _apart(cases: Sequence[dict[str, Any]]) -> list[dict[str, int]]:
    """`measure` in a process of its own, where what is freed goes back to the kernel at once."""
    return child("benchmarks.reflection_memory", cases, {"MALLOC_MMAP_THRESHOLD_": "65536"})


if __name__ == "__main__":
    print(json.dumps([measure(**case) for case in json.loads(sys.argv[1])]))
