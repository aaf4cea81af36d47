"""Reports on text logs from the table: statuses and pages of an access log, the kinds of lines of any other log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.columns import Columns
from rich.markup import escape
from rich.table import Table

from demo.access_log import parse_line
from demo.loaded_run import LoadedRun, Report
from demo.log_picture import draw_access_log, draw_kinds_of_lines

TOP = 10
SHOWN_LENGTH_MAX = 100
HOUR_MS = 3_600_000
NO_REQUEST = "no request"
NUMBER = re.compile(rb"[0-9]+")
SYSLOG_PREFIX = re.compile(rb"[A-Z][a-z]{2} +\d+ [\d:]{8} \S+ ")


def report_access_log(loaded: LoadedRun) -> Report:
    """Count the statuses, the most requested pages, and the requests by hour and status class."""
    statuses: Counter[str] = Counter()
    pages: Counter[bytes] = Counter()
    hourly: Counter[tuple[int, str]] = Counter()
    for timestamp_ms, line in _lines(loaded):
        request = parse_line(line)
        status = str(request.status) if request else NO_REQUEST
        statuses[status] += 1
        hourly[timestamp_ms // HOUR_MS, status[0] if request else ""] += 1
        if request:
            pages[request.page] += 1
    top_pages = _top(pages)
    picture = loaded.picture(loaded.table.partition(".")[2])
    hours = [
        (datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC), kind, count) for (hour, kind), count in hourly.items()
    ]
    draw_access_log(picture, hours, top_pages)
    tables = [_table("Statuses", "status", statuses.most_common()), _table("Top pages", "page", top_pages)]
    return Report(Columns(tables, padding=(0, 4)), picture)


def report_lines(loaded: LoadedRun) -> Report:
    """Count the kinds of lines. Lines that differ only in numbers are of the same kind."""
    kinds = Counter(kind_of(line) for _, line in _lines(loaded))
    picture = loaded.picture(loaded.table.partition(".")[2])
    draw_kinds_of_lines(picture, kinds.total(), _top(kinds))
    return Report(_table("Most frequent kinds of lines (# is any number)", "line", _top(kinds)), picture)


def kind_of(line: bytes) -> bytes:
    """Return a line without syslog's leading time and host, and with `#` instead of numbers.

    >>> kind_of(b"Mar 27 13:06:56 ip-10-77 sshd[1291]: Listening on port 22")
    b'sshd[#]: Listening on port #'
    """
    return NUMBER.sub(b"#", line[prefix.end() :] if (prefix := SYSLOG_PREFIX.match(line)) else line)


def _lines(loaded: LoadedRun) -> Iterator[tuple[int, bytes]]:
    for batch in loaded.scan(["timestamp", "value"]):
        times_us = batch.column("timestamp").cast("int64").to_pylist()
        for time_us, line in zip(times_us, batch.column("value").to_pylist(), strict=True):
            yield time_us // 1000, line


def _top(counter: Counter[bytes]) -> list[tuple[str, int]]:
    """Return the largest counts. Bytes that are not UTF-8 are replaced."""
    return [(text.decode("utf-8", "replace"), count) for text, count in counter.most_common(TOP)]


def _table(title: str, name: str, counts: Sequence[tuple[str, int]]) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left")
    table.add_column(name, overflow="ellipsis", no_wrap=True)
    table.add_column("count", justify="right")
    for text, count in counts:
        table.add_row(escape(text[:SHOWN_LENGTH_MAX]), f"{count:,}")
    return table
