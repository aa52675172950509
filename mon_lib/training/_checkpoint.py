"""Checkpoints that are whole or absent, and belong to one run."""

from __future__ import annotations

import hashlib
import io
import os
import re
import types
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path

import torch
from torch import nn

from ..data import Images

__all__ = ["CheckpointError", "describe", "read", "write"]

# A file is this line, the SHA-256 of the rest, and the rest: what torch.save wrote.
_FORMAT = b"mon_lib training checkpoint 2\n"
_START = len(_FORMAT) + hashlib.sha256().digest_size


class CheckpointError(RuntimeError):
    """A checkpoint is damaged or belongs to another run."""


def describe(model: nn.Module, train: Images, test: Images, **settings) -> dict[str, str]:
    """What makes a run this run: the model's structure, the data, the settings. The number of epochs is left out.

    Equal settings have equal descriptions in every process: 1e-3 may come from NumPy, and a function goes by its name.
    """
    shapes = {name: f"{tuple(p.shape)} {p.dtype}{'' if p.requires_grad else ' frozen'}" for name, p in model.named_parameters()}
    described = {
        "model": _without_addresses(str(model)),
        "parameters": str(shapes),
        "train": _fingerprint(train),
        "test": _fingerprint(test),
    }
    return described | {name: _text(value) for name, value in settings.items()}


def _text(value) -> str:
    """repr(value), but the same for equal numbers and without the addresses of objects."""
    if isinstance(value, Real) and not isinstance(value, bool):
        number = int(value) if isinstance(value, Integral) or float(value).is_integer() else float(value)
        return repr(number)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(k)}: {_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    if is_dataclass(value):
        return f"{kind.__qualname__}({', '.join(f'{f.name}={_text(getattr(value, f.name))}' for f in fields(value))})"
    if kind.__repr__ is object.__repr__:
        return f"{kind.__module__}.{kind.__qualname__}({_text(getattr(value, '__dict__', {}))})"
    return _without_addresses(repr(value))


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", text)


def _fingerprint(images: Images) -> str:
    """The labels and up to 256 of the images, hashed: enough to tell sets apart, quick for large ones."""
    digest = hashlib.sha256(images.labels.cpu().numpy().tobytes())
    digest.update(images.images[:: -(-len(images) // 256)].cpu().numpy().tobytes())
    return f"{images.name}, {len(images)} images, {digest.hexdigest()[:16]}, augment={_text(images.augment)}"


def write(path: Path, run: dict[str, str], state: dict) -> None:
    """Replace `path` in one step: a reader sees the old checkpoint or the new one, whenever the power fails."""
    partial, buffer = path.with_name(f"{path.name}.{os.getpid()}.partial"), io.BytesIO()
    torch.save({"run": run, **state}, buffer)
    try:
        with open(partial, "wb") as file:
            file.write(_FORMAT + hashlib.sha256(buffer.getbuffer()).digest())
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # not on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path: Path, run: dict[str, str]) -> dict:
    """The state in `path`.

    Raises
    ------
    CheckpointError
        If the file is not a checkpoint, is damaged in as little as one bit, or belongs to a run other than `run`. Also if it
        was written before checkpoints had a digest: what is damaged in it cannot be told.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error}); give another path") from error
    if not content.startswith(_FORMAT):
        raise CheckpointError(
            f"{path} is not a checkpoint of this version of mon_lib.training.fit, which begins with {_FORMAT.decode().strip()!r}; "
            "give another path, or move it away to start afresh"
        )
    payload = memoryview(content)[_START:]
    if hashlib.sha256(payload).digest() != content[len(_FORMAT) : _START]:
        raise CheckpointError(f"{path} is not a whole checkpoint: its digest is that of other bytes; move it away to start afresh")
    try:  # a digest shows damage, not who wrote the file: no code of it may run
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no checkpoint raise nearly anything: IndexError, AssertionError, struct.error
        kind = type(error).__name__  # torch's own text advises weights_only=False
        raise CheckpointError(f"{path} is not a checkpoint that can be loaded ({kind}); move it away to start afresh") from error
    if not isinstance(state, dict) or not isinstance(state.get("run"), dict):
        raise CheckpointError(f"{path} is not a checkpoint of mon_lib.training.fit; give another path")
    saved = state["run"]
    changed = sorted(name for name in saved.keys() | run.keys() if saved.get(name) != run.get(name))
    if changed:
        details = "; ".join(f"{name} was {saved.get(name)} and is now {run.get(name)}" for name in changed)
        raise CheckpointError(f"{path} belongs to another run, it differs in {', '.join(changed)}; give another path. {details}")
    return state
