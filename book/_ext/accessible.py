"""Replaces a role of bibliography entries that ARIA has withdrawn and that the HTML writer still gives them."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

WITHDRAWN, INSTEAD = ' role="doc-biblioentry"', ' role="listitem"'


def clean_body(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Make the entries of a bibliography items of the list that they stand in."""
    if "body" in context:
        context["body"] = context["body"].replace(WITHDRAWN, INSTEAD)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hook."""
    app.connect("html-page-context", clean_body)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
