"""The inverse and the log-determinant of an invertible reflection on images, against the paper's Newton and `slogdet`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib.reflections import AuxiliaryReflection, InvertibleReflection

from .harness import alternate, table
from .reflection_goal import Goal, judge
from .reflection_rivals import auxiliary, jacobian, jacobian_by_autograd, log_det, newton, newton_one_by_one, newton_steps

__all__ = ["as_accurate", "determinants", "inverses", "invertible", "pixels"]

OURS, INVERSE, SOLVE = "scalar equation", "Newton, torch.inverse, batched", "Newton, batched solve"
LADJ, SLOGDET = "forward_and_ladj", "forward and slogdet of REF-T3"
AT_LEAST = 50.0
CHUNK = 128  # samples whose Jacobians a rival holds at once on a CPU: at 48 channels they fit into its cache
MAX_STEPS = 20


def invertible(d: int, kappa: float, device: torch.device | str = "cpu", dim: int = 1) -> InvertibleReflection:
    """A layer whose W uses its bound: at initialisation f would be nearly linear and its inverse too easy.

    Raises
    ------
    RuntimeError
        If the weights drawn leave W with a condition number near 1.
    """
    torch.manual_seed(0)
    layer = InvertibleReflection(d, kappa, dim=dim)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    if float(layer.condition()) - 1.0 < 0.8 * (kappa - 1.0):
        raise RuntimeError(f"the weights drawn have condition number {float(layer.condition()):.3g}, far from kappa = {kappa:g}")
    return layer.to(device)


def pixels(images: Tensor) -> Tensor:
    """(n, d, h, w) -> (n h w, d), contiguous."""
    return images.movedim(1, -1).flatten(0, -2).contiguous()


def _error(x: Tensor, exact: Tensor) -> float:
    return float(((x - exact).norm(dim=-1) / exact.norm(dim=-1)).max())


def as_accurate(W: Tensor, y: Tensor, exact: Tensor, accuracy: float, *, solve: bool = False) -> int:
    """The first step of Newton at which no sample is off by more than `accuracy`, relatively; the best one if there is none."""
    errors = [_error(x.double(), exact) for x in islice(newton_steps(W, y, solve=solve), MAX_STEPS)]
    reached = [k for k, error in enumerate(errors, 1) if error <= accuracy]
    return reached[0] if reached else 1 + errors.index(min(errors))


@torch.no_grad()
def inverses(d: int, images: int, side: int, kappa: float, repeats: int, device: torch.device, few: int = 16) -> dict[str, Any]:
    """Time f^-1 on images of d channels in float32; print and return the cost of a pixel for ours and for Newton.

    Newton takes as many steps as it needs to be as accurate as ours (within a factor of two, the noise of float32), and is
    spared everything else: no test of convergence, pixels already in rows, W already formed.

    Parameters
    ----------
    few : int
        Pixels for the paper's code as printed, which takes them one by one.
    """
    layer = invertible(d, kappa, device)
    W = layer.to_dense()
    x = torch.randn(images, d, side, side, generator=torch.Generator().manual_seed(1)).double().to(device)
    exact = pixels(x)
    rows = auxiliary(W.double(), exact)
    y, rows = rows.view(images, side, side, d).movedim(-1, 1).float().contiguous(), rows.float()
    chunk = CHUNK if device.type == "cpu" else len(rows)
    ours = _error(pixels(layer.inverse(y)).double(), exact)
    inverting, solving = (as_accurate(W, rows[:1024], exact[:1024], 2.0 * ours, solve=solve) for solve in (False, True))
    calls: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: pixels(layer.inverse(y)),
        INVERSE: partial(newton, W, rows, inverting, chunk),
        SOLVE: partial(newton, W, rows, solving, chunk, solve=True),
        "Newton as printed, one by one": partial(newton_one_by_one, W, rows[:few], inverting),
    }
    steps = [None, inverting, solving, inverting]
    entry: dict[str, Any] = {}
    for (name, call), taken in zip(calls.items(), steps, strict=True):
        found = call()
        entry[name] = {"pixels": len(found), "steps": taken, "error": _error(found.double(), exact[: len(found)])}
    for name, row in alternate(calls, repeats=repeats, warmup=1).items():
        entry[name] |= {**row, "pixel": row["median"] / entry[name]["pixels"]}
    print(f"\ninverse of {images} images {side}x{side}, {d} channels, kappa {kappa:g}, float32")
    _show(entry, OURS)
    ratio = entry[INVERSE]["pixel"] / entry[OURS]["pixel"]
    goals = [Goal(f"kappa {kappa:g}: {INVERSE}, over the {OURS}", ratio, at_least=AT_LEAST)]
    return {"d": d, "kappa": kappa, "images": images, "side": side, "contenders": entry, "goals": judge(goals)}


def _show(entry: dict[str, Any], base: str) -> None:
    rows = [
        [name, row["pixels"], row.get("steps"), row["error"], 1e6 * row["pixel"], row["pixel"] / entry[base]["pixel"]]
        for name, row in entry.items()
    ]
    print(table(["", "pixels", "steps", "error", "us a pixel", "over ours"], rows))


def determinants(
    d: int, images: int, side: int, kappa: float, repeats: int, device: torch.device, few: int = 256
) -> dict[str, Any]:
    """Time y and log |det J| on images, alone and with the backward pass; print and return the cost of a pixel.

    The rivals take the pixels in chunks, each with its backward pass, so that the Jacobians of all need not be held at once; that
    is no slower, and W is formed for them already.
    """
    layer, general = invertible(d, kappa, device), AuxiliaryReflection(d).to(device)
    W = layer.to_dense().detach().requires_grad_()
    x = torch.randn(images, d, side, side, generator=torch.Generator().manual_seed(1)).to(device)
    rows = pixels(x)
    exact = torch.cat([log_det(W.detach().double(), part.double()) for part in rows.split(CHUNK)])
    parts = rows.split(CHUNK if device.type == "cpu" else len(rows))

    def dense(jacobian_of: Callable, z: Tensor) -> tuple[Tensor, Tensor]:
        return auxiliary(W, z), log_det(W, z, jacobian_of)

    ways: dict[str, tuple[Callable, Sequence[Tensor], list[Tensor]]] = {
        LADJ: (layer.forward_and_ladj, [x], list(layer.parameters())),
        SLOGDET: (partial(dense, jacobian), parts, [W]),
        "forward and slogdet of autograd's J": (partial(dense, jacobian_by_autograd), rows[:few].split(CHUNK), [W]),
        "general W, forward_and_ladj": (general.forward_and_ladj, rows[:few].split(CHUNK), list(general.parameters())),
    }
    out: dict[str, Any] = {"d": d, "kappa": kappa, "images": images, "side": side, "goals": []}
    for title, task in {"forward": _forward, "forward + backward": _both}.items():
        calls = {name: partial(_each, task, *way) for name, way in ways.items()}
        entry: dict[str, Any] = {}
        for name, (call, inputs, _) in ways.items():
            with torch.no_grad():
                found = torch.cat([call(z)[1].flatten() for z in inputs])
            error = None if call == general.forward_and_ladj else float((found.double() - exact[: len(found)]).abs().max())
            entry[name] = {"pixels": len(found), "error": error}
        for name, row in alternate(calls, repeats=repeats, warmup=1).items():
            entry[name] |= {**row, "pixel": row["median"] / entry[name]["pixels"]}
        print(f"\nf(x) and log |det J|, {title}: {images} images {side}x{side}, {d} channels, kappa {kappa:g}, float32")
        _show(entry, LADJ)
        ratio = entry[SLOGDET]["pixel"] / entry[LADJ]["pixel"]
        out["goals"] += judge([Goal(f"log |det J|, {title}: {SLOGDET}, over {LADJ}", ratio, at_least=AT_LEAST)])
        out[title] = entry
    return out


def _each(task: Callable, call: Callable, parts: Sequence[Tensor], parameters: list[Tensor]) -> None:
    for part in parts:
        task(call, part, parameters)


@torch.no_grad()
def _forward(call: Callable, x: Tensor, parameters: list[Tensor]) -> None:
    call(x)


def _both(call: Callable, x: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
    x = x.detach().requires_grad_()
    y, ladj = call(x)
    return torch.autograd.grad([y.square().sum() + ladj.sum()], [x, *parameters])
