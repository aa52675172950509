"""tools/strip.py removes what a run leaves, keeps what the book needs, and gives stable ids."""

import json

import pytest

import strip


def raw(**changes) -> str:
    cell = {
        "cell_type": "code",
        "execution_count": 3,
        "id": "c04-0123abcd",
        "metadata": {"tags": ["check"], "collapsed": False, "mystnb": {"figure": {"name": "fig-a"}}},
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "1\n"}],
        "source": "print(1)",
    } | changes
    other = {"cell_type": "markdown", "id": "x", "metadata": {}, "source": "text"}
    metadata = {"kernelspec": {"name": "mine", "display_name": "Mine"}, "widgets": {"state": 1}}
    return json.dumps({"cells": [cell, other, dict(other)], "metadata": metadata, "nbformat": 4, "nbformat_minor": 4})


@pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId")
def test_outputs_and_foreign_metadata_go():
    notebook = json.loads(strip.stripped(raw(), "04"))
    code = notebook["cells"][0]
    assert code["outputs"] == []
    assert code["execution_count"] is None
    assert code["metadata"] == {"tags": ["check"], "mystnb": {"figure": {"name": "fig-a"}}}
    assert notebook["metadata"] == strip.METADATA


@pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId")
def test_ids_are_kept_made_and_unique():
    first = [cell["id"] for cell in json.loads(strip.stripped(raw(), "04"))["cells"]]
    assert first[0] == "c04-0123abcd"
    assert all(strip.ID.fullmatch(name) for name in first)
    assert len(set(first)) == 3
    edited = [cell["id"] for cell in json.loads(strip.stripped(strip.stripped(raw(source="print(2)"), "04"), "04"))["cells"]]
    assert edited == first, "an id must not change with the text of its cell"


@pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId")
def test_stripping_twice_changes_nothing():
    once = strip.stripped(raw(), "04")
    assert strip.stripped(once, "04") == once


@pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId")
def test_check_names_the_file_and_leaves_it(tmp_path, capsys):
    path = tmp_path / "04_name.ipynb"
    path.write_text(raw())
    assert strip.main(["--check", str(path)]) == 1
    assert "04_name.ipynb" in capsys.readouterr().out
    assert path.read_text() == raw()
    assert strip.main([str(path)]) == 0
    assert strip.main(["--check", str(path)]) == 0
