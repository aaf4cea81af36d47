"""Searches of records: the newest ones, or those from an offset or a time on, with filters."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.clock import Clock
from barnabas.console.cluster_view import ClusterView
from barnabas.console.record_decoding import RecordDecoding
from barnabas.console.record_text import at_path, equals_text, json_of
from barnabas.model import TopicPartition

RECORDS_MAX = 500
SCANNED_MAX = 200_000
"""The maximum number of records that one search reads."""
SEARCH_S_MAX = 5.0
PROBLEMS_MAX = 100
PROBLEMS_SHOWN_MAX = 5
_OTHERS = "other reasons"
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
        """Return whether a record meets the conditions on its bytes."""
        if self.key and self.key.encode() not in (record.key or b""):
            return False
        if self.value and self.value.encode() not in (record.value or b""):
            return False
        return not self.header or any(
            self.header in name or self.header.encode() in (value or b"") for name, value in record.headers
        )

    def matches_value(self, value: Any) -> bool:
        """Return whether a value, JSON or decoded, meets the condition on its path."""
        return not self.path or equals_text(at_path(value, self.path), self.equals)

    @property
    def is_empty(self) -> bool:
        return self == Filter()


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    :ivar scanned: the number of records that the search has read.
    :ivar is_complete: False if the search ended early, because of a limit.
    :ivar problems: the most frequent reasons why values were not decoded for the filter, with their numbers.
    """

    records: Sequence[Any]
    scanned: int
    is_complete: bool
    problems: Sequence[tuple[str, int]]


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
    decoding: RecordDecoding | None = None,
) -> Found:
    """Read records from `starts` up to `ends`, and return those that match.

    :param decoding: decodes values for the filter; None without a registry.
    :param limit: the maximum number of records. With `newest_first`, the newest of all that match.
    """
    left = {where for where, start in starts.items() if start < ends[where]}
    kept = _Kept(limit, newest=newest_first)
    matched = dict.fromkeys(left, 0)
    scanned = 0
    problems: Counter[str] = Counter()
    until_s = clock.monotonic() + SEARCH_S_MAX
    fetched = {} if not wanted.is_empty else {"max_partition_fetch_bytes": SMALL_FETCH_BYTES}
    async with reader(view, auto_offset_reset="earliest", **fetched) as consumer:
        if left:
            consumer.assign(sorted(left))
            for where in left:
                consumer.seek(where, starts[where])
        while left and scanned < SCANNED_MAX and clock.monotonic() < until_s:
            polled = await view.within(consumer.poll(max_records=POLLED_MAX, timeout_s=POLL_S))
            asked = [each for each in polled if _is_within(each, starts, ends)]
            scanned += len(asked)
            for record in await _matching(asked, wanted, decoding, problems):
                kept.add(record)
                matched[TopicPartition(record.topic, record.partition)] += 1
            for where in list(left):
                has_enough = not newest_first and matched[where] >= limit
                if has_enough or await consumer.position(where) >= ends[where]:
                    left.discard(where)
                    consumer.pause(where)
    return Found(kept.records(), scanned, not left, problems.most_common(PROBLEMS_SHOWN_MAX))


def _is_within(record: Any, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    where, offset = TopicPartition(record.topic, record.partition), int(record.offset)
    return starts[where] <= offset < ends[where]


async def _matching(
    records: Sequence[Any], wanted: Filter, decoding: RecordDecoding | None, problems: Counter[str]
) -> list[Any]:
    """Return the records that match. Add the reasons why values were not decoded to `problems`."""
    found = [each for each in records if wanted.matches(each)]
    if not wanted.path:
        return found
    values = [each.value for each in found]
    decoded = [None] * len(found) if decoding is None else await decoding.decode(values)
    for each in decoded:
        if each is not None and each.problem:
            problems[each.problem if len(problems) < PROBLEMS_MAX or each.problem in problems else _OTHERS] += 1
    return [
        record
        for record, each in zip(found, decoded, strict=True)
        if wanted.matches_value(json_of(record.value) if each is None else each.value)
    ]
