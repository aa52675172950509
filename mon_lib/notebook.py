"""What the first code cell of every chapter calls: one seed, one figure style, one size of run.

A chapter is executed at three sizes. ``smoke`` is for tests and takes seconds, ``cpu`` is what a reader of the site sees and takes
at most two minutes on two cores, ``gpu`` is for a machine with CUDA. The environment variable ``MON_PROFILE`` chooses; without it
the profile is ``gpu`` where CUDA is there and ``cpu`` elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

import torch

__all__ = ["PROFILES", "VARIABLE", "Profile", "profile_name", "setup"]

PROFILES = ("smoke", "cpu", "gpu")
VARIABLE = "MON_PROFILE"

T = TypeVar("T")


@dataclass(frozen=True)
class Profile:
    """The size at which a notebook runs.

    Parameters
    ----------
    name : str
        One of ``smoke``, ``cpu``, ``gpu``.
    device : torch.device
        Where models and data of the notebook live.
    """

    name: str
    device: torch.device

    def pick(self, *, smoke: T, cpu: T, gpu: T | None = None) -> T:
        """Return the value for this profile; ``gpu`` may be left out and then equals ``cpu``.

        Examples
        --------
        >>> Profile("cpu", torch.device("cpu")).pick(smoke=1, cpu=10, gpu=100)
        10
        """
        if self.name == "smoke":
            return smoke
        return gpu if self.name == "gpu" and gpu is not None else cpu


def profile_name() -> str:
    """Return the profile that ``MON_PROFILE`` names, or the default of this machine.

    Raises
    ------
    ValueError
        If the variable holds anything but ``smoke``, ``cpu`` or ``gpu``.
    RuntimeError
        If it holds ``gpu`` and PyTorch sees no CUDA device.
    """
    name = os.environ.get(VARIABLE, "")
    if not name:
        return "gpu" if torch.cuda.is_available() else "cpu"
    if name not in PROFILES:
        raise ValueError(f"{VARIABLE}={name!r} is not a profile: set it to one of {', '.join(PROFILES)}, or unset it")
    if name == "gpu" and not torch.cuda.is_available():
        raise RuntimeError(f"{VARIABLE}=gpu, but PyTorch sees no CUDA device: set it to cpu, or unset it")
    return name


def setup(seed: int = 0) -> Profile:
    """Seed PyTorch, apply the book's figure style and return the profile.

    Parameters
    ----------
    seed : int
        Passed to :func:`torch.manual_seed`, which also seeds CUDA.

    Returns
    -------
    Profile
        The size of the run; see :func:`profile_name` for how it is chosen.
    """
    from mon_lib import figures  # here, so that a script can read the profile without loading matplotlib

    name = profile_name()
    torch.manual_seed(seed)
    figures.use_style()
    return Profile(name, torch.device("cuda" if name == "gpu" else "cpu"))
