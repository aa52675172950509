"""A goal of a table: what was measured, the bound it is held to, and whether it was met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Goal", "judge"]


@dataclass(frozen=True)
class Goal:
    """One goal.

    Attributes
    ----------
    name : str
        What is compared.
    measured : float
        A ratio of two things timed in turn, or of two sizes.
    at_most, at_least : float, optional
        The bound; exactly one of the two is given.
    """

    name: str
    measured: float
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"the goal {self.name!r} has the bounds {self.at_most} and {self.at_least}; give one of them")

    @property
    def met(self) -> bool:
        """Whether the bound holds; never for NaN."""
        return self.measured <= self.at_most if self.at_most is not None else self.measured >= self.at_least

    def __str__(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
        return f"goal {'met' if self.met else 'MISSED'}: {self.name} {self.measured:.3g}, {bound}"


def judge(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Print each goal and return them as plain data."""
    out = []
    for goal in goals:
        print(goal)
        out.append({**asdict(goal), "met": goal.met})
    return out
