"""The audit of one topic: compares the reported counts with the log, and the log with a table and with the records that
a group received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.audit.balance import Balance, balance
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.consumed_group import ConsumedGroup
from barnabas.audit.identities import Producer
from barnabas.audit.mirrored_topic import SourceSide, account_begins, source_topic_of
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.scanned_ranges import OnRange
from barnabas.audit.windows import WINDOW_MS, common_width
from barnabas.client.admin.admin import Admin
from barnabas.client.audit.event_log import read_events, topic_ranges
from barnabas.client.audit.log_counting import LogCountCache, OnProgress
from barnabas.client.config import Bootstrap
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.audit.events import MonitoringEvent
    from barnabas.audit.loaded_table import LoadedTable


class TableSide(Protocol):
    """A snapshot of a table, for the comparison with the log."""

    def read(
        self,
        events: Iterable[MonitoringEvent],
        ranges: Mapping[TopicPartition, tuple[int, int]],
        width_ms: int,
        *,
        since_ms: int | None = None,
    ) -> LoadedTable:
        """Return the counts of the table's rows, for the comparison with the log.

        :param events: the monitoring events of the topic.
        :param ranges: the first offset and the end offset of each partition.
        :param width_ms: the width of a window.
        :param since_ms: omit windows before this one; the start of a window in ms since the epoch.
        """
        ...


Progress = Callable[[int], AbstractContextManager[OnProgress]]
"""A function that takes the total number of records, and returns a context manager. The context manager returns a
progress callback.
"""


def _not_shown(_total: int) -> AbstractContextManager[OnProgress]:
    return nullcontext(lambda _records: None)


def audit_topic(
    bootstrap: Bootstrap,
    admin: Admin,
    topic: str,
    *,
    since_ms: int | None = None,
    table_side: Callable[[str], TableSide] | None = None,
    source: Bootstrap | None = None,
    only_if_mirrored: bool = False,
    group: str | None = None,
    progress: Progress = _not_shown,
    memory: LogCountCache | None = None,
) -> Balance:
    """Compare the reported counts of a topic with its log, and the log with a table.

    The first pass counts the batches of audited producers by batch headers. If the first pass finds a difference, a
    second pass decodes every record.

    :param since_ms: omit windows before the window of this time, in ms since the epoch.
    :param source: the brokers of the cluster that the topic is mirrored from. The counts reported in that cluster are
        compared, too.
    :param only_if_mirrored: ignore the source if no mirror has reported records of the topic.
    :param group: compare the records that the members of this group received with the log.
    :param table_side: a function that takes the topic's id and returns the table.
    :param memory: a cache with the counts of earlier audits, which this audit updates.
    :raises NotAuditableError: the log is compacted, or the table belongs to another topic.
    :raises ApiError: the topic does not exist, or cannot be read.
    """
    memory = LogCountCache() if memory is None else memory
    asked = _AuditRequest(bootstrap, admin, topic, since_ms, table_side, source, only_if_mirrored, group, progress)
    found = _compare(asked, memory)
    if found.is_wrong and memory.is_likely:
        memory.look_at_records()
        found = _compare(asked, memory)
    return found


class _AuditRequest(NamedTuple):
    """The arguments of `audit_topic`."""

    bootstrap: Bootstrap
    admin: Admin
    topic: str
    since_ms: int | None
    table_side: Callable[[str], TableSide] | None
    source: Bootstrap | None
    only_if_mirrored: bool
    group: str | None
    progress: Progress


def _compare(asked: _AuditRequest, memory: LogCountCache) -> Balance:
    bootstrap, admin, topic, since_ms, table_side, source, only_if_mirrored, group, progress = asked
    # Read the committed offsets, then the reported counts, then the table, and the log last. Each source then includes
    # all records of the earlier sources. Records that are acknowledged during the audit are in the log, and stay open
    # until a producer reports them.
    committed = {} if group is None else _committed(admin, group, topic)
    events = read_events(bootstrap, admin, topic)
    source_topic = source_topic_of(events) or (None if only_if_mirrored else topic)
    source_side = None if source is None or source_topic is None else _source_side(source, source_topic)
    of_source = [] if source_side is None else source_side.events
    width_ms = common_width([WINDOW_MS, *(event.width_ms for event in (*events, *of_source))])
    begins = account_begins(events, width_ms)
    if since_ms is not None:
        since_ms -= since_ms % width_ms
    topic_id = admin.describe_topics([topic])[0].id
    handed = None if group is None else ConsumedGroup(group, events, topic_id, committed, width_ms, since_ms)
    reported = ReportedCounts(events, topic_id, width_ms, since_ms)
    everything = events
    if since_ms is not None:
        events = [event for event in events if event.window_ms >= since_ms]
        of_source[:] = [event for event in of_source if event.window_ms >= since_ms]
    side = None if table_side is None else table_side(topic_id)
    ranges = topic_ranges(admin, topic, since_ms)
    table = None if side is None else side.read(events, ranges, width_ms, since_ms=since_ms)
    with progress(sum(end - begin for begin, end in ranges.values())) as advance:
        stored = memory.count(
            bootstrap,
            topic_id,
            reported,
            ranges,
            advance,
            width_ms=width_ms,
            since_ms=since_ms,
            log_begins=admin.beginning_offsets(ranges),
            on_range=_all_of([*([] if table is None else [table.rows.check]), *([handed.check] if handed else [])]),
        )
    for partition, window_ms in begins.items():
        stored.begins_late(partition, max(window_ms, stored.expired_ms.get(partition, window_ms)))
    if table is not None:
        table.rows.check_is_over()
    return balance(everything, stored, topic_id, table, source_side, handed, since_ms)


def _committed(admin: Admin, group: str, topic: str) -> dict[int, int]:
    offsets = admin.group_offsets(group)
    return {where.partition: each.offset for where, each in offsets.items() if where.topic == topic}


def _all_of(checks: list[OnRange]) -> OnRange | None:
    """Return a function that calls all checks, or None if there are no checks."""
    if len(checks) <= 1:
        return checks[0] if checks else None

    def check_all(producer: Producer, offset: int, record_range: RecordRange) -> None:
        for check in checks:
            check(producer, offset, record_range)

    return check_all


def _source_side(bootstrap: Bootstrap, topic: str) -> SourceSide:
    with Admin(bootstrap) as admin:
        view = admin.describe_topics([topic])[0]
        events = read_events(bootstrap, admin, topic)
        ends = admin.end_offsets([TopicPartition(topic, each.partition) for each in view.partitions])
        return SourceSide(events, view.id, {where.partition: end for where, end in ends.items()})
