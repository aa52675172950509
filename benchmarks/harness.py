"""What every benchmark shares: alternated timing, the machine it ran on, tables, and results that are never overwritten."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

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


def provenance(device: torch.device | str) -> dict[str, Any]:
    """The date, the versions and the kind of machine of a run."""
    device = torch.device(device)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def save(topic: str, data: Mapping[str, Any], folder: Path) -> Path:
    """Write one run's results whole or not at all, under a name that nothing else has.

    Parameters
    ----------
    topic : str
        The benchmark's name.
    data : mapping
        What ``json`` can write; NaN is refused.
    folder : Path
        Made if it is not there.

    Returns
    -------
    Path
        ``folder/bench-<topic>-<date>.json``, with ``-2``, ``-3``, ... before the dot where that name is taken.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".bench-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        stem, number = f"bench-{topic}-{datetime.date.today():%Y-%m-%d}", 1
        while True:
            target = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            try:
                os.link(temporary, target)  # fails where the name is taken; a rename would replace it
                return target
            except FileExistsError:
                number += 1
    finally:
        os.unlink(temporary)


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
