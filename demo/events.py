"""The events that the demo ships, with key, value and timestamp, and the feed that yields them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

ID_HEADER = "id"
"""The header with the id of a record. The id contains the run that shipped the record, and the record's row in the
input."""


class Event(NamedTuple):
    key: bytes | None
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Feed:
    """A finite source of events. Row n of the source is event n, counted from 0.

    :param kind: the subject of the report.
    :param value_format: the format of values for the load.
    :param live_count: the field by which the online consumer counts.
    """

    title: str
    kind: Literal["departures", "access log", "text log"]
    topic: str
    value_format: Literal["raw", "json"]
    live_count: Literal["key", "partition"]
    count: int
    read: Callable[[], Iterator[Event]]


def event_id(run: str, row: int) -> bytes:
    """Return the header value for a row of a run.

    >>> event_id("3f2a", 7), parse_event_id("3f2a", b"3f2a:7"), parse_event_id("3f2a", b"other:7")
    (b'3f2a:7', 7, None)
    """
    return f"{run}:{row}".encode()


def parse_event_id(run: str, value: bytes | None) -> int | None:
    """Return the row in a record's id; None if the id belongs to another run."""
    prefix = f"{run}:".encode()
    if value is None or not value.startswith(prefix):
        return None
    return int(value.removeprefix(prefix))
