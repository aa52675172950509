"""What one Peaceman-Rachford iteration costs: beside one convolution, and as n, s and b grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib import Equilibrium, operators, prox
from mon_lib.splitting import PeacemanRachford

from .harness import alternate, table
from .layers import build, inputs

__all__ = ["cost", "exponent", "over_convolution", "scaling", "solves"]

NEVER_REACHED = 1e-30  # a tol
ALPHA = 0.25  # near the best one for the hard weights


def solves(operator: operators.MonotoneOperator, bias: Tensor, activation: prox.Activation, counts: Sequence[int], **options):
    """Calls of the public solver that stop after so many steps each; their difference is the cost of the iterations alone.

    Raises
    ------
    RuntimeError
        From a call that took another number of steps.
    """
    frozen = operator.frozen()

    def call(steps: int) -> None:
        solver = PeacemanRachford(alpha=ALPHA, tol=NEVER_REACHED, max_steps=steps, **options)
        taken = solver.solve(frozen, bias, activation, throw=False).steps
        if taken != steps:
            raise RuntimeError(f"the solve took {taken} steps where {steps} were to be timed; use harder weights or fewer steps")

    return {steps: partial(call, steps) for steps in counts}


def cost(times: Mapping[Any, Mapping[str, float]], counts: Sequence[int]) -> float | None:
    """Seconds an iteration, from the medians of the shorter and the longer solve; None where noise hides it."""
    few, many = counts
    gap = (times[many]["median"] - times[few]["median"]) / (many - few)
    return gap if gap > 0 else None


def bare_step(operator: operators.MonotoneOperator, bias: Tensor, activation: prox.Activation) -> Callable[[], Tensor]:
    """The step of MON eq. 9 written out, with the library's resolvent and no certificate."""
    resolvent, shift = operator.resolvent(ALPHA), ALPHA * bias

    def step() -> Tensor:
        z = activation.prox(bias, ALPHA)
        return torch.add(bias, resolvent(2.0 * z - bias + shift) - z, alpha=2.0)

    return step


def convolutions(layer: Equilibrium, batch: int, memory_format: torch.memory_format) -> Callable[[], None]:
    """One 3x3 convolution of the channels and size of the state; for several tiers one each."""
    operator = layer.operator
    tiers = isinstance(operator, operators.MultiTier)
    shapes = list(zip(operator.channels, operator.sizes, strict=True)) if tiers else [(operator.channels, operator.size)]
    like = {"dtype": operator.dtype, "device": operator.device}
    pairs = []
    for n, size in shapes:
        convolution = nn.Conv2d(n, n, 3, padding=1, **like).to(memory_format=memory_format)
        pairs.append((convolution, torch.randn(batch, n, *size, **like).to(memory_format=memory_format)))

    def call() -> None:
        for convolution, x in pairs:
            convolution(x)

    return call


@torch.no_grad()
def over_convolution(model: str, device: torch.device, batch: int, repeats: int, counts=(4, 12), **options) -> dict[str, Any]:
    """Print and return the cost of an iteration beside that of a convolution, on the hard weights; options for the solver."""
    layer = build(model, "hard", device)
    x, _ = inputs(layer, batch)
    operator, activation, bias = layer.operator, layer.activation, layer.injection(x)
    resolvent = operator.resolvent(ALPHA)
    contiguous, last = "nn.Conv2d 3x3, contiguous", "nn.Conv2d 3x3, channels_last"
    calls = {
        **solves(operator, bias, activation, counts, **options),
        "the bare step": bare_step(operator, bias, activation),
        "its product alone": lambda: resolvent(bias),
        contiguous: convolutions(layer, batch, torch.contiguous_format),
        last: convolutions(layer, batch, torch.channels_last),
    }
    times = alternate(calls, repeats=repeats, warmup=1)
    seconds = {"one iteration of the solver": cost(times, counts)}
    seconds |= {name: times[name]["median"] for name in calls if isinstance(name, str)}
    rows = []
    for name, value in seconds.items():
        ratios = [None if value is None else value / seconds[base] for base in (contiguous, last)]
        rows.append([name, None if value is None else 1e3 * value, *ratios])
    named = "".join(f", {name} = {value}" for name, value in options.items())
    print(f"\n{model}, batch {batch}{named}: one iteration, from solves of {counts[0]} and {counts[1]} steps; medians of {repeats}")
    print(table(["", "ms", "over contiguous", "over channels_last"], rows))
    return {"model": model, "batch": batch, "counts": list(counts), "repeats": repeats, **options, "seconds": seconds}


@torch.no_grad()
def scaling(quick: bool, device: torch.device) -> dict[str, Any]:
    """The cost of an iteration over n, s and b, one at a time, with the exponents of a straight line through the logarithms.

    Beside each stands the exponent that b n s^2 log s + b n^2 s^2 shows over the same sizes, both terms weighted equally
    (MON 4.2): in n between 1 and 2, in s a little above 2.
    """
    base = {"n": 12, "s": 12, "b": 16} if quick else {"n": 32, "s": 32, "b": 32}
    grids = {"n": (6, 12, 24), "s": (8, 12, 16), "b": (16, 32, 64)}
    if not quick:
        grids = {"n": (16, 32, 64, 128), "s": (16, 24, 32, 48), "b": (16, 32, 64, 128)}
    counts, points, exponents, rows = (2, 8), [], {}, []
    for axis, grid in grids.items():
        for value in grid:
            at = {**base, axis: value}
            points.append({"axis": axis, **at, "seconds": _at(device, counts, 3 if quick else 5, **at)})
        good = [p for p in points if p["axis"] == axis and p["seconds"]]
        measured = exponent([p[axis] for p in good], [p["seconds"] for p in good])
        predicted = exponent(grid, [_operations(**{**base, axis: value}) for value in grid])
        exponents[axis] = {"measured": measured, "predicted": predicted, "points": len(good)}
        rows.append([axis, ", ".join(map(str, grid)), measured, predicted])
    print(f"\nseconds an iteration ~ size^p; n channels, s x s pixels, batch b, around n, s, b = {tuple(base.values())}")
    print(table(["", "sizes", "p measured", "p of the paper"], rows))
    return {"base": base, "counts": list(counts), "points": points, "exponents": exponents}


def _operations(n: int, s: int, b: int) -> float:
    return b * n * s**2 * math.log(s) + b * n**2 * s**2


def _at(device: torch.device, counts: Sequence[int], repeats: int, n: int, s: int, b: int) -> float | None:
    torch.manual_seed(0)
    operator = operators.Convolution(n, (s, s), device=device)
    operator.g_raw.fill_(40.0)
    operator.h.fill_(10.0)
    bias = torch.randn(b, n, s, s, device=device)
    return cost(alternate(solves(operator, bias, prox.ReLU(), counts), repeats=repeats, warmup=1), counts)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """The slope of the least-squares line through (log size, log seconds); None for fewer than two points."""
    if len(sizes) < 2:
        return None
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (sizes, seconds))
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())
