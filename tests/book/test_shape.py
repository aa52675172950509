"""Every chapter has the shape that CONTRIBUTING.md describes, and every rule of that shape can fail."""

import json
from pathlib import Path

import pytest

import ledger
import shape
import strip

ROOT = Path(__file__).resolve().parent.parent.parent
CHAPTERS = list(ledger.chapter_files(ROOT / "book").values())
CLAIM = ledger.Claim("MON-T1", "mon", "Theorem 1", "holds", 2, "A claim.")

# A small chapter with nothing to mend. Each entry is a cell: kind, source, metadata.
GOOD = [
    ("markdown", "# A title\n\nWhat is asked here?\nIt is this.\n\nMore is said later.", {}),
    ("code", "import mon_lib\n\nprofile = mon_lib.notebook.setup()", {}),
    (
        "markdown",
        ":::{prf:theorem} A name\n:label: mon-t1\nFor all $x$, $1.5 x = x + 0.5x$.\n:::\n\n"
        ":::{prf:proof}\nBy the theorem in section 3.4 and $$ 0.25 $$ of {cite}`ryu2016primer`.\n:::",
        {},
    ),
    ("code", "error = abs(1 - 1)\nassert error < 1e-12\nprint(error)", {"tags": ["check"]}),
    ("markdown", "Try: move the slider, and see what happens.", {}),
    ("code", "mon_lib.explorables.SplittingPlane()", {"tags": ["explorable"]}),
    (
        "code",
        "fig, ax = mon_lib.figures.new()\nax.plot([0, 1]);  # done",
        {
            "mystnb": {
                "figure": {"caption": "The error falls by the same factor in every step.", "name": "fig-02-error"},
                "image": {"alt": "A straight line on a logarithmic axis falls from left to right.", "align": "center"},
            }
        },
    ),
    ("markdown", "## Limits\n\nIt is slow.\nOn a GPU it is faster.", {}),
    ("markdown", "## Exercises", {}),
]
for letter in "abc":
    GOOD += [
        ("markdown", f"```{{exercise-start}} Exercise {letter}\n:label: ex-02-{letter}\n```", {}),
        ("markdown", "Show it.", {}),
        ("markdown", "```{exercise-end}\n```", {}),
        ("markdown", f"```{{solution-start}} ex-02-{letter}\n:class: dropdown\n```", {}),
        ("code", "assert sum([1, 1]) == 2", {"tags": ["solution"]}),
        ("markdown", "```{solution-end}\n```", {}),
    ]
GOOD += [("markdown", "## Summary\n\n- One line.", {}), ("markdown", "## Sources\n\nSee {cite}`winston2020monotone`, 2020.", {})]


