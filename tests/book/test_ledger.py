"""The ledger: every claim of a chapter in the book is stated once and tested, and the entries are well formed."""

from pathlib import Path

import pytest

import ledger

ROOT = Path(__file__).resolve().parent.parent.parent
CLAIMS = ledger.load(ROOT / "book" / "claims.yml")
CHAPTERS = ledger.chapter_files(ROOT / "book")
TESTS = ledger.markers(ROOT / "tests")
PRESENT = [claim for claim in CLAIMS if claim.chapter in CHAPTERS]


@pytest.mark.parametrize("claim", PRESENT, ids=lambda claim: claim.id)
def test_claim_is_stated_once_in_its_chapter(claim):
    places = {path.name: ledger.anchors(path).count(claim.anchor) for path in CHAPTERS.values()}
    wanted = {path.name: int(number == claim.chapter) for number, path in CHAPTERS.items()}
    assert places == wanted, f"{claim.id} needs one ':label: {claim.anchor}' in {CHAPTERS[claim.chapter].name} and none elsewhere"


@pytest.mark.parametrize("claim", PRESENT, ids=lambda claim: claim.id)
def test_claim_has_a_test(claim):
    assert TESTS.get(claim.id), f"{claim.id} is stated and no test carries @pytest.mark.claim({claim.id!r})"


def test_marks_name_claims_of_the_ledger():
    assert set(TESTS) <= {claim.id for claim in CLAIMS}


def test_labels_that_look_like_claims_are_claims():
    known = {claim.anchor for claim in CLAIMS}
    prefixes = ("mon-", "ref-", "new-")
    unknown = {label for path in CHAPTERS.values() for label in ledger.anchors(path) if label.startswith(prefixes)} - known
    assert not unknown, f"labels that start like a claim belong to the ledger: {sorted(unknown)}"


def test_chapters_are_numbered_without_gaps():
    assert sorted(CHAPTERS) == list(range(1, len(CHAPTERS) + 1))


def test_claims_of_both_papers_and_of_the_book_are_listed():
    counts = {source: sum(claim.source == source for claim in CLAIMS) for source in ledger.SOURCES}
    assert counts == {"mon": 28, "ref": 16, "book": 11}


ENTRY = "- {id: A-1, source: mon, label: Theorem, verdict: holds, chapter: 1, what: True.}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace("holds", "maybe"), "A-1: verdict 'maybe' is not one of"),
        (ENTRY.replace("mon", "abc"), "A-1: source 'abc' is not one of"),
        (ENTRY.replace("what: True.", "what: True., page: 3"), "A-1: unknown field page"),
        (ENTRY.replace(", chapter: 1", ""), "A-1: missing field chapter"),
        (ENTRY.replace("holds", "corrected"), "A-1: a verdict of 'corrected' needs a note"),
        (ENTRY + ENTRY, "A-1: the id appears twice"),
    ],
)
def test_a_bad_entry_is_refused(tmp_path, text, message):
    path = tmp_path / "claims.yml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        ledger.load(path)


def test_marks_are_found_wherever_they_stand(tmp_path):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_one.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.slow, pytest.mark.claim('A')]\n"
        "@pytest.mark.claim('B', 'C')\n"
        "def test_f(): pass\n"
        "@pytest.mark.claim('D')\n"
        "class TestG:\n"
        "    def test_h(self): pass\n"
        "@pytest.mark.claim('E')\n"
        "def helper(): pass\n"
    )
    assert ledger.markers(folder) == {
        "A": ["tests/test_one.py::test_f", "tests/test_one.py::TestG::test_h"],
        "B": ["tests/test_one.py::test_f"],
        "C": ["tests/test_one.py::test_f"],
        "D": ["tests/test_one.py::TestG::test_h"],
    }
