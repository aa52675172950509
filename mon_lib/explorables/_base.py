"""What the interactive figures share: one abstract widget and the bundler of its JavaScript."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ..figures import COLOURS, COLOURS_DARK, GROUND, GROUND_DARK

__all__ = ["Explorable", "bundle", "stylesheet"]

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import\s[^;]*?from\s+"\./(?P<name>[^"]+)";\n', re.MULTILINE)
_LIGHT = COLOURS | {"ground": GROUND, "line": "#dfe2e6", "track": "#8b939c", "focus": "#1660c4"}
_DARK = COLOURS_DARK | {"ground": GROUND_DARK, "line": "#333a44", "track": "#6f7a87", "focus": "#6cb6ff"}


def bundle(name: str) -> str:
    """One ES module from `name` and all that it imports from this folder, each file once, dependencies first.

    Imports and all exports but the default one are dropped, and lines that hold only a comment.
    """
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in parts:
            source = (_HERE / name).read_text(encoding="utf-8")
            for found in _IMPORT.finditer(source):
                add(found["name"])
            source = _IMPORT.sub("", source)
            source = re.sub(r"^export (?!default)", "", source, flags=re.MULTILINE)
            parts[name] = re.sub(r"^\s*//.*\n", "", source, flags=re.MULTILINE).strip() + "\n"

    add(name)
    return "".join(parts.values())


def stylesheet() -> str:
    """The kit's CSS with the palette of `mon_lib.figures` as variables, for light and dark.

    Dark is what the book's theme (`html[data-theme]`), JupyterLab (`body[data-jp-theme-light]`) or Colab (`html[theme]`)
    says, and where none of them speaks what the reader's system prefers.
    """

    def variables(palette: Mapping[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in palette.items())

    scope = ".mon-explorable"
    dark = ('html[data-theme="dark"]', 'body[data-jp-theme-light="false"]', 'html[theme="dark"]')
    silent = "html:not([data-theme]):not([theme]) body:not([data-jp-theme-light])"
    return (
        f"{scope}{{{variables(_LIGHT)}color-scheme:light}}\n"
        f":is({','.join(dark)}) {scope}{{{variables(_DARK)}color-scheme:dark}}\n"
        f"@media (prefers-color-scheme:dark){{{silent} {scope}{{{variables(_DARK)}color-scheme:dark}}}}\n"
        + (_HERE / "_kit.css").read_text(encoding="utf-8")
    )


class Explorable(anywidget.AnyWidget):
    """An interactive figure that needs no kernel: the browser computes what it draws (abstract).

    A subclass in ``name.py`` declares its traits and has two scripts beside it: ``name.maths.js``, pure functions, and
    ``name.js``, the picture.  Assigning to a trait moves the picture, and touching the picture sets the trait.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    def __init__(self, **kwargs: Any) -> None:
        if type(self) is Explorable:
            raise TypeError("Explorable is abstract: display one of its subclasses")
        unknown = [name for name in kwargs if not self.has_trait(name)]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no trait {', '.join(map(repr, unknown))}")
        script = type(self).__module__.rpartition(".")[2] + ".js"
        super().__init__(_esm=bundle(script), _css=stylesheet(), **kwargs)
