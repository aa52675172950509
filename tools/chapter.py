"""A notebook of the book as the rules of its shape look at it."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import nbformat  # noqa: E402

import ledger  # noqa: E402

__all__ = ["DIRECTIVE", "Chapter", "first_line", "tree"]

DIRECTIVE = re.compile(r"^(?P<fence>:{3,}|`{3,})\{(?P<name>[\w:-]+)\}[ \t]*(?P<title>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    """One notebook, as its rules look at it."""

    name: str
    text: str
    claims: tuple[ledger.Claim, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Chapter:
        """Read a notebook of the book together with the claims of its chapter."""
        number = int(path.name[:2])
        claims = tuple(claim for claim in ledger.load(ROOT / "book" / "claims.yml") if claim.chapter == number)
        return cls(path.stem, path.read_text(encoding="utf-8"), claims)

    @property
    def number(self) -> str:
        """The two digits that the name starts with."""
        return self.name[:2]

    @cached_property
    def cells(self) -> list[nbformat.NotebookNode]:
        """All cells, in order."""
        return nbformat.reads(self.text, as_version=4).cells

    @cached_property
    def markdown(self) -> list[str]:
        """The sources of the markdown cells."""
        return [cell.source for cell in self.cells if cell.cell_type == "markdown"]

    def code(self, tag: str | None = None) -> list[tuple[int, nbformat.NotebookNode]]:
        """The code cells with their positions, or those that carry `tag`."""
        return [
            (position, cell)
            for position, cell in enumerate(self.cells)
            if cell.cell_type == "code" and (tag is None or tag in cell.metadata.get("tags", ()))
        ]

    def section(self, title: str) -> str | None:
        """The text below ``## title``, up to the next heading of that level, or None."""
        text = "\n\n".join(self.markdown)
        match = re.search(rf"^## {title}[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        return match[1] if match else None


def tree(cell: nbformat.NotebookNode) -> ast.Module:
    """Parse a code cell, without its magic commands."""
    return ast.parse(re.sub(r"^[ \t]*[%!].*$", "", cell.source, flags=re.MULTILINE))


def first_line(source: str) -> str:
    """Return enough of a source to recognise it."""
    return next((line for line in source.splitlines() if line.strip()), "an empty cell")[:60]
