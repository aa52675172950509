"""The tables of convolutions and reflections on a GPU, and what short formats do: ``python -m benchmarks.gpu [--save]``.

Made to end within eight minutes on one GPU; ``--device cpu --quick`` tries every line of it on tiny layers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib import Equilibrium
from mon_lib.errors import ConvergenceError
from mon_lib.splitting import PeacemanRachford

from . import reflections
from .contest import Exact, contest, distance
from .convolution import cases, steps
from .harness import alternate, provenance, save, table
from .iteration import over_convolution, scaling, solves
from .layers import build, inputs, one_pass, with_solver
from .memory import against_steps, peaks

__all__ = ["fast_paths", "main", "precision", "reflection_sizes", "run", "short_formats", "synchronisations"]

TOL = 1e-3
FULL = {"54 at 30x30": 128, "81 at 34x34": 128, "(16, 32, 60) at 34x34": 128}  # models, and the batch of each
QUICK = {"16 at 18x18": 32, "(8, 16, 16) at 18x18": 32}
DRY = {"3 at 6x6": 4, "(2, 3) at 6x6": 4}
REFUSAL = "benchmarks.gpu: there is no CUDA here; on a CPU `python -m benchmarks.gpu --device cpu --quick` tries it on tiny layers"


def fast_paths() -> list[str]:
    """The switches of the solver for a captured or compiled iteration, by name; none where the library has none."""
    words = ("captur", "graph", "compil")
    return [field.name for field in dataclasses.fields(PeacemanRachford) if any(word in field.name for word in words)]


@contextlib.contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """TF32 allowed or forbidden, in matrix products and in convolutions."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextlib.contextmanager
def around(device: torch.device, tf32: bool, bf16: bool) -> Iterator[None]:
    """TF32 as asked, and autocast to bfloat16 around everything where asked."""
    with precision(tf32), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        yield


def formats(device: torch.device) -> dict[str, Callable]:
    """The contexts that are compared."""
    return {
        "float32": partial(around, device, tf32=False, bf16=False),
        "TF32": partial(around, device, tf32=True, bf16=False),
        "bf16 autocast around": partial(around, device, tf32=False, bf16=True),
        "TF32 and bf16 autocast": partial(around, device, tf32=True, bf16=True),
    }


def short_formats(model: str, device: torch.device, batch: int, repeats: int) -> list[dict[str, Any]]:
    """Print and return time and accuracy of a pass in each format, on the hard weights.

    Each row has the errors of z* and of the gradient against float64, and the error of z* against the float64 solution for
    the bias that the solve was given: under autocast the injection rounds to bfloat16 and the solve must not. The last
    column compares that error with the certified bound; TF32 rounds the products that the bound is computed from.
    """
    layer = build(model, "hard", device)
    x, v = inputs(layer, batch)
    exact, alpha = Exact(layer, x, v), with_solver(layer, PeacemanRachford(tol=TOL)).tune()
    runners = {"": with_solver(layer, PeacemanRachford(alpha, TOL, 5_000))}
    for name in fast_paths():
        runners[f", {name}"] = with_solver(layer, PeacemanRachford(alpha, TOL, 5_000, **{name: True}))
    entries: dict[str, dict[str, Any]] = {}
    calls = {}
    for mode, context in formats(device).items():
        for suffix, runner in runners.items():
            try:
                with context():
                    entries[mode + suffix] = _accuracy(runner, exact)
                    one_pass(runner, x, v)
            except ConvergenceError as error:
                entries[mode + suffix] = {"failed": str(error)}
            else:
                calls[mode + suffix] = partial(_in, context, runner, x, v)
    times = alternate(calls, repeats=repeats, warmup=1) if calls else {}
    rows, out = [], []
    for name, entry in entries.items():
        out.append({"model": model, "format": name, "batch": batch, "alpha": alpha, "tol": TOL, **entry, **times.get(name, {})})
        if "failed" in entry:
            rows.append([name, *[None] * 6, "did not converge"])
            continue
        shown = [entry["z"], entry["gradient"], entry["of_the_solve"], entry["bound"]]
        verdict = "yes" if entry["of_the_solve"] <= entry["bound"] else "NO"
        rows.append([name, 1e3 * times[name]["median"], entry["steps"], *shown, verdict])
    print(f"\n{model}, hard weights, batch {batch}, tol {TOL:g}: formats")
    print(table(["", "ms", "steps", "error z", "gradient", "of the solve", "its bound", "certified"], rows))
    print("captured iteration:", ", ".join(fast_paths()) or "the solver has no switch for one, so none was measured")
    return out


