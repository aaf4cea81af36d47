"""Draws the pictures of reports with matplotlib. Other pictures also use `two_panels`, `bars`, `over_time` and
`save`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from barnabas.reports.report import Bars, Lines, Panel, Report, shortened

COLOURS = ("#3b6fb6", "#e8894a", "#4a9d7c", "#b0578d", "#8a8f98")
INK, FAINT, PAPER = "#23272e", "#8a8f98", "#ffffff"
SOURCE_NOTE = "queried from the Iceberg table that Barnabas loaded"
NAMES_LENGTH_MAX = 110
"""The maximum number of characters in one row of the legend above a line chart."""
DAY, DATE = "%-d %b", "%-d %b %Y UTC"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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


def draw(report: Report, path: Path) -> None:
    """Draw the panels of a report, and write the picture.

    :raises OSError: The picture cannot be written.
    """
    figure = _figure(report.title)
    widths = [1.25, 1.0] if len(report.panels) == 2 else [1.0] * len(report.panels)
    places = figure.subplots(1, len(widths), gridspec_kw={"width_ratios": widths}, squeeze=False)[0]
    for axes, panel in zip(places, report.panels, strict=True):
        _draw_panel(axes, panel)
    figure.tight_layout(rect=(0.02, 0.06, 0.98, 0.94), w_pad=3.0)
    save(figure, path)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    match panel:
        case Bars():
            bars(axes, panel.bars, panel.mark)
            if panel.mark is not None:
                axes.axvline(panel.mark, color=INK, linewidth=1.2, linestyle="--")
                axes.text(panel.mark, len(panel.bars) - 0.4, f" {panel.mark_name}", va="bottom")
        case Lines():
            over_time(axes, panel.series, percent=panel.percent)


def two_panels(title: str, widths: tuple[float, float]) -> tuple[Figure, Axes, Axes]:
    """Return a figure with two panels side by side."""
    figure = _figure(title)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": widths})
    figure.subplots_adjust(left=0.06, right=0.97, top=0.82, bottom=0.13, wspace=0.22)
    return figure, left, right


def _figure(title: str) -> Figure:
    mpl.rcParams.update(_STYLE)
    figure = Figure(figsize=(12, 5.6), dpi=150)
    figure.suptitle(title.replace("$", r"\$"), x=0.03, y=0.97, ha="left", fontsize=15, fontweight="bold")
    figure.text(0.03, 0.02, SOURCE_NOTE, color=FAINT, fontsize=8.5)
    return figure


def bars(axes: Axes, values: Sequence[tuple[str, float]], mark: float | None = None) -> None:
    """Draw horizontal bars labeled with their values, with the first bar on top. Bars that exceed the mark have another
    color.
    """
    places = range(len(values))
    colours = [COLOURS[mark is not None and value > mark] for _, value in values]
    drawn = axes.barh(places, [value for _, value in values], color=colours, height=0.66)
    labels = [f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}" for _, value in values]
    axes.bar_label(drawn, labels, padding=4, fontsize=9)
    axes.set_yticks(places, [_label(text) for text, _ in values], fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.margins(x=0.12)


def over_time(axes: Axes, series: Mapping[str, Sequence[tuple[int, float]]], *, percent: bool = False) -> None:
    """Draw one line over time for each name. Names beyond the number of available colors are left out."""
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        times = [_EPOCH + timedelta(milliseconds=at) for at, _ in points]
        values = [value for _, value in points]
        axes.plot(cast("Any", times), values, color=colour, linewidth=1.9, label=_label(name))
    time_axis(axes)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.25)
    form = "{:.1f} %" if percent else "{:,.0f}"
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: form.format(100 * value if percent else value)))
    if len(series) > 1:
        _name_lines(axes, [_label(name) for name in series])


def _name_lines(axes: Axes, names: Sequence[str]) -> None:
    """Put the legend between the title and the plot, so that it covers no line."""
    side_by_side = max(1, min(len(names), NAMES_LENGTH_MAX // (6 + max(map(len, names)))))
    axes.legend(frameon=False, ncols=side_by_side, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.1)
    axes.set_title(axes.get_title(loc="left"), pad=12 + 16 * -(-len(names) // side_by_side))


def _label(text: str) -> str:
    """Return a label for matplotlib. A long name is shortened to its end."""
    return shortened(text).replace("$", r"\$")


def time_axis(axes: Axes) -> None:
    """Format the time axis with short labels."""
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%b", DAY, "%H:%M", "%H:%M", "%S.%f"],
        zero_formats=["", "%Y", "%b", DAY, "%H:%M", "%H:%M"],
        offset_formats=["", "%Y", "%b %Y", DATE, DATE, DATE],
    )
    axes.xaxis.set_major_formatter(formatter)


def save(figure: Figure, path: Path) -> None:
    """Write the picture to a file. An existing file is replaced atomically."""
    unfinished = path.with_name(f"{path.name}.new.png")
    figure.savefig(unfinished)
    unfinished.replace(path)
