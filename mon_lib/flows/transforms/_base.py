"""What every transform of a flow offers: forwards with the logarithm of its determinant, and back (REF section 2.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

__all__ = ["Compose", "Inverse", "Transform", "check_batch", "check_images", "check_transform", "together"]


def check_batch(x: Tensor, name: str = "x") -> None:
    """Raise unless x is a batch of floating-point samples.

    Raises
    ------
    TypeError
        If x is not a floating-point tensor.
    ValueError
        If x has no axis beside that of the batch.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; pass a torch.Tensor of floating-point numbers")
    if not x.is_floating_point():
        raise TypeError(f"{name} is {x.dtype}, not a floating-point tensor; pass {name}.float()")
    if x.ndim < 2:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; a transform takes (batch, ...); put unsqueeze(0) before one sample")


def check_images(x: Tensor, channels: int | None, name: str = "x") -> None:
    """Raise unless x is a batch of images with this number of channels; None allows any.

    Raises
    ------
    TypeError
        If x is not a floating-point tensor.
    ValueError
        If x is not ``(batch, channels, H, W)``.
    """
    check_batch(x, name)
    if x.ndim != 4 or (channels is not None and x.shape[1] != channels):
        wanted = "channels" if channels is None else channels
        raise ValueError(f"{name} has shape {tuple(x.shape)}; this transform takes images (batch, {wanted}, H, W)")


class Transform(nn.Module, ABC):
    """A bijection of samples, y = f(x), with log|det df/dx| for each sample.

    All axes but the first belong to the sample; the determinant is that of the map of all its entries.
    """

    @abstractmethod
    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """y ``(batch, ...)`` and log|det df/dx| at x ``(batch,)``."""

    @abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """The x with f(x) = y."""

    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """x and log|det df^-1/dy| at y, the negative of that of f at x."""
        x = self.inverse(y)
        return x, -self.forward_and_ladj(x)[1]

    def forward(self, x: Tensor) -> Tensor:
        """y alone."""
        return self.forward_and_ladj(x)[0]


def check_transform(transform: object) -> Transform:
    """The transform itself.

    Raises
    ------
    TypeError
        If it is no `Transform`.
    """
    if isinstance(transform, Transform):
        return transform
    if isinstance(transform, type) and issubclass(transform, Transform):
        raise TypeError(f"{transform.__name__} is a class; pass an object of it, {transform.__name__}(...)")
    if isinstance(transform, (list, tuple)):
        raise TypeError(f"a {type(transform).__name__} is no transform; pass its entries one by one, Compose(*transforms)")
    raise TypeError(f"{type(transform).__name__} is no mon_lib.flows.transforms.Transform; derive it from that class")


@contextmanager
def together(module: nn.Module):
    """What the first batch sets in the parts of a module is set in all of them or in none: a batch may fail half-way."""
    # Only a part with such a state has `forget`.
    parts = [part for part in module.modules() if hasattr(part, "forget") and not part.known()] if module.training else []
    try:
        yield
    except BaseException:
        for part in parts:
            part.forget()
        raise


class Compose(Transform):
    """Transforms one after the other, the first first. A slice of it is a `Compose` again, of the same transforms.

    Parameters
    ----------
    *transforms : Transform

    Raises
    ------
    TypeError
        If one of them is no `Transform`.
    """

    def __init__(self, *transforms: Transform):
        super().__init__()
        self.transforms = nn.ModuleList(check_transform(transform) for transform in transforms)

    def __len__(self) -> int:
        return len(self.transforms)

    def __iter__(self) -> Iterator[Transform]:
        return iter(self.transforms)

    def __getitem__(self, index: int | slice) -> Transform:
        return Compose(*self.transforms[index]) if isinstance(index, slice) else self.transforms[index]

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(x)
        total = x.new_zeros(len(x))
        with together(self):
            for transform in self.transforms:
                x, ladj = transform.forward_and_ladj(x)
                total = total + ladj
        return x, total

    def inverse(self, y: Tensor) -> Tensor:
        check_batch(y, "y")
        for transform in reversed(self.transforms):
            y = transform.inverse(y)
        return y

    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(y, "y")
        total = y.new_zeros(len(y))
        for transform in reversed(self.transforms):
            y, ladj = transform.inverse_and_ladj(y)
            total = total + ladj
        return y, total


class Inverse(Transform):
    """A transform the other way round.

    Parameters
    ----------
    transform : Transform

    Raises
    ------
    TypeError
        If it is none.
    """

    def __init__(self, transform: Transform):
        super().__init__()
        self.transform = check_transform(transform)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.transform.inverse_and_ladj(x)

    def inverse(self, y: Tensor) -> Tensor:
        return self.transform.forward(y)

    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.transform.forward_and_ladj(y)
