"""Shared test problems: operators with known character, and a reference equilibrium that trusts no solver of ours."""

from __future__ import annotations

import torch

from mon_lib import operators, prox

F64 = torch.float64
ACTIVATIONS = {
    "relu": prox.ReLU(),
    "tanh": prox.Tanh(),
    "leaky": prox.LeakyReLU(0.2),
    "soft": prox.SoftThreshold(0.3),
    "clip": prox.Clip(-0.1, 0.4),
}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_operator(n: int = 8, m: float = 0.5, skew: float = 3.0, seed: int = 0, dtype=F64) -> operators.Dense:
    """W with I - W = mI + PSD + skew * (antisymmetric of norm 1)."""
    g = generator(seed)
    A = torch.randn(n, n, generator=g, dtype=F64) / n**0.5
    B = torch.randn(n, n, generator=g, dtype=F64)
    K = B - B.T
    K = skew * K / torch.linalg.matrix_norm(K, ord=2).clamp_min(1e-300)
    return operators.Dense.from_matrix((1 - m) * torch.eye(n, dtype=F64) - A.T @ A + K, m).to(dtype)


def random_bias(n: int = 8, batch: int = 5, seed: int = 1, dtype=F64) -> torch.Tensor:
    return torch.randn(batch, n, generator=generator(seed), dtype=F64).to(dtype)


def reference(operator, bias: torch.Tensor, activation) -> torch.Tensor:
    """z* in float64 by the textbook Peaceman-Rachford loop at alpha = 1, where the prox is sigma itself.

    It shares nothing with mon_lib's solvers but W and sigma, converges for every monotone W, and is run until it stands
    still; the fixed-point residual is then asserted to be rounding.
    """
    W = operator.to_dense().detach().double()
    bias = bias.detach().double()
    inverse = torch.linalg.inv(2.0 * torch.eye(W.shape[0], dtype=F64) - W)
    u = torch.zeros_like(bias)
    for _ in range(200):
        before = u
        for _ in range(100):
            z = activation(u)
            u = u + 2.0 * ((2.0 * z - u + bias) @ inverse.T - z)
        if float((u - before).norm()) <= 1e-15 * float(u.norm()):
            break
    z = activation(u)
    residual = (z - activation(z @ W.T + bias)).norm(dim=1)
    assert bool((residual <= 1e-12 * (1.0 + bias.norm(dim=1))).all())
    return z


def losses_of_training(layer, learning_rate: float, x: torch.Tensor, target: torch.Tensor, steps: int = 4) -> list[float]:
    """The squared error of a layer before each of a few steps of gradient descent; the last gradients stay in place."""
    optimiser, losses = torch.optim.SGD(layer.parameters(), lr=learning_rate), []
    for _ in range(steps):
        loss = (layer(x) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses
