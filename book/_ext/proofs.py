"""Proofs that open with a list keep their list.

sphinx-proof writes "Proof. " in front of the first line, which makes a paragraph of a list that starts there, and gives
every proof of a page the same id.
"""

import re

from docutils.statemachine import StringList
from sphinx_proof.directive import ProofDirective

LIST = re.compile(r"\s*(\d+\.|[-*])\s")


class Proof(ProofDirective):
    """The directive of sphinx-proof without its two faults."""

    def run(self):
        if LIST.match(self.content[0]):
            source, line = self.content.items[0]
            self.content = StringList(["", ""], items=[(source, line)] * 2) + self.content
        (node,) = super().run()
        for section in node.children:
            section["ids"] = []
        return [node]


def setup(app):
    app.setup_extension("sphinx_proof")
    app.add_directive_to_domain("prf", "proof", Proof, override=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
