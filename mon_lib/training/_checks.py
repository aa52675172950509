"""What is refused before anything is moved or trained."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["check_device", "check_place"]


def check_device(device: torch.device | str | int) -> torch.device:
    """The device, after a gradient was computed on it.

    Raises
    ------
    ValueError
        If PyTorch has no such device here, or can compute no gradient on it.
    """
    reason = "PyTorch knows no such device"
    try:
        place = torch.device(device)  # its own text lists twenty devices, meta among them
        reason = None
        x = torch.ones(2, 2, device=place, requires_grad=True)
        (x @ x).sum().backward()
        float(x.grad.sum())  # meta has shapes but no numbers
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:  # the middle two: a PyTorch without that device
        reason = reason or str(error).partition("\n")[0]
        raise ValueError(f"device = {str(device)!r} cannot be used here ({reason}); use cpu, or cuda with a GPU") from error
    return place


def check_place(model: nn.Module) -> None:
    """Raises ValueError if a tensor of the model is on meta, which has shapes but no numbers."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise ValueError(f"{name} of the model is on the device meta and has no numbers; build the model on cpu or cuda")
