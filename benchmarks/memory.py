"""Peak memory of forward plus backward against the number of steps: the implicit gradient and unrolling.

Each measurement is a process of its own. On the CPU it is the growth of the process's largest resident size (what the
kernel counts) over its size just before the pass, so everything is in it: autograd's graph and every buffer. Freed
blocks of 64 KiB and more go back to the kernel at once (MALLOC_MMAP_THRESHOLD_), else the count shows what glibc holds in
reserve. On a GPU it is the growth of ``torch.cuda.max_memory_allocated``. The number of steps is set by the step size: a
small alpha needs many steps for the same tolerance, in the same problem.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from mon_lib import Equilibrium, operators, prox
from mon_lib.splitting import PeacemanRachford

from .harness import table

__all__ = ["measure", "run", "unrolled"]

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


def _child(**arguments) -> dict:
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(arguments)]
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measurement {arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout)


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
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
