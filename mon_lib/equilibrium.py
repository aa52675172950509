"""The implicit layer x -> z*, z* = sigma(Wz* + Ux + b), and its gradient (MON Theorems 2 and 3, Algorithms 3 and 4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import prox, stepsize
from ._numbers import whole
from ._once import once
from ._tuned import NONE, Report, Tuned
from .operators import MonotoneOperator
from .operators._base import all_finite
from .splitting import PeacemanRachford, Solution, Solver
from .splitting._solver import check_precision

__all__ = ["Equilibrium", "Report"]


class _Implicit(torch.autograd.Function):
    """pre = Wz* + bias -> z*, with the implicit derivative of the equilibrium instead of sigma's.

    For v = dl/dz*, the gradient at pre is u~ = J(I - W'J)^-1 v, the solution of u~ = J(W'u~ + v) (MON Theorem 3). The
    chain rule through pre then gives u~' d(Wz* + Ux + b) for every parameter, with no further J.
    """

    @staticmethod
    def forward(ctx, pre, z, layer, operator, backward):
        ctx.save_for_backward(pre)
        # All as it was in this pass: the layer may have other parts by the time of the backward one.
        ctx.layer, ctx.operator, ctx.activation, ctx.backward_solver = layer, operator, layer.activation, backward
        return z.clone()  # not a view: the caller may write into the output

    @staticmethod
    def backward(ctx, v):
        (pre,) = ctx.saved_tensors
        if torch._C._functorch.is_legacy_batchedtensor(v):  # what autograd's own batches are made of
            raise NotImplementedError(_ONE_BY_ONE)
        with torch.no_grad(), torch.autocast(v.device.type, enabled=False):
            if not all_finite(v):
                raise ValueError("the gradient that reaches the equilibrium has a NaN or an infinite entry; look at the loss")
            linear = prox.Diagonal(ctx.activation.derivative(pre.detach()))
            solution, report = ctx.backward_solver.solve(ctx.operator.T, v, linear, count=True)
            ctx.layer.backward_report = report
        return once(_REFUSAL, solution.z, v, pre), None, None, None, None


_REFUSAL = (
    "second derivatives through mon_lib.Equilibrium are not implemented; drop create_graph=True, or differentiate "
    "an unrolled iteration (a loop of z = sigma(W(z) + bias) steps) where you need them"
)


_ONE_BY_ONE = (
    "batched gradients (is_grads_batched=True, or vectorize=True) through mon_lib.Equilibrium are not implemented; "
    "call torch.autograd.grad with one gradient after the other, or put them side by side in the batch of inputs"
)


def _refuse_other_modes(bias: Tensor) -> None:
    """Raise where a forward-mode tangent or a torch.func transform would be lost: the solve is outside the graph."""
    if torch._C._functorch.is_functorch_wrapped_tensor(bias) or forward_ad.unpack_dual(bias).tangent is not None:
        raise NotImplementedError(
            "forward mode and torch.func transforms through mon_lib.Equilibrium are not implemented; use torch.autograd.grad or "
            "backward(), and loop over samples where you would use vmap"
        )


def _checked(solver: object, name: str) -> Solver:
    if isinstance(solver, type) and issubclass(solver, Solver):
        raise TypeError(f"{name} is the class {solver.__name__}; pass an object, {solver.__name__}()")
    if not isinstance(solver, Solver):
        kind = type(solver).__name__
        raise TypeError(f"{name} is a {kind}; pass a solver, for instance mon_lib.splitting.PeacemanRachford()")
    return solver


class Equilibrium(nn.Module):
    """The layer x -> z* with z* = sigma(Wz* + injection(x)).

    The forward pass solves without a graph, then applies W once: that product carries the graph to the parameters. The
    backward pass is the same kind of solve on W', so memory does not grow with the number of steps. First derivatives in
    reverse mode only: second ones, forward mode and torch.func transforms are refused.

    Parameters
    ----------
    operator : MonotoneOperator
        W with I - W >= mI.
    injection : nn.Module
        x -> Ux + b, of shape ``(batch, *operator.state_shape)``.
    activation : mon_lib.prox.Activation
        sigma = prox_f, for instance ``mon_lib.prox.ReLU()``.
    solver : Solver, optional
        ``PeacemanRachford(tol=1e-4)`` by default: far below the noise of a gradient from a batch, and within what float32
        certifies for L/m up to about a hundred.
    backward_solver : Solver, optional
        By default the forward solver with the alpha it used, whose resolvent is then shared.
    retune_every : int
        An automatic alpha is chosen at the first solve and again after this many solves in training mode; see `tune`.

    Attributes
    ----------
    forward_report, backward_report : Report or None
        Of the last solve each way.

    Raises
    ------
    ConvergenceError
        From `forward` or from ``backward()``, where a sample misses the tolerance.
    TypeError, ValueError
        For wrong parts; for an injection whose output, the bias of the solve, does not fit W.
    NotProximalError
        For an activation that is no proximal operator.
    """

    def __init__(
        self,
        operator: MonotoneOperator,
        injection: nn.Module,
        activation: prox.Activation,
        solver: Solver | None = None,
        backward_solver: Solver | None = None,
        *,
        retune_every: int = 100,
    ):
        super().__init__()
        if not isinstance(operator, MonotoneOperator):
            raise TypeError(f"operator is a {type(operator).__name__}; pass a mon_lib.operators object, for instance Dense(87)")
        if not isinstance(injection, nn.Module):
            kind = type(injection).__name__
            raise TypeError(f"injection is a {kind}; pass a torch.nn.Module, for instance torch.nn.Linear(784, 87)")
        if (whole(retune_every) or 0) < 1:
            raise ValueError(f"retune_every = {retune_every!r} is not a number of solves; it must be a positive integer")
        self.operator, self.injection, self.activation = operator, injection, prox.as_activation(activation)
        self._ahead = Tuned(PeacemanRachford(tol=1e-4) if solver is None else _checked(solver, "solver"), int(retune_every))
        self.backward_solver = backward_solver
        self.forward_report: Report | None = None
        self.backward_report: Report | None = None

    @property
    def solver(self) -> Solver:
        """The forward solver; assign another one to change it, and alpha is chosen anew."""
        return self._ahead.solver

    @solver.setter
    def solver(self, solver: Solver) -> None:
        self._ahead = Tuned(_checked(solver, "solver"), self._ahead.every)

    @property
    def backward_solver(self) -> Solver | None:
        """The backward solver, or None where the forward one serves; it can be assigned too."""
        return None if self._back is None else self._back.solver

    @backward_solver.setter
    def backward_solver(self, solver: Solver | None) -> None:
        self._back = None if solver is None else Tuned(_checked(solver, "backward_solver"), self._ahead.every)

    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        """The equilibrium for each sample.

        Parameters
        ----------
        x : Tensor
            What `injection` takes, ``(batch, ...)``.

        Returns
        -------
        Tensor
            z*, shape ``(batch, *operator.state_shape)``, in the operator's dtype also under autocast.
        """
        check_precision(self.operator)
        bias, device = self._bias(x), self.operator.device.type
        _refuse_other_modes(bias)
        with torch.autocast(device, enabled=False):
            frozen = self.operator.frozen()
            solution, self.forward_report = self._ahead.solve(frozen, bias, self.activation, count=self.training)
            if not torch.is_grad_enabled():
                return solution.z
            pre = self.operator(solution.z) + bias
            if not pre.requires_grad:
                return solution.z
            backward = self._back
            if backward is None:
                backward = Tuned(self.solver.with_alpha(solution.alpha), 1)
            return _Implicit.apply(pre, solution.z, self, frozen, backward)

    @torch.no_grad()
    def solve(self, x: Tensor) -> Solution:
        """The equilibrium with its history and certificate, outside the graph."""
        check_precision(self.operator)
        bias = self._bias(x)
        solution, self.forward_report = self._ahead.solve(self.operator.frozen(), bias, self.activation, count=False)
        return solution

    @torch.no_grad()
    def tune(self, x: Tensor | None = None) -> float:
        """Choose the forward alpha for today's weights and return it.

        Parameters
        ----------
        x : Tensor, optional
            Inputs for a rule that needs trial solves (`mon_lib.stepsize.Halving`); the others look at W and the activation alone.

        Raises
        ------
        ValueError
            If the rule needs inputs and none are given.
        """
        if isinstance(self.solver.alpha, stepsize.Halving) and x is None:
            raise ValueError("the halving search compares trial solves; call tune(x) with a batch of inputs")
        frozen = self.operator.frozen()
        bias = torch.zeros(1, *frozen.state_shape, dtype=frozen.dtype, device=frozen.device) if x is None else self._bias(x)
        self._ahead.tune(frozen, bias, self.activation)
        return self._ahead.alpha

    def _bias(self, x: Tensor) -> Tensor:
        bias = self.injection(x)
        if not isinstance(bias, Tensor):
            raise TypeError(f"injection(x) is a {type(bias).__name__}; it must be a tensor of the shape of the state")
        # Under autocast the injection may run in a short format; the solve never does.
        return bias.to(self.operator.dtype) if torch.is_autocast_enabled(bias.device.type) else bias

    def get_extra_state(self) -> Tensor:
        """The chosen step sizes, so that a resumed run repeats the run it resumes; a tensor like all else in a state_dict."""
        absent = [NONE] * 3
        return torch.tensor([self._ahead.state(), absent if self._back is None else self._back.state()], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        ahead, back = state.tolist()
        self._ahead.restore(ahead)
        if self._back is not None:
            self._back.restore(back)

    def extra_repr(self) -> str:
        parts = {"activation": self.activation, "solver": self.solver, "backward_solver": self.backward_solver}
        return ", ".join(f"{name}={part!r}" for name, part in parts.items()) + f", retune_every={self._ahead.every}"
