"""What reflections are measured against: the loop over mirrors, torch's parametrizations, the paper's Newton, determinants.

Each is as fast as its idea allows in plain torch: batched, the Jacobian of REF Theorem 3 with its rank-one terms merged,
a Cayley map without the base point of a trivialisation (it saves a product), Newton stopped at the first step that is
accurate enough, which it could not know.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

__all__ = [
    "INSTALLED_APART", "MirrorLoop", "auxiliary", "jacobian", "jacobian_by_autograd", "log_det", "newton", "newton_one_by_one",
    "newton_steps", "orthogonal",
]  # fmt: skip


class MirrorLoop(nn.Module):
    """H(v_1) ... H(v_k) x, one mirror after the other, each a few operations that autograd records.

    Parameters
    ----------
    d, k : int
        Size of the vectors and number of reflections.
    """

    def __init__(self, d: int, k: int):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(k, d) / d**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Reflect x of shape (..., d)."""
        for v in reversed(self.vectors.unbind()):
            x = x - (x @ v * (2.0 / v.dot(v))).unsqueeze(-1) * v
        return x


def orthogonal(d: int, kind: str) -> nn.Linear:
    """A linear layer with one of torch's orthogonal parametrizations: ``"cayley"``, ``"matrix_exp"`` or ``"householder"``."""
    return parametrizations.orthogonal(nn.Linear(d, d, bias=False), orthogonal_map=kind, use_trivialization=False)


def _geotorch(d: int) -> nn.Module:
    layer = nn.Linear(d, d, bias=False)
    importlib.import_module("geotorch").orthogonal(layer, "weight")
    return layer


class _TorchHouseholder(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.product = importlib.import_module("torch_householder").torch_householder_orgqr
        self.vectors = nn.Parameter(torch.randn(d, d) / d**0.5)

    def forward(self, x: Tensor) -> Tensor:
        below = self.vectors.tril(-1) + torch.eye(len(self.vectors), dtype=x.dtype, device=x.device)
        return x @ self.product(below).mT


_APART: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "geotorch, orthogonal": ("geotorch", _geotorch),
    "torch-householder": ("torch_householder", _TorchHouseholder),
}
INSTALLED_APART: dict[str, Callable[[int], nn.Module] | None] = {
    name: make if find_spec(package) else None for name, (package, make) in _APART.items()
}
"""Layers of packages that are no dependency of the book, d -> module; None where the package is not installed."""


def auxiliary(W: Tensor, x: Tensor) -> Tensor:
    """f(x) = H(Wx)x as in the paper, for x of shape (..., d)."""
    u = x @ W.mT
    return x - 2.0 * (x * u).sum(-1, keepdim=True) / u.square().sum(-1, keepdim=True) * u


def jacobian(W: Tensor, x: Tensor) -> Tensor:
    """REF Theorem 3 for symmetric W: with h = Wx/||Wx|| and A = I - 2cW it is A - 2 h (h + Ah)'.

    Parameters
    ----------
    W : Tensor, shape (d, d)
    x : Tensor, shape (n, d)

    Returns
    -------
    Tensor, shape (n, d, d)
    """
    u = x @ W
    size = u.square().sum(-1, keepdim=True)
    c, h = (x * u).sum(-1, keepdim=True) / size, u / size.sqrt()
    A = -2.0 * c[..., None] * W + torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
    return A.baddbmm(-2.0 * h[..., None], (2.0 * h - 2.0 * c * (h @ W))[:, None, :])


def jacobian_by_autograd(W: Tensor, x: Tensor) -> Tensor:
    """The same by one backward pass a row, vectorised over rows and samples."""
    return torch.func.vmap(torch.func.jacrev(lambda one: auxiliary(W, one)))(x)


def log_det(W: Tensor, x: Tensor, jacobian_of: Callable[[Tensor, Tensor], Tensor] = jacobian) -> Tensor:
    """log |det J| for x of shape (n, d), by a factorisation a sample."""
    return torch.linalg.slogdet(jacobian_of(W, x)).logabsdet


def newton_steps(W: Tensor, y: Tensor, *, solve: bool = False) -> Iterator[Tensor]:
    """REF A.2.1, all samples at once: x <- x - J(x)^-1 (f(x) - y) from x = y; each x.

    Parameters
    ----------
    W : Tensor, shape (d, d)
        Symmetric.
    y : Tensor, shape (n, d)
    solve : bool
        Factorise the Jacobian and solve, which the paper does not, instead of inverting it.
    """
    x = y
    while True:
        J, residual = jacobian(W, x), (auxiliary(W, x) - y)[..., None]
        step = torch.linalg.solve(J, residual) if solve else torch.linalg.inv(J) @ residual
        x = x - step[..., 0]
        yield x


def newton(W: Tensor, y: Tensor, steps: int, chunk: int, *, solve: bool = False) -> Tensor:
    """The result of `newton_steps` after so many steps, for `chunk` samples at once: their Jacobians should fit into a cache."""
    return torch.cat([next(islice(newton_steps(W, part, solve=solve), steps - 1, None)) for part in y.split(chunk)])


def newton_one_by_one(W: Tensor, y: Tensor, steps: int) -> Tensor:
    """REF A.2.1 as printed: one sample at a time, H formed as a matrix."""
    eye, done = torch.eye(W.shape[0], dtype=W.dtype, device=W.device), []

    def H(v: Tensor) -> Tensor:
        return eye - 2 * v @ v.T / (v.T @ v)

    for target in y[..., None]:
        x = target
        for _ in range(steps):
            A = eye - 2 * (x.T @ W.T @ x) / torch.norm(W @ x) ** 2 * W
            J = -2 * W @ x @ x.T @ W / torch.norm(W @ x) ** 2 + H(W @ x) @ A
            x = x - torch.inverse(J) @ (H(W @ x) @ x - target)
        done.append(x[:, 0])
    return torch.stack(done)
