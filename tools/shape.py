"""The shape of a chapter, rule by rule. CONTRIBUTING.md says the same in words.

    python tools/shape.py book/03_splitting.ipynb     say what a chapter still lacks

Each rule is a function of a :class:`Chapter` and yields one sentence for each thing that the author has to mend.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import nbformat

import ledger
from chapter import DIRECTIVE, Chapter, first_line, tree
from prose import numbers, reading, sentences, words
from strip import ID, stripped

__all__ = ["RULES", "Chapter", "faults"]

STATEMENTS = "theorem|proposition|lemma|corollary|definition|algorithm|remark|example|property|observation|axiom|conjecture"
GATES = ("exercise-start", "exercise-end", "solution-start", "solution-end")


def stripped_outputs(chapter: Chapter) -> Iterator[str]:
    """Outputs, counts and foreign metadata are stripped."""
    if stripped(chapter.text, chapter.number) != chapter.text:
        yield "the file holds outputs, counts, foreign metadata or another layout: run make strip"


def stable_ids(chapter: Chapter) -> Iterator[str]:
    """Every cell has a stable id of its own."""
    seen: set[str] = set()
    for position, cell in enumerate(chapter.cells):
        name = cell.get("id", "")
        if not ID.fullmatch(name) or not name.startswith(f"c{chapter.number}-"):
            yield f"cell {position} has the id {name!r}, not one of the form c{chapter.number}-xxxxxxxx: run make strip"
        elif name in seen:
            yield f"cell {position} repeats the id {name!r}: run make strip"
        seen.add(name)


def opening(chapter: Chapter) -> Iterator[str]:
    """The first cell has the title and, in its first two sentences, the question."""
    first = chapter.cells[0]
    match = re.match(r"# \S[^\n]*\n+(.*)", first.source, re.DOTALL)
    if first.cell_type != "markdown" or not match:
        yield "the first cell is not markdown that starts with '# Title' and goes on with the question"
        return
    ends = [found.start() for found in re.finditer(r"[.?!](?=\s|$)", match[1])]
    if "?" not in match[1][: ends[1] + 1 if len(ends) > 1 else None]:
        yield "the first two sentences below the title hold no question"
    if sum(len(re.findall(r"^# ", text, re.MULTILINE)) for text in chapter.markdown) > 1:
        yield "there is more than one heading of the first level"


def setup_cell(chapter: Chapter) -> Iterator[str]:
    """The second cell is code, short, works from any folder and calls mon_lib.notebook.setup()."""
    cell = chapter.cells[1]
    if cell.cell_type != "code":
        yield "the second cell is not code"
        return
    if "notebook.setup(" not in cell.source:
        yield "the second cell does not call profile = mon_lib.notebook.setup()"
    if len(cell.source.splitlines()) > 10:
        yield f"the second cell has {len(cell.source.splitlines())} lines, and at most ten fit"
    for position, other in chapter.code():
        if found := re.search(r"sys\.path|os\.chdir|%cd|[\"']\.\./|[\"']/(home|work|tmp|root)\b", other.source):
            yield f"cell {position} depends on a folder: {found[0]!r}"


def statements(chapter: Chapter) -> Iterator[str]:
    """Every claim of the chapter has one labelled statement, every statement a label, and something is proved."""
    text = "\n\n".join(chapter.markdown)
    labels = ledger.LABEL.findall(text)
    stated: list[str] = []
    for match in DIRECTIVE.finditer(text):
        if not re.fullmatch(f"prf:({STATEMENTS})", match["name"]):
            continue
        block = _block(text, match)
        label = ledger.LABEL.search(block)
        if label is None:
            yield f"a {match['name']} {match['title']!r} has no :label:"
        else:
            stated.append(label[1])
    if not stated:
        yield "there is no labelled statement (:::{prf:theorem} with :label:)"
    for claim in chapter.claims:
        if stated.count(claim.anchor) != 1:
            yield f"{claim.id} has {stated.count(claim.anchor)} labelled statements with the label {claim.anchor}, and it needs one"
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        yield f"the label {label} appears {labels.count(label)} times"
    if chapter.claims and "{prf:proof}" not in text:
        yield "no proof: every statement that is not a definition has one in a :::{prf:proof}"


def _block(text: str, match: re.Match[str]) -> str:
    """The text of a directive, from its opening fence to its closing one."""
    closing = re.compile(rf"^{re.escape(match['fence'])}[ \t]*$", re.MULTILINE).search(text, match.end())
    return text[match.start() : closing.start() if closing else len(text)]


def closed_directives(chapter: Chapter) -> Iterator[str]:
    """Every directive is closed in its own cell; only gated exercises and solutions may span cells."""
    for position, cell in enumerate(chapter.cells):
        if cell.cell_type != "markdown":
            continue
        stack: list[str] = []
        for line in cell.source.splitlines():
            match = re.match(r"\s*(:{3,}|`{3,})(.*)$", line)
            if not match:
                continue
            fence, rest = match[1], match[2].strip()
            if stack and not rest and fence[0] == stack[-1][0] and len(fence) >= len(stack[-1]):
                stack.pop()
            elif not (stack and stack[-1][0] == "`"):  # fences inside a code block are text
                stack.append(fence)
        if stack:
            yield f"cell {position} opens a directive with {stack[-1]} and does not close it: {first_line(cell.source)!r}"


def checks(chapter: Chapter) -> Iterator[str]:
    """At least one cell is tagged check, and each of those asserts something and prints what it measured."""
    cells = chapter.code("check")
    if not cells:
        yield "no cell has the tag check: a code cell that tests a statement on random instances"
    for position, cell in cells:
        if not any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in ast.walk(tree(cell))):
            yield f"check cell {position} cannot fail: it has no assert on something computed"
        if "print(" not in cell.source:
            yield f"check cell {position} does not print the error that it measured"


def explorables(chapter: Chapter) -> Iterator[str]:
    """An explorable is the last expression of a tagged cell, with a suggestion what to try beside it."""
    cells = chapter.code("explorable")
    if not cells:
        yield "no cell has the tag explorable"
    for position, cell in cells:
        body = tree(cell).body
        if not body or not isinstance(body[-1], ast.Expr):
            yield f"explorable cell {position} does not end with the component as an expression"
        beside = [chapter.cells[near].source for near in (position - 1, position + 1) if 0 <= near < len(chapter.cells)]
        if not any(re.search(r"\bTry\b[^\n]*", text) for text in beside):
            yield f"explorable cell {position} has no 'Try: ...' in the cell before or after it"


def _echoes(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell ends with an expression that may have a value, for Jupyter to show."""
    last = tree(cell).body[-1]
    silent = r"print|plt\.show|(mon_lib\.)?figures\.log_axis"
    quiet = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and re.fullmatch(silent, ast.unparse(last.value.func))
    lines = [line for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#")]
    return isinstance(last, ast.Expr) and not quiet and not re.search(r";\s*(#.*)?$", lines[-1])


def figures(chapter: Chapter) -> Iterator[str]:
    """Every cell that draws has a caption, a name and an alt text."""
    names: list[str] = []
    for position, cell in chapter.code():
        calls = {ast.unparse(node.func) for node in ast.walk(tree(cell)) if isinstance(node, ast.Call)}
        defines = [node for node in tree(cell).body if isinstance(node, ast.FunctionDef)]
        inside = {ast.unparse(node.func) for part in defines for node in ast.walk(part) if isinstance(node, ast.Call)}
        draws = any(re.fullmatch(r"(plt|figures|mon_lib\.figures)\.(subplots|figure|new|show)", call) for call in calls - inside)
        meta = cell.metadata.get("mystnb", {})
        if not draws and "figure" not in meta:
            continue
        caption, name = meta.get("figure", {}).get("caption", ""), meta.get("figure", {}).get("name", "")
        alt = meta.get("image", {}).get("alt", "")
        where = f"figure cell {position} ({first_line(cell.source)!r})"
        if len(caption) < 20:
            yield f"{where} has no caption in mystnb.figure.caption that says what to see"
        if not re.fullmatch(r"fig-[a-z0-9-]+", name):
            yield f"{where} has no mystnb.figure.name of the form fig-..."
        if len(alt) < 30 or alt == caption:
            yield f"{where} has no mystnb.image.alt that says what to see to someone who cannot look"
        if _echoes(cell):
            yield f"{where} ends with an expression whose value is shown as a second figure: end it with a semicolon"
        names.append(name)
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"the figure name {name} is used {names.count(name)} times"


def exercises(chapter: Chapter) -> Iterator[str]:
    """At least three gated exercises, each with an executed solution in a dropdown."""
    gates = [
        (position, match["name"], match["title"].strip(), _block(cell.source, match))
        for position, cell in enumerate(chapter.cells)
        if cell.cell_type == "markdown"
        for match in DIRECTIVE.finditer(cell.source)
        if match["name"] in GATES
    ]
    asked = [ledger.LABEL.search(block) for _, name, _, block in gates if name == "exercise-start"]
    if None in asked:
        yield "an exercise-start has no :label:"
    labels = [label[1] for label in asked if label]
    if len(labels) < 3:
        yield f"there are {len(labels)} gated exercises, and a chapter has at least three"
    for label in labels:
        if not re.fullmatch(rf"ex-{chapter.number}-[a-z0-9-]+", label):
            yield f"the exercise label {label} is not of the form ex-{chapter.number}-slug"
    order = [name for _, name, _, _ in gates]
    for kind in ("exercise", "solution"):
        ordered = [name for name in order if name.startswith(kind)]
        if ordered != [f"{kind}-start", f"{kind}-end"] * (len(ordered) // 2):
            yield f"{kind}-start and {kind}-end do not alternate"
    solved: set[str] = set()
    for here, gate in enumerate(gates):
        position, name, title, block = gate
        if name != "solution-start":
            continue
        solved.add(title)
        if ":class: dropdown" not in block:
            yield f"the solution of {title} is not a dropdown (:class: dropdown)"
        end = gates[here + 1][0] if here + 1 < len(gates) else position
        if not any(position < where < end for where, _ in chapter.code("solution")):
            yield f"the solution of {title} has no code cell with the tag solution between its gates"
    for label in labels:
        if label not in solved:
            yield f"the exercise {label} has no solution-start"


def sections(chapter: Chapter) -> Iterator[str]:
    """Limits, a GPU note, Exercises, a short Summary and Sources, in that order."""
    text = "\n\n".join(chapter.markdown)
    headings = re.findall(r"^## (.+?)\s*$", text, re.MULTILINE)
    if headings[-3:] != ["Exercises", "Summary", "Sources"]:
        yield f"the chapter ends with {headings[-3:]}, not with ## Exercises, ## Summary, ## Sources"
    if not re.search(r"\blimits?\b", text, re.IGNORECASE):
        yield "no word about limits: when does this break, what does it cost?"
    if not re.search(r"\bGPU\b", text):
        yield "no word about a GPU: say what changes there"
    summary = chapter.section("Summary")
    if summary is not None:
        lines = [line for line in summary.splitlines() if line.strip()]
        if not 1 <= len(lines) <= 5:
            yield f"the summary has {len(lines)} lines, and it has one to five"
    sources = chapter.section("Sources")
    if sources is not None and "{cite" not in sources:
        yield "the sources cite nothing: use {cite}`key`"


def shown_code(chapter: Chapter) -> Iterator[str]:
    """Functions shown in a chapter are at most fifteen lines long."""
    for position, cell in chapter.code():
        if "solution" in cell.metadata.get("tags", ()):
            continue
        for node in ast.walk(tree(cell)):
            if isinstance(node, ast.FunctionDef) and (lines := node.end_lineno - node.lineno + 1) > 15:
                yield f"cell {position} shows {node.name} with {lines} lines, and at most fifteen are read"


def tables(chapter: Chapter) -> Iterator[str]:
    """Every column of a table has a heading."""
    for text in chapter.markdown:
        for found in re.finditer(r"^(\|.*\|)[ \t]*\n\|[ :|-]+\|[ \t]*$", text, re.MULTILINE):
            if any(not cell.strip() for cell in found[1].strip("|").split("|")):
                yield f"a column of the table {found[1]!r} has no heading"


RULES: dict[str, Callable[[Chapter], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        stripped_outputs, stable_ids, opening, setup_cell, statements, closed_directives, checks, explorables, figures,
        exercises, sections, numbers, sentences, shown_code, tables, words, reading,
    )
}  # fmt: skip


def faults(chapter: Chapter) -> list[str]:
    """Return what every rule has to say about a chapter."""
    return [f"{name}: {fault}" for name, rule in RULES.items() for fault in rule(chapter)]


def main(arguments: list[str]) -> int:
    """Run from the command line; return the exit status."""
    found = 0
    for path in map(Path, arguments):
        for fault in faults(Chapter.read(path)):
            found += 1
            print(f"{path}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
