"""Orthogonal layers against one auxiliary reflection: a pass through a layer, and a step of a recurrent network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib.reflections import AuxiliaryReflection, HouseholderProduct

from .harness import alternate, table
from .reflection_goal import Goal, judge
from .reflection_rivals import INSTALLED_APART, MirrorLoop, orthogonal

__all__ = ["layer_groups", "layers", "recurrence", "roll", "transitions"]

OURS = "auxiliary reflection"
LINEAR, WY, CAYLEY = "nn.Linear", "d reflections, compact WY", "torch, cayley"
FORMED, FREE, EACH_STEP = "h @ Q, Cayley once a sequence", "h @ W, free", "d reflections, as a layer each step"
WHOLE = f"{WY} in one block"  # compact WY as it is published: one triangular solve. The other is ours, in blocks, and faster
AT_LEAST = {32: 10.0, 128: 5.0, 512: 3.0}  # how much slower compact WY in one block and Cayley are, by batch
AT_MOST = 1.25  # times nn.Linear
Repeats = tuple[int, int, int]


def layer_groups(d: int) -> list[dict[str, nn.Module]]:
    """What is timed in turn: the two closest, then the fair rivals, then the slow ones; the first of each is ours."""
    torch.manual_seed(0)
    ours, product, whole = AuxiliaryReflection(d), HouseholderProduct(d, d), HouseholderProduct(d, d, block=d)
    apart = {name: make(d) for name, make in INSTALLED_APART.items() if make is not None}
    slow = {
        "torch, householder": orthogonal(d, "householder"),
        "torch, matrix_exp": orthogonal(d, "matrix_exp"),
        "d reflections, one by one": MirrorLoop(d, d),
    }
    return [
        {OURS: ours, LINEAR: nn.Linear(d, d), f"{LINEAR}, no bias": nn.Linear(d, d, bias=False)},
        {OURS: ours, WHOLE: whole, WY: product, CAYLEY: orthogonal(d, "cayley")},
        {OURS: ours, **slow, **apart},
    ]


def one_pass(module: nn.Module, x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward: the gradients of <f(x), v> in x and in every parameter."""
    return torch.autograd.grad(module(x), [x, *module.parameters()], v)


def layers(d: int, batches: Mapping[int, Repeats], device: torch.device) -> dict[str, Any]:
    """Time forward plus backward of every layer; print and return times, ratios and goals.

    Parameters
    ----------
    d : int
        Size of the vectors.
    batches : mapping
        For each batch the timed rounds of the three groups; a group with 0 rounds is left out.
    """
    groups = [{name: module.to(device) for name, module in group.items()} for group in layer_groups(d)]
    out: dict[str, Any] = {"d": d, "batches": {}, "goals": []}
    for batch, rounds in batches.items():
        x, v = torch.randn(batch, d, device=device, requires_grad=True), torch.randn(batch, d, device=device)
        entry: dict[str, Any] = {}
        for group, repeats in zip(groups, rounds, strict=True):
            if repeats:
                calls = {name: partial(one_pass, module, x, v) for name, module in group.items()}
                _add(entry, alternate(calls, repeats=repeats, warmup=min(2, repeats)))
        missing = {name: "not installed" for name, make in INSTALLED_APART.items() if make is None and rounds[2]}
        print(f"\nd = {d}, batch {batch}, forward + backward")
        rows = [[name, 1e3 * row["median"], row["over_auxiliary"]] for name, row in entry.items()]
        print(table(["", "ms", "over auxiliary"], rows + [[name, why, None] for name, why in missing.items()]))
        goals = [Goal(f"batch {batch}: {OURS} over {LINEAR}", 1.0 / entry[LINEAR]["over_auxiliary"], at_most=AT_MOST)]
        if batch in AT_LEAST:
            for name in (WHOLE, CAYLEY):
                goals.append(Goal(f"batch {batch}: {name} over {OURS}", entry[name]["over_auxiliary"], at_least=AT_LEAST[batch]))
        out["goals"] += judge(goals)
        out["batches"][str(batch)] = {**entry, **missing}
    return out


def _add(entry: dict[str, Any], times: Mapping[str, Mapping[str, float]]) -> None:
    """Rows of one group, each with its ratio to the auxiliary reflection of the same group."""
    base = times[OURS]["median"]
    for name, row in times.items():
        entry.setdefault(name, {**row, "over_auxiliary": row["median"] / base})


def transitions(d: int) -> dict[str, tuple[nn.Module, Callable[[], Callable[[Tensor], Tensor]]]]:
    """For each way to an orthogonal step h -> f(h): the module, and what is done once a sequence, which returns f."""
    torch.manual_seed(0)
    ours, product, loop = AuxiliaryReflection(d), HouseholderProduct(d, d), MirrorLoop(d, d)
    cayley, free = orthogonal(d, "cayley"), nn.Linear(d, d, bias=False)

    def formed(matrix: Callable[[], Tensor]) -> Callable[[Tensor], Tensor]:
        transposed = matrix().mT
        return lambda h: h @ transposed

    return {
        OURS: (ours, ours.prepared),
        "auxiliary reflection, as a layer each step": (ours, lambda: ours),
        FORMED: (cayley, partial(formed, lambda: cayley.weight)),
        "d reflections, prepared once a sequence": (product, product.prepared),
        FREE: (free, partial(formed, lambda: free.weight)),
        EACH_STEP: (product, lambda: product),
        "d reflections, one by one each step": (loop, lambda: loop),
    }


def roll(prepare: Callable[[], Callable[[Tensor], Tensor]], h: Tensor, inputs: Tensor) -> Tensor:
    """h <- f(h) + u_t over a sequence of shape (steps, batch, d)."""
    f = prepare()
    for u in inputs.unbind():
        h = f(h) + u
    return h


def recurrence(d: int, batch: int, steps: int, few: int, repeats: int, device: torch.device) -> dict[str, Any]:
    """Time forward plus backward through a sequence; print and return the cost of a step.

    Parameters
    ----------
    d, batch, steps : int
        Size of the state, samples, and length of the sequence.
    few : int
        Length for the loop over mirrors, in which nothing is shared between steps.
    """
    ways, entry, calls = transitions(d), {}, {}
    h, v = torch.randn(batch, d, device=device, requires_grad=True), torch.randn(batch, d, device=device)
    inputs = torch.randn(steps, batch, d, device=device) / d**0.5
    for name, (module, prepare) in ways.items():
        taken = few if isinstance(module, MirrorLoop) else steps
        entry[name] = {"steps": taken}
        calls[name] = partial(_through, module.to(device), prepare, h, inputs[:taken], v)
    for name, row in alternate(calls, repeats=repeats, warmup=1).items():
        entry[name] |= {**row, "step": row["median"] / entry[name]["steps"]}
    print(f"\nd = {d}, batch {batch}: h <- f(h) + u over a sequence, forward + backward")
    rows = [[name, row["steps"], 1e6 * row["step"], row["step"] / entry[OURS]["step"]] for name, row in entry.items()]
    print(table(["", "steps", "us a step", "over auxiliary"], rows))
    print(f"{OURS} over {FORMED}: {entry[OURS]['step'] / entry[FORMED]['step']:.3g} (slower is expected; no goal)")
    goals = [Goal(f"{EACH_STEP} and compact WY, over {OURS}", entry[EACH_STEP]["step"] / entry[OURS]["step"], at_least=1.0)]
    return {"d": d, "batch": batch, "contenders": entry, "goals": judge(goals)}


def _through(module: nn.Module, prepare: Callable, h: Tensor, inputs: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(roll(prepare, h, inputs), [h, *module.parameters()], v)
