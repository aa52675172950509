"""Weights from elsewhere: the layout of the checkpoints that the authors of the MON paper released.

Their fully connected model has W = (1-m)I - A'A + B - B' without weight normalisation, and the keys of `KEYS`. The
constant m is not in the file: build the model with the m that the checkpoint was trained with (1 in the paper).
"""

from __future__ import annotations

import os
import pickle

import torch
from torch import Tensor, nn

from .networks import FullyConnectedMON
from .operators import Dense

__all__ = ["KEYS", "load_reference_state_dict"]

KEYS = {
    "mon.linear_module.U.weight": "equilibrium.injection.weight",
    "mon.linear_module.U.bias": "equilibrium.injection.bias",
    "mon.linear_module.A.weight": "equilibrium.operator.A",
    "mon.linear_module.B.weight": "equilibrium.operator.B",
    "Wout.weight": "readout.weight",
    "Wout.bias": "readout.bias",
}


def load_reference_state_dict(model: nn.Module, state_dict: dict[str, Tensor] | str | os.PathLike) -> None:
    """Copy a released checkpoint of the fully connected model into ours, all of it or nothing.

    Parameters
    ----------
    model : FullyConnectedMON
        With ``normalised=False`` and the checkpoint's sizes; keeps its dtype and device.
    state_dict : dict or path
        The tensors by name, or a file of them, read with ``weights_only=True``.

    Raises
    ------
    ValueError
        If the file cannot be read so, or a key is unknown, missing, of the wrong shape or not finite. One message names
        every such key, and the model is left as it was.
    TypeError
        If the model is not a `FullyConnectedMON` without weight normalisation.
    """
    if not isinstance(model, FullyConnectedMON):
        raise TypeError(f"model is a {type(model).__name__}; the layout is that of mon_lib.networks.FullyConnectedMON")
    operator = model.equilibrium.operator
    if not isinstance(operator, Dense) or operator.normalised:
        raise TypeError("the layout has no weight normalisation; build the model with normalised=False")
    if isinstance(state_dict, (str, os.PathLike)):
        state_dict = _read(state_dict)
    targets = {key: model.get_parameter(name) for key, name in KEYS.items()}
    faults = [f"unknown {key}" for key in state_dict if key not in KEYS]
    for key, target in targets.items():
        value = state_dict.get(key)
        if value is None:
            faults.append(f"missing {key}")
        elif not isinstance(value, Tensor) or not value.dtype.is_floating_point:
            kind = getattr(value, "dtype", type(value).__name__)
            faults.append(f"{key} is a {kind}, expected a floating-point tensor")
        elif value.shape != target.shape:
            faults.append(f"{key} has shape {tuple(value.shape)}, expected {tuple(target.shape)}")
        elif not bool(torch.isfinite(value).all()):
            faults.append(f"{key} has a NaN or an infinite entry")
    if faults:
        raise ValueError("the checkpoint does not fit, and nothing was loaded: " + "; ".join(faults))
    with torch.no_grad():
        for key, target in targets.items():
            target.copy_(state_dict[key])


def _read(path: str | os.PathLike) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        kind = type(error).__name__
        raise ValueError(f"{os.fspath(path)} cannot be read as a file of tensors alone ({kind})") from error
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, expected a dict of tensors")
    return state
