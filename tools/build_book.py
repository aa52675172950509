"""Build the site: execute what has to be executed, fail on any warning, say where the result is.

Executed notebooks are cached between builds. The cache of Jupyter Book sees a changed notebook but not a changed library, results
file, package or profile, so this script keeps a fingerprint of those and starts from nothing when it differs. The same fingerprint
tells the tests whether a built site is up to date.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import ledger  # noqa: E402
from mon_lib.notebook import profile_name  # noqa: E402

__all__ = ["BuildError", "build", "is_fresh", "site_of"]

EXECUTION = ("mon_lib", "results", "requirements.txt", "pyproject.toml")
TEMPLATE = ("book/_ext", "book/site_static", "_config.yml", "_toc.yml", "references.bib", "tools/build_book.py")
TEXT = ("book",)
SKIPPED = {"__pycache__", ".ipynb_checkpoints", ".checkpoints", "_build"}


class BuildError(RuntimeError):
    """Jupyter Book reported a failing cell, a broken reference or another warning."""


def _digest(names: tuple[str, ...], *extra: str) -> str:
    state = hashlib.sha256()
    for name in names:
        top = ROOT / name
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.is_dir() else [top] * top.is_file()
        for path in files:
            relative = path.relative_to(ROOT)
            if not SKIPPED.intersection(relative.parts):
                state.update(f"{relative.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    for text in extra:
        state.update(text.encode() + b"\0")
    return state.hexdigest()


def _fingerprint(profile: str) -> dict[str, str]:
    packages = sorted(f"{item.name}=={item.version}" for item in metadata.distributions() if item.name)
    return {
        "profile": profile,
        "execution": _digest(EXECUTION, profile, platform.python_version(), *packages),
        "template": _digest(TEMPLATE),
        "text": _digest(TEXT, json.dumps(ledger.markers(ROOT / "tests"), sort_keys=True)),
    }


def _recorded(output: Path) -> dict[str, str]:
    try:
        return json.loads((output / "_build" / "fingerprint.json").read_text())
    except (OSError, ValueError):
        return {}


def site_of(output: Path) -> Path:
    """Return the folder of the site that :func:`build` puts below `output`."""
    return output / "_build" / "html"


def is_fresh(output: Path) -> bool:
    """Tell whether the last build below `output` succeeded and nothing that it was made from has changed since."""
    recorded = _recorded(output)
    return recorded.get("complete") == "yes" and recorded == {**_fingerprint(recorded["profile"]), "complete": "yes"}


def build(output: Path = ROOT, profile: str | None = None) -> Path:
    """Execute the notebooks and build the site below `output`.

    Parameters
    ----------
    output : Path
        The folder that gets ``_build``; by default the repository itself.
    profile : str, optional
        ``smoke``, ``cpu`` or ``gpu``; by default what ``MON_PROFILE`` says, see :func:`mon_lib.notebook.profile_name`.

    Returns
    -------
    Path
        The folder of the site.

    Raises
    ------
    BuildError
        If Jupyter Book does not succeed. Every warning counts as a failure.
    """
    profile = profile or profile_name()
    wanted, recorded = _fingerprint(profile), _recorded(output)
    built = output / "_build"
    if wanted["execution"] != recorded.get("execution"):
        shutil.rmtree(built / ".jupyter_cache", ignore_errors=True)
    # Sphinx repeats no warning for a page that it does not read again: after a failure every page is read again.
    if recorded.get("complete") != "yes" or any(wanted[key] != recorded[key] for key in ("execution", "template")):
        shutil.rmtree(built / ".doctrees", ignore_errors=True)
        shutil.rmtree(built / "html", ignore_errors=True)
    built.mkdir(parents=True, exist_ok=True)
    record = built / "fingerprint.json"
    record.write_text(json.dumps(wanted))
    environment = {**os.environ, "MON_PROFILE": profile, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    program = Path(sys.executable).with_name("jupyter-book")
    command = [str(program), "build", "-W", "-n", "--keep-going", str(ROOT), "--path-output", str(output)]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise BuildError(f"The site was not built (MON_PROFILE={profile}): the messages above say what failed.")
    if _fingerprint(profile) == wanted:  # an edit during the build leaves it stale
        record.write_text(json.dumps({**wanted, "complete": "yes"}))
    return site_of(output)


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT, help="the folder that gets _build (default: the repository)")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        site = build(options.output.resolve())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The book is in {site}. Open {site / 'index.html'}, or run make serve. ({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
