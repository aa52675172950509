"""Forward plus backward of a layer: the library beside the textbook, how far each is off, and how long each takes.

The two stop differently. The library's tol is a certified relative error, the same at every alpha; the textbook's is how
far the batch moved in its last step. So every row carries its true errors, against a solve in float64, and one row runs the
textbook at the tols at which it is as accurate as the library.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib import Equilibrium, prox, stepsize
from mon_lib.errors import ConvergenceError
from mon_lib.splitting import PeacemanRachford

from .harness import alternate, table
from .layers import TUNED_ALLOCATOR, build, child, inputs, one_pass, with_solver
from .textbook import Textbook

__all__ = ["Exact", "contest", "plan", "race", "show"]

EXACT = 4  # samples that are also solved in float64
MANY = 5_000
LOOSER = 10.0  # the factor by which tol is raised where float32 cannot certify it


class Exact:
    """A layer in float64, and its z* and gradient for a few samples, to measure errors by.

    Parameters
    ----------
    layer : Equilibrium
    x, v : Tensor
        Inputs and gradients at z*; the first few of them are used.
    """

    def __init__(self, layer: Equilibrium, x: Tensor, v: Tensor):
        self.solver = PeacemanRachford(tol=1e-9, max_steps=MANY)
        self.layer = with_solver(copy.deepcopy(layer).double(), self.solver)
        self.x, self.v = x[:EXACT], v[:EXACT]
        self.z, self.gradient = one_pass(self.layer, self.x.double(), self.v.double())

    @torch.no_grad()
    def backward(self, z: Tensor) -> Tensor:
        """The gradient of the linear problem that belongs to an inexact z, its slopes included."""
        layer = self.layer
        operator = layer.operator.frozen()
        slopes = prox.Diagonal(layer.activation.derivative(operator(z.double()) + layer.injection(self.x.double())))
        solver = self.solver.with_alpha(layer.forward_report.alpha)
        return solver.solve(operator.T, self.v.double(), slopes).z

    def errors(self, model: nn.Module) -> dict[str, float]:
        """The largest relative errors over the samples: of z*, of the gradient, and of the backward solve alone.

        ReLU's slope jumps, so a small error of z* near zero is a large one of the gradient, whoever solves for it. The last
        number leaves that out: it compares with the exact solution at the slopes of the model's own z.
        """
        z, gradient = one_pass(model, self.x, self.v)
        pairs = {"z": (z, self.z), "gradient": (gradient, self.gradient), "backward": (gradient, self.backward(z))}
        return {name: distance(a, b) for name, (a, b) in pairs.items()}


def distance(a: Tensor, exact: Tensor) -> float:
    """The largest relative error of a sample."""
    gap = (a.double() - exact).flatten(1).norm(dim=1)
    return float((gap / exact.flatten(1).norm(dim=1)).max())


def as_accurate(layer: Equilibrium, alpha: float, exact: Exact, targets: Mapping[str, float]) -> dict[str, Any]:
    """Settings of a textbook whose two loops stop where they first reach these errors, or where they get no closer."""
    model = Textbook(layer, alpha, 0.5)

    def first(loop, solution: Tensor, target: float) -> tuple[float, int]:
        lowest, best = torch.inf, (1.0, 1)
        for k, (iterate, change) in enumerate(loop, 1):
            error = distance(iterate, solution)
            if error < lowest:
                lowest, best = error, (change, k)
            if error <= target or k > best[1] + 30:
                return best
        raise AssertionError("the loop has no end of its own")

    with torch.no_grad():
        bias, V = model.injection(exact.x), model.form.inverse(alpha)
        J = model.slope(model.form.multiply(exact.z.to(bias.dtype)) + bias)
        ahead, steps = first(model.ahead(V, bias), exact.z, targets["z"])
        back, backward_steps = first(model.back(V, J, exact.v), exact.gradient, targets["backward"])
    return {"alpha": alpha, "tol": ahead, "backward_tol": back, "max_steps": 2 * max(steps, backward_steps) + 10}


def certified(layer: Equilibrium, tol: float, x: Tensor, v: Tensor) -> tuple[Equilibrium, float]:
    """The layer with a tuned alpha, and the seconds that took; with ten times the tol where float32 cannot certify it."""
    for attempt in (tol, LOOSER * tol):
        automatic = with_solver(layer, PeacemanRachford(tol=attempt, max_steps=MANY))
        start = time.perf_counter()
        automatic.tune()
        seconds = time.perf_counter() - start
        try:
            one_pass(automatic, x, v)
        except ConvergenceError as error:
            last = error
        else:
            return automatic, seconds
    raise last


def plan(model: str, weights: str, tol: float, device: str, batch: int) -> dict[str, Any]:
    """Settle alpha and tol of every contender, and measure their errors on the first samples.

    Parameters
    ----------
    model, weights : str
        As for `benchmarks.layers.build`.
    tol : float
        Of both; ten times looser where float32 cannot certify it, and then the result says so.

    Raises
    ------
    RuntimeError
        If the library and the textbook do not agree to the tolerance.
    """
    layer = build(model, weights, device)
    x, v = inputs(layer, batch)
    automatic, choosing = certified(layer, tol, x, v)
    used, exact = automatic.solver.tol, Exact(layer, x, v)
    # The paper's search, judged by the certified error: counting steps to a small change prefers alphas that move little.
    alpha = with_solver(layer, PeacemanRachford(stepsize.Halving(), used, MANY)).tune(exact.x)
    contenders = {
        "ours, alpha auto": {"alpha": automatic.forward_report.alpha, "tol": used},
        "ours, alpha by halving": {"alpha": alpha, "tol": used},
        "textbook": {"alpha": alpha, "tol": used, "backward_tol": used},
    }
    reached = {name: exact.errors(contender(layer, settings)) for name, settings in contenders.items()}
    contenders["textbook, as accurate"] = as_accurate(layer, alpha, exact, reached["ours, alpha by halving"])
    reached["textbook, as accurate"] = exact.errors(contender(layer, contenders["textbook, as accurate"]))
    check_agreement(reached, used)
    return {
        "model": model, "weights": weights, "tol": tol, "tol_used": used, "lipschitz": layer.operator.lipschitz(),
        "choosing_alpha_seconds": choosing, "contenders": contenders, "errors": reached,
    }  # fmt: skip


def check_agreement(reached: Mapping[str, Mapping[str, float]], tol: float) -> None:
    """Raise unless z* and the backward solve of both, the textbook made as accurate, are within tol of float64's."""
    for name in ("ours, alpha auto", "ours, alpha by halving", "textbook, as accurate"):
        for part in ("z", "backward"):
            if not reached[name][part] <= tol:
                raise RuntimeError(f"{name}: {part} is off by {reached[name][part]:.3g} with tol = {tol:g}; nothing was timed")


