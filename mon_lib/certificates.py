"""A-posteriori error bounds: how far a point can be from the equilibrium (ledger NEW-CERT).

With G = I - W and A(z) = Gz - bias, strong monotonicity gives ||z - z*|| <= ||e|| / m for every e in A(z) + df(z).
Each function below produces such an e, or the norm of one, from what a solver has at hand.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operators import Operator
from .operators._base import full_precision
from .prox import as_activation

__all__ = ["fixed_point_bound", "forward_factor", "norm", "resolvent_factor", "rounding_allowance"]


def norm(x: Tensor, scaled: bool = False) -> Tensor:
    """The Euclidean norm of each sample, ``(batch, *state_shape) -> (batch,)``.

    With `scaled` each sample is divided by its largest entry first, so that its square cannot underflow; one more pass.
    """
    x = x.flatten(1)
    if not scaled or x.shape[1] == 0:
        return torch.linalg.vector_norm(x, dim=1)
    largest = x.abs().amax(1, keepdim=True)
    return (torch.linalg.vector_norm(x / torch.where(largest > 0, largest, 1.0), dim=1, keepdim=True) * largest).squeeze(1)


def resolvent_factor(alpha: float, m: float, lipschitz: float) -> float:
    """c with ||z - z*|| <= c ||e|| for Peaceman-Rachford's and Douglas-Rachford's e = (z - z_half)/alpha.

    e lies in A(z_half) + df(z), so (I + alpha G)e lies in A(z) + df(z), and ||I + alpha G|| <= 1 + alpha L.
    """
    return (1.0 + alpha * lipschitz) / m


def forward_factor(alpha: float, m: float, lipschitz: float) -> float:
    """c with ||z+ - z*|| <= c ||e|| for forward-backward's e = (z - z+)/alpha.

    e lies in A(z) + df(z+), so (I - alpha G)e lies in A(z+) + df(z+), and
    ||I - alpha G||^2 <= 1 - 2 alpha m + alpha^2 L^2, whether or not the iteration contracts.
    """
    return max(1.0 - 2.0 * alpha * m + (alpha * lipschitz) ** 2, 0.0) ** 0.5 / m


def rounding_allowance(z_norm: Tensor, bias_norm: Tensor, alpha: float, m: float, lipschitz: float, eps: float) -> Tensor:
    """What rounding adds to a bound, to first order: ``(batch,)``.

    z and z_half (or z+) carry a relative error of about eps, so e carries eps (||z|| + alpha ||bias||)/alpha, and
    ||I + alpha G||/m multiplies it. W itself is stored with a relative error of eps, and ||W|| <= 1 + L, which counts
    where L is below 1: G = I - W is then a difference of nearly equal numbers. Without these terms a bound could reach
    zero while the error is one rounding.
    """
    return (eps * (1.0 / alpha + max(lipschitz, 2.0)) / m) * (z_norm + alpha * bias_norm)


@full_precision
def fixed_point_bound(operator: Operator, bias: Tensor, activation, z: Tensor) -> Tensor:
    """Bound ||z - z*|| for any z, wherever it came from, at the price of two products.

    With r = z - sigma(Wz + bias) and z' = z - r, the vector Wr lies in A(z') + df(z'), so
    ||z - z*|| <= ||r|| + ||Wr||/m, which is at most the ledger's (1 + ||W||/m)||r||.

    Parameters
    ----------
    operator : Operator
        W.
    bias, z : Tensor
        Shape ``(batch, *state_shape)``.
    activation : mon_lib.prox.Activation
        sigma.

    Returns
    -------
    Tensor
        Shape ``(batch,)``, rounding included to first order.

    Raises
    ------
    TypeError, NotProximalError
        If `activation` is no activation of this library: without a proximal sigma there is no such bound.
    """
    activation = as_activation(activation)
    with torch.no_grad():
        frozen = operator.frozen()
        r = z - activation(frozen(z) + bias)
        eps = torch.finfo(z.dtype).eps
        slack = rounding_allowance(norm(z), norm(bias), 1.0, frozen.m, frozen.lipschitz_bound(), eps)
        return norm(r) + norm(frozen(r)) / frozen.m + slack
