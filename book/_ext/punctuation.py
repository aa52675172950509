"""No line starts with the comma after a formula.

A formula in a line is a box to the browser, which may break the line on both sides of it, also before punctuation. So each
is tied to the punctuation that follows, in a span that book.css keeps on one line.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

CLOSING = re.compile(r"[-,.;:!?)\]\u2013\u2014\u2019\u201d]+\S*")


class TiePunctuation(SphinxPostTransform):
    """Put every formula and the punctuation after it into one node."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for formula in list(self.document.findall(nodes.math)):
            parent = formula.parent
            at = parent.index(formula)
            after = parent[at + 1] if at + 1 < len(parent) else None
            if not isinstance(after, nodes.Text) or not (found := CLOSING.match(after)):
                continue
            tied = nodes.inline(classes=["tied"])
            parent[at : at + 2] = [tied, nodes.Text(after[found.end() :])]
            tied += [formula, nodes.Text(found.group())]


def setup(app: Sphinx) -> dict[str, object]:
    """Register the transform."""
    app.add_post_transform(TiePunctuation)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
