"""Counts the records in the target for the audit, by windows of event time. No I/O.

An account counts a record once the record is known to be in the target's log. Each audit event contains the source
offsets up to which records are counted (`Reach`), so the counts do not depend on the mirror that sends the event. After
a crash, the next mirror reads the last event of a window, skips the records that this event counts, and counts the
rest. Two mirrors at the same time report equal counts.

New counts of a window wait until its earlier events are read (`to_be_read`). If too many counts wait, the mirror
pauses. After a longer failure of the audit, the mirror resumes without counting. It counts the skipped records when the
audit works again (`is_put_off`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.events import MIRRORED, MonitoringEvent, Reach, Upstream
from barnabas.audit.identities import Producer, identity_of
from barnabas.audit.windows import NOTHING, WINDOW_MS, Tally, tally
from barnabas.records.header import SEQUENCE_MAX, BatchHeader, Buffer
from barnabas.records.mirror_identity import producer_id_of

WINDOWS_MAX = 2_000
"""The maximum number of windows in memory per topic; if an older window gets new records, the account reads its events
again."""
WAITING_MAX = 50_000
"""The number of unreported record ranges at which the mirror pauses until they are reported."""


class CountedBatch(NamedTuple):
    """The counts of a source batch. The mirror adds them to an account when the batch is in the target."""

    first: int
    """The source offset of the first counted record."""
    next: int
    """The source offset after the last counted record."""
    producer: Producer
    """The producer that wrote the records to the source."""
    number: int
    """The sequence number of the first counted record."""
    stretches: list[RecordRange]


def count_batch(batch: Buffer, header: BatchHeader, partition: int, first: int) -> CountedBatch:
    """Count the records of a source batch, starting at offset `first`.

    :raises CorruptBatchError: the batch is damaged.
    """
    ((_header, stretches),) = batches_by_window(batch, WINDOW_MS)
    left_out = max(0, first - header.base_offset)
    producer, number = identity_of(header, partition)
    return CountedBatch(
        header.base_offset + left_out,
        header.next_offset,
        producer,
        number + left_out if producer.is_mirror or not producer.is_known else (number + left_out) & SEQUENCE_MAX,
        list(_without(stretches, left_out)),
    )


def _without(stretches: Iterable[RecordRange], left_out: int) -> Iterator[RecordRange]:
    for records, window_ms in stretches:
        kept = records - min(records, left_out)
        left_out -= records - kept
        if kept:
            yield RecordRange(kept, window_ms)


class _Share(NamedTuple):
    """The records of one batch whose event times are in one window."""

    partition: int
    reach: Reach
    mirrored: Tally
    producer: Producer
    upstream: Tally


@dataclass(slots=True)
class _Window:
    """The counts of all records of one window."""

    counted: dict[Producer, Tally] = field(default_factory=dict)
    upstream: dict[Producer, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)

    def add(self, share: _Share, mirrored: Producer) -> None:
        """Add the records of a batch, unless the window already counts them."""
        before = self.reached.get(share.partition)
        if before is not None and share.reach.first < before.next:
            return
        self.reached[share.partition] = Reach(share.reach.first if before is None else before.first, share.reach.next)
        self.counted[mirrored] = self.counted.get(mirrored, NOTHING).plus(share.mirrored)
        if share.producer.is_known:
            self.upstream[share.producer] = self.upstream.get(share.producer, NOTHING).plus(share.upstream)

    @property
    def records(self) -> int:
        return sum(found.records for found in self.counted.values())


class TopicAuditAccount:
    """The counts of one mirrored topic. Not thread-safe.

    :param topic, topic_id: name and hex id of the topic in the target.
    :param source_topic, source_topic_id: name and hex id of the topic in the source.
    :param application: the application name in the audit events.
    """

    def __init__(
        self, topic: str, topic_id: str, source_topic: str, source_topic_id: str, lineage: int, application: str
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self._upstream = Upstream(source_topic, source_topic_id)
        self._producer_id = producer_id_of(lineage)
        self._application = application
        self._windows: dict[int, _Window] = {}
        self._waiting: dict[int, list[_Share]] = {}
        self._waits = 0
        self._changed: dict[int, None] = {}
        self.is_put_off = False
        """True if counting is suspended, because reports have failed for too long."""

    @property
    def instance(self) -> str:
        """The instance name in the audit events; all mirrors of this topic use the same name."""
        return f"mirror-{self._producer_id:x}"

    @property
    def is_full(self) -> bool:
        """True if the mirror must pause until the waiting counts are reported."""
        return self._waits >= WAITING_MAX and not self.is_put_off

    def add(self, partition: int, batch: CountedBatch) -> None:
        """Count a batch whose records are all in the target. Batches of a partition arrive in offset order."""
        mirrored = Producer(self._producer_id, 0, partition)
        at, number = batch.first, batch.number
        wraps = batch.producer.is_known and not batch.producer.is_mirror
        of_windows: dict[int, _Share] = {}
        for records, window_ms in batch.stretches:
            share = _Share(
                partition,
                Reach(batch.first, batch.next),
                tally(mirrored, at, records, 0),
                batch.producer,
                tally(batch.producer, number, records, 0),
            )
            before = of_windows.get(window_ms)
            if before is not None:
                share = share._replace(
                    mirrored=before.mirrored.plus(share.mirrored), upstream=before.upstream.plus(share.upstream)
                )
            of_windows[window_ms] = share
            at += records
            number = (number + records) & SEQUENCE_MAX if wraps else number + records
        for window_ms, share in of_windows.items():
            self._add(window_ms, share)

    def _add(self, window_ms: int, share: _Share) -> None:
        known = self._windows.get(window_ms)
        if known is None:
            self._waiting.setdefault(window_ms, []).append(share)
            self._waits += 1
            return
        known.add(share, Producer(self._producer_id, 0, share.partition))
        self._changed[window_ms] = None

    @property
    def to_be_read(self) -> set[int]:
        """The start times of the windows whose earlier audit events must be read, in milliseconds."""
        return set(self._waiting)

    def read(self, windows_ms: Iterable[int], events: Iterable[MonitoringEvent]) -> None:
        """Set the counts of windows from their earlier audit events, and add the waiting counts. A window without an
        event starts at zero.

        :param events: the events of this instance; per window, the event with the highest number is used.
        """
        last: dict[int, MonitoringEvent] = {}
        for event in events:
            before = last.get(event.window_ms)
            if before is None or before.number <= event.number:
                last[event.window_ms] = event
        for window_ms in windows_ms:
            report = last.get(window_ms)
            if report is not None and report.upstream is not None:
                upstream = report.upstream
                known = _Window(dict(report.counted), dict(upstream.counted), dict(upstream.reached))
            else:
                known = _Window()
            self._windows[window_ms] = known
            waiting = self._waiting.pop(window_ms, [])
            self._waits -= len(waiting)
            for share in waiting:
                known.add(share, Producer(self._producer_id, 0, share.partition))
            self._changed[window_ms] = None

    def unreported_events(self) -> list[MonitoringEvent]:
        """Return one audit event for each window with unreported counts."""
        return [self._event(window_ms) for window_ms in self._changed]

    def mark_reported(self, events: Iterable[MonitoringEvent]) -> None:
        """Mark events as reported, and drop the oldest reported windows beyond `WINDOWS_MAX`."""
        for event in events:
            window_ms = event.window_ms
            if window_ms in self._changed and self._windows[window_ms].records == event.number:
                del self._changed[window_ms]
                self._windows[window_ms] = self._windows.pop(window_ms)  # move to the end
        for window_ms in [each for each in self._windows if each not in self._changed]:
            if len(self._windows) <= WINDOWS_MAX:
                break
            del self._windows[window_ms]

    def _event(self, window_ms: int) -> MonitoringEvent:
        window = self._windows[window_ms]
        return MonitoringEvent(
            topic=self.topic,
            topic_id=self.topic_id,
            tier=MIRRORED,
            window_ms=window_ms,
            width_ms=WINDOW_MS,
            instance=self.instance,
            number=window.records,  # of all mirrors' events, the one with the most records is used
            host=platform.node(),
            application=self._application,
            counted=dict(window.counted),
            upstream=replace(self._upstream, counted=dict(window.upstream), reached=dict(window.reached)),
        )


@dataclass(slots=True)
class PartitionAuditAccount:
    """The counted and reported offsets of one partition.

    :param counted_to: the source offset below which all records are counted; None if counting has not started.
    :param reported_to: the source offset below which all counts are reported, according to the ledger.
    """

    topic: TopicAuditAccount
    partition: int
    counted_to: int | None = None
    reported_to: int | None = None

    def begin(self, source_offset: int) -> None:
        """Start counting at this source offset, unless counting has already started."""
        if self.counted_to is None:
            self.counted_to = self.reported_to = source_offset

    def count(self, batch: CountedBatch) -> None:
        """Count a batch that is in the target, unless it is already counted."""
        if self.counted_to is None or batch.first < self.counted_to or self.topic.is_put_off:
            return
        self.topic.add(self.partition, batch)
        self.counted_to = batch.next
