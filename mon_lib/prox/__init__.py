"""Activations as proximal operators: sigma = prox_f, with prox_{alpha f} right for every alpha.

Source: MON Theorem 1, eq. 4 and D.2; which functions qualify is chapter 8 of the book (NEW-PROX).

>>> import torch
>>> from mon_lib.prox import Tanh
>>> x = torch.tensor([-2.0, 0.0, 3.0])
>>> s = Tanh()
>>> torch.equal(s.prox(x, 1.0), torch.tanh(x))
True
"""

from ._base import Activation
from .check import as_activation, from_callable
from .masked import Masked
from .piecewise import Clip, LeakyReLU, ReLU, SoftThreshold
from .smooth import ELU, Arctan, Sigmoid, Softplus, Softsign, Tanh
from .wrappers import Border, Diagonal

__all__ = [
    "ELU",
    "Activation",
    "Arctan",
    "Border",
    "Clip",
    "Diagonal",
    "LeakyReLU",
    "Masked",
    "ReLU",
    "Sigmoid",
    "SoftThreshold",
    "Softplus",
    "Softsign",
    "Tanh",
    "as_activation",
    "from_callable",
]
