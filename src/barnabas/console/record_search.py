"""Searches of records: the newest ones, or those from an offset or a time on, with filters."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
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
SMALL_FETCH_BYTES = 64 * 1024
"""The bytes of a fetch without a filter: well-compressed batches of a megabyte hold far more records than a page."""
LITTLE_MEMORY = {"fetch.max.bytes": str(8 * 1024 * 1024)}
"""The settings of consumers. A response contains at least one batch, so that larger batches still arrive."""


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


class _Kept:
    """The records that a search returns: the newest or the oldest of those that match.

    Only these records stay in memory, however many match.
    """

    def __init__(self, limit: int, *, newest: bool) -> None:
        self._limit = limit
        self._sign = 1 if newest else -1
        self._heap: list[tuple[tuple[int, int, int], Any]] = []

    def add(self, record: Any) -> None:
        place = tuple(self._sign * each for each in (record.timestamp_ms, record.partition, record.offset))
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, (place, record))
        elif place > self._heap[0][0]:
            heapq.heapreplace(self._heap, (place, record))

    def records(self) -> list[Any]:
        """Return the records: the newest first, or the oldest first."""
        return [record for _place, record in sorted(self._heap, key=itemgetter(0), reverse=True)]


def reader(view: ClusterView, **settings: Any) -> AsyncConsumer:
    """Return a consumer without a group, which needs little memory for records that it has fetched."""
    return AsyncConsumer({**LITTLE_MEMORY, **view.settings}, enable_auto_commit=False, **settings)


async def search(
    view: ClusterView,
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
    kept = _Kept(limit, newest=newest_first)
    matched = dict.fromkeys(left, 0)
    scanned = 0
    until_s = clock.monotonic() + SEARCH_S_MAX
    fetched = {} if not wanted.is_empty else {"max_partition_fetch_bytes": SMALL_FETCH_BYTES}
    async with reader(view, auto_offset_reset="earliest", **fetched) as consumer:
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
                        kept.add(record)
                        matched[where] += 1
            for where in list(left):
                has_enough = not newest_first and matched[where] >= limit
                if has_enough or await consumer.position(where) >= ends[where]:
                    left.discard(where)
                    consumer.pause(where)
    return Found(kept.records(), scanned, is_complete=not left)
