"""tools/build_book.py: nothing stale is reused, and no warning passes."""

import shutil
from pathlib import Path

import pytest

import build_book

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of one page that stands where the builder looks, with the template of the real one."""
    for name in ("book/_ext", "book/site_static"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_config.yml", "references.bib", "requirements.txt", "pyproject.toml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in ("mon_lib", "results", "tests", "tools"):
        (tmp_path / name).mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/index\n")
    (tmp_path / "book" / "index.md").write_text("# A page\n\nText.\n")
    (tmp_path / "mon_lib" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(build_book, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mon_lib/a.py", "execution"),
        ("mon_lib/explorables/b.js", "execution"),
        ("results/run.json", "execution"),
        ("requirements.txt", "execution"),
        ("_config.yml", "template"),
        ("references.bib", "template"),
        ("book/site_static/book.css", "template"),
        ("book/index.md", "text"),
        ("book/01_new.ipynb", "text"),
    ],
)
def test_every_input_is_in_the_fingerprint(book, name, part):
    before = build_book._fingerprint("smoke")
    path = book / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")
    after = build_book._fingerprint("smoke")
    assert after[part] != before[part]


def test_the_profile_is_in_the_fingerprint(book):
    assert build_book._fingerprint("smoke")["execution"] != build_book._fingerprint("cpu")["execution"]


def test_compiled_files_are_not(book):
    before = build_book._fingerprint("smoke")
    (book / "mon_lib" / "__pycache__").mkdir()
    (book / "mon_lib" / "__pycache__" / "a.pyc").write_bytes(b"1")
    assert build_book._fingerprint("smoke") == before


def test_a_new_test_of_a_claim_changes_the_claims_page(book):
    before = build_book._fingerprint("smoke")
    (book / "tests" / "test_a.py").write_text("import pytest\n\n\n@pytest.mark.claim('MON-T1')\ndef test_f(): ...\n")
    after = build_book._fingerprint("smoke")
    assert after["text"] != before["text"]
    assert after["execution"] == before["execution"]


def test_a_warning_fails_the_build_every_time_and_a_success_is_remembered(book):
    page = book / "book" / "index.md"
    page.write_text("# A page\n\n{doc}`nowhere`\n")
    for _ in range(2):
        with pytest.raises(build_book.BuildError, match="MON_PROFILE=smoke"):
            build_book.build(book, "smoke")
        assert not build_book.is_fresh(book)

    page.write_text("# A page\n\n$x$\n")
    site = build_book.build(book, "smoke")
    assert site == book / "_build" / "html"
    assert (site / "book" / "index.html").exists()
    assert (site / "_static" / "vendor" / "mathjax" / "tex-chtml.js").exists()
    assert build_book.is_fresh(book)
    (book / "mon_lib" / "a.py").write_text("x = 2\n")
    assert not build_book.is_fresh(book)


def test_a_changed_library_empties_the_cache(book, monkeypatch):
    cache = book / "_build" / ".jupyter_cache"

    def no_build(*arguments, **keywords):
        return build_book.subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(build_book.subprocess, "run", no_build)
    build_book.build(book, "smoke")
    cache.mkdir()
    build_book.build(book, "smoke")
    assert cache.exists()
    (book / "book" / "index.md").write_text("# Another title\n")
    build_book.build(book, "smoke")
    assert cache.exists()
    (book / "mon_lib" / "a.py").write_text("x = 2\n")
    build_book.build(book, "smoke")
    assert not cache.exists()
    cache.mkdir()
    build_book.build(book, "cpu")
    assert not cache.exists()
