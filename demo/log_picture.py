"""Draws the pictures of text logs: requests by hour and the top pages, or the most frequent kinds of lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from matplotlib.ticker import FuncFormatter

from barnabas.reports.pictures import COLOURS, bars, save, time_axis, two_panels

STATUS_CLASSES = {"2": "success", "3": "redirect", "4": "client error", "5": "server error", "": "no request"}


def draw_access_log(path: Path, hourly: Sequence[tuple[datetime, str, int]], pages: Sequence[tuple[str, int]]) -> None:
    """Draw the requests by hour and status class, and the top pages.

    :param hourly: tuples of hour, first digit of the status, and count.
    """
    total = sum(count for _, _, count in hourly)
    figure, left, right = two_panels(f"{total:,} requests", (1.25, 1.0))
    hours = sorted({hour for hour, _, _ in hourly})
    middles = [hour + timedelta(minutes=30) for hour in hours]
    below = dict.fromkeys(hours, 0)
    classes = [digit for digit in STATUS_CLASSES if any(each == digit for _, each, _ in hourly)]
    for digit, colour in zip(classes, COLOURS, strict=False):
        counts = {hour: count for hour, each, count in hourly if each == digit}
        heights = [counts.get(hour, 0) for hour in hours]
        name = f"{digit}xx {STATUS_CLASSES[digit]}" if digit else STATUS_CLASSES[digit]
        left.bar(
            cast("Any", middles),
            heights,
            cast("Any", timedelta(hours=1)),
            bottom=list(below.values()),
            color=colour,
            label=name,
        )
        below = {hour: low + height for (hour, low), height in zip(below.items(), heights, strict=True)}
    time_axis(left)
    left.set_title("Requests by hour")
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    left.set_ylim(0, max(below.values()) * 1.2)
    left.legend(frameon=False, ncols=2, loc="upper left", borderaxespad=0.1)
    right.set_title("Top pages")
    bars(right, pages)
    figure.subplots_adjust(wspace=0.75)
    save(figure, path)


def draw_kinds_of_lines(path: Path, total: int, kinds: Sequence[tuple[str, int]]) -> None:
    figure, left, right = two_panels(f"{total:,} lines", (1.0, 1.0))
    figure.delaxes(left)
    right.set_position((0.42, 0.13, 0.54, 0.69))
    right.set_title("Most frequent kinds of lines (# is any number)")
    bars(right, kinds)
    save(figure, path)
