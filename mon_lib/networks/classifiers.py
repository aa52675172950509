"""Image classifiers: the fully connected equilibrium network of MON section 4.1, and an explicit one beside it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from .. import prox
from ..equilibrium import Equilibrium
from ..operators import Dense
from ..splitting import PeacemanRachford, Solver
from ._images import check_dtype

__all__ = ["MLP", "FullyConnectedMON", "count_parameters"]


def count_parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r} must be a positive integer")


class FullyConnectedMON(nn.Module):
    """x -> z* -> logits, with z* = sigma(Wz* + Ux + b) and logits W_o z* + b_o (MON sections 4.1 and D.1).

    The defaults are the fully connected network of MON Table D1, with its 84,313 parameters: A and B of size 87 x 87, U
    of 87 x 784, b, W_o of 10 x 87 and b_o. There is no room in that count for the scalars g and h of appendix D.2, nor
    in the released checkpoints, so the weights are not normalised unless asked.

    Parameters
    ----------
    in_features : int
        Entries of one input, flattened.
    units : int
        Size n of z.
    classes : int
        Number of logits.
    m : float
        Strong monotonicity of I - W; the paper uses 1 throughout.
    activation : mon_lib.prox.Activation, optional
        sigma; default ReLU.
    solver : Solver, optional
        Default ``PeacemanRachford(tol=1e-3)``: a certified relative error of one part in a thousand, which chapter 9
        shows to be small beside the noise of a mini-batch.
    normalised : bool
        Weight normalisation of appendix D.2, with two more parameters.

    Attributes
    ----------
    equilibrium : Equilibrium
        x -> z*.
    readout : nn.Linear
        z* -> logits.

    Raises
    ------
    ValueError
        If a size is not a positive integer, or m <= 0.

    Examples
    --------
    >>> count_parameters(FullyConnectedMON())
    84313
    """

    def __init__(
        self,
        in_features: int = 784,
        units: int = 87,
        classes: int = 10,
        m: float = 1.0,
        activation: prox.Activation | None = None,
        solver: Solver | None = None,
        *,
        normalised: bool = False,
    ):
        super().__init__()
        _positive(in_features=in_features, units=units, classes=classes)
        self.equilibrium = Equilibrium(
            Dense(units, m, normalised=normalised),
            nn.Linear(in_features, units),
            prox.ReLU() if activation is None else activation,
            PeacemanRachford(tol=1e-3) if solver is None else solver,
        )
        self.readout = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of inputs ``(batch, ...)``; a TypeError where they have another dtype than the weights."""
        check_dtype(x, self.readout.weight)
        return self.readout(self.equilibrium(x.flatten(1)))


class MLP(nn.Sequential):
    """An explicit network: linear maps with ReLU between them.

    Parameters
    ----------
    in_features : int
        Entries of one input, flattened.
    widths : sequence of int
        Hidden layers.
    classes : int
        Number of logits.

    Raises
    ------
    ValueError
        If a size is not a positive integer.
    """

    def __init__(self, in_features: int = 784, widths: Sequence[int] = (106,), classes: int = 10):
        _positive(in_features=in_features, classes=classes, **{f"widths[{i}]": w for i, w in enumerate(widths)})
        sizes = (in_features, *widths)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(batch, classes)`` of inputs ``(batch, ...)``; a TypeError where they have another dtype than the weights."""
        check_dtype(x, self[-1].weight)
        return super().forward(x)

    @classmethod
    def matching(cls, parameters: int, in_features: int = 784, classes: int = 10) -> MLP:
        """One hidden layer, as wide as brings the number of parameters closest to `parameters`.

        Against the 84,313 of `FullyConnectedMON` it is 106 units wide and has 33 fewer.

        Raises
        ------
        ValueError
            If one unit alone has more parameters, or a size is not a positive integer.
        """
        _positive(in_features=in_features, classes=classes)
        least = in_features + 1 + 2 * classes
        if isinstance(parameters, bool) or not isinstance(parameters, int) or parameters < least:
            raise ValueError(f"parameters = {parameters!r} must be an integer, at least {least}: so many has one unit")
        width = round((parameters - classes) / (in_features + 1 + classes))
        return cls(in_features, (width,), classes)
