"""A recurrent classifier whose transition is an object, and the two rotations that it is started from (REF section 3.2, B.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._numbers import check_size
from ..reflections import AuxiliaryReflection
from ..reflections._checks import check_dtype as check_real
from ..reflections._checks import check_finite, check_vectors, working_dtype
from ._images import check_dtype

__all__ = ["PixelSequence", "ReflectionRNN", "cayley_initialisation", "henaff_initialisation", "modrelu"]

Transition = nn.Module | Callable[[int], nn.Module]


def modrelu(z: Tensor, bias: Tensor) -> Tensor:
    """sign(z) max(|z| + b, 0), the activation of Arjovsky, Shah and Bengio: it moves sizes and keeps signs.

    With b = 0 it is the identity, and its derivative is then 1 also at z = 0, where sign(z) has none: a state that starts
    at zero still sends a gradient back.

    Parameters
    ----------
    z : Tensor
        Shape ``(..., d)``.
    bias : Tensor
        b, shape ``(d,)``.

    Returns
    -------
    Tensor
        Shape ``(..., d)``.
    """
    sign = z.detach().sign()  # a constant to autograd, which would carry its zero derivative along
    dead = torch.addcmul(bias.detach(), z.detach(), sign) < 0.0  # never for NaN, which passes on
    return torch.addcmul(z, sign, bias).masked_fill(dead, 0.0)


def cayley_initialisation(d: int, dtype: torch.dtype | None = None) -> Tensor:
    """A block diagonal rotation with angles drawn from U(0, pi/2) (Helfrich, Willmott and Ye; REF B.2).

    It is the Cayley transform (I + A)^-1 (I - A) of the skew A with blocks ``[[0, s], [-s, 0]]``, s = tan(angle / 2).

    Parameters
    ----------
    d : int
        Units; the last one of an odd number stands still.
    dtype : torch.dtype, optional
        Default PyTorch's.

    Returns
    -------
    Tensor
        Shape ``(d, d)``, orthogonal with determinant 1 and eigenvalues exp(+-i angle), from PyTorch's random numbers.

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer.
    """
    return _rotation(check_size("d", d), 0.0, math.pi / 2, dtype)


def henaff_initialisation(d: int, dtype: torch.dtype | None = None) -> Tensor:
    """A block diagonal rotation with angles drawn from U(-pi, pi) (Henaff, Szlam and LeCun).

    Arguments, result and errors are those of `cayley_initialisation`.
    """
    return _rotation(check_size("d", d), -math.pi, math.pi, dtype)


def _rotation(d: int, low: float, high: float, dtype: torch.dtype | None) -> Tensor:
    angles = torch.empty(d // 2, dtype=torch.float64).uniform_(low, high)
    U = torch.eye(d, dtype=torch.float64)
    even, odd = torch.arange(0, d - 1, 2), torch.arange(1, d, 2)
    U[even, even] = U[odd, odd] = angles.cos()
    U[even, odd], U[odd, even] = -angles.sin(), angles.sin()
    return U.to(torch.get_default_dtype() if check_real(dtype) is None else dtype)


class PixelSequence(nn.Module):
    """Images as sequences, row by row, `inputs` pixels a step.

    Parameters
    ----------
    inputs : int
        Pixels that one step sees: 1 for pixel by pixel, the width for row by row.
    shrink : int
        Averages over squares of this side first, which makes the sequence shorter by its square.

    Raises
    ------
    TypeError, ValueError
        If a number is not a positive integer. On use, ValueError if `shrink` does not divide the image, or `inputs` the
        number of its pixels, or there is more than one channel; TypeError if the pixels are no floating-point numbers.
    """

    def __init__(self, inputs: int = 1, shrink: int = 1):
        super().__init__()
        self.inputs, self.shrink = check_size("inputs", inputs), check_size("shrink", shrink)

    def forward(self, x: Tensor) -> Tensor:
        """Sequences ``(batch, length, inputs)`` of images ``(batch, 1, height, width)``."""
        if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] != 1 or 0 in x.shape[2:]:
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x has shape {found}; pass grey images of shape (batch, 1, height, width)")
        if not x.is_floating_point():
            remedy = "x.float() / 255, which is what mon_lib.data.load gives" if x.dtype == torch.uint8 else "x.float()"
            raise TypeError(f"x has dtype {x.dtype}, and pixels are floating-point numbers; pass {remedy}")
        if any(side % self.shrink for side in x.shape[2:]):
            raise ValueError(f"shrink = {self.shrink} does not divide images of {tuple(x.shape[2:])} pixels; pass one that does")
        pixels = F.avg_pool2d(x, self.shrink).flatten(1)
        if pixels.shape[1] % self.inputs:
            raise ValueError(f"inputs = {self.inputs} does not divide the {pixels.shape[1]} pixels of an image; pass a divisor")
        return pixels.unflatten(1, (pixels.shape[1] // self.inputs, self.inputs))  # -1 has no meaning in an empty batch

    def extra_repr(self) -> str:
        return f"inputs={self.inputs}, shrink={self.shrink}"


class ReflectionRNN(nn.Module):
    """h <- modReLU(f(h) + Bx, b) along a sequence, then logits of the last state (REF section 3.2).

    f is any module from d to d numbers; one with a method ``prepared()``, as all in `mon_lib.reflections` have, does what
    depends on its weights alone once a sequence and not once a step. For the paper's comparison all transitions begin at
    one rotation: ``AuxiliaryReflection.from_orthogonal(cayley_initialisation(d))``, and so on.

    Parameters
    ----------
    inputs : int
        Numbers that one step sees.
    hidden : int
        Units d; the paper has 170.
    classes : int
        Number of logits.
    transition : nn.Module or callable
        f, or what makes it of d; default an `AuxiliaryReflection` with weights of its own.
    h0 : Tensor, optional
        Shape ``(hidden,)``: the state before the first step. Default uniform with ||h0||^2 = 1/2 on average, as in
        Arjovsky et al. and REF B.2. Zero is allowed: the reflections here have H(0) = I.
    learn_h0 : bool
        Whether training moves h0.
    read : nn.Module, optional
        Turns what `forward` is given into sequences, for instance `PixelSequence`.

    Attributes
    ----------
    transition : nn.Module
        f.
    inject, readout : nn.Linear
        B, without offset, and the logits.
    bias : nn.Parameter
        b, shape ``(hidden,)``, first 0: at the start the network is linear in its input if f is.
    h0 : Tensor
        As above.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer, or the shape of h0 or the size of the transition does not fit. On use:
        ValueError for a sequence of length 0 or of vectors of another length; TypeError if x, h0 or the transition has
        another dtype than the weights (not before: ``.to(...)`` gives a network one dtype after it is made).
    """

    def __init__(
        self,
        inputs: int = 1,
        hidden: int = 170,
        classes: int = 10,
        transition: Transition = AuxiliaryReflection,
        *,
        h0: Tensor | None = None,
        learn_h0: bool = True,
        read: nn.Module | None = None,
    ):
        super().__init__()
        self.inputs, self.d = check_size("inputs", inputs), check_size("hidden", hidden)
        self.transition = _module(transition, self.d)
        self.read = read
        self.inject = nn.Linear(self.inputs, self.d, bias=False)
        nn.init.normal_(self.inject.weight, std=(self.inputs * self.d) ** -0.5)  # an input moves the state by about its size
        self.bias = nn.Parameter(torch.zeros(self.d))
        self.readout = nn.Linear(self.d, check_size("classes", classes))
        if h0 is None:
            h0 = torch.empty(self.d).uniform_(-1.0, 1.0) * math.sqrt(1.5 / self.d)
        else:
            h0 = check_finite("h0", check_vectors("h0", h0, self.d)).detach().clone()
            if h0.ndim != 1:
                raise ValueError(f"h0 has shape {tuple(h0.shape)}; pass the one state that all sequences begin with, ({self.d},)")
        if learn_h0:
            self.h0 = nn.Parameter(h0)
        else:
            self.register_buffer("h0", h0)

    def states(self, x: Tensor) -> list[Tensor]:
        """The state before the first step and after each, ``length + 1`` tensors ``(batch, hidden)``.

        Parameters
        ----------
        x : Tensor
            Sequences, shape ``(batch, length, inputs)``.
        """
        self._check(x)
        step = self.transition.prepared() if hasattr(self.transition, "prepared") else self.transition
        h = [self.h0.expand(len(x), -1)]
        for Bx in self.inject(x.transpose(0, 1)).unbind():
            h.append(modrelu(step(h[-1]) + Bx, self.bias))
        return h

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of sequences ``(batch, length, inputs)``, or of what `read` makes sequences of."""
        if self.read is not None:
            x = self.read(x)
        return self.readout(self.states(x)[-1])

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.ndim != 3 or x.shape[2] != self.inputs:
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x has shape {found}; pass sequences of shape (batch, length, {self.inputs})")
        if x.shape[1] == 0:
            raise ValueError("x has sequences of length 0, which say nothing; pass at least one step")
        like = self.inject.weight.dtype
        if self.h0.dtype != like:
            raise TypeError(f"h0 has dtype {self.h0.dtype} and the weights have {like}; move the network with .to({like})")
        for name, parameter in self.transition.named_parameters():  # short formats are widened where they are used
            if working_dtype(parameter.dtype) != working_dtype(like):
                raise TypeError(
                    f"transition.{name} has dtype {parameter.dtype} and the other weights have {like}; move the network with "
                    f".to({like})"
                )
        check_dtype(x, self.inject.weight)


def _module(transition: Transition, d: int) -> nn.Module:
    """The transition, made if need be."""
    if not isinstance(transition, nn.Module):
        if not callable(transition):
            kind = type(transition).__name__
            raise TypeError(f"transition is a {kind}; pass a module from {d} to {d} numbers, or what makes one of d")
        transition = transition(d)
        if not isinstance(transition, nn.Module):
            raise TypeError(f"transition made a {type(transition).__name__} of d = {d}; it has to make a torch.nn.Module")
    if getattr(transition, "d", d) != d:
        raise ValueError(f"transition is for d = {transition.d} and hidden = {d}; make them equal")
    return transition
