"""The plots of the page: the paper's figures 4 and 5, sizes, stored data, latency. Drawn from results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from barnabas.reports.pictures import COLOURS, FAINT, save
from bench.goals import Results
from bench.results import Case, Result, Row

SERVER_COLOURS = {
    "Barnabas": COLOURS[0],
    "Apache Kafka": COLOURS[1],
    "Tansu": COLOURS[3],
    "RabbitMQ": COLOURS[2],
    "ActiveMQ": COLOURS[4],
}
LINES = ("-", "--", ":", "-.")
MARKERS = "osD^v"
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.grid": True,
    "axes.grid.axis": "both",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": "#e6e8eb",
}
Points = list[tuple[float, float]]


def draw(found: Results, folder: Path) -> dict[str, list[Path]]:
    """Draw what the results allow; return the pictures by workload."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, list[Path]] = {}
    mpl.rcParams.update(STYLE)
    for name, (file_name, figure_of) in PLOTS.items():
        if name in found:
            path = folder / file_name
            save(figure_of(found[name]), path)
            drawn[name] = [path]
    return drawn


def producer_figure(result: Result) -> Figure:
    """Draw throughput over data sent (paper, figure 4)."""
    return _progress_figure(result, "MB sent")


def consumer_figure(result: Result) -> Figure:
    """Draw throughput over data consumed (paper, figure 5)."""
    return _progress_figure(result, "MB consumed")


def sizes_figure(result: Result) -> Figure:
    """Draw records/s and MB/s over the record size."""
    figure, (left, right) = _panels(2)
    for key in _contenders(result.cases):
        rates = [(case.size, row.records_per_s) for case in result.cases if (row := case.row(*key))]
        points = [(float(size), each) for size, each in rates if each]
        _line(left, key, points)
        _line(right, key, [(size, each * size / 1e6) for size, each in points])
    for axes, unit in ((left, "records/s"), (right, "MB/s")):
        axes.set(xscale="log", yscale="log", xlabel="bytes of a record", ylabel=unit)
    _finish(figure, result)
    return figure


def stored_figure(result: Result) -> Figure:
    """Draw throughput over the data that is stored."""
    figure, (axes,) = _panels(1)
    for row in result.cases[0].rows:
        _line(axes, (row.server, row.client), [(run.stored_gb or 0.0, run.records_per_s) for run in row.runs])
    axes.set(xlabel="GB stored", ylabel="records/s", ylim=(0, None))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    _finish(figure, result)
    return figure


def latency_figure(result: Result) -> Figure:
    """Draw latency over the share of records that were at least as fast, both stretched towards the end."""
    figure, (axes,) = _panels(1)
    for row in result.cases[0].rows:
        points = latency_points(row)
        _line(axes, (row.server, row.client), points, marker="" if len(points) > 8 else "o")
    axes.set(xscale="log", yscale="log", xlabel="share of the records that were faster", ylabel="milliseconds")
    axes.set_xticks([2, 10, 100, 1000, 10_000], ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _finish(figure, result)
    return figure


def latency_points(row: Row) -> Points:
    """Return (1 / share of the slower, ms): all runs together from histograms, else medians of percentiles."""
    counts: dict[float, float] = {}
    for upper_ms, count in itertools.chain.from_iterable(run.histogram for run in row.runs):
        counts[upper_ms] = counts.get(upper_ms, 0) + count
    total = sum(counts.values())
    if total:
        done, points = 0.0, []
        for upper_ms, count in sorted(counts.items()):
            done += count
            if count and done < total:
                points.append((total / (total - done), upper_ms))
        return [(x, y) for x, y in points if 1.1 <= x <= total]
    values = {name: row.median(lambda run, name=name: run.latency.get(name)) for name in QUANTILES}  # type: ignore[misc]
    return [(1 / (1 - QUANTILES[name]), value) for name, value in values.items() if value]


def _progress_figure(result: Result, label: str) -> Figure:
    figure, panels = _panels(len(result.cases))
    for axes, case in zip(panels, result.cases, strict=True):
        for row in case.rows:
            _line(axes, (row.server, row.client), median_series(row, case.size))
        axes.set(yscale="log", xscale="log", xlabel=label, ylabel="records/s", title=case.name)
        axes.yaxis.set_major_formatter(FuncFormatter(_short))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _finish(figure, result)
    return figure


def median_series(row: Row, size: int) -> Points:
    """Return the series of the run with the median throughput; where it has too few samples, one point."""
    if not row.runs:
        return []
    middle = sorted(row.runs, key=lambda run: run.records_per_s)[len(row.runs) // 2]
    if len(middle.series) > 1:
        return [(each[0], each[1]) for each in middle.series]
    return [(middle.records * size / 1e6, middle.records_per_s)]


def _contenders(cases: Iterable[Case]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.server, row.client) for case in cases for row in case.rows if row.runs))


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.8 * count + 3.2, 3.9), dpi=100)
    grid = figure.subplots(1, count, squeeze=False)
    return figure, list(grid[0])


def _line(axes: Axes, key: tuple[str, str], points: Points, marker: str = "o") -> None:
    if not points:
        return
    server, client = key
    number = sum(1 for line in axes.get_lines() if str(line.get_label()).startswith(f"{server} <"))
    axes.plot(
        *zip(*points, strict=True),
        LINES[number % len(LINES)],
        color=SERVER_COLOURS.get(server, FAINT),
        marker=MARKERS[number % len(MARKERS)] if marker else "",
        markersize=3,
        linewidth=1.4,
        label=f"{server} < {client.replace('`', '')}",
    )


def _finish(figure: Figure, result: Result) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="center right", fontsize=7.5, frameon=False)
    figure.text(0.01, 0.01, f"{result.command}, {result.date}, {result.machine}", color=FAINT, fontsize=6.5)
    width = figure.get_size_inches()[0]
    figure.tight_layout(rect=(0, 0.03, 1 - 2.9 / width, 1))


def _short(value: float, _position: int | None = None) -> str:
    """Return a number as an axis shows it.

    >>> _short(2_500_000), _short(50_000), _short(20)
    ('2.5 M', '50 k', '20')
    """
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


PLOTS: dict[str, tuple[str, Callable[[Result], Figure]]] = {
    "W1": ("benchmark-producer.png", producer_figure),
    "W2": ("benchmark-consumer.png", consumer_figure),
    "W10": ("benchmark-sizes.png", sizes_figure),
    "W11": ("benchmark-stored.png", stored_figure),
    "W12": ("benchmark-latency.png", latency_figure),
}
