"""Monotone operator equilibrium networks, with the book that derives them."""

from . import (
    acceleration,
    certificates,
    data,
    errors,
    experiments,
    explorables,
    figures,
    flows,
    interop,
    networks,
    notebook,
    operators,
    prox,
    reflections,
    splitting,
    stepsize,
    training,
)
from .equilibrium import Equilibrium
from .errors import ConvergenceError, NotMonotoneError, NotProximalError

__all__ = [
    "ConvergenceError",
    "Equilibrium",
    "NotMonotoneError",
    "NotProximalError",
    "acceleration",
    "certificates",
    "data",
    "errors",
    "experiments",
    "explorables",
    "figures",
    "flows",
    "interop",
    "networks",
    "notebook",
    "operators",
    "prox",
    "reflections",
    "splitting",
    "stepsize",
    "training",
]
