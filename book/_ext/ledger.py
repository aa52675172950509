"""The ledger of claims, read from the sources: entries, the chapters that state them, the tests that check them.

Nothing is imported or executed: chapters are read as JSON and tests as syntax trees. The claims page of the site and
tests/book/test_ledger.py both use this module, so what the page says is what the test holds.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

__all__ = ["SOURCES", "VERDICTS", "Claim", "anchors", "chapter_files", "load", "markers", "notebook_title"]

VERDICTS = ("holds", "convention", "corrected", "experiment")
SOURCES = ("mon", "ref", "book")
FIELDS = {"id", "source", "label", "verdict", "reading", "chapter", "what", "note"}
LABEL = re.compile(r"^\s*:label:\s*(\S+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger; the fields are explained at the head of claims.yml."""

    id: str
    source: str
    label: str
    verdict: str
    chapter: int
    what: str
    note: str = ""
    reading: bool = False

    @property
    def anchor(self) -> str:
        """The label of the statement in its chapter."""
        return self.id.lower()


def load(path: Path) -> list[Claim]:
    """Read the ledger.

    Raises
    ------
    ValueError
        Naming the entry and the field, for an unknown field, verdict or source, a missing field or a repeated id.
    """
    claims: list[Claim] = []
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        name = entry.get("id", entry)
        if unknown := set(entry) - FIELDS:
            raise ValueError(f"{name}: unknown field {', '.join(sorted(unknown))}")
        if missing := FIELDS - {"reading", "note"} - set(entry):
            raise ValueError(f"{name}: missing field {', '.join(sorted(missing))}")
        if entry["verdict"] not in VERDICTS:
            raise ValueError(f"{name}: verdict {entry['verdict']!r} is not one of {', '.join(VERDICTS)}")
        if entry["source"] not in SOURCES:
            raise ValueError(f"{name}: source {entry['source']!r} is not one of {', '.join(SOURCES)}")
        if entry["verdict"] in ("convention", "corrected") and not entry.get("note"):
            raise ValueError(f"{name}: a verdict of {entry['verdict']!r} needs a note that says what to change")
        if any(claim.id == name for claim in claims):
            raise ValueError(f"{name}: the id appears twice")
        claims.append(Claim(**entry))
    return claims


def chapter_files(book: Path) -> dict[int, Path]:
    """Map the number of every chapter in the book to its notebook, ``book/NN_slug.ipynb``."""
    return {int(path.name[:2]): path for path in sorted(book.glob("[0-9][0-9]_*.ipynb"))}


def _markdown(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def notebook_title(path: Path) -> str:
    """Return the first heading of a notebook."""
    for text in _markdown(path):
        if match := re.search(r"^# +(.+?)\s*$", text, re.MULTILINE):
            return match[1]
    return path.stem


def anchors(path: Path) -> list[str]:
    """Return every ``:label:`` of a notebook, in order and with repetitions."""
    return [label for text in _markdown(path) for label in LABEL.findall(text)]


def _claim_ids(decorators: list[ast.expr]) -> list[str]:
    found = []
    for node in decorators:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.claim":
            found += [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return found


def _module_marks(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]:
            return _claim_ids(node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value])
    return []


def markers(tests: Path) -> dict[str, list[str]]:
    """Map each claim id to the tests marked ``@pytest.mark.claim(id)``, as ``path::Class::name`` below the parent of `tests`.

    A mark on a class or on the module (``pytestmark``) covers the tests in it. Only literal ids are seen.
    """
    found: dict[str, list[str]] = {}

    def visit(body: list[ast.stmt], prefix: str, inherited: list[str]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                visit(node.body, f"{prefix}::{node.name}", inherited + _claim_ids(node.decorator_list))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                for claim in dict.fromkeys(inherited + _claim_ids(node.decorator_list)):
                    found.setdefault(claim, []).append(f"{prefix}::{node.name}")

    for path in sorted(tests.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        visit(tree.body, path.relative_to(tests.parent).as_posix(), _module_marks(tree))
    return found
