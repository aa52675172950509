"""What is asked of numbers that a caller passes: each refusal names the value and the remedy."""

from __future__ import annotations

import numbers
import operator

__all__ = ["check_number", "check_size", "check_whole", "whole"]


def whole(value) -> int | None:
    """The value as an integer where it is one (3.0 is, a bool is not), else None."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        return None


def check_number(name: str, value, wanted: str):
    """The value itself, once it is known to be a real number; ``wanted`` completes "pass".

    Raises
    ------
    TypeError
        If it is none (neither a bool nor a tensor is one).
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} = {value!r} is {type(value).__name__}; pass {wanted}, a Python number")
    return value


def check_whole(name: str, value, wanted: str) -> int:
    """The value as an integer; ``wanted`` completes "pass".

    Raises
    ------
    TypeError
        If it is no integer (a bool is none, 3.0 is one).
    """
    found = whole(value)
    if found is None:
        raise TypeError(f"{name} = {value!r} is {type(value).__name__}; pass {wanted}")
    return found


def check_size(name: str, value, smallest: int = 1) -> int:
    """The value as an integer, not below ``smallest``.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is below ``smallest``.
    """
    found = check_whole(name, value, f"an integer, at least {smallest}")
    if found < smallest:
        raise ValueError(f"{name} = {found} is too small; pass an integer, at least {smallest}")
    return found
