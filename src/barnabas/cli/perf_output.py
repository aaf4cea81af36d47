"""The output of `barnabas perf`: the progress on a terminal, and the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.table_output import Row, show_table

if TYPE_CHECKING:
    from barnabas.laboratory.perf.meter import Sample
    from barnabas.laboratory.perf.report import Report

ERASE_LINE = "\r\x1b[K"
SHOW_EVERY_S = 0.2


class ProgressLine:
    """A progress line on standard error, shown only on a terminal and redrawn with each new sample.

    It is plain text, because a progress bar would take CPU time from the measured processes.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._shows = not quiet and sys.stderr.isatty()
        self._last: dict[str, Sample] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        self._drawn_at_s = 0.0

    def __call__(self, name: str, sample: Sample) -> None:
        """Record a sample from one process of the run, and redraw the line."""
        if not self._shows:
            return
        before = self._last.get(name)
        if before is not None and sample.at_s > before.at_s:
            if sample.at_s - before.at_s < SHOW_EVERY_S:
                return
            span_s = sample.at_s - before.at_s
            self._rates[name] = (
                (sample.records - before.records) / span_s,
                (sample.bytes - before.bytes) / span_s / 1e6,
            )
        self._last[name] = sample
        if sample.at_s - self._drawn_at_s >= SHOW_EVERY_S:
            self._drawn_at_s = sample.at_s
            click.echo(ERASE_LINE + "   ".join(self._part(each) for each in sorted(self._last)), err=True, nl=False)

    def _part(self, name: str) -> str:
        records_per_s, mb_per_s = self._rates.get(name, (0.0, 0.0))
        done = self._last[name].records
        return f"{name}: {done:,} records, {records_per_s:,.0f}/s, {mb_per_s:,.1f} MB/s"

    def clear(self) -> None:
        """Clear the line."""
        if self._last:
            click.echo(ERASE_LINE, err=True, nl=False)


def show_report(report: Report, *, as_json: bool) -> None:
    """Print the report as one line of JSON, or as a table with the properties of the machine."""
    figures = report.as_json()
    if as_json:
        click.echo(json.dumps(figures))
        return
    show_table([report.workload, ""], rows_of(figures))
    if report.interrupted:
        click.echo("interrupted: these are the results up to the interruption", err=True)


def rows_of(figures: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the table: results, workload and machine.

    >>> figures = {"records": 1000, "records_per_s": 500.0, "mb_per_s": 0.05, "elapsed_s": 2.0, "cpu_client_s": 0.5}
    >>> for name, value in rows_of(figures)[:3]:
    ...     print(f"{name}: {value}")
    records: 1,000 in 2.00 s
    rate: 500 records/s, 0.05 MB/s
    client CPU: 0.50 s, 500.00 s per million records
    """
    rows: list[Row] = [
        ["records", f"{figures['records']:,} in {figures['elapsed_s']:,.2f} s"],
        ["rate", f"{figures['records_per_s']:,.0f} records/s, {figures['mb_per_s']:,.2f} MB/s"],
        ["client CPU", _cpu(figures)],
    ]
    rows += [[label, text(figures[name])] for name, label, text in _MORE if figures.get(name) is not None]
    if figures.get("count"):
        names = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
        labels = ("median", "90 %", "99 %", "99.9 %", "max")
        rows += [[label, f"{figures[name]:,.2f} ms"] for name, label in zip(names, labels, strict=True)]
    machine = figures.get("machine")
    if machine:
        where = "{cores} cores ({cpu}), {system}, Python {python}, {codec} codec".format(**machine)
        rows += [["run", _run(figures)], ["client", f"{figures['client']}, {where}"], ["broker", figures["broker"]]]
    return rows


def _cpu(figures: Mapping[str, Any]) -> str:
    cpu_s, records = figures["cpu_client_s"], figures["records"]
    return f"{cpu_s:,.2f} s" + (f", {cpu_s / records * 1e6:,.2f} s per million records" if records else "")


_MORE: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("requests_per_s", "requests", lambda rate: f"{rate:,.0f}/s"),
    ("stored", "stored", lambda count: f"{count:,}"),
    ("produced_per_s", "produced", lambda rate: f"{rate:,.0f}/s"),
    ("consumed_per_s", "consumed", lambda rate: f"{rate:,.0f}/s to the last record"),
    ("behind_at_end", "behind", lambda count: f"{count:,} records when the producer was done"),
)

_RUN = (
    ("mode", "{}"),
    ("read_mode", "read as {}"),
    ("topic", "topic {}"),
    ("partitions", "{} partitions"),
    ("acks", "acks {}"),
    ("rate", "{:,.0f} records/s"),
    ("size", "{:,} B"),
    ("payload", "{}"),
    ("compression", "compression {}"),
    ("batch_records", "{:,} in a request"),
    ("in_flight", "{} in flight"),
    ("group", "group {}"),
    ("fetch_bytes", "fetches of {:,} B"),
)


def _run(figures: Mapping[str, Any]) -> str:
    return ", ".join(text.format(figures[name]) for name, text in _RUN if figures.get(name) is not None)