def notebook(cells) -> str:
    """Write cells as the text of a stripped notebook."""
    raw = {
        "cells": [
            {"cell_type": kind, "id": f"cell{number}", "metadata": metadata, "source": source}
            | ({"outputs": [], "execution_count": None} if kind == "code" else {})
            for number, (kind, source, metadata) in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return strip.stripped(json.dumps(raw), "02")


def chapter(cells=GOOD, claims=(CLAIM,), text=None) -> shape.Chapter:
    return shape.Chapter("02_name", text or notebook(cells), tuple(claims))


def replaced(old: str, new: str):
    """The good chapter with one piece of text changed wherever it stands in a source."""
    assert any(old in source for _, source, _ in GOOD)
    return [(kind, source.replace(old, new), metadata) for kind, source, metadata in GOOD]


def without(old: str):
    """The good chapter without the cells whose source contains a text."""
    kept = [cell for cell in GOOD if old not in cell[1]]
    assert len(kept) < len(GOOD)
    return kept


def retagged(old: str, metadata):
    """The good chapter with other metadata on the cells whose source contains a text."""
    assert any(old in source for _, source, _ in GOOD)
    return [(kind, source, metadata if old in source else before) for kind, source, before in GOOD]


def figure(**changes):
    meta = {
        "caption": "The error falls by the same factor.",
        "name": "fig-02-error",
        "alt": "A line falls from the left to the right.",
    }
    meta |= changes
    figure_part = {"caption": meta["caption"], "name": meta["name"]}
    return retagged("figures.new", {"mystnb": {"figure": figure_part, "image": {"alt": meta["alt"]}}})


READING = ledger.Claim("MON-T1", "mon", "Theorem 1", "corrected", 2, "A claim.", "A repair.", reading=True)
PLAIN = notebook(GOOD)
OUTPUT = '{"output_type": "stream", "name": "stdout", "text": "1"}'
BAD = [
    (
        "stripped_outputs",
        chapter(text=PLAIN.replace('"outputs": []', f'"outputs": [{OUTPUT}]', 1)),
    ),
    ("stripped_outputs", chapter(text=PLAIN.replace('"execution_count": null', '"execution_count": 7', 1))),
    ("stripped_outputs", chapter(text=PLAIN.replace('"metadata": {}', '"metadata": {"collapsed": true}', 1))),
    ("stable_ids", chapter(text=PLAIN.replace('"id": "c02-', '"id": "x02-', 1))),
    ("stable_ids", chapter(text=PLAIN.replace('"id": "c02-', '"id": "c03-', 1))),
    ("opening", chapter(replaced("# A title", "A title"))),
    ("opening", chapter(replaced("What is asked here?", "Nothing is asked."))),
    ("opening", chapter(replaced("What is asked here?\nIt is this.", "First. Second.\nIs this late?"))),
    ("opening", chapter(replaced("## Limits", "# Limits"))),
    ("setup_cell", chapter(replaced("profile = mon_lib.notebook.setup()", "import torch"))),
    ("setup_cell", chapter([GOOD[0], *GOOD[2:]])),
    ("setup_cell", chapter(replaced("import mon_lib\n", "import mon_lib\n" + "\n" * 9))),
    ("setup_cell", chapter(replaced("import mon_lib\n", "import sys\nsys.path.insert(0, '..')\nimport mon_lib\n"))),
    ("setup_cell", chapter(replaced("error = abs(1 - 1)", "error = len(open('../data.txt').read())"))),
    ("statements", chapter(replaced(":label: mon-t1\n", ""))),
    ("statements", chapter(replaced(":label: mon-t1", ":label: mon-t2"))),
    ("statements", chapter(replaced("{prf:theorem} A name", "{note}"))),
    ("statements", chapter([*GOOD[:3], GOOD[2], *GOOD[3:]])),
    ("statements", chapter(replaced("{prf:proof}", "{note}"))),
    ("closed_directives", chapter(replaced("+ 0.5x$.\n:::\n", "+ 0.5x$.\n"))),
    ("closed_directives", chapter(replaced("```{exercise-end}\n```", "```{exercise-end}"))),
    ("checks", chapter(without("assert error"))),
    ("checks", chapter(replaced("assert error < 1e-12", "pass"))),
    ("checks", chapter(replaced("assert error < 1e-12", "assert True"))),
    ("checks", chapter(replaced("\nprint(error)", ""))),
    ("explorables", chapter(without("explorables"))),
    ("explorables", chapter(replaced("mon_lib.explorables.SplittingPlane()", "w = mon_lib.explorables.SplittingPlane()"))),
    ("explorables", chapter(replaced("Try: move", "Move"))),
    ("figures", chapter(retagged("figures.new", {}))),
    ("figures", chapter(replaced("ax.plot([0, 1]);  # done", "ax.plot([0, 1])"))),
    ("figures", chapter(figure(caption="Error."))),
    ("figures", chapter(figure(name="error"))),
    ("figures", chapter(figure(alt=""))),
    ("figures", chapter(figure(alt="The error falls by the same factor."))),
    ("figures", chapter([*GOOD, next(cell for cell in GOOD if "figures.new" in cell[1])])),
    ("exercises", chapter([cell for cell in GOOD if "ex-02-a" not in cell[1]])),
    ("exercises", chapter(replaced("{solution-start} ex-02-b", "{solution-start} ex-02-a"))),
    ("exercises", chapter(replaced("ex-02-c", "exercise-c"))),
    ("exercises", chapter(replaced(":class: dropdown\n", ""))),
    ("exercises", chapter(retagged("assert sum", {}))),
    ("exercises", chapter(replaced("{solution-end}", "{exercise-end}"))),
    ("exercises", chapter([*GOOD[: GOOD.index(("markdown", "## Exercises", {})) + 1], *GOOD[-2:]])),
    ("sections", chapter(without("## Summary"))),
    ("sections", chapter(replaced("## Sources", "## References"))),
    ("sections", chapter([*GOOD[:-2], GOOD[-1], GOOD[-2]])),
    ("sections", chapter(replaced("## Limits", "## Use"))),
    ("sections", chapter(replaced("On a GPU it is faster.", ""))),
    ("sections", chapter(replaced("- One line.", "- One line.\n" * 6))),
    ("sections", chapter(replaced("See {cite}`winston2020monotone`, 2020.", "None."))),
    ("numbers", chapter(replaced("It is slow.", "It takes 1.7 seconds."))),
    ("numbers", chapter(replaced("It is slow.", "It takes 40% longer."))),
    ("numbers", chapter(replaced("It is slow.", "It needs 128 steps."))),
    ("numbers", chapter(replaced("It is slow.", "The error is 3e-7."))),
    ("numbers", chapter(replaced("It is slow.", "It has 84,313 parameters."))),
    ("sentences", chapter(replaced("It is slow.\n", "It is slow. "))),
    ("shown_code", chapter(replaced("error = abs(1 - 1)", "def f():\n" + "    x = 1\n" * 15 + "\nerror = 0"))),
    ("tables", chapter(replaced("It is slow.", "|  | error |\n|---|---|\n| one | two |"))),
    ("words", chapter(replaced("It is slow.", "Clearly, it is slow."))),
    ("words", chapter(replaced("It is slow.", "We minimize it."))),
    ("words", chapter(replaced("It is slow.", "It is slow \U0001f680."))),
    ("reading", chapter(claims=[READING])),
]


@pytest.mark.parametrize("rule", shape.RULES)
def test_the_good_chapter_passes(rule):
    assert list(shape.RULES[rule](chapter())) == []


@pytest.mark.parametrize(("rule", "bad"), BAD, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(BAD)])
def test_a_bad_chapter_is_caught(rule, bad):
    assert list(shape.RULES[rule](bad)), f"{rule} accepts a chapter that it has to refuse"


def test_every_rule_is_seen_failing():
    assert {rule for rule, _ in BAD} == set(shape.RULES)


def test_numbers_in_mathematics_code_and_references_are_no_fault():
    text = (
        "It is slow.\nSee section 3.4, equations 8 and 9, table D1, $x = 0.5$, `alpha=0.5` and\n```python\nx = 1.5\n```\nfrom 1955."
    )
    assert list(shape.RULES["numbers"](chapter(replaced("It is slow.", text)))) == []


def test_a_reading_is_said():
    text = "The bound is, as we read it, strict."
    assert list(shape.RULES["reading"](chapter(replaced("It is slow.", text), claims=[READING]))) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", shape.RULES)
def test_chapter(rule, path):
    faults = list(shape.RULES[rule](shape.Chapter.read(path)))
    what = shape.RULES[rule].__doc__.splitlines()[0]
    assert not faults, f"{path.name}: {what}\n  " + "\n  ".join(faults)
