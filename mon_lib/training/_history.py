"""What a training run leaves behind, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields

__all__ = ["Epoch", "History"]


@dataclass(frozen=True)
class Epoch:
    """One pass through the training set.

    Attributes
    ----------
    epoch : int
        Counted from 1.
    train_loss : float
        Mean over the epoch's samples, each at the weights it was trained with.
    test_loss : float
        After the epoch.
    test_accuracy : float or None
        After the epoch, in [0, 1]; None where the model does not classify.
    learning_rate : float
        Of the epoch's last step.
    forward_steps, backward_steps : float
        Mean over batches of the solver's steps, those of the slowest sample, summed over the equilibrium layers; a layer
        counts 0 where it did not solve: forward if the model does not use it, backward if no gradient passes it.
    alpha : tuple of float or None
        The step size of each equilibrium layer in its last forward solve of the epoch's training; None if it had none.
    seconds : float
        Time spent training, without the test. Not compared by ``==``.
    """

    epoch: int
    train_loss: float
    test_loss: float
    test_accuracy: float | None
    learning_rate: float
    forward_steps: float
    backward_steps: float
    alpha: tuple[float | None, ...]
    seconds: float = field(compare=False)


class History(Sequence[Epoch]):
    """The epochs of a run in order; equal to another if everything but the seconds is.

    Parameters
    ----------
    epochs : sequence of Epoch
    """

    def __init__(self, epochs: Sequence[Epoch] = ()):
        self._epochs = list(epochs)

    def __len__(self) -> int:
        return len(self._epochs)

    def __getitem__(self, index):
        return self._epochs[index]

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._epochs)

    def __eq__(self, other) -> bool:
        return self._epochs == other._epochs if isinstance(other, History) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        if not self:
            return "History(no epochs)"
        last = self[-1]
        accuracy = "" if last.test_accuracy is None else f", test_accuracy={last.test_accuracy:.4g}"
        return f"History({len(self)} epochs, test_loss={last.test_loss:.4g}{accuracy})"

    def append(self, epoch: Epoch) -> None:
        """Add an epoch."""
        self._epochs.append(epoch)

    def column(self, name: str) -> list:
        """One attribute of every epoch, for instance ``history.column("test_accuracy")``.

        Raises
        ------
        ValueError
            If there is no such attribute.
        """
        names = [f.name for f in fields(Epoch)]
        if name not in names:
            raise ValueError(f"an epoch has no {name!r}; choose one of {', '.join(names)}")
        return [getattr(epoch, name) for epoch in self]

    def to_list(self) -> list[dict]:
        """Plain numbers, for a file."""
        return [asdict(epoch) for epoch in self]

    @classmethod
    def from_list(cls, rows: list[dict]) -> History:
        """The inverse of `to_list`, also after JSON has made lists of the tuples."""
        return cls([Epoch(**{**row, "alpha": tuple(row["alpha"])}) for row in rows])
