"""Reads monitoring events from the topic `_audit`, counts the records of logs, and writes the events of loads."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from barnabas.audit.events import BadEventError, MonitoringEvent
from barnabas.audit.scanned_ranges import OnRange
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.topics import check_visible
from barnabas.client.audit.event_sender import AUDIT_TOPIC, AUDIT_TOPIC_CONFIG
from barnabas.client.audit.log_counting import LogCounter, OnProgress
from barnabas.client.config import Bootstrap
from barnabas.client.producer.producer import Producer
from barnabas.client.range_reader import RangeReader
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import read_records

log = logging.getLogger(__name__)

WRITING_S = 30.0
"""The time limit in seconds for the acknowledgement of events."""


def topic_ranges(admin: Admin, topic: str, since_ms: int | None = None) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end offset of each partition of a topic.

    :param since_ms: start at the first record with this timestamp (in ms since the epoch) or a later one.
    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION and other errors.
    """
    partitions = [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]
    begins, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    if since_ms is not None:
        for where, found in admin.offsets_for_times(dict.fromkeys(partitions, since_ms)).items():
            begins[where] = ends[where] if found is None else min(found.offset, ends[where])
    return {each: (begins[each], ends[each]) for each in partitions}


def read_events(bootstrap: Bootstrap, admin: Admin, topic: str, since_ms: int | None = None) -> list[MonitoringEvent]:
    """Return all monitoring events of a topic. A warning contains the number of invalid records in `_audit`.

    :param since_ms: omit windows that begin earlier, in ms since the epoch.
    """
    return read_events_of(bootstrap, admin, [topic], since_ms)[topic]


def read_events_of(
    bootstrap: Bootstrap, admin: Admin, topics: Iterable[str], since_ms: int | None = None
) -> dict[str, list[MonitoringEvent]]:
    """Return the monitoring events of several topics; see `read_events`.

    :raises ApiError: TOPIC_AUTHORIZATION_FAILED: the client may not read `_audit`.
    """
    events: dict[str, list[MonitoringEvent]] = {topic: [] for topic in topics}
    if AUDIT_TOPIC not in admin.list_topics():
        check_visible(admin, [AUDIT_TOPIC])  # without the permission, the audit would miss all reports
        return events
    refused = 0
    # The timestamp of an event's record is the start of its window.
    for where, (begin, end) in topic_ranges(admin, AUDIT_TOPIC, since_ms).items():
        for value in _values(bootstrap, where, begin, end):
            try:
                event = MonitoringEvent.from_json(value)
            except BadEventError:
                refused += 1
                continue
            if event.topic in events and (since_ms is None or event.window_ms >= since_ms):
                events[event.topic].append(event)
    if refused:
        log.warning(
            "topic %s has %d records that are not monitoring events; the audit ignores them", AUDIT_TOPIC, refused
        )
    return events


class ReportedTopics:
    """The topics with monitoring events. Each call reads only the new events. Not thread-safe.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    """

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._bootstrap = bootstrap
        self._topic_id = ""
        self._read: dict[TopicPartition, tuple[int, int]] = {}
        self._topics: set[str] = set()

    def read(self, admin: Admin) -> frozenset[str]:
        """Return the topics of this cluster about which producers, mirrors or loads have reported.

        :raises ApiError: TOPIC_AUTHORIZATION_FAILED: the client may not read `_audit`; or another error of a request.
        """
        existing = set(admin.list_topics())
        if AUDIT_TOPIC not in existing:
            check_visible(admin, [AUDIT_TOPIC])
            return frozenset()
        topic_id = admin.describe_topics([AUDIT_TOPIC])[0].id
        ranges = topic_ranges(admin, AUDIT_TOPIC)
        has_expired = any(begin > self._read.get(where, (begin, 0))[0] for where, (begin, _end) in ranges.items())
        if topic_id != self._topic_id or has_expired:
            self._topic_id, self._read, self._topics = topic_id, {}, set()
        for where, (begin, end) in ranges.items():
            start = max(begin, self._read.get(where, (begin, begin))[1])
            with RangeReader(self._bootstrap, where.topic, where.partition, start, end) as reader:
                for batches in reader:
                    keys = [record.key for record in read_records(batches, *where) if record.offset >= start]
                    self._topics |= existing.intersection(filter(None, map(_topic_of, keys)))
            self._read[where] = begin, end
        return frozenset(self._topics & existing)


def _topic_of(key: bytes | None) -> str | None:
    """Return the topic in the key of an event's record; None if the key is not one of an event."""
    try:
        found = json.loads(key or b"")
    except (ValueError, RecursionError):
        return None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else None


def _values(bootstrap: Bootstrap, where: TopicPartition, begin: int, end: int) -> Iterator[bytes]:
    with RangeReader(bootstrap, where.topic, where.partition, begin, end) as reader:
        for batches in reader:
            yield from (record.value for record in read_records(batches, *where) if record.value is not None)


def count_stored(
    bootstrap: Bootstrap,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    on_progress: OnProgress = lambda _records: None,
    *,
    width_ms: int = WINDOW_MS,
    since_ms: int | None = None,
    log_begins: Mapping[TopicPartition, int] | None = None,
    on_range: OnRange | None = None,
) -> StoredLog:
    """Count the records in ranges of a topic's partitions by window; each record belongs to the window of its
    timestamp.

    :param width_ms: the width of a window.
    :param since_ms: omit windows before this time. The ranges must then begin at the first record with this timestamp
        or a later one.
    :param log_begins: the log start offsets. If None, the ranges begin at the log start offsets, unless `since_ms` is
        given.
    :param on_range: called for each range of consecutive records of a producer and a window, with the producer, the
        first offset, the number of records and the window. It is not called for omitted windows.
    :raises NotAuditableError: the log is compacted.
    :raises ApiError: the log cannot be read.
    """
    return LogCounter(bootstrap, width_ms, since_ms, on_range).count(ranges, on_progress, log_begins)


class EventWriter:
    """Writes the monitoring events of a load or another component that is no client. Not thread-safe. `write` returns
    when all in-sync replicas have the events. The constructor creates the topic `_audit` if it does not exist.

    :raises ApiError: the topic cannot be created.
    """

    def __init__(self, bootstrap: Bootstrap) -> None:
        with Admin(bootstrap) as admin:
            if AUDIT_TOPIC not in admin.list_topics():
                _make_topic(admin)
        self._producer = Producer(bootstrap, compression_type="lz4", acks="all")

    def write(self, events: Iterable[MonitoringEvent]) -> None:
        """Write events, and wait for their acknowledgement.

        :raises BarnabasError: some events were not acknowledged within `WRITING_S`; they may be in the log.
        """
        sent = [
            self._producer.send(AUDIT_TOPIC, event.to_json(), key=event.key, timestamp_ms=max(event.window_ms, 0))
            for event in events
        ]
        self._producer.flush(WRITING_S)
        for delivery in sent:
            delivery.result(WRITING_S)

    def close(self) -> None:
        """Close the connection. Further calls do nothing."""
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_topic(admin: Admin) -> None:
    try:
        admin.create_topic(AUDIT_TOPIC, config=AUDIT_TOPIC_CONFIG)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
