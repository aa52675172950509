"""What every benchmark shares: alternated timing, the machine it ran on, tables, and results that are never overwritten."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mon_lib import experiments
from mon_lib.experiments import provenance

__all__ = ["alternate", "provenance", "save", "table"]


def alternate(calls: Mapping[str, Callable[[], Any]], *, repeats: int, warmup: int = 2) -> dict[str, dict[str, float]]:
    """Time several calls in turn, so that a slow moment of the machine hits all of them.

    Parameters
    ----------
    calls : mapping
        A name and a function without arguments for each thing compared.
    repeats : int
        Timed rounds; every round runs each call once, starting one further along the list than the round before.
    warmup : int
        Rounds that are not timed.

    Returns
    -------
    dict
        For each name ``{"median": s, "low": s, "high": s}`` in seconds, low and high the quartiles.
    """
    if repeats < 1:
        raise ValueError(f"repeats = {repeats} leaves nothing to report; it must be at least 1")
    names, seconds = list(calls), {name: [] for name in calls}
    for k in range(warmup + repeats):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            _synchronise()
            start = time.perf_counter()
            calls[name]()
            _synchronise()
            if k >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: _summary(values) for name, values in seconds.items()}


def _summary(values: Sequence[float]) -> dict[str, float]:
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "low": quartiles[0], "high": quartiles[2]}


def _synchronise() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def save(topic: str, data: Mapping[str, Any], folder: Path) -> Path:
    """Write one benchmark's results, ``folder/bench-<topic>-<date>.json``; see :func:`mon_lib.experiments.save`."""
    return experiments.save(f"bench-{topic}", data, folder)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A plain table: the first column flush left, numbers flush right with three significant digits."""
    cells = [list(header)] + [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    lines = []
    for row in cells:
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0].ljust(len(first)), *rest]))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
