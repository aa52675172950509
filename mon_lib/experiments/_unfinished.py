"""Runs that are not finished: one process at a time, and a record of the parts that a run was made in."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ..training import CheckpointError
from ._files import write_whole

__all__ = ["ANEW", "Busy", "Unfinished"]

ANEW = "To throw it away and start anew pass --again (again=True) without --resume"


class Busy(RuntimeError):
    """Another process is running the same experiment with the same seed."""


class Unfinished:
    """A context in which one run's checkpoint belongs to this process.

    The lock is the operating system's, so it ends with its process, however that ends. Its file stays, empty: to remove
    it would let two processes lock two files of one name.

    Parameters
    ----------
    folder : Path
        Of the results; everything here is in ``.checkpoints`` below it, which git ignores.
    key : str
        The run, as the beginning of a file's name.

    Attributes
    ----------
    checkpoint : Path
        For :func:`mon_lib.training.fit`.

    Raises
    ------
    Busy
        On entry, if another process is in the context.
    """

    def __init__(self, folder: Path, key: str):
        self.folder, self.key = folder / ".checkpoints", key
        self.checkpoint, self._record, self._lock = (self.folder / f"{key}.{end}" for end in ("pt", "json", "lock"))

    def __enter__(self) -> Unfinished:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / ".gitignore").exists():
            write_whole(self.folder / ".gitignore", "*\n")
        self._handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        if not _lock(self._handle):
            os.close(self._handle)
            raise Busy(f"{self.key} is being run by another process; wait for it, or take another seed or folder (--out)")
        return self

    def __exit__(self, *error) -> None:
        os.close(self._handle)

    def begin(self, origin: dict[str, Any], *, resume: bool, again: bool) -> list[dict[str, Any]]:
        """Note that a part of the run begins now.

        Parameters
        ----------
        origin : dict
            What `provenance` says of this part.
        resume : bool
            Whether to continue from a checkpoint, if there is one.
        again : bool
            Whether else to throw it away.

        Returns
        -------
        list of dict
            The earlier parts that got anywhere, each with its ``seconds`` up to the last whole epoch: what came after
            that is lost, and no part of the result.

        Raises
        ------
        CheckpointError
            If there is a checkpoint, and neither `resume` nor `again`; if the record of its parts is damaged.
        """
        parts = []
        if self.checkpoint.exists() and not resume:
            if not again:
                raise CheckpointError(
                    f"{self.key} was interrupted, with its last whole epoch in {self.checkpoint}; pass --resume "
                    f"(resume=True) to continue it. {ANEW}"
                )
            self.checkpoint.unlink()
        elif self.checkpoint.exists():
            parts = self._parts()
        write_whole(self._record, json.dumps([*parts, {**origin, "seconds": 0.0, "started": time.time()}]))
        return [{key: value for key, value in part.items() if key != "started"} for part in parts]

    def _parts(self) -> list[dict[str, Any]]:
        try:
            parts = json.loads(self._record.read_text(encoding="utf-8"))
            parts[-1]["seconds"] = max(0.0, self.checkpoint.stat().st_mtime - parts[-1]["started"])
            return [part for part in parts if part["seconds"] > 0.0]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"{self._record} is damaged ({type(error).__name__}). {ANEW}") from error

    def forget(self) -> None:
        """Remove the checkpoint and the record: the result is written."""
        self.checkpoint.unlink(missing_ok=True)  # first: a checkpoint without a record would be refused
        self._record.unlink(missing_ok=True)


def _lock(handle: int) -> bool:
    """Whether this process now has the file for itself."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second from msvcrt
        return False
    return True
