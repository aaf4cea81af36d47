"""A record as a consumer sees it."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.model import Header, TimestampType


class Record(NamedTuple):
    """One record of a partition.

    A named tuple because consumers make millions of them: it is built in C, in bulk, and cannot change.

    >>> record = Record("clicks", 0, 42, 1_700_000_000_000, TimestampType.CREATE_TIME, b"member-1", b"/jobs", ())
    >>> record.offset, record.value
    (42, b'/jobs')
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
