"""Peak memory of forward plus backward: against the number of steps, of unrolling, of the textbook, of a single step.

Each measurement is a process of its own. On the CPU it is the growth of the process's largest resident size (what the
kernel counts) over its size just before the pass, so everything is in it: autograd's graph and every buffer. Freed
blocks of 64 KiB and more go back to the kernel at once (MALLOC_MMAP_THRESHOLD_), else the count shows what glibc holds in
reserve. On a GPU it is the growth of ``torch.cuda.max_memory_allocated``. The number of steps is set by the step size: a
small alpha needs many steps for the same tolerance, in the same problem.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from mon_lib import Equilibrium, operators, prox
from mon_lib.splitting import PeacemanRachford

from .harness import table
from .layers import build, child, inputs, one_pass, with_solver
from .textbook import Textbook

__all__ = ["Stopped", "against_steps", "measure", "measure_layer", "peaks", "run", "unrolled"]

TOL = 1e-3


def unrolled(W: operators.Dense, bias: torch.Tensor, alpha: float, steps: int) -> torch.Tensor:
    """Peaceman-Rachford with ReLU, every step recorded by autograd."""
    eye = torch.eye(*W.state_shape, dtype=bias.dtype, device=bias.device)
    V = torch.linalg.inv((1 + alpha) * eye - alpha * W.to_dense())
    z = u = torch.zeros_like(bias)
    for _ in range(steps):
        half = (2 * z - u + alpha * bias) @ V.T
        u = 2 * half - 2 * z + u
        z = torch.relu(u)
    return z


def measure(kind: str, n: int, batch: int, alpha: float, device: str, steps: int = 0) -> dict:
    """One forward and one backward pass in this process.

    Parameters
    ----------
    kind : str
        ``"implicit"`` or ``"unrolled"``; the second takes `steps` steps.

    Returns
    -------
    dict
        ``steps`` forward, ``bytes`` above what was held before, ``seconds``.
    """
    torch.manual_seed(0)
    W, inject = operators.Dense(n).to(device), torch.nn.Linear(n, n).to(device)
    x, v = torch.randn(batch, n, device=device), torch.randn(batch, n, device=device)
    layer = Equilibrium(W, inject, prox.ReLU(), PeacemanRachford(alpha=alpha, tol=TOL, max_steps=10_000))
    small = Equilibrium(W, inject, prox.ReLU(), PeacemanRachford(alpha=1.0, tol=TOL))
    small(x[:2]).backward(v[:2])  # libraries, code and threads are loaded before the count starts
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before, start = _peak(device, reset=True), time.perf_counter()
    z = layer(x) if kind == "implicit" else unrolled(W, inject(x), alpha, steps)
    z.backward(v)
    after = _peak(device)
    taken = layer.forward_report.steps if kind == "implicit" else steps
    return {"steps": taken, "bytes": after - before, "seconds": time.perf_counter() - start}


def _peak(device: str, reset: bool = False) -> int:
    """The largest size so far, in bytes; with `reset` the size now, from which the peak then counts anew."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # Linux. Not ru_maxrss: a child inherits its parent's across fork and exec
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        sizes = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(sizes["VmRSS" if reset else "VmHWM"].split()[0])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Stopped(PeacemanRachford):
    """Peaceman-Rachford that ends after `max_steps` steps, converged or not."""

    def solve(self, operator, bias, activation, *, z0=None, throw=True):
        return super().solve(operator, bias, activation, z0=z0, throw=False)


def measure_layer(kind: str, model: str, batch: int, alpha: float, device: str, tol: float = TOL) -> dict:
    """One pass through a convolutional layer on the hard weights, in this process.

    Parameters
    ----------
    kind : str
        ``"ours"``, ``"stopped"`` for ours after one step each way, or ``"textbook"``.
    model : str
        One of `benchmarks.layers.MODELS`.

    Returns
    -------
    dict
        ``steps`` forward, ``bytes`` above what was held before, ``seconds``.
    """
    layer = build(model, "hard", device)
    x, v = inputs(layer, batch)
    if kind == "textbook":
        runner = Textbook(layer, alpha, tol)
    else:
        solver = PeacemanRachford(alpha, tol, 10_000) if kind == "ours" else Stopped(alpha, tol, 1)
        runner = with_solver(layer, solver)
    one_pass(runner, x[:2], v[:2])
    before, start = _peak(device, reset=True), time.perf_counter()
    kept = one_pass(runner, x, v)
    after, seconds = _peak(device), time.perf_counter() - start
    del kept
    return {
        "steps": runner.steps if kind == "textbook" else runner.forward_report.steps,
        "bytes": after - before,
        "seconds": seconds,
    }


def peaks(model: str, batch: int, device: torch.device) -> dict[str, dict]:
    """The peak of one pass of ours and of the textbook; it depends on neither weights nor tol, so a loose one serves."""
    common = {"model": model, "batch": batch, "alpha": 0.25, "tol": 0.1, "device": str(device)}
    return {kind: _apart(kind=kind, **common) for kind in ("ours", "textbook")}


def against_steps(model: str, batch: int, device: torch.device) -> dict:
    """Print and return the peak for growing numbers of steps, beside that of a pass that stops after one."""
    common = {"model": model, "batch": batch, "device": str(device)}
    one = _apart(kind="stopped", alpha=0.25, **common)
    runs, rows = [], [[1, one["bytes"] / 2**20, 1.0, one["seconds"]]]
    for alpha in (0.25, 0.05):
        runs.append({"alpha": alpha, **_apart(kind="ours", alpha=alpha, **common)})
        peak = runs[-1]["bytes"]
        rows.append([runs[-1]["steps"], peak / 2**20, peak / max(one["bytes"], 1), runs[-1]["seconds"]])
    print(f"\n{model}, batch {batch}: peak of a pass above what was held before, tol {TOL:g}")
    print(table(["steps", "MiB", "over one step", "s"], rows))
    return {"model": model, "batch": batch, "tol": TOL, "one_step": one, "runs": runs}


def _apart(**arguments) -> dict:
    """`measure_layer` in a process of its own; on a GPU, whose allocator counts for itself, in this one."""
    return _child(**arguments) if arguments["device"] == "cpu" else measure_layer(**arguments)


def _child(**arguments) -> dict:
    return child("benchmarks.memory", arguments, {"MALLOC_MMAP_THRESHOLD_": "65536"})


def run(quick: bool, device: torch.device) -> dict:
    """Measure, print and return peak memory for a growing number of steps."""
    n, batch = (256, 1024) if quick else (512, 2048)
    alphas = (1.0, 0.02) if quick else (1.0, 0.2, 0.1, 0.05, 0.02)
    rows, out = [], {"n": n, "batch": batch, "tol": TOL, "state_bytes": 4 * n * batch, "runs": []}
    for alpha in alphas:
        common = {"n": n, "batch": batch, "alpha": alpha, "device": str(device)}
        implicit = _child(kind="implicit", **common)
        plain = _child(kind="unrolled", steps=implicit["steps"], **common)
        out["runs"].append({"alpha": alpha, "steps": implicit["steps"], "implicit": implicit, "unrolled": plain})
        ratio = plain["bytes"] / max(implicit["bytes"], 1)
        rows.append([implicit["steps"], implicit["bytes"] / 2**20, plain["bytes"] / 2**20, ratio])
    print(f"n = {n}, batch {batch}, one state {4 * n * batch / 2**20:.3g} MiB, peak above what was held before")
    print(table(["steps", "implicit MiB", "unrolled MiB", "ratio"], rows))
    return out


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(measure_layer(**given) if "model" in given else measure(**given)))
