"""One style for every figure of the book.

A method keeps its colour throughout (`COLOURS`), lines carry their own labels, and every figure has an opaque light
ground, so that it reads the same in the light and the dark theme.  Nothing changes in matplotlib before `use_style`.

    use_style()
    fig, ax = new()
    mean_and_spread(ax, steps, runs, COLOURS["peaceman-rachford"], "Peaceman-Rachford")
    log_axis(ax, "y", "relative error")

In a notebook figures are drawn as SVG, with letters as outlines: sharp at any size, 20 to 80 kB each, less than half of
a PNG sharp enough for a good screen.  An artist of more than a thousand points wants ``rasterized=True``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np

__all__ = [
    "COLOURS",
    "COLOURS_DARK",
    "DASHES",
    "DPI",
    "GROUND",
    "GROUND_DARK",
    "MARKERS",
    "end_label",
    "label_line",
    "log_axis",
    "mean_and_spread",
    "new",
    "use_style",
]

DPI = 160
GROUND = "#ffffff"
GROUND_DARK = "#14181e"

# Contrast with the ground is at least 4.5 (text may use any of them), and any two stay apart for deuteranopes,
# protanopes and tritanopes; tests/test_figures.py measures both.
COLOURS = MappingProxyType(
    {
        "forward-backward": "#c94a05",
        "peaceman-rachford": "#1660c4",
        "douglas-rachford": "#00855d",
        "newton": "#5d1691",
        "anderson": "#4f3800",
        "naive": "#c02b9f",
        "paper": "#8d5d30",
        "ours": "#0a4f5c",
        "reference": "#15181c",
        "muted": "#6a7079",
    }
)

# The same methods on a dark ground: for the explorables, which follow the theme.
COLOURS_DARK = MappingProxyType(
    {
        "forward-backward": "#ff8a47",
        "peaceman-rachford": "#4d94f5",
        "douglas-rachford": "#8df5b4",
        "newton": "#b07cc6",
        "anderson": "#f4e264",
        "naive": "#ff4d9a",
        "paper": "#cd9e78",
        "ours": "#4fd0f5",
        "reference": "#f0f3f6",
        "muted": "#9aa4ae",
    }
)

DASHES = MappingProxyType(
    {
        "forward-backward": (0, (5, 2)),
        "peaceman-rachford": "solid",
        "douglas-rachford": (0, (7, 2, 1.5, 2)),
        "newton": (0, (1.5, 1.5)),
        "anderson": (0, (9, 3)),
        "naive": (0, (3, 1.5, 1, 1.5, 1, 1.5)),
        "paper": (0, (4, 3)),
        "ours": "solid",
        "reference": "solid",
        "muted": "solid",
    }
)

MARKERS = MappingProxyType(
    {
        "forward-backward": "s",
        "peaceman-rachford": "o",
        "douglas-rachford": "D",
        "newton": "^",
        "anderson": "v",
        "naive": "X",
        "paper": "P",
        "ours": "o",
        "reference": ".",
        "muted": ".",
    }
)

_STYLE = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": DPI,
    "figure.facecolor": GROUND,
    "figure.constrained_layout.use": True,
    "savefig.dpi": DPI,
    "savefig.facecolor": GROUND,
    "savefig.transparent": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "mon_lib",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 12,
    "figure.titlesize": 14,
    "mathtext.fontset": "dejavusans",
    "axes.facecolor": GROUND,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["reference"],
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": mpl.cycler(
        color=[COLOURS[k] for k in ("peaceman-rachford", "forward-backward", "douglas-rachford", "newton", "naive")]
    ),
    "grid.color": "#dfe2e6",
    "grid.linewidth": 0.7,
    "text.color": COLOURS["reference"],
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["reference"],
    "ytick.labelcolor": COLOURS["reference"],
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "image.cmap": "cividis",
}


def use_style() -> None:
    """Make the book's style matplotlib's default for this process, and SVG the format of a notebook's figures."""
    mpl.rcParams.update(_STYLE)
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")


