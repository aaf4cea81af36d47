"""The partitions of a streaming query and their log end offsets, read by the driver of the query.

A streaming query reads log ends several times per second, for days. The class keeps one connection. It refreshes the
list of partitions after `PARTITIONS_AGE_MAX_S`, to find new partitions. It retries temporary errors, such as a leader
election or the deletion of a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.client.admin import Admin
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.options import Assign, Selection, SourceOptions, Subscribe
from barnabas.spark.range_reading import check_reachable, open_admin
from barnabas.spark.range_resolution import count_partitions, describe_visible, resolve_ranges, select_partitions
from barnabas.spark.stream_offsets import LogBounds, Offsets

PARTITIONS_AGE_MAX_S = 1.0
TRIES = 6
PAUSE_S = 0.25
"""The pause after the first try, in seconds; it doubles after each further try."""

T = TypeVar("T")


class StreamLogEnds:
    """Reads offsets for one query. The first call opens the connection. Not thread-safe."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._partitions: list[TopicPartition] = []
        self._looked_s: float | None = None

    def initial(self) -> Offsets:
        """Return the start offsets of a new query.

        :raises ConfigurationError: A topic does not exist, or the options do not match the partitions.
        :raises DataLossError: The log does not have the offsets of the options.
        """
        return self._patiently(self._initial)

    def _initial(self, admin: Admin) -> Offsets:
        counts = count_partitions(self._options.selection, describe_visible(self._options.selection, admin))
        partitions = select_partitions(self._options.selection, counts)
        return {each.topic_partition: each.start_offset for each in resolve_ranges(self._options, partitions, admin)}

    def ends(self, at_least: Offsets, *, fresh: bool = False) -> LogBounds:
        """Return the current start and end offsets of the logs. Partitions that do not exist are left out.

        :param at_least: The smallest plausible end offsets. A new leader may not have advanced its high watermark yet,
            so a smaller end offset is read again.
        :param fresh: True refreshes the list of partitions.
        """
        for attempt in range(TRIES):
            logs = self._patiently(lambda admin: self._ends(admin, fresh=fresh))
            if all(logs.last.get(tp, offset) >= offset for tp, offset in at_least.items()):
                break
            self._looked_s = None
            if attempt < TRIES - 1:
                SYSTEM_CLOCK.sleep(PAUSE_S)
        return logs

    def _ends(self, admin: Admin, *, fresh: bool) -> LogBounds:
        now_s = SYSTEM_CLOCK.monotonic()
        if fresh or self._looked_s is None or now_s - self._looked_s >= PARTITIONS_AGE_MAX_S:
            self._partitions = _existing(self._options.selection, admin)
            self._looked_s = now_s
        return LogBounds(admin.beginning_offsets(self._partitions), admin.end_offsets(self._partitions))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for a group without members."""
        self._connect().set_group_offsets(group, {(tp.topic, tp.partition): at for tp, at in offsets.items()})

    def close(self) -> None:
        """Close the connection. Further calls have no effect."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _connect(self) -> Admin:
        if self._admin is None:
            check_reachable(self._options.bootstrap, self._options.client_options)
            self._admin = open_admin(self._options.bootstrap, self._options.client_options)
        return self._admin

    def _patiently(self, ask: Callable[[Admin], T]) -> T:
        """Call a function; repeat the call after a retriable error."""
        for attempt in range(TRIES):
            try:
                return ask(self._connect())
            except ApiError as error:
                if not error.retriable or attempt == TRIES - 1:
                    raise
                self._looked_s = None
                SYSTEM_CLOCK.sleep(PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")


def _existing(selection: Selection, admin: Admin) -> list[TopicPartition]:
    """Return the existing partitions of a selection."""
    counts = count_partitions(selection, describe_visible(selection, admin))
    if isinstance(selection, Assign):
        return [tp for tp in selection.partitions if tp.partition < counts.get(tp.topic, 0)]
    if isinstance(selection, Subscribe):
        topics: Iterable[str] = sorted({topic for topic in selection.topics if topic in counts})
    else:
        topics = sorted(topic for topic in counts if selection.pattern.fullmatch(topic))
    return [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]


def is_permanent(error: BarnabasError) -> bool:
    """Return whether a failed commit can never succeed, so that the query must not start."""
    return isinstance(error, ApiError) and error.code in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )
