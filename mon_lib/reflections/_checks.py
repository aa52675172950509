"""What every reflection asks of its arguments: each refusal names the value and the remedy."""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from ..operators._base import all_finite

__all__ = [
    "check_axis",
    "check_dtype",
    "check_finite",
    "check_orthogonal",
    "check_vectors",
    "in_working_dtype",
    "working_dtype",
]


def check_axis(dim) -> int:
    """dim as an integer.

    Raises
    ------
    TypeError
        If it is none.
    """
    try:
        return operator.index(dim)
    except TypeError:
        raise TypeError(f"dim = {dim!r} is no axis; pass an integer: -1, or 1 for channels first") from None


def check_dtype(dtype):
    """The dtype of a parameter, None for PyTorch's default, once it is known to be real and floating-point.

    Raises
    ------
    TypeError
        If it is another one, or no dtype.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype = {dtype!r} is no real floating-point format; reflections are real, pass torch.float32 or float64")
    return dtype


def check_vectors(name: str, x, d: int | None = None, dim: int = -1) -> Tensor:
    """The tensor itself, once it is known to hold real vectors of d entries along one axis.

    Values are not looked at: a NaN passes on, as in ``nn.Linear``, and nothing waits for a GPU.

    Parameters
    ----------
    name : str
        How a message calls it.
    x : Tensor
        Shape ``(..., d)``, or with the vectors along another axis.
    d : int, optional
        The length of a vector; any positive one where not given.
    dim : int
        The axis of the vectors.

    Raises
    ------
    TypeError
        If it is no tensor or not real and floating-point.
    ValueError
        If it has no such axis, or one of another length.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is {type(x).__name__}; pass a torch.Tensor of shape {_shape(d, dim)}")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} is {x.dtype}; reflections are real, so convert it with {name}.float() or {name}.double()")
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, without an axis {dim} for the vectors; pass shape {_shape(d, dim)}")
    length = x.shape[dim]
    if length != d if d is not None else length < 1:
        wanted = "1 or more" if d is None else f"d = {d}"
        found = f"{name} has shape {tuple(x.shape)}: vectors of {length} along axis {dim}"
        raise ValueError(f"{found}, and {wanted} is needed; pass {_shape(d, dim)}")
    return x


def check_finite(name: str, x: Tensor) -> Tensor:
    """The tensor itself, once it is known to be finite (this waits for a GPU: not for a forward pass).

    Raises
    ------
    ValueError
        If an entry is NaN or infinite.
    """
    if not all_finite(x):
        count = int((~torch.isfinite(x)).sum())
        raise ValueError(f"{name} has {count} NaN or infinite entries of {x.numel()}; find where they come from and replace them")
    return x


def check_orthogonal(name: str, U) -> Tensor:
    """The matrix, detached, once U'U = I is known to hold to the rounding of its dtype.

    Raises
    ------
    TypeError
        If it is no real floating-point tensor.
    ValueError
        If it is not square, not finite or not orthogonal.
    """
    check_vectors(name, U)
    if U.ndim != 2 or U.shape[0] != U.shape[1]:
        raise ValueError(f"{name} has shape {tuple(U.shape)}; pass a square matrix, (d, d)")
    U = check_finite(name, U.detach())
    d = U.shape[0]
    wide = U.double()
    fault = float((wide.T @ wide - torch.eye(d, dtype=wide.dtype, device=U.device)).abs().max())
    allowed = 8 * d**0.5 * torch.finfo(U.dtype).eps + 8 * torch.finfo(U.dtype).eps
    if fault > allowed:
        raise ValueError(
            f"{name} is not orthogonal: an entry of U'U - I is {fault:.3g}, and {allowed:.3g} is rounding in {U.dtype}; "
            "pass the Q of torch.linalg.qr"
        )
    return U


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a reflection is computed: float32 for the short formats, else its own.

    Raises
    ------
    TypeError
        If it is not real and floating-point: ``Module.to`` makes parameters complex too.
    """
    if not dtype.is_floating_point:
        raise TypeError(f"the parameters are {dtype}; reflections are real, so convert the module with .float() or .double()")
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def in_working_dtype(name: str, x: Tensor, parameter: Tensor) -> Tensor:
    """The vectors in the dtype in which a module with this parameter computes; short formats are widened.

    Raises
    ------
    TypeError
        If neither is in a short format and their dtypes differ.
    """
    wide = working_dtype(parameter.dtype)
    if x.dtype == wide:
        return x
    if x.dtype == working_dtype(x.dtype):
        raise TypeError(f"{name} is {x.dtype}, the parameters are {parameter.dtype}; convert one of them with .to({x.dtype})")
    return x.to(wide)


def _shape(d: int | None, dim: int) -> str:
    length = "d" if d is None else str(d)
    return f"(..., {length})" if dim == -1 else f"with {length} along axis {dim}"