def new(*, width: float = 6.4, height: float | None = None, columns: int = 1, rows: int = 1, **kwargs: Any) -> tuple[Any, Any]:
    """Open a figure.

    Parameters
    ----------
    width, height
        Inches.  The default height is 4 for one row and 3.2 a row for more (2.9 where panels stand side by side).
    columns, rows
        Panels.  Two columns are the most that a phone can show.
    **kwargs
        For `matplotlib.pyplot.subplots`, for instance ``sharey=True``.

    Returns
    -------
    fig, axes
        One axes, or an array of them: (columns,) for one row, (rows,) for one column, else (rows, columns).
    """
    import matplotlib.pyplot as plt

    if height is None:
        height = (4.0 if columns == 1 else 3.2) if rows == 1 else rows * (3.2 if columns == 1 else 2.9)
    return plt.subplots(rows, columns, figsize=(width, height), **kwargs)


def label_line(ax: Any, x: float, y: float, text: str, colour: str, **kwargs: Any) -> Any:
    """Write `text` in the line's own colour at (x, y) in data coordinates; returns the text.

    A halo of the ground keeps it readable where it crosses a line.  ``ha``, ``rotation`` and so on pass through.
    """
    from matplotlib.patheffects import withStroke

    options = {"color": colour, "ha": "left", "va": "center", "fontsize": 12, "zorder": 5} | kwargs
    return ax.text(x, y, text, path_effects=[withStroke(linewidth=3, foreground=GROUND)], **options)


def end_label(ax: Any, x: float, y: float, text: str, colour: str, shift: float = 0.0) -> Any:
    """Write `text` just right of (x, y), a line's last point, outside the axes if need be, moved up `shift` points."""
    return ax.annotate(
        text,
        (x, y),
        xytext=(6, shift),
        textcoords="offset points",
        ha="left",
        va="center",
        color=colour,
        fontsize=12,
        annotation_clip=False,
    )


def mean_and_spread(
    ax: Any, x: Sequence[float], runs: Any, colour: str, label: str | None = None, *, shift: float = 0.0, **kwargs: Any
) -> Any:
    """Draw the mean over seeds as a line and the range from least to greatest as a band; returns the line.

    Parameters
    ----------
    x : (len,)
    runs : (seeds, len)
        At least two seeds, of finite numbers.
    colour
        One of `COLOURS`' values.
    label
        Written at the line's right end (`end_label`, moved up by `shift` points).
    **kwargs
        For `Axes.plot`, for instance ``linestyle=DASHES["paper"]``.

    Raises
    ------
    ValueError
        If there is one seed only, if the lengths differ, or if a number is not finite.
    """
    x, runs = np.asarray(x, dtype=float), np.asarray(runs, dtype=float)
    if runs.ndim != 2 or runs.shape[1] != len(x):
        raise ValueError(f"runs must have the shape (seeds, {len(x)}), got {runs.shape}")
    if len(runs) < 2:
        raise ValueError("runs holds one seed: a spread needs at least two")
    if not np.isfinite(runs).all():
        raise ValueError("runs holds NaN or infinite numbers: leave those seeds out and say so")
    mean = runs.mean(0)
    ax.fill_between(x, runs.min(0), runs.max(0), color=colour, alpha=0.2, linewidth=0)
    (line,) = ax.plot(x, mean, color=colour, **kwargs)
    if label is not None:
        end_label(ax, x[-1], mean[-1], label, colour, shift)
    return line


def log_axis(ax: Any, axis: str, label: str) -> None:
    """Make `axis` ("x" or "y") logarithmic and label it "`label` (log scale)".

    Raises
    ------
    ValueError
        If `axis` is neither "x" nor "y".
    """
    if axis not in ("x", "y"):
        raise ValueError(f'axis must be "x" or "y", got {axis!r}')
    getattr(ax, f"set_{axis}scale")("log")
    getattr(ax, f"set_{axis}label")(f"{label} (log scale)")
    ax.grid(True, axis=axis, which="major")