def contender(layer: Equilibrium, settings: Mapping[str, float]) -> nn.Module:
    """A textbook where the backward loop has a tol of its own, else the library."""
    if "backward_tol" in settings:
        return Textbook(layer, **settings)
    return with_solver(layer, PeacemanRachford(settings["alpha"], settings["tol"], MANY))


def race(model: str, weights: str, contenders: Mapping[str, Mapping], device: str, batch: int, seconds: float) -> dict[str, Any]:
    """Time the contenders of a `plan` in turn, for about so many seconds; one round at least."""
    layer = build(model, weights, device)
    x, v = inputs(layer, batch)
    runners = {name: contender(layer, settings) for name, settings in contenders.items()}
    calls = {name: partial(_quietly, runner, x, v) for name, runner in runners.items()}
    for runner in runners.values():
        if isinstance(runner, Equilibrium):  # which measures its transforms at the first use
            one_pass(runner, x[:2], v[:2])
    times = alternate(calls, repeats=1, warmup=0)
    rounds = min(int(seconds / sum(entry["median"] for entry in times.values())) - 1, 9)
    if rounds >= 2:
        times = alternate(calls, repeats=rounds, warmup=0)
    for name, runner in runners.items():
        reports = (runner.forward_report, runner.backward_report) if isinstance(runner, Equilibrium) else ()
        times[name]["steps"] = [report.steps for report in reports] or [runner.steps, runner.backward_steps]
    return {"batch": batch, "rounds": max(rounds, 1), "rows": times}


def _quietly(model: nn.Module, x: Tensor, v: Tensor) -> None:
    one_pass(model, x, v)


def contest(
    models: Sequence[str], cases: Sequence[tuple[str, float]], device: torch.device, batch: int, seconds: float, peaks: Mapping
) -> Iterator[dict[str, Any]]:
    """Every case of every model, printed as it comes; on a processor also the two that matter with a tuned allocator."""
    for model in models:
        for weights, tol in cases:
            entry = plan(model, weights, tol, str(device), batch)
            common = {"device": str(device), "batch": batch, "seconds": seconds}
            given = {"model": model, "weights": weights, **common}
            both = {"contenders": {name: entry["contenders"][name] for name in ("ours, alpha auto", "textbook")}}
            everyone = {"contenders": entry["contenders"]}
            if device.type == "cpu":
                entry["races"] = {
                    "default allocator": child("benchmarks.contest", {**given, **everyone}, {}),
                    "tuned allocator": child("benchmarks.contest", {**given, **both}, TUNED_ALLOCATOR),
                }
            else:
                entry["races"] = {"": race(**given, **everyone)}
            show(entry, peaks[model])
            yield entry


def show(entry: Mapping[str, Any], peaks: Mapping[str, Mapping]) -> None:
    """Print one case: a table for each allocator."""
    print(f"\n{entry['model']}, {entry['weights']} weights, ||I - W|| = {entry['lipschitz']:.3g}, tol {entry['tol']:g}")
    if entry["tol_used"] != entry["tol"]:
        print(f"float32 cannot certify this tol here; {entry['tol_used']:g} in its place, for all")
    print(f"choosing alpha took {1e3 * entry['choosing_alpha_seconds']:.3g} ms, due once in a hundred batches of training")
    for allocator, run in entry["races"].items():
        base, rows = run["rows"]["ours, alpha auto"]["median"], []
        for name, row in run["rows"].items():
            settings, error = entry["contenders"][name], entry["errors"][name]
            tols = " + ".join(f"{tol:.0e}" for tol in (settings["tol"], settings.get("backward_tol", settings["tol"])))
            peak = peaks["textbook" if name.startswith("textbook") else "ours"]["bytes"] / 2**20
            times = [1e3 * row["median"], row["median"] / base]
            steps = " + ".join(map(str, row["steps"]))
            rows.append([name, settings["alpha"], tols, steps, *times, peak, error["z"], error["backward"], error["gradient"]])
        print(f"batch {run['batch']}, {allocator or 'one device'}, rounds {run['rounds']}")
        print(table(["", "alpha", "tol", "steps", "ms", "over ours", "peak MiB", "error z", "backward", "gradient"], rows))


if __name__ == "__main__":
    print(json.dumps(race(**json.loads(sys.argv[1]))))
