"""One experiment with several seeds: a file of results for each, and no work lost when a run is interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..equilibrium import Equilibrium
from ..networks import count_parameters
from ..training import CheckpointError, fit
from ..training._checks import check_device as usable_device
from ._files import check_folder, folder_or_default, provenance, save
from ._recipes import Experiment, Recipe
from ._registry import find
from ._results import FORMAT, read, results, score
from ._unfinished import ANEW, Unfinished

__all__ = ["check_device", "check_seeds", "run"]


def run(
    name: str,
    profile: str = "quick",
    seeds: Sequence[int] = (0, 1, 2),
    data_root: str | os.PathLike | None = None,
    device: torch.device | str | None = None,
    out: str | os.PathLike | None = None,
    *,
    resume: bool = False,
    again: bool = False,
    say: Callable[[str], object] = print,
) -> list[dict[str, Any]]:
    """Train the network of an experiment once for each seed, and write a file of results for each.

    Parameters
    ----------
    name : str
        A key of `EXPERIMENTS`.
    profile : str
        "quick" or "paper".
    seeds : sequence of int
        Of the weights, the order of the batches and the augmentation.
    data_root : path, optional
        As for :func:`mon_lib.data.load`.
    device : optional
        Default a GPU where there is one.
    out : path, optional
        The folder of the results; default as for `results`.
    resume : bool
        Continue a run that was interrupted, from its last whole epoch. Without it such a run is an error.
    again : bool
        Run even where `out` has the result; without `resume` an interrupted run is then thrown away.
    say : callable
        Gets a line when a run starts, and one about each result, new or not.

    Returns
    -------
    list of dict
        The result of each seed, as from `results`: those that were there already, and the new ones.

    Raises
    ------
    ValueError
        If the name, the profile, the device, a folder or a seed makes no sense, or files of data or of results are damaged.
    Busy
        If another process is at the same run.
    CheckpointError
        If there is an interrupted run, and `resume` is False or it was another run.
    DataUnavailableError, ConvergenceError, FloatingPointError
        From loading the data and from training.
    """
    experiment, folder = find(name), folder_or_default(out, "out")
    data_root = None if data_root is None else check_folder(data_root, "data_root")
    recipe, seeds = experiment.recipe(profile), check_seeds(seeds)
    device, images, found = check_device(device), None, []
    for seed in seeds:
        key = f"{name}-{profile}-seed{seed}"
        model = _model(experiment, profile, seed)
        identity = _identity(experiment, profile, seed, model)
        result = None if again else _present(identity, folder)
        if result is None:
            images = recipe.load(data_root) if images is None else images
            with Unfinished(folder, key) as unfinished:
                result = None if again else _present(identity, folder)  # another process may have been quicker
                if result is None:
                    earlier = unfinished.begin(origin := provenance(device), resume=resume, again=again)
                    say(f"{key}: {'continued' if earlier else 'started'} on {origin['device']}")
                    trained = _train(recipe, model, images, seed, device, unfinished.checkpoint)
                    trained["seconds"] += sum(part["seconds"] for part in earlier)
                    data = {"format": FORMAT, **identity, "claim": experiment.claim, **origin, "interrupted": earlier, **trained}
                    result = read(save(f"run-{key}", data, folder))
                    unfinished.forget()
        say(f"{key}: {score(result)[1]}, {result['seconds']:.0f} s on {result['device']}, in {result['file']}")
        found.append(result)
    return found


def _present(identity: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The newest result of this run, if there is one."""
    same = [r for r in results(identity["name"], identity["profile"], folder) if identity.items() <= r.items()]
    return same[-1] if same else None


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds as a list of int.

    Raises
    ------
    ValueError
        If there is none, or one is not an integer from 0 to 2**63 - 1 or is there twice.
    """
    seeds = list(seeds)
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ValueError(f"seed {seed!r} is not an integer from 0 to 2**63 - 1")
        if seeds.count(seed) > 1:
            raise ValueError(f"seed {seed} is there twice; a second run with it would be the same run")
    if not seeds:
        raise ValueError("no seeds were given; pass at least one, for instance 0")
    return [int(seed) for seed in seeds]


def check_device(device: torch.device | str | None) -> torch.device:
    """The device, by default a GPU where there is one.

    Raises
    ------
    ValueError
        If PyTorch has no such device here, or can compute no gradient on it.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(device)


def _model(experiment: Experiment, profile: str, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch the GPUs' too
        return experiment.build(profile)


def _identity(experiment: Experiment, profile: str, seed: int, model: nn.Module) -> dict[str, Any]:
    """What has to agree for a result to be that of this run."""
    solver = next((module.solver for module in model.modules() if isinstance(module, Equilibrium)), None)
    how = {"solver": None, "alpha": None, "tol": None}
    if solver is not None:  # not repr(solver): what a later version adds to it would make every result that of another run
        how = {"solver": type(solver).__name__, "alpha": str(solver.alpha), "tol": solver.tol}
    return {
        "name": experiment.name,
        "profile": profile,
        "seed": seed,
        "model": type(model).__name__,
        "parameters": count_parameters(model),
        "recipe": experiment.recipe(profile).to_dict() | how,
    }


def _train(recipe: Recipe, model: nn.Module, images, seed: int, device: torch.device, checkpoint: Path) -> dict[str, Any]:
    """What training adds to a file of results."""
    (train, test), start = images, time.perf_counter()
    try:
        history = fit(
            model,
            train,
            test,
            epochs=recipe.epochs,
            seed=seed,
            objective=recipe.objective,
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate,
            schedule=recipe.schedule,
            device=device,
            checkpoint=checkpoint,
        )
    except CheckpointError as error:
        raise CheckpointError(f"{error}. {ANEW}") from error
    return {
        "data": {
            "name": recipe.data,
            "split": "trained on the training half, tested on the test half; of each the first so many images",
            "train": len(train),
            "test": len(test),
        },
        "seconds": time.perf_counter() - start,
        "accuracy": history[-1].test_accuracy,
        "history": history.to_list(),
    }
