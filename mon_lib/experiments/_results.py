"""Reading results back, and the table of what was run."""

from __future__ import annotations

import datetime
import json
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..training import Density, History
from ._files import folder_or_default
from ._recipes import PROFILES, Recipe
from ._registry import EXPERIMENTS, find

__all__ = ["FORMAT", "read", "report", "results", "score", "show", "summary"]

FORMAT = "mon_lib experiment 1"
_TYPES = {
    "name": str,
    "profile": str,
    "seed": int,
    "model": str,
    "parameters": int,
    "recipe": dict,
    "claim": str,
    "data": dict,
    "date": str,
    "python": str,
    "torch": str,
    "device": str,
    "threads": int,
    "commit": str,
    "clean": bool | None,
    "seconds": float | int,
    "interrupted": list,
    "accuracy": float | None,
    "history": list,
}


def read(path: str | os.PathLike) -> dict[str, Any]:
    """One file of results, checked; with its own name as ``file``.

    Raises
    ------
    ValueError
        If the file is damaged or cannot be read, or is no result of an experiment. The message names it.
    """
    path = Path(path)

    def refuse(constant: str):
        raise ValueError(f"it holds {constant}")

    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
        _check(data)
    except (ValueError, TypeError, LookupError, OSError, RecursionError) as error:  # also what is neither JSON nor UTF-8
        raise ValueError(f"{path} is not a whole result of an experiment ({error}); restore it or move it away") from error
    return {**data, "file": path.name}


