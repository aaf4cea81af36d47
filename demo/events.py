"""What the demo ships: events with key, value and time, and the feed that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

ID_HEADER = "id"
"""The header that names a record: the run that shipped it and its row in the input."""


class Event(NamedTuple):
    """One message."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Feed:
    """A finite source of events; row n of it is the n-th event, from 0.

    :param kind: what its report is about.
    :param value_format: whether the load decodes values.
    :param live_count: what the online consumer counts by.
    """

    title: str
    kind: Literal["departures", "access log", "text log"]
    topic: str
    value_format: Literal["raw", "json"]
    live_count: Literal["key", "partition"]
    count: int
    read: Callable[[], Iterator[Event]]


def event_id(run: str, row: int) -> bytes:
    """Return the header value that names row `row` of run `run`.

    >>> event_id("3f2a", 7), parse_event_id("3f2a", b"3f2a:7"), parse_event_id("3f2a", b"other:7")
    (b'3f2a:7', 7, None)
    """
    return f"{run}:{row}".encode()


def parse_event_id(run: str, value: bytes | None) -> int | None:
    """Return the row, None where the id is of another run."""
    prefix = f"{run}:".encode()
    if value is None or not value.startswith(prefix):
        return None
    return int(value.removeprefix(prefix))