def _in(context: Callable, runner: nn.Module, x: Tensor, v: Tensor) -> None:
    with context():
        one_pass(runner, x, v)


def _accuracy(runner: Equilibrium, exact: Exact) -> dict[str, Any]:
    """Errors of one pass over the first samples, in whatever format is on."""
    z, gradient = one_pass(runner, exact.x, exact.v)
    bias = runner.injection(exact.x).detach().double()
    with torch.autocast(z.device.type, enabled=False):
        solution = exact.solver.solve(exact.layer.operator, bias, runner.activation).z
    report = runner.forward_report
    return {
        "z": distance(z, exact.z), "gradient": distance(gradient, exact.gradient), "of_the_solve": distance(z, solution),
        "bound": report.residual, "steps": f"{report.steps} + {runner.backward_report.steps}",
    }  # fmt: skip


@torch.no_grad()
def synchronisations(model: str, device: torch.device, counts: Sequence[int] = (4, 12)) -> dict[str, Any]:
    """How often the host waits for the device in one iteration; None without CUDA, which alone can tell."""
    layer = build(model, "hard", device)
    bias, seen = layer.injection(inputs(layer, 16)[0]), {}
    calls = solves(layer.operator, bias, layer.activation, counts)
    for steps_taken, call in calls.items():
        call()
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
        finally:
            if device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
        seen[steps_taken] = sum("synchroniz" in str(warning.message) for warning in caught)
    few, many = counts
    each = (seen[many] - seen[few]) / (many - few) if device.type == "cuda" else None
    print(f"\n{model}: host waits for the device, an iteration: {'not known without CUDA' if each is None else f'{each:.3g}'}")
    return {"model": model, "an_iteration": each, "a_solve": {str(k): count for k, count in seen.items()}}


def reflection_sizes(quick: bool, device: torch.device) -> dict[str, Any]:
    """The sizes of the tables of reflections; on a CPU tiny ones, without memory, which takes processes of their own there."""
    if device.type == "cuda":
        return reflections.QUICK if quick else reflections.FULL
    return {name: value for name, value in reflections.DRY.items() if name != "memory"}


def run(quick: bool, device: torch.device) -> dict[str, Any]:
    """Every table; print and return them.

    Raises
    ------
    RuntimeError
        If the device is no CUDA device and `quick` is false.
    """
    if device.type != "cuda" and not quick:
        raise RuntimeError(REFUSAL)
    start = time.perf_counter()
    models = FULL if not quick else QUICK if device.type == "cuda" else DRY
    out: dict[str, Any] = {"iteration": {}, "passes": [], "formats": [], "synchronisations": [], "steps": [], "memory": []}
    for tf32 in (False, True):
        print(f"\nTF32 {'on' if tf32 else 'off'}")
        rows = out["iteration"]["tf32" if tf32 else "float32"] = []
        with precision(tf32):
            for model, batch in models.items():
                for options in ({}, *({name: True} for name in fast_paths())):
                    rows.append(over_convolution(model, device, batch, repeats=3 if quick else 9, **options))
    with precision(tf32=False):
        for model, batch in models.items():
            measured = {model: peaks(model, batch, device)}
            out["passes"] += contest((model,), cases(quick), device, batch, 0.5 if quick else 4.0, measured)
            out["formats"] += short_formats(model, device, batch, repeats=2 if quick else 9)
            out["synchronisations"].append(synchronisations(model, device))
            layers = {f"{model}, {weights}": build(model, weights, device) for weights in ("initial", "hard")}
            out["steps"] += steps(layers, 1e-3, min(batch, 16))
            out["memory"].append(against_steps(model, batch, device))
        out["scaling"] = scaling(quick, device)
        out["reflections"] = reflections.tables(reflection_sizes(quick, device), device)
    out["seconds"] = time.perf_counter() - start
    print(f"\n{out['seconds']:.0f} s in all")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print it, and save it only where told to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small layers and few repeats")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ...; cpu only with --quick")
    parser.add_argument("--save", nargs="?", const=Path("results"), type=Path, metavar="folder", help="also write a JSON file")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if (device.type == "cuda" and not torch.cuda.is_available()) or (device.type != "cuda" and not options.quick):
        print(REFUSAL, file=sys.stderr)
        return 1
    about = provenance(device)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    data = run(quick=options.quick, device=device)
    if options.save is not None:
        print("saved", save("gpu", {"topic": "gpu", "quick": options.quick, **about, **data}, options.save))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
