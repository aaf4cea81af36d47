"""Any text log as a feed: one line per message, with the whole line as the value, byte for byte.

Only the final line feed is removed. A line of an access log has its own timestamp, and the client's address is its
key, so that the lines of a client stay in order. Lines of other logs get the time of shipping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import BarnabasError
from demo.access_log import parse_line
from demo.departures import TOPIC as DEPARTURES
from demo.events import Event, Feed

SAMPLE_LINES = 200
TOPIC_LENGTH_MAX = 200


def text_log(path: Path) -> Feed:
    """Return the feed of a log file.

    :raises BarnabasError: if the file cannot be read, or is empty.
    """
    try:
        is_access_log = looks_like_access_log(path)
        count = sum(1 for _ in read_lines(path))
    except OSError as error:
        raise BarnabasError(f"cannot read the log {str(path)!r}: {error.strerror}") from error
    if not count:
        raise BarnabasError(f"the log {str(path)!r} has no lines")
    return Feed(
        title=f"{count:,} lines of {path.name}" + (", an access log" if is_access_log else ""),
        kind="access log" if is_access_log else "text log",
        topic=topic_of(path),
        value_format="raw",
        live_count="partition",
        count=count,
        read=lambda: access_events(path) if is_access_log else line_events(path),
    )


def topic_of(path: Path) -> str:
    """Return the topic name for a file.

    >>> topic_of(Path("/var/log/apache access.log"))
    'apache_access.log'
    """
    name = re.sub(r"[^a-zA-Z0-9._-]", "_", path.name)[:TOPIC_LENGTH_MAX]
    return f"{name}_log" if name in (DEPARTURES, "", ".", "..") else name


def looks_like_access_log(path: Path) -> bool:
    """Return whether at least 90 % of the first lines have the format of access logs."""
    sample = [line for line in islice(read_lines(path), SAMPLE_LINES) if line.strip()]
    matching = sum(parse_line(line) is not None for line in sample)
    return bool(sample) and matching >= 0.9 * len(sample)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines without their line feeds."""
    with path.open("rb") as file:
        for line in file:
            yield line.removesuffix(b"\n")


def access_events(path: Path, clock: Clock = SYSTEM_CLOCK) -> Iterator[Event]:
    """Yield the lines of an access log as events."""
    for line in read_lines(path):
        request = parse_line(line)
        yield Event(request.host, line, request.timestamp_ms) if request else Event(None, line, clock.time_ms())


def line_events(path: Path, clock: Clock = SYSTEM_CLOCK) -> Iterator[Event]:
    """Yield lines as events without a key and with the current time."""
    for line in read_lines(path):
        yield Event(None, line, clock.time_ms())
