"""Files that are whole or absent, under a name that nothing else has, and what a result says about where it is from."""

from __future__ import annotations

import datetime
import functools
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["check_folder", "checkout", "default_folder", "folder_or_default", "provenance", "save", "write_whole"]

VARIABLE = "MON_RESULTS"


def checkout() -> Path | None:
    """The checkout of the book that this package was imported from; None where it is installed elsewhere."""
    root = Path(__file__).resolve().parent.parent.parent
    return root if (root / "book").is_dir() else None


def default_folder() -> Path:
    """Where results are: what ``MON_RESULTS`` names, else ``results`` of the checkout, else ``results`` where one is."""
    if os.environ.get(VARIABLE, "").strip():
        return Path(os.environ[VARIABLE]).expanduser()
    return (checkout() or Path.cwd()) / "results"


def check_folder(folder: str | os.PathLike, name: str = "folder") -> Path:
    """The folder as a path.

    Raises
    ------
    ValueError
        If it is empty or blank, as an unset variable of the shell is: `Path` would take that for the working folder.
    """
    if not str(folder).strip():
        raise ValueError(f"{name} = {str(folder)!r} names no folder; pass one, '.' for the working folder, or leave it out")
    return Path(folder)


def folder_or_default(folder: str | os.PathLike | None, name: str = "folder") -> Path:
    """The folder of results that was asked for, `default_folder` where that is None; raises what `check_folder` does."""
    return default_folder() if folder is None else check_folder(folder, name).expanduser()


def provenance(device: torch.device | str) -> dict[str, Any]:
    """The date, the versions, the kind of machine and the commit of a run.

    Returns
    -------
    dict
        ``date`` (UTC), ``python``, ``torch``, ``device`` (a name for people), ``threads``, and of the checkout
        ``commit`` and ``clean`` as `revision` finds them.
    """
    device = torch.device(device)
    commit, clean = revision(checkout())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "commit": commit,
        "clean": clean,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache  # the code that runs is the code that was there when the process began
def revision(root: Path | None) -> tuple[str, bool | None]:
    """The commit of a checkout and whether its files are those of the commit, ``results`` aside.

    Returns
    -------
    tuple
        ``("unknown", None)`` where `root` is None or not the top of a repository, or git is not there.
    """
    unknown = "unknown", None
    if root is None or not (root / ".git").exists():
        return unknown
    # Not what GIT_DIR names, and without a lock on the index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}
    answers = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", ".", ":(exclude)results"]):
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *command], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return unknown
        if done.returncode:
            return unknown
        answers.append(done.stdout.strip())
    return answers[0], not answers[1]


def save(stem: str, data: Mapping[str, Any], folder: str | os.PathLike) -> Path:
    """Write one run's results whole or not at all, under a name that nothing else has.

    Parameters
    ----------
    stem : str
        What the name begins with.
    data : mapping
        What ``json`` can write.
    folder : path
        Made if it is not there.

    Returns
    -------
    Path
        ``folder/<stem>-<date>.json``, with ``-2``, ``-3``, ... before the dot where that name is taken.

    Raises
    ------
    ValueError
        If the folder is blank, or there is a NaN or an infinite number in the data. Nothing is then written, as after any
        other error.
    """
    folder = check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(folder, json.dumps(data, indent=1, allow_nan=False) + "\n")
    try:
        stem, number = f"{stem}-{datetime.date.today():%Y-%m-%d}", 1
        while True:
            target = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            try:
                os.link(temporary, target)  # fails where the name is taken; a rename would replace it
                return target
            except FileExistsError:
                number += 1
    finally:
        temporary.unlink()


def write_whole(path: Path, text: str) -> None:
    """Replace `path` in one step."""
    temporary = _temporary(path.parent, text)
    try:
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(folder: Path, text: str) -> Path:
    """A new file with this text, on the disk and not only in its cache; no file after an error."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)
