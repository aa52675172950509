"""Clean notebooks for a commit: no outputs, no counts, only the metadata that the book uses, a stable id on every cell.

python tools/strip.py book/*.ipynb            rewrite the files that need it
python tools/strip.py --check book/*.ipynb    name them and exit with 1 instead
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

import nbformat

__all__ = ["stripped"]

ID = re.compile(r"c\d\d-[0-9a-f]{8}(-\d+)?")
KEPT_CELL_METADATA = ("tags", "mystnb")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def stripped(text: str, chapter: str) -> str:
    """Return the text of a notebook without what a run or an editor leaves in it.

    Parameters
    ----------
    text : str
        The notebook as JSON.
    chapter : str
        Two digits, the number of the chapter, which new cell ids start with. Ids of the form ``cNN-xxxxxxxx`` are kept.
    """
    notebook = nbformat.reads(text, as_version=4)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    used: set[str] = set()
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        name = cell.get("id", "")
        if not ID.fullmatch(name) or name in used:
            digest = hashlib.sha1((cell.cell_type + cell.source).encode()).hexdigest()[:8]
            name = f"c{chapter}-{digest}"
            repeats = 0
            while name in used:
                repeats += 1
                name = f"c{chapter}-{digest}-{repeats}"
        cell.id = name
        used.add(name)
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 if a file needs stripping")
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    dirty = 0
    for path in options.notebooks:
        before = path.read_text(encoding="utf-8")
        match = re.match(r"\d\d", path.name)
        after = stripped(before, match[0] if match else "00")
        if after == before:
            continue
        dirty += 1
        if options.check:
            print(f"{path}: not stripped, run make strip")
        else:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: stripped")
    return 1 if options.check and dirty else 0


if __name__ == "__main__":
    sys.exit(main())
