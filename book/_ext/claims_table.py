"""``{claims-table}``: the ledger as a page, with the chapter and the tests of every claim."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import ledger

PAPERS = {"mon": "Winston and Kolter", "ref": "Mathiasen and Hvilshøj", "book": "this book"}
PAGE = "book/claims"


def _entry(claim: ledger.Claim, stated: bool, tests: list[str]) -> list[str]:
    name = f"{{prf:ref}}`{claim.id} <{claim.anchor}>`" if stated else f"`{claim.id}`"
    reading = ", as we read it" if claim.reading else ""
    head = f"**{name}** {claim.label} ({PAPERS[claim.source]}): _{claim.verdict}{reading}_."
    lines = ["::::{div} claim", head, "", claim.what, ""]
    if claim.note:
        lines += [claim.note, ""]
    if tests:
        count = "1 test" if len(tests) == 1 else f"{len(tests)} tests"
        lines += [f":::{{dropdown}} {count}", *(f"- `{test}`" for test in tests), ":::", ""]
    elif not stated:
        lines += ["Not done.", ""]
    return [*lines, "::::", ""]


class ClaimsTable(SphinxDirective):
    """List every claim of ``claims.yml``, chapter by chapter, preceded by a count of the verdicts."""

    def run(self) -> list[nodes.Node]:
        book = Path(self.env.srcdir) / "book"
        path = book / "claims.yml"
        self.env.note_dependency(str(path))
        claims = ledger.load(path)
        chapters = ledger.chapter_files(book)
        tests = ledger.markers(book.parent / "tests")
        stated = {number: set(ledger.anchors(file)) for number, file in chapters.items()}

        counts = Counter(claim.verdict for claim in claims if claim.chapter in chapters)
        present = sum(counts.values())
        summary = ", ".join(f"{verdict} {counts[verdict]}" for verdict in ledger.VERDICTS if counts[verdict])
        text = [f"{present} of {len(claims)} claims belong to chapters that are in the book ({summary or 'none'}).", ""]
        number = None
        for claim in sorted(claims, key=lambda claim: claim.chapter):
            if claim.chapter != number:
                number = claim.chapter
                if number in chapters:
                    docname = chapters[number].relative_to(self.env.srcdir).with_suffix("").as_posix()
                    text += [f":::{{rubric}} {number}. {ledger.notebook_title(chapters[number])}", ":::", ""]
                    text += [f"{{doc}}`Read the chapter </{docname}>`", ""]
                else:
                    text += [":::{rubric} In no chapter yet", ":::", ""]
            text += _entry(claim, claim.anchor in stated.get(number, ()), tests.get(claim.id, []))
        container = nodes.container(classes=["claims"])
        self.state.nested_parse(StringList(text, source=str(path)), 0, container)
        return [container]


def _always_read(app: Sphinx, env, added, changed, removed) -> list[str]:
    """The page depends on every chapter and every test: read it again in each build."""
    return [PAGE] if PAGE in env.found_docs else []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive."""
    app.add_directive("claims-table", ClaimsTable)
    app.connect("env-get-outdated", _always_read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
