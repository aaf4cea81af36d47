"""Draws the numbers of departures and their mean delays by month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import FuncFormatter

from barnabas.reports.pictures import COLOURS, save, two_panels


def draw_departures(
    path: Path,
    months: Sequence[str],
    labels: Mapping[str, str],
    counts: Mapping[str, Sequence[int]],
    delays_min: Mapping[str, Sequence[float]],
) -> None:
    """Draw and write the picture.

    :param counts: the number of departures per month, by airport.
    :param delays_min: the mean delay per month in minutes, by airport.
    """
    total = sum(sum(each) for each in counts.values())
    figure, left, right = two_panels(f"{total:,} departures from New York in 2013", (1.0, 1.0))
    below = [0] * len(months)
    for (airport, values), colour in zip(counts.items(), COLOURS, strict=False):
        left.bar(months, values, bottom=below, color=colour, width=0.72, label=labels[airport])
        below = [low + value for low, value in zip(below, values, strict=True)]
    left.set_title("Departures by month and airport")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.set_ylim(0, max(below) * 1.18)
    left.legend(ncols=len(counts), frameon=False, loc="upper left", borderaxespad=0.1, handlelength=1.0)
    for (airport, delays), colour in zip(delays_min.items(), COLOURS, strict=False):
        right.plot(months, delays, color=colour, linewidth=2.4, marker="o", markersize=4.5, label=labels[airport])
    right.set_title("Mean departure delay in minutes")
    right.set_ylim(0, max(max(each) for each in delays_min.values()) * 1.25)
    right.margins(x=0.03)
    right.legend(ncols=len(counts), frameon=False, loc="upper left", borderaxespad=0.1, handlelength=1.4)
    save(figure, path)
