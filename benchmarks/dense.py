"""The dense network of MON Table D1, forward plus backward: solvers against an explicit network and a textbook loop."""

from __future__ import annotations

import copy
import statistics
import time
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mon_lib import data, operators
from mon_lib.acceleration import Anderson, Newton
from mon_lib.networks import MLP, FullyConnectedMON, count_parameters
from mon_lib.splitting import ForwardBackward, PeacemanRachford

from .harness import alternate, table

__all__ = ["TextbookLoop", "run", "stretch"]

LIPSCHITZ = 4.9  # ||I - W|| of a dense model trained for long; at initialisation every solver has an easy life
RETUNE_EVERY = 100


def stretch(operator: operators.Dense, lipschitz: float) -> None:
    """Scale A'A and B of an operator without weight normalisation by one factor, so that ||I - W|| = lipschitz."""
    A, B = operator.A.detach().clone(), operator.B.detach().clone()
    low, high = 0.0, 1e4
    with torch.no_grad():
        for _ in range(60):
            factor = 0.5 * (low + high)
            operator.A.copy_(A * factor**0.5)
            operator.B.copy_(B * factor)
            low, high = (factor, high) if operator.lipschitz() < lipschitz else (low, factor)


class TextbookLoop(nn.Module):
    """MON Algorithms 2 and 4 (with the denominator 1 + alpha D) as one would type them from the page.

    One alpha for ever, one inverse for each forward pass, kept for the backward pass; both loops stop when the whole
    batch moves by less than tol, relatively, and ask the device after every step. For ReLU only.
    """

    def __init__(self, model: FullyConnectedMON, alpha: float, tol: float):
        super().__init__()
        self.operator, self.injection = model.equilibrium.operator, model.equilibrium.injection
        self.readout, self.alpha, self.tol, self.steps, self.backward_steps = model.readout, alpha, tol, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        W, bias, alpha = self.operator.to_dense(), self.injection(x.flatten(1)), self.alpha
        with torch.no_grad():
            eye = torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
            V = torch.linalg.inv(eye + alpha * (eye - W))
            z = u = torch.zeros_like(bias)
            change, self.steps = 1.0, 0
            while change > self.tol:
                half = (2 * z - u + alpha * bias) @ V.T
                u = 2 * half - 2 * z + u
                before, z, self.steps = z, torch.relu(u), self.steps + 1
                change = ((z - before).norm() / z.norm()).item()
        return self.readout(_Textbook.apply(z @ W.T + bias, z, V, self))


class _Textbook(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pre, z, V, model):
        ctx.save_for_backward(pre, V)
        ctx.model = model
        return z.clone()

    @staticmethod
    def backward(ctx, v):
        (pre, V), model, change = ctx.saved_tensors, ctx.model, 1.0
        model.backward_steps = 0
        z = u = torch.zeros_like(v)
        while change > model.tol:
            half = (2 * z - u) @ V
            u = 2 * half - 2 * z + u
            before, z = z, torch.where(pre > 0, u + model.alpha * v, 0.0)
            model.backward_steps += 1
            change = ((z - before).norm() / z.norm()).item()
        return z, None, None, None


def _gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(cross_entropy(model(x), y), parameters)])


def _network(template: FullyConnectedMON, solver) -> FullyConnectedMON:
    model = FullyConnectedMON(solver=solver).to(next(template.parameters()))
    model.load_state_dict(template.state_dict())
    return model


def _solvers(tol: float) -> dict:
    return {
        "Peaceman-Rachford": PeacemanRachford(tol=tol),
        "forward-backward": ForwardBackward(tol=tol),
        "Newton": Newton(PeacemanRachford(tol=tol)),
        "Anderson, Peaceman-Rachford": Anderson(PeacemanRachford(tol=tol)),
        "Anderson, forward-backward": Anderson(ForwardBackward(tol=tol)),
    }


def run(quick: bool, device: torch.device) -> dict:
    """Time every contender on batches of digits; print and return the medians."""
    torch.manual_seed(0)
    template = FullyConnectedMON()
    stretch(template.equilibrium.operator, LIPSCHITZ)
    template.to(device)
    mlp = MLP.matching(count_parameters(template)).to(device)
    digits = data.load("mnist-5k").to(device)
    tol, repeats = 1e-3, 5 if quick else 60
    exact = _network(template, PeacemanRachford(tol=1e-10, max_steps=5_000)).double()
    out = {"units": 87, "lipschitz": template.equilibrium.operator.lipschitz(), "tol": tol, "batches": {}}
    for batch in (128,) if quick else (1, 128, 1024):
        x, y = digits.images[:batch], digits.labels[:batch]
        reference = _gradient(exact, x.double(), y)
        models = {name: _network(template, solver) for name, solver in _solvers(tol).items()}
        alpha = models["Peaceman-Rachford"].equilibrium.tune()
        models["textbook loop, same alpha"] = TextbookLoop(template, alpha, tol)
        models["textbook loop, alpha = 1"] = TextbookLoop(template, 1.0, tol)
        models["explicit network"] = mlp
        for model in models.values():
            model.train()
        # alpha is chosen in the warm-up and then kept, as between two choices in training
        times = alternate({name: partial(_gradient, model, x, y) for name, model in models.items()}, repeats=repeats, warmup=2)
        rows, entry, base = [], {}, times["explicit network"]["median"]
        for name, model in models.items():
            layer = getattr(model, "equilibrium", None)
            steps = None if layer is None else (layer.forward_report.steps, layer.backward_report.steps)
            if isinstance(model, TextbookLoop):
                steps = (model.steps, model.backward_steps)
            error = None
            if model is not mlp:
                error = float((_gradient(model, x, y).double() - reference).norm() / reference.norm())
            entry[name] = {**times[name], "steps": steps, "gradient_error": error, "over_explicit": times[name]["median"] / base}
            shown = "-" if steps is None else f"{steps[0]} + {steps[1]}"
            rows.append([name, shown, 1e3 * times[name]["median"], times[name]["median"] / base, error])
        choosing = {name: _choosing(models[name]) for name in ("Peaceman-Rachford", "forward-backward")}
        print(f"\nbatch {batch}, forward + backward, tol {tol:g}")
        print(table(["", "steps", "ms", "over explicit", "gradient error"], rows))
        for name, seconds in choosing.items():
            share = seconds / (seconds + RETUNE_EVERY * times[name]["median"])
            print(f"choosing alpha, {name}: {1e3 * seconds:.3g} ms, {share:.1%} of the time if done every {RETUNE_EVERY} batches")
        out["batches"][str(batch)] = {"contenders": entry, "choosing_alpha_seconds": choosing}
    return out


def _choosing(model: FullyConnectedMON) -> float:
    layer, seconds = copy.deepcopy(model.equilibrium), []
    for _ in range(5):
        start = time.perf_counter()
        layer.tune()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
