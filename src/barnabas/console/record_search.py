"""Searches of records: the newest ones, or those from an offset or a time on, with filters."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.clock import Clock
from barnabas.console.cluster_view import ClusterView
from barnabas.console.record_text import at_path
from barnabas.model import TopicPartition

RECORDS_MAX = 500
SCANNED_MAX = 200_000
"""The maximum number of records that one search reads."""
SEARCH_S_MAX = 5.0
POLL_S = 0.5
POLLED_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions on a record. Empty texts match everything.

    :ivar path: a path in the JSON of the value, which must have the value `equals`.
    """

    key: str = ""
    value: str = ""
    header: str = ""
    path: str = ""
    equals: str = ""

    def matches(self, record: Any) -> bool:
        """Return whether a record meets all conditions."""
        if self.key and self.key.encode() not in (record.key or b""):
            return False
        if self.value and self.value.encode() not in (record.value or b""):
            return False
        if self.header and not any(
            self.header in name or self.header.encode() in (value or b"") for name, value in record.headers
        ):
            return False
        return not self.path or str(at_path(record.value, self.path)) == self.equals

    @property
    def is_empty(self) -> bool:
        return self == Filter()


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    :ivar scanned: the number of records that the search has read.
    :ivar is_complete: False if the search ended early, because of a limit.
    """

    records: Sequence[Any]
    scanned: int
    is_complete: bool


async def search(
    view: ClusterView,
    settings: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    wanted: Filter,
    limit: int,
    clock: Clock,
    *,
    newest_first: bool,
) -> Found:
    """Read records from `starts` up to `ends`, and return those that match.

    :param limit: the maximum number of records. With `newest_first`, the newest of all that match.
    """
    left = {where for where, start in starts.items() if start < ends[where]}
    matched: dict[TopicPartition, list[Any]] = {where: [] for where in left}
    scanned = 0
    until_s = clock.monotonic() + SEARCH_S_MAX
    async with AsyncConsumer(dict(settings), auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        if left:
            consumer.assign(sorted(left))
            for where in left:
                consumer.seek(where, starts[where])
        while left and scanned < SCANNED_MAX and clock.monotonic() < until_s:
            for record in await view.within(consumer.poll(max_records=POLLED_MAX, timeout_s=POLL_S)):
                where = TopicPartition(record.topic, record.partition)
                if starts[where] <= record.offset < ends[where]:
                    scanned += 1
                    if wanted.matches(record):
                        matched[where].append(record)
            for where in list(left):
                has_enough = not newest_first and len(matched[where]) >= limit
                if has_enough or await consumer.position(where) >= ends[where]:
                    left.discard(where)
                    consumer.pause(where)
    order = heapq.nlargest if newest_first else heapq.nsmallest
    records = order(limit, (record for each in matched.values() for record in each), key=_time_of)
    return Found(records, scanned, is_complete=not left)


def _time_of(record: Any) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset
