"""Counts the records in the target for the audit, by windows of event time. No I/O.

A record counts when it is known to be in the target's log. What is told of a window is a function of how far the source
was counted (`Reach`), whoever counts: it goes on where the event itself says that it has ended. So a mirror that was
killed leaves a successor that counts again what was not told, and passes over what was; two at the same time tell the
same. Until the event of a window is known, what is new in it waits (`to_be_read`). Where very much waits, so does the
mirror, for some time; then it goes on, and counts what came meanwhile as soon as it can tell again (`is_put_off`).
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
"""So many windows of a topic are remembered; others are read again when something comes for them."""
WAITING_MAX = 50_000
"""With so many stretches of records that wait, it is time to tell."""


class CountedBatch(NamedTuple):
    """A batch of the source, as it is counted when it is in the target."""

    first: int
    """The source offset of the first record."""
    next: int
    """The source offset after the last one."""
    producer: Producer
    """Whose records they are in the source."""
    number: int
    """Of the first record among that one's."""
    stretches: list[RecordRange]


def count_batch(batch: Buffer, header: BatchHeader, partition: int, first: int) -> CountedBatch:
    """Look into a batch of the source, from offset `first` on.

    :raises CorruptBatchError: it is damaged.
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
    """What one batch has of one window."""

    partition: int
    reach: Reach
    mirrored: Tally
    producer: Producer
    upstream: Tally


@dataclass(slots=True)
class _Window:
    """All that was ever counted in a window."""

    counted: dict[Producer, Tally] = field(default_factory=dict)
    upstream: dict[Producer, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)

    def add(self, share: _Share, mirrored: Producer) -> None:
        """Add what is new; what was counted before is passed over."""
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
    """What is mirrored of one topic. Not safe to use from several threads.

    :param topic, topic_id: of the target, the id in hex.
    :param application: who tells.
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
        """Whether nothing more is counted until what waits can be told: it could not be for long."""

    @property
    def instance(self) -> str:
        """The name under which all mirrors of this topic tell."""
        return f"mirror-{self._producer_id:x}"

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be mirrored before this is told."""
        return self._waits >= WAITING_MAX and not self.is_put_off

    def add(self, partition: int, batch: CountedBatch) -> None:
        """Count a batch of which all records are in the target. The batches of a partition come in their order."""
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
        """The windows of which has to be read what was told before."""
        return set(self._waiting)

    def read(self, windows_ms: Iterable[int], events: Iterable[MonitoringEvent]) -> None:
        """Take what was told of windows before: nothing, where there is no event.

        :param events: of this instance; the last word counts.
        """
        last: dict[int, MonitoringEvent] = {}
        for event in events:
            before = last.get(event.window_ms)
            if before is None or before.number <= event.number:
                last[event.window_ms] = event
        for window_ms in windows_ms:
            told = last.get(window_ms)
            if told is not None and told.upstream is not None:
                upstream = told.upstream
                known = _Window(dict(told.counted), dict(upstream.counted), dict(upstream.reached))
            else:
                known = _Window()
            self._windows[window_ms] = known
            waiting = self._waiting.pop(window_ms, [])
            self._waits -= len(waiting)
            for share in waiting:
                known.add(share, Producer(self._producer_id, 0, share.partition))
            self._changed[window_ms] = None

    def unreported_events(self) -> list[MonitoringEvent]:
        """Return what is to be told, an event for each window in which there is something new."""
        return [self._event(window_ms) for window_ms in self._changed]

    def mark_reported(self, events: Iterable[MonitoringEvent]) -> None:
        """Note that events were told; windows that nothing comes for any more are forgotten."""
        for event in events:
            window_ms = event.window_ms
            if window_ms in self._changed and self._windows[window_ms].records == event.number:
                del self._changed[window_ms]
                self._windows[window_ms] = self._windows.pop(window_ms)  # to the end: the newest news
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
            number=window.records,  # more records are a later word, whichever mirror says it
            host=platform.node(),
            application=self._application,
            counted=dict(window.counted),
            upstream=replace(self._upstream, counted=dict(window.upstream), reached=dict(window.reached)),
        )


@dataclass(slots=True)
class PartitionAuditAccount:
    """How far one partition is counted, and told.

    :param counted_to: the source offset; None: not begun yet.
    :param told_to: what the ledger has, or is to have.
    """

    topic: TopicAuditAccount
    partition: int
    counted_to: int | None = None
    told_to: int | None = None

    def begin(self, source_offset: int) -> None:
        """Count from this source offset on, unless it is known where."""
        if self.counted_to is None:
            self.counted_to = self.told_to = source_offset

    def count(self, batch: CountedBatch) -> None:
        """Count a batch that is in the target, if it was not counted before."""
        if self.counted_to is None or batch.first < self.counted_to or self.topic.is_put_off:
            return
        self.topic.add(self.partition, batch)
        self.counted_to = batch.next
