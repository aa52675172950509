"""What makes the built site work without a network: local MathJax, no thebe, one copy of each inline script."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PACKAGE = "sphinx-mathjax-offline"  # the import name of the distribution has hyphens too
MATHJAX = "vendor/mathjax"
NEEDED = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")  # of 24 MB, the parts that a page can ask for


def _mathjax_source() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ExtensionError(f"The package {PACKAGE} is not installed, and the site takes MathJax from it: pip install {PACKAGE}")
    return Path(spec.origin).parent / "static" / "mathjax"


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Put MathJax beside the other static files of an HTML build."""
    if exception is not None or app.builder.format != "html":
        return
    source, target = _mathjax_source(), Path(app.outdir) / "_static" / MATHJAX
    for name in NEEDED:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, target / name)


def clean_page(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Leave out the files of thebe, which Jupyter Book adds whether it is used or not, and repeated inline scripts."""
    seen: set[str] = set()
    scripts = []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body") or ""
        if "sphinx-thebe" in str(getattr(script, "filename", script)) or "THEBE_JS_URL" in body or body in seen:
            continue
        if body:
            seen.add(body)
        scripts.append(script)
    context["script_files"] = scripts
    context["css_files"] = [
        style for style in context.get("css_files", []) if "sphinx-thebe" not in str(getattr(style, "filename", style))
    ]


def drop_thebe_nodes(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Leave out the configuration blocks of thebe from the body of a page."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext().strip()
        if "x-thebe-config" in text or text.startswith("<script>kernelName"):
            node.parent.remove(node)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the three hooks."""
    app.connect("html-page-context", clean_page, priority=900)
    app.connect("doctree-resolved", drop_thebe_nodes, priority=900)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
