"""The convolutional and multi-tier layers that are measured, one pass through them, and processes to measure in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mon_lib import Equilibrium
from mon_lib.networks import ConvolutionalMON, MultiTierMON
from mon_lib.splitting import PeacemanRachford

__all__ = ["MODELS", "TUNED_ALLOCATOR", "build", "child", "inputs", "one_pass", "with_solver"]

MODELS: dict[str, Callable[[], nn.Module]] = {
    "54 at 30x30": partial(ConvolutionalMON, 1, (28, 28), 54),
    "81 at 34x34": partial(ConvolutionalMON, 3, (32, 32), 81),
    "(16, 32, 60) at 34x34": partial(MultiTierMON, 3, (32, 32), (16, 32, 60)),
    "16 at 18x18": partial(ConvolutionalMON, 1, (16, 16), 16),
    "(8, 16, 16) at 18x18": partial(MultiTierMON, 1, (16, 16), (8, 16, 16)),
    "3 at 6x6": partial(ConvolutionalMON, 1, (4, 4), 3),
    "(2, 3) at 6x6": partial(MultiTierMON, 1, (4, 4), (2, 3)),
}
# By default glibc hands a tensor above 32 MB back to the kernel when it is freed, and its pages are made anew at the next.
TUNED_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
NEVER = 10**9


def build(model: str, weights: str = "initial", device: torch.device | str = "cpu") -> Equilibrium:
    """The layer of a network in `MODELS`, at initialisation or with ``"hard"`` scalars g = 40 and h = 10.

    Layers at initialisation are easy; the hard scalars bring ||I - W|| to where long training does.
    """
    torch.manual_seed(0)
    layer = MODELS[model]().equilibrium
    if weights == "hard":
        with torch.no_grad():
            for name, value in (("g_raw", 40.0), ("down_g_raw", 40.0), ("h", 10.0)):
                if hasattr(layer.operator, name):
                    getattr(layer.operator, name).fill_(value)
    elif weights != "initial":
        raise ValueError(f'weights = {weights!r}; use "initial" or "hard"')
    return layer.to(device)


def inputs(layer: Equilibrium, batch: int) -> tuple[Tensor, Tensor]:
    """Images, and a gradient at z*: random, the same on every machine."""
    generator, injection = torch.Generator().manual_seed(1), layer.injection
    x = torch.randn(batch, injection.in_channels, *injection.image_size, generator=generator)
    v = torch.randn(batch, *layer.operator.state_shape, generator=generator)
    like = {"dtype": layer.operator.dtype, "device": layer.operator.device}
    return x.to(**like), v.to(**like)


def with_solver(layer: Equilibrium, solver: PeacemanRachford) -> Equilibrium:
    """The same layer, on the same parameters, with another solver; an automatic alpha is chosen once and kept."""
    return Equilibrium(layer.operator, layer.injection, layer.activation, solver, retune_every=NEVER)


def one_pass(model: nn.Module, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Forward and backward: the gradient of <z*, v> in every parameter of the layer, and in its bias.

    Returns
    -------
    tuple
        z*, and the gradient in the bias, which is what the backward solve finds.
    """
    kept: list[Tensor] = []
    parameters = [*model.operator.parameters(), *model.injection.parameters()]
    with model.injection.register_forward_hook(lambda module, args, out: kept.append(out)):
        z = model(x)
    return z.detach(), torch.autograd.grad(z, [*kept, *parameters], v)[0]


def child(module: str, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """What a module prints as JSON for these arguments, in a process of its own with these variables set.

    Raises
    ------
    RuntimeError
        If it fails; with what it wrote on its way out.
    """
    root = Path(__file__).resolve().parent.parent
    command, variables = [sys.executable, "-m", module, json.dumps(arguments)], {**os.environ, **environment}
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measurement {arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout)
