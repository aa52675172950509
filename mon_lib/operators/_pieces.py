"""What a frozen operator hands out and keeps: resolvents, the stages of a block triangular one, and what was computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ._base import FrozenOperator

__all__ = ["Memo", "Resolvent", "Stage"]


class Memo:
    """What was computed for the last two values of alpha: a search over alpha must not hold everything it tried."""

    def __init__(self):
        self._kept: dict = {}

    def get(self, alpha: float, compute):
        """What belongs to alpha; ``compute()`` if it is not kept."""
        if alpha not in self._kept:
            while len(self._kept) >= 2:
                self._kept.pop(next(iter(self._kept)))
            self._kept[alpha] = compute()
        return self._kept[alpha]


@dataclass(frozen=True)
class Stage:
    """A diagonal block W_ii of a block triangular W, and how it hangs on the block before it.

    Attributes
    ----------
    entries : slice
        Which entries of the state it acts on; the states of W and of the block have one axis.
    operator : FrozenOperator
        W_ii.
    coupling : callable or None
        From a state of the stage before to its contribution to this one, W_{i,i-1} z_{i-1}; None for the first stage.
    """

    entries: slice
    operator: FrozenOperator
    coupling: Callable[[Tensor], Tensor] | None


class Resolvent:
    """x -> (I + alpha (I - W))^-1 x for fixed weights.

    Parameters
    ----------
    alpha : float
        The step size it was made for.
    apply, apply_transposed : callable
        The products with the inverse and with its transpose.
    """

    def __init__(self, alpha: float, apply, apply_transposed, check):
        self.alpha = alpha
        self._apply, self._apply_transposed, self._check = apply, apply_transposed, check

    def __call__(self, x: Tensor) -> Tensor:
        """Apply it to ``(batch, *state_shape)``; differentiable in x."""
        self._check(x)
        return self._apply(x)

    @property
    def T(self) -> Resolvent:
        """The resolvent of the transposed operator."""
        return Resolvent(self.alpha, self._apply_transposed, self._apply, self._check)
