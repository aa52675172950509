"""The rules for the words of a chapter: numbers, sentences, spelling, and what is said about a damaged source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chapter import Chapter

__all__ = ["numbers", "prose", "reading", "sentences", "words"]

PLACES = "section|appendix|equation|eq\\.|table|figure|fig\\.|theorem|proposition|lemma|corollary|definition|algorithm|chapter|page"
MEASURED = re.compile(r"(?<![\w.])(\d+\.\d+|\d+\s?%|\d+e-?\d+|(?!(?:19|20)\d\d\b)\d{3,}|\d{1,3}(?:,\d{3})+)(?!\w)")
BANNED = (
    r"easy to see|clearly|obviously|trivially|of course|state[- ]of[- ]the[- ]art|amazing|dramatically|remarkabl[ey]|"
    r"behavior|colors?|optimiz\w+|minimiz\w+|maximiz\w+|parametri[sz]ation|parameteriz\w+|normaliz\w+|regulariz\w+|"
    r"generaliz\w+|initializ\w+|center(ed)?|neighbor\w*"
)


def _without_code(text: str) -> str:
    """Drop the bodies of code blocks and the fence and option lines of directives."""
    kept: list[str] = []
    code: str | None = None
    for line in text.splitlines():
        fence = re.match(r"\s*(`{3,}|~{3,})(.*)$", line)
        if code is not None:
            if fence and fence[1] == code and not fence[2].strip():
                code = None
        elif fence and fence[2].strip() and not fence[2].startswith("{"):
            code = fence[1]
        elif not re.match(r"\s*(:{3,}|`{3,}|:[\w-]+:)", line):
            kept.append(line)
    return "\n".join(kept)


def prose(chapter: Chapter) -> str:
    """Return the prose of a chapter: no mathematics, code, headings, directive lines, roles, links, or places in a source."""
    text = _without_code("\n\n".join(chapter.markdown))
    text = re.sub(r"^#.*$", " ", text, flags=re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$(\s*\([\w:-]+\))?", " ", text, flags=re.DOTALL)
    text = re.sub(r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"(?<!\\)\$[^$]+\$", " ", text)
    text = re.sub(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)|<[^>]*>", " ", text)
    return re.sub(rf"\b({PLACES})s?\s+[A-Z]?\d+(\.\d+)*(\s*(,|and|to)\s*[A-Z]?\d+(\.\d+)*)*", " ", text, flags=re.IGNORECASE)


def numbers(chapter: Chapter) -> Iterator[str]:
    """No measured number stands in prose: cells print them."""
    for line in prose(chapter).splitlines():
        for found in MEASURED.finditer(line):
            yield f"the prose types {found[0]!r} in {line.strip()[:90]!r}: let a cell print it, or use words"


def sentences(chapter: Chapter) -> Iterator[str]:
    """One sentence a line of source."""
    for line in prose(chapter).splitlines():
        if found := re.search(r"[a-z)][.?!] +[A-Z][a-z]+ [a-z]", line):
            start = max(0, found.start() - 40)
            yield f"two sentences share a line: {line.strip()[start : start + 90]!r}"


def words(chapter: Chapter) -> Iterator[str]:
    """No hype, no brushing aside, no emoji, British spelling."""
    plain = prose(chapter)
    for found in re.finditer(rf"\b({BANNED})\b", plain, re.IGNORECASE):
        yield f"the prose says {found[0]!r}"
    for text in chapter.markdown:
        if found := re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", text):
            yield f"there is an emoji: {found[0]!r}"


def reading(chapter: Chapter) -> Iterator[str]:
    """A verdict that rests on how damaged text is read says so."""
    text = "\n\n".join(chapter.markdown)
    if any(claim.reading for claim in chapter.claims) and not re.search(r"as\s+we\s+read", text):
        names = ", ".join(claim.id for claim in chapter.claims if claim.reading)
        yield f"the words 'as we read it' are missing, and {names} rests on a reading"
