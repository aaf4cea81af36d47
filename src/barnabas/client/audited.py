"""Reads what an audit needs: the monitoring events of a topic, and all batches of its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from barnabas.audit.event_times import batches_by_window
from barnabas.audit.events import BadEventError, MonitoringEvent
from barnabas.audit.stored import StoredLog
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.admin.admin import Admin
from barnabas.client.producer.auditing import AUDIT_TOPIC
from barnabas.client.range_reader import RangeReader
from barnabas.client.setting_types import Bootstrap
from barnabas.model import TopicPartition
from barnabas.records import read_records

log = logging.getLogger(__name__)

OnProgress = Callable[[int], object]
"""Called with how many more records were looked at."""


def topic_ranges(admin: Admin, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return where each partition of a topic begins and ends now.

    :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...
    """
    partitions = [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]
    begins, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    return {each: (begins[each], ends[each]) for each in partitions}


def read_events(bootstrap: Bootstrap, admin: Admin, topic: str) -> list[MonitoringEvent]:
    """Return all monitoring events of a topic; none where nobody has told any. What is no event is logged."""
    if AUDIT_TOPIC not in admin.list_topics():
        return []
    events: list[MonitoringEvent] = []
    refused = 0
    for where, (begin, end) in topic_ranges(admin, AUDIT_TOPIC).items():
        for value in _values(bootstrap, where, begin, end):
            try:
                event = MonitoringEvent.from_json(value)
            except BadEventError:
                refused += 1
                continue
            if event.topic == topic and event.width_ms == WINDOW_MS:
                events.append(event)
    if refused:
        log.warning("%s holds %d records that are no monitoring events", AUDIT_TOPIC, refused)
    return events


def _values(bootstrap: Bootstrap, where: TopicPartition, begin: int, end: int) -> Iterator[bytes]:
    with RangeReader(bootstrap, where.topic, where.partition, begin, end) as reader:
        for batches in reader:
            yield from (record.value for record in read_records(batches, *where) if record.value is not None)


def count_stored(
    bootstrap: Bootstrap,
    ranges: dict[TopicPartition, tuple[int, int]],
    on_progress: OnProgress = lambda _records: None,
) -> StoredLog:
    """Count what the partitions of a topic hold between two offsets.

    :raises NotAuditableError: the log was compacted.
    :raises KafkaError: it cannot be read.
    """
    stored = StoredLog(WINDOW_MS)
    for where, (begin, end) in ranges.items():
        reached = begin
        if begin == end:
            if begin > 0:
                stored.is_emptied(where.partition)
            continue
        with RangeReader(bootstrap, where.topic, where.partition, begin, end) as reader:
            for batches in reader:
                for header, windows in batches_by_window(batches, WINDOW_MS):
                    if header.base_offset >= end or header.last_offset < reached:
                        continue
                    stored.add(where.partition, header, windows)
                    if reached == begin > 0:
                        stored.begins_late(where.partition, windows[0].window_ms)
                    on_progress(header.next_offset - reached)
                    reached = header.next_offset
    return stored