def _check(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    for name, kind in _TYPES.items():
        if name not in data:
            raise ValueError(f"{name} is missing")
        if not isinstance(data[name], kind) or (isinstance(data[name], bool) and name != "clean"):
            raise ValueError(f"{name} = {data[name]!r} has the wrong type")
    if data["profile"] not in PROFILES:
        raise ValueError(f"its profile is {data['profile']!r}")
    if datetime.datetime.fromisoformat(data["date"]).tzinfo is None:
        raise ValueError(f"its date, {data['date']}, has no time zone")
    if lost := {"name", "train", "test"} - data["data"].keys():
        raise ValueError(f"its data has no {min(lost)}")
    history = History.from_list(data["history"])
    epochs = data["recipe"]["epochs"]
    if len(history) != epochs or history.column("epoch") != list(range(1, len(history) + 1)):
        raise ValueError(f"its history does not have the {epochs} epochs of its recipe")
    if data["accuracy"] != history[-1].test_accuracy:
        raise ValueError(f"its accuracy, {data['accuracy']}, is not that of the last epoch")
    if data["accuracy"] is not None and not 0.0 <= data["accuracy"] <= 1.0:
        raise ValueError(f"its accuracy, {data['accuracy']}, is not between 0 and 1")
    if not isinstance(history[-1].test_loss, float):
        raise ValueError(f"its test_loss, {history[-1].test_loss!r}, has the wrong type")


def score(result: Mapping[str, Any]) -> tuple[float, str]:
    """What a result is judged by, and how it is written: the accuracy, or the bits per dimension of a density."""
    if result["accuracy"] is not None:
        return result["accuracy"], f"{result['accuracy']:.2%}"
    bits = result["history"][-1]["test_loss"]
    return bits, f"{bits:.3f} bits"


def results(name: str | None = None, profile: str | None = None, folder: str | os.PathLike | None = None) -> list[dict[str, Any]]:
    """The results that are there, oldest first.

    Parameters
    ----------
    name : str, optional
        Of one experiment; default all.
    profile : str, optional
        "quick" or "paper"; default both.
    folder : path, optional
        Default: what the environment variable ``MON_RESULTS`` names, else ``results`` in the checkout of the book that
        `mon_lib` was imported from, else ``results`` in the working folder. A folder that is not there has no results.

    Returns
    -------
    list of dict
        As `run` wrote them; ``results/README.md`` of the book explains the entries. ``file`` is the name of the file.

    Raises
    ------
    ValueError
        If there is no such experiment or profile, the folder is blank, or a file is damaged: with a name one of that
        experiment, whose files are the only ones that are then read.
    """
    found = [read(path) for path in _paths(name, profile, folder)]
    return sorted((r for r in found if name in (None, r["name"]) and profile in (None, r["profile"])), key=_age)


def _paths(name: str | None, profile: str | None, folder: str | os.PathLike | None) -> list[Path]:
    """The files to read: all, or those of one experiment, and then of one profile, by their names."""
    if name is not None:
        find(name)
    if profile is not None and profile not in PROFILES:
        raise ValueError(f"profile = {profile!r} is not one of {', '.join(PROFILES)}")
    folder = folder_or_default(folder)
    paths = sorted(folder.glob("run-*.json"))
    if name is None:
        return paths
    # cifar10-single-large is not cifar10-single: what follows the name has to be the profile and the seed.
    own = re.compile(rf"run-{re.escape(name)}-({'|'.join(PROFILES) if profile is None else profile})-seed\d+-.*\.json")
    return [path for path in paths if own.fullmatch(path.name)]


def _age(result: Mapping[str, Any]) -> tuple:
    number = re.search(r"-\d{4}-\d\d-\d\d-(\d+)\.json$", result["file"])
    return datetime.datetime.fromisoformat(result["date"]), int(number[1]) if number else 1, result["file"]


def summary(
    names: Sequence[str] | None = None, profile: str | None = None, folder: str | os.PathLike | None = None
) -> list[dict[str, Any]]:
    """A row for each experiment, profile and recipe, over the seeds; of a seed the newest result counts.

    Runs that differ in anything but the seed and where they were made are never averaged.

    Parameters
    ----------
    names : sequence of str, optional
        Of the experiments; default all that there are.
    profile, folder
        As for `results`.

    Returns
    -------
    list of dict
        ``name``, ``claim``, ``profile``, ``paper`` (what it reports, or None; always None for "quick", which is another
        experiment) and ``runs``, the results by seed. Where nothing was run, ``runs`` is empty and the profile is the one
        asked for, or "paper". With runs also ``recipe``, ``current`` (whether that is still the experiment's recipe),
        ``data``, ``parameters``, ``seeds``, ``devices``, ``dates`` (first and last day), ``measure`` ("accuracy", or "bits per
        dimension" of a density), and of that ``mean``, ``low`` and ``high``.

    Raises
    ------
    ValueError
        As from `results`.
    """
    names = None if names is None else list(names)
    found = [result for name in ([None] if names is None else dict.fromkeys(names)) for result in results(name, profile, folder)]
    return _summary(names, profile, found)


def _summary(names: Sequence[str] | None, profile: str | None, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = [find(name) for name in (EXPERIMENTS if names is None else names)]
    groups: dict[tuple[str, str], dict[str, dict[int, dict]]] = {}
    for result in found:
        what = json.dumps([result[part] for part in ("model", "parameters", "recipe", "data")], sort_keys=True)
        groups.setdefault((result["name"], result["profile"]), {}).setdefault(what, {})[result["seed"]] = result
    rows = []
    for experiment in wanted:
        for each in PROFILES if profile is None else (profile,):
            row = {"name": experiment.name, "claim": experiment.claim, "profile": each}
            row["paper"] = experiment.reported if each == "paper" else None
            recipes = groups.get((experiment.name, each), {})
            rows += [row | _over_seeds(list(runs.values()), experiment.recipe(each)) for runs in recipes.values()]
            if not recipes and (profile or each == "paper"):
                rows.append(row | {"runs": []})
    return rows


def _over_seeds(runs: list[dict[str, Any]], recipe: Recipe) -> dict[str, Any]:
    runs = sorted(runs, key=lambda result: result["seed"])
    first, scores = runs[0], [score(result)[0] for result in runs]
    days = sorted(result["date"][:10] for result in runs)
    return {
        "runs": runs,
        "recipe": first["recipe"],
        "current": recipe.to_dict().items() <= first["recipe"].items(),
        "data": first["data"],
        "parameters": first["parameters"],
        "seeds": [result["seed"] for result in runs],
        "devices": sorted({result["device"] for result in runs}),
        "dates": (days[0], days[-1]),
        "measure": "bits per dimension" if first["accuracy"] is None else "accuracy",
        "mean": statistics.fmean(scores),
        "low": min(scores),
        "high": max(scores),
    }


def report(names: Sequence[str] | None = None, profile: str | None = None, folder: str | os.PathLike | None = None) -> None:
    """Print what was run and what it gave, beside what the paper reports; the arguments are those of `summary`.

    Raises
    ------
    ValueError
        As from `results`; if files are damaged, after the table of the others is printed.
    """
    if faults := show(names, profile, folder):
        raise ValueError("; ".join(faults))


def show(names: Sequence[str] | None, profile: str | None, folder: str | os.PathLike | None) -> list[str]:
    """Print the table of the files that are whole, and return what is wrong with each of the others."""
    names = None if names is None else list(names)
    found, faults = [], []
    for path in [path for name in ([None] if names is None else dict.fromkeys(names)) for path in _paths(name, profile, folder)]:
        try:
            found.append(read(path))
        except ValueError as error:
            faults.append(str(error))
    found = sorted((r for r in found if profile in (None, r["profile"])), key=_age)
    measured = "accuracy, or bits per dimension: mean (min to max)"
    header = ["experiment", "profile", "data", "seeds", measured, "paper", "device", "date"]
    lines = [header]
    for row in _summary(names, profile, found):
        bits = isinstance(find(row["name"]).recipe(row["profile"]).objective, Density)
        form, short = (".3f", ".2f") if bits else (".2%", ".1%")
        paper = "-" if row["paper"] is None else f"{row['paper']:{short}}"
        if not row["runs"]:
            lines.append([row["name"], row["profile"], "-", "-", "not run", paper, "-", "-"])
            continue
        data, dates = row["data"], dict.fromkeys(row["dates"])
        each = row["profile"] if row["current"] else f"{row['profile']}, old recipe"
        measured = f"{row['mean']:{form}} ({row['low']:{form}} to {row['high']:{form}})"
        which = f"{data['name']}, {data['train']} + {data['test']}"
        seeds, devices = " ".join(map(str, row["seeds"])), ", ".join(row["devices"])
        lines.append([row["name"], each, which, seeds, measured, paper, devices, " to ".join(dates)])
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return faults
