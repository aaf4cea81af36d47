"""How the demo's pictures look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#3b6fb6", "#e8894a", "#4a9d7c", "#b0578d", "#8a8f98")
INK, FAINT, PAPER = "#23272e", "#8a8f98", "#ffffff"
SOURCE_NOTE = "queried from the Iceberg table that Barnabas loaded"

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "ytick.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e8eb",
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
}


def two_panels(title: str, widths: tuple[float, float]) -> tuple[Figure, Axes, Axes]:
    """Return a figure with two panels side by side."""
    mpl.rcParams.update(_STYLE)
    figure = Figure(figsize=(12, 5.6), dpi=150)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": widths})
    figure.suptitle(title, x=0.03, y=0.97, ha="left", fontsize=15, fontweight="bold")
    figure.text(0.03, 0.02, SOURCE_NOTE, color=FAINT, fontsize=8.5)
    figure.subplots_adjust(left=0.06, right=0.97, top=0.82, bottom=0.13, wspace=0.22)
    return figure, left, right


def save(figure: Figure, path: Path) -> None:
    """Write the picture; whoever looks at the old one meanwhile sees it whole."""
    unfinished = path.with_suffix(".new.png")
    figure.savefig(unfinished)
    unfinished.replace(path)
