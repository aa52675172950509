"""Weights from elsewhere: the layouts of the checkpoints that the authors of the MON paper released.

All have the prefix ``mon.linear_module.`` but for the readout, ``Wout.weight`` and ``Wout.bias``.

- Fully connected: W = (1-m)I - A'A + B - B' without weight normalisation; the keys are those of `KEYS`.
- Convolutional: the same keys and the scalars g and h of W = (1-m)I - g A'A/||A||^2 + h (B - B')/||B||. The readout averages
  4 x 4 pixels of the state with its border, so the model is built with ``crop=False``.
- Multi-tier: ``U``; for each tier i ``A0.i``, ``B0.i`` with scalars ``g.i``, ``h.i``; between tiers ``A_n0.i`` with ``gn.i``,
  where A_ii = sqrt(g) A0/||A0||, B_ii = h B0/||B0|| and A_{i+1,i} = sqrt(gn) A_n0/||A_n0||.

There g is a free number, and here softplus of one, so that it stays positive. The constant m and the activation, a ReLU, are
not in the file: build the model with the m that the checkpoint was trained with (1 in the paper).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from .networks import ConvolutionalMON, FullyConnectedMON, MultiTierMON
from .operators import Dense
from .operators._kernels import positive_raw

__all__ = ["KEYS", "load_reference_state_dict"]

PREFIX = "mon.linear_module."
_WIDER = "convert the model with double() first"
KEYS = {
    "mon.linear_module.U.weight": "equilibrium.injection.weight",
    "mon.linear_module.U.bias": "equilibrium.injection.bias",
    "mon.linear_module.A.weight": "equilibrium.operator.A",
    "mon.linear_module.B.weight": "equilibrium.operator.B",
    "Wout.weight": "readout.weight",
    "Wout.bias": "readout.bias",
}


def load_reference_state_dict(model: nn.Module, state_dict: dict[str, Tensor] | str | os.PathLike) -> None:
    """Copy a released checkpoint into one of our models, all of it or nothing.

    Parameters
    ----------
    model : FullyConnectedMON, ConvolutionalMON or MultiTierMON
        With the checkpoint's sizes and m: the fully connected one with ``normalised=False``, the convolutional one with
        ``crop=False``. It keeps its dtype and device, and an automatic alpha is chosen anew at its next solve.
    state_dict : dict or path
        The tensors by name, or a file of them, read with ``weights_only=True``.

    Raises
    ------
    ValueError
        If the file cannot be read so or is for another of the three models; or if a key is unknown, missing, of the wrong
        shape, not finite, or a g that is not positive, all in the dtype of the model. One message names every such key, and
        the model is left as it was. If the keys are those of a wrapper, the message says what to strip.
    TypeError
        If the model is none of the three, or not built as the released ones are; if `state_dict` is neither dict nor path.
    """
    if not isinstance(model, (FullyConnectedMON, ConvolutionalMON, MultiTierMON)):
        raise TypeError(
            f"model is a {type(model).__name__}; the layouts are those of FullyConnectedMON, ConvolutionalMON and MultiTierMON "
            "of mon_lib.networks"
        )
    if isinstance(state_dict, (str, os.PathLike)):
        state_dict = _read(state_dict)
    if not isinstance(state_dict, Mapping):
        hint = "; pass its state_dict()" if isinstance(state_dict, nn.Module) else ""
        raise TypeError(
            f"state_dict is a {type(state_dict).__name__}; pass a dict of tensors by name, or the path of a file of one{hint}"
        )
    if wrapper := _wrapper(state_dict):
        raise ValueError(f"{wrapper}; nothing was loaded")
    kind = _kind(state_dict)
    if kind is not None and not isinstance(model, kind):
        raise ValueError(
            f"the checkpoint is for a {kind.__name__}, and the model is a {type(model).__name__}; nothing was loaded: "
            f"build a mon_lib.networks.{kind.__name__} of the sizes of the checkpoint"
        )
    targets, values = _targets(model), {}
    faults = [f"unknown {key}" for key in state_dict if key not in targets]
    for key, target in targets.items():
        fault, values[key] = _convert(key, state_dict.get(key), target)
        if fault and key == "Wout.weight":
            fault += _image_sizes(model, state_dict.get(key))
        faults += [fault] if fault else []
    if faults:
        raise ValueError("the checkpoint does not fit, and nothing was loaded: " + "; ".join(faults))
    with torch.no_grad():
        for key, target in targets.items():
            target.copy_(values[key])
    model.equilibrium.solver = model.equilibrium.solver  # whose alpha belonged to other weights: it is chosen anew


def _targets(model: nn.Module) -> dict[str, Tensor]:
    """Where each key of the layout goes: parameters, or views of their entries."""
    W = model.equilibrium.operator
    if isinstance(model, FullyConnectedMON):
        if not isinstance(W, Dense) or W.normalised:
            raise TypeError("the layout has no weight normalisation; build the model with normalised=False")
        return {key: model.get_parameter(name).detach() for key, name in KEYS.items()}
    if W.kernel_size != 3:
        raise TypeError(f"the layout has 3 x 3 kernels; build the model with kernel_size=3, not {W.kernel_size}")
    outer = {key: model.get_parameter(name).detach() for key, name in KEYS.items() if "operator" not in name}
    if isinstance(model, ConvolutionalMON):
        if model.crop or model.pool != 4:
            raise TypeError(
                "the readout of the layout averages 4 x 4 pixels of the state with its border; build the model with crop=False "
                f"and pool=4, not crop={model.crop} and pool={model.pool}"
            )
        inner = {"A.weight": W.A, "B.weight": W.B, "g": W.g_raw, "h": W.h}
    else:
        inner = {f"A0.{i}.weight": A for i, A in enumerate(W.A)} | {f"B0.{i}.weight": B for i, B in enumerate(W.B)}
        inner |= {f"A_n0.{i}.weight": D for i, D in enumerate(W.down)}
        for name, scalars in (("g", W.g_raw), ("gn", W.down_g_raw), ("h", W.h)):
            inner |= {f"{name}.{i}": scalar for i, scalar in enumerate(scalars)}
    return outer | {PREFIX + key: target.detach() for key, target in inner.items()}


def _wrapper(state_dict: Mapping) -> str | None:
    """How the weights are wrapped, and what to do about it; None where they are not, or there are none."""
    steps, way = [], "checkpoint"
    while (prefix := _prefix(state_dict)) is None:
        inner = [key for key, value in state_dict.items() if isinstance(value, Mapping) and value]
        if not inner or way.count("[") > 8:
            return None
        key = max(inner, key=lambda key: _prefix(state_dict[key]) is not None)
        state_dict, way = state_dict[key], f"{way}[{key!r}]"
        steps = [f"the weights are not at the top but in {way}"]
    if prefix:
        steps.append(f"the keys have the prefix {prefix!r}")
        way = f"{{key.removeprefix({prefix!r}): value for key, value in {way}.items()}}"
    return f"{', and '.join(steps)}; strip that, pass {way}" if steps else None


def _prefix(state_dict: Mapping) -> str | None:
    """What stands before the keys of the layouts, nothing for the released files; None where there are no such keys."""
    found = [str(key).partition(begin)[0] for key in state_dict for begin in (PREFIX, "Wout.") if begin in str(key)]
    return min(found, key=len, default=None)


def _kind(state_dict: dict[str, Tensor]) -> type[nn.Module] | None:
    """Which of our models a checkpoint is for, as far as it can be told."""
    if any(str(key).startswith(PREFIX + "A0.") for key in state_dict):
        return MultiTierMON
    A = state_dict.get(PREFIX + "A.weight")
    return {2: FullyConnectedMON, 4: ConvolutionalMON}.get(A.ndim) if isinstance(A, Tensor) else None


def _convert(key: str, value, target: Tensor) -> tuple[str | None, Tensor | None]:
    """What is wrong with a value, if anything, and what to copy."""
    if value is None:
        return f"missing {key}", None
    if not isinstance(value, Tensor) or not value.dtype.is_floating_point:
        kind = getattr(value, "dtype", type(value).__name__)
        return f"{key} is a {kind}, expected a floating-point tensor", None
    if target.ndim == 0 and value.shape == (1,):
        value = value[0]
    if value.shape != target.shape:
        return f"{key} has shape {tuple(value.shape)}, expected {tuple(target.shape)}", None
    value = value.detach()
    if not bool(torch.isfinite(value).all()):
        return f"{key} has a NaN or an infinite entry", None
    name = key.removeprefix(PREFIX).split(".")[0]
    if name in ("g", "gn"):
        g = float(value)
        if g <= 0:
            return f"{key} = {g:g} is not positive: {_why(g)}", None
        value = positive_raw(value.double())
    copied = value.to(target.device, target.dtype)
    if not bool(torch.isfinite(copied).all()):
        return f"{key} has an entry too large for the model's {target.dtype}", None
    if name in ("g", "gn") and softplus(copied) <= 0:
        return f"{key} = {g:g} is not positive in the model's {target.dtype} but 0: {_why(0.0)}; {_WIDER}", None
    if name in ("A", "B", "A0", "B0", "A_n0") and copied.ndim == 4 and not bool(copied.any()):
        where = f" in the model's {target.dtype}" if bool(value.any()) else ""
        return f"{key} is zero{where}, and cannot be divided by its norm" + (f"; {_WIDER}" if where else ""), None
    return None, copied


def _why(g: float) -> str:
    if g == 0:
        return "it is softplus of a number here, which is never zero"
    return "MON Proposition 1 then fails, so nothing says that an equilibrium exists, or only one; g is positive here"


def _image_sizes(model: nn.Module, weight: Tensor | None) -> str:
    """For a readout of another width: the images of the model, and those of the checkpoint if they are square."""
    if isinstance(model, FullyConnectedMON) or not isinstance(weight, Tensor) or weight.ndim != 2:
        return ""
    W, tiers = model.equilibrium.operator, isinstance(model, MultiTierMON)
    channels = W.channels[-1] if tiers else W.channels
    side = math.isqrt(weight.shape[1] // channels)
    if weight.shape[1] == model.readout.in_features:
        return ""
    text = "; the model is for images of {} x {}".format(*model.image_size)
    square = side > 0 and side**2 * channels == weight.shape[1]
    if not tiers:
        return text + (f", these weights for sides of {4 * side - 2} to {4 * side + 1}" if square else "")
    whole = 2 ** (len(W.channels) - 1)
    if square and side > 2:
        text += ", these weights for {0} x {0}".format((side - 2) * whole)
    return text + f" (a side that halves exactly from tier to tier is a multiple of {whole})"


def _read(path: str | os.PathLike) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # bytes that are no such file raise nearly anything: IndexError, AssertionError, struct.error
        kind = type(error).__name__
        raise ValueError(f"{os.fspath(path)} cannot be read as a file of tensors alone ({kind})") from error
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, expected a dict of tensors")
    return state
