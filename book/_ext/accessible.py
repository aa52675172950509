"""Leaves out a role of bibliography entries that ARIA has withdrawn and that the HTML writer still gives them."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

WITHDRAWN = ' role="doc-biblioentry"'


def clean_body(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Leave out the withdrawn role."""
    if "body" in context:
        context["body"] = context["body"].replace(WITHDRAWN, "")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the hook."""
    app.connect("html-page-context", clean_body)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
