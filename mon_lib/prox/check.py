"""Any callable as an activation, if it is one: nondecreasing, nonexpansive, elementwise, deterministic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import NotProximalError
from . import piecewise, smooth
from ._base import Activation
from ._implicit import Implicit

__all__ = ["as_activation", "from_callable"]

SLACK = 1e-9
ZOOMS = 16
NEAR = 1e-8  # half the width of the secants that autograd's slopes are compared with, relative to x and sigma(x)
# What the two may differ by. Rounding gives such a secant an error of some eps / NEAR, below 1e-7, and its curvature
# even less unless sigma bends within NEAR; a gradient that is wrong by a thousandth does no harm to training.
DISAGREEMENT = 1e-3


@dataclass(frozen=True, repr=False)
class CallableActivation(Implicit):
    """A checked callable. t - sigma(t) is a plain difference: it loses digits where the slope is 1 and alpha large."""

    exact: ClassVar[bool] = False
    fn: Callable[[Tensor], Tensor]
    name: str = field(compare=False)

    def __repr__(self):
        return f"from_callable({self.name})"

    def _value(self, x: Tensor) -> Tensor:
        return self.fn(x)

    def _split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        z = self.fn(t)
        return z, t - z

    def _slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        slope = _slope(self.fn, t)
        return slope, 1 - slope


def _slope(fn: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    """The slope of fn at t by autograd, itself in the graph exactly when t is."""
    keep = torch.is_grad_enabled() and t.requires_grad
    with torch.enable_grad():
        t = t if keep else t.detach().requires_grad_()
        total = fn(t).sum()
        if not total.requires_grad:
            return torch.zeros_like(t)
        (slope,) = torch.autograd.grad(total, t, create_graph=keep, allow_unused=True, materialize_grads=True)
    return slope if keep else slope.detach()


def from_callable(fn: Callable[[Tensor], Tensor], name: str | None = None) -> Activation:
    """Make an activation of fn, after checking on a grid that it is a proximal operator.

    A function of one real variable is the proximal operator of a convex function if and only if it is nondecreasing
    and nonexpansive (NEW-PROX). Both are checked in float64 for abs(x) up to a million, with a fine grid near 0: by
    autograd's slopes and by secants, which are narrowed towards the steepest and the flattest spot so that jumps show.
    Autograd's slopes must also be there and agree with secants, since the gradient of a network is made of them.
    A grid is no proof: what lies between its points below the resolution is not seen.

    Parameters
    ----------
    fn : callable
        Tensor to tensor of the same shape and dtype, elementwise, deterministic, differentiable by autograd.
    name : str, optional
        For messages; the callable's own name by default.

    Raises
    ------
    NotProximalError
        Saying where the function fails and why, for example
        ``silu: slope -0.09984 at x = -2.4: a proximal operator is nondecreasing``; or that no gradient reaches x, as
        through ``detach`` or numpy, or a wrong one.
    TypeError
        If fn is not callable.
    """
    if isinstance(fn, Activation):
        return fn
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"from_callable takes a function of a tensor, not {fn!r}")
    name = name or getattr(fn, "__name__", None) or repr(fn)
    if isinstance(fn, nn.Module) and any(True for _ in fn.parameters()):
        raise NotProximalError(f"{name} has parameters: training can move its slope out of [0, 1]; use a fixed function")
    grid = _grid()
    _check_elementwise(fn, name, grid)
    _check_gradient(fn, name, grid)
    _check_slopes(fn, name, grid)
    _check_agreement(fn, name, grid)
    return CallableActivation(fn, name)


def _grid() -> Tensor:
    fine = torch.linspace(-32, 32, 25601, dtype=torch.float64)
    wide = torch.logspace(-12, 6, 1801, dtype=torch.float64)
    return torch.cat([-wide, fine, wide]).unique()


def _check_elementwise(fn, name: str, grid: Tensor) -> None:
    """Shape, dtype, finite values, the same answer twice, and each entry's answer independent of the others."""
    with torch.no_grad():
        value = fn(copy := grid.clone())
        if not torch.equal(copy, grid):
            raise NotProximalError(f"{name} changes its argument in place: use the version that returns a new tensor")
        if not isinstance(value, Tensor) or value.shape != grid.shape or value.dtype != grid.dtype:
            found = f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
            raise NotProximalError(f"{name} maps {tuple(grid.shape)} {grid.dtype} to {found}: an activation keeps shape and dtype")
        bad = ~value.isfinite()
        if bad.any():
            raise NotProximalError(
                f"{name} is {value[bad][0].item()} at x = {grid[bad][0].item():.3g}: a proximal operator is finite for every real x"
            )

        def same(other: Tensor) -> bool:
            return other.shape == value.shape and torch.allclose(other, value, rtol=1e-9, atol=1e-12)

        if not torch.equal(fn(grid.clone()), value):
            raise NotProximalError(f"{name} gives two answers for the same x: a proximal operator is deterministic")
        alone = grid[:: len(grid) // 7]
        singles = torch.stack([fn(x.reshape(1))[0] for x in alone])
        square = fn(grid[: len(grid) // 2 * 2].reshape(2, -1))
        ok = same(fn(grid.flip(0)).flip(0)) and square.ndim == 2
        ok = ok and torch.allclose(square.flatten(), value[: square.numel()], rtol=1e-9, atol=1e-12)
        if not ok or not torch.allclose(singles, value[:: len(grid) // 7], rtol=1e-9, atol=1e-12):
            raise NotProximalError(f"{name} mixes the entries of its argument: an activation acts on each entry alone")


def _check_gradient(fn, name: str, grid: Tensor) -> None:
    """A gradient must reach x, unless the function is constant."""
    remedy = f"{name}: no gradient reaches x, so training would see a slope of 0: use torch operations, without detach or numpy"
    try:
        with torch.enable_grad():
            value = fn(grid.clone().requires_grad_())
    except RuntimeError as error:  # numpy refuses a tensor that requires a gradient
        raise NotProximalError(f"{remedy} ({error})") from error
    if not value.requires_grad and bool((value != value[0]).any()):
        raise NotProximalError(remedy)


def _check_agreement(fn, name: str, grid: Tensor) -> None:
    """Autograd's slopes lie between those of the secants to the left and to the right.

    Asked beside the points of the grid: at a kink, which likes round numbers, autograd may answer anything.
    """
    x = grid[:-1] + 0.37 * grid.diff()
    slopes = _slope(fn, x)
    with torch.no_grad():
        value = fn(x.clone())
        reach = NEAR * torch.stack([torch.ones_like(x), x.abs(), value.abs()]).amax(0)
        before, after = x - reach, x + reach
        left, right = (value - fn(before.clone())) / (x - before), (fn(after.clone()) - value) / (after - x)
        excess = torch.maximum(slopes - torch.maximum(left, right), torch.minimum(left, right) - slopes)
    worst = excess.argmax()
    if not excess[worst] <= DISAGREEMENT:
        slope, secant = slopes[worst].item(), left[worst].item()
        lost = ": no gradient reaches x" if not slopes.any() else ""
        raise NotProximalError(
            f"{name}: autograd's slope is {slope:.4g} at {_place(x[worst].item())}, that of a secant {secant:.4g}{lost}; "
            "gradients would be wrong: use torch operations, without detach or a backward pass of your own that differs"
        )


def _check_slopes(fn, name: str, grid: Tensor) -> None:
    """Autograd's slopes on the grid, and secants narrowed towards the extreme slope of every interval."""
    slopes = _slope(fn, grid)
    with torch.no_grad():
        value = fn(grid.clone())
    faults = []
    for sign, limit, reason in ((-1, 0.0, "nondecreasing"), (1, 1.0, "nonexpansive (1-Lipschitz)")):
        places, found = [grid], [sign * slopes]
        left, right, low, high = grid[:-1], grid[1:], sign * value[:-1], sign * value[1:]
        for _ in range(ZOOMS):
            middle = 0.5 * (left + right)
            with torch.no_grad():
                between = sign * fn(middle.clone())
            first, second = _secant(left, middle, low, between), _secant(middle, right, between, high)
            places.append(middle)
            found.append(torch.maximum(first, second))
            keep = first > second
            left, low = torch.where(keep, left, middle), torch.where(keep, low, between)
            right, high = torch.where(keep, middle, right), torch.where(keep, between, high)
        places, found = torch.cat(places), torch.cat(found)
        worst = found.argmax()
        if not found[worst] <= sign * limit + SLACK:
            slope = sign * found[worst].item()
            faults.append(f"slope {slope:.4g} at {_place(places[worst].item())}: a proximal operator is {reason}")
    if faults:
        raise NotProximalError(f"{name}: " + "; ".join(faults))


def _place(x: float) -> str:
    if abs(x) >= 1e-4 or x == 0:
        return f"x = {x:.3g}"
    return f"x just {'below' if x < 0 else 'above'} 0"


def _secant(left: Tensor, right: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The slope between two points of the graph, less what rounding can add to it."""
    width = right - left
    size = torch.stack([low.abs(), high.abs(), left.abs(), right.abs()]).amax(0)
    return torch.where(width > 0, (high - low - 16 * torch.finfo(left.dtype).eps * size) / width, -torch.inf)


def as_activation(obj) -> Activation:
    """Return obj if it is an Activation; otherwise raise the error that names the object to use.

    Raises
    ------
    NotProximalError
        If obj is a known function that no convex function has as its prox (SiLU, GELU, Mish, SELU, ...).
    TypeError
        If obj is an activation of another library, an Activation class, or no activation at all.
    """
    if isinstance(obj, Activation):
        return obj
    if isinstance(obj, type) and issubclass(obj, Activation):
        raise TypeError(f"the activation is the class {obj.__name__}: pass an instance, mon_lib.prox.{obj.__name__}()")
    if isinstance(obj, type) and issubclass(obj, nn.Module):
        raise TypeError(f"the activation is the class {obj.__name__}: pass an object of mon_lib.prox")
    if not callable(obj):
        raise TypeError(f"the activation is {obj!r}: pass an object of mon_lib.prox, for example mon_lib.prox.ReLU()")
    match = _counterpart(obj)
    if match is None:
        from_callable(obj)
        match = f"from_callable({getattr(obj, '__name__', repr(obj))})"
    raise TypeError(f"the activation {obj!r} does not know its proximal operators: pass mon_lib.prox.{match}")


def _counterpart(obj) -> Activation | None:
    """The activation of this package that computes what obj computes, if there is one."""
    if isinstance(obj, nn.Hardtanh):
        return piecewise.Clip(obj.min_val, obj.max_val)
    if isinstance(obj, nn.LeakyReLU):
        return piecewise.LeakyReLU(obj.negative_slope)
    if isinstance(obj, nn.Softshrink):
        return piecewise.SoftThreshold(obj.lambd)
    if isinstance(obj, nn.ELU | nn.CELU) and (isinstance(obj, nn.ELU) or obj.alpha == 1):
        return smooth.ELU(obj.alpha)
    if isinstance(obj, nn.Softplus) and obj.beta != 1:
        return None
    for activation, kinds in (
        (piecewise.ReLU(), (nn.ReLU, torch.relu, F.relu)),
        (piecewise.LeakyReLU(), (F.leaky_relu,)),
        (piecewise.Clip(-1.0, 1.0), (F.hardtanh,)),
        (piecewise.Clip(0.0, 6.0), (F.relu6,)),
        (smooth.Tanh(), (nn.Tanh, torch.tanh, F.tanh)),
        (smooth.Sigmoid(), (nn.Sigmoid, torch.sigmoid, F.sigmoid)),
        (smooth.Softplus(), (nn.Softplus, F.softplus)),
        (smooth.ELU(), (F.elu,)),
        (smooth.Softsign(), (nn.Softsign, F.softsign)),
        (smooth.Arctan(), (torch.atan, torch.arctan)),
        (piecewise.SoftThreshold(0.5), (F.softshrink,)),
    ):
        if any(obj is kind or (isinstance(kind, type) and isinstance(obj, kind)) for kind in kinds):
            return activation
    return None
