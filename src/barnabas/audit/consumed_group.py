"""Compares the records delivered to a group with the log, by window and partition, with offsets as record numbers.

At-least-once delivery permits that a group receives a record again after a rebalance or a crash. If no member received
a record below the committed offset, the group has lost the record. A missing record above the committed offset is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.audit.account import offsets_of
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.findings import Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, Tally, tally, window_of

Place = tuple[int, int]
"""The start of a window in ms, and a partition."""


@dataclass(slots=True)
class ConsumedGroup:
    """The deliveries reported by a group, and the part of the log that the group should have received.

    :param events: audit events of the topic, including those of the group.
    :param topic_id: the topic id in hex.
    :param committed: committed offsets by partition, fetched before the audit events were read.
    :param width_ms: width of a window in ms; a multiple of the events' widths.
    :param since_ms: ignore windows before this time in ms; None if no window is ignored.
    """

    group: str
    events: list[MonitoringEvent]
    topic_id: str
    committed: Mapping[int, int]
    width_ms: int
    since_ms: int | None = None
    handed: dict[Place, Tally] = field(init=False)
    _begins: dict[int, int] = field(init=False)
    """The first offset delivered to a member that sends audit events, by partition. Members without audit events may
    have read earlier records.
    """
    _unknown: dict[int, set[Reach]] = field(default_factory=dict)
    """The offset ranges in which members received records but could not report them, by partition."""
    _stored: dict[Place, Tally] = field(default_factory=dict)
    _waiting: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.handed, self._begins = {}, {}
        for event in _latest_events(self.group, self.events, self.topic_id):
            for partition, reach in event.unknown.items():
                self._unknown.setdefault(partition, set()).add(reach)
            for partition, reach in (*event.reached.items(), *event.unknown.items()):
                self._begins[partition] = min(reach.first, self._begins.get(partition, reach.first))
            if self.since_ms is not None and event.window_ms < self.since_ms:
                continue
            for partition, found in event.offsets.items():
                place = (window_of(event.window_ms, self.width_ms), partition)
                self.handed[place] = self.handed.get(place, NOTHING).plus(found)

    def check(self, producer: Producer, offset: int, record_range: RecordRange) -> None:
        """Add a range of records in the log. Each range must be passed once.

        :param producer: the producer and partition of the records.
        :param offset: the offset of the first record.
        """
        partition = producer.partition
        begin = self._begins.get(partition)
        if begin is None:
            return
        first, end = max(offset, begin), offset + record_range.records
        if first >= end:
            return
        place = (record_range.window_ms, partition)
        found = tally(offsets_of(partition), first, end - first, 0)
        self._stored[place] = self._stored.get(place, NOTHING).plus(found)
        committed = max(first, min(end, self.committed.get(partition, 0)))
        # Records that members could not report are possibly missing, so they are open. Overlapping ranges only increase
        # the number of open records.
        unknown = self._unknown.get(partition, ())
        unreported = sum(max(0, min(committed, each.next) - max(first, each.first)) for each in unknown)
        self._waiting[place] = self._waiting.get(place, 0) + end - committed + unreported

    def findings(self) -> Iterable[Finding]:
        """Yield the differences between log and deliveries. Call this after `check` has received the whole log."""
        for place in sorted(self._stored.keys() | self.handed.keys()):
            window_ms, partition = place
            differences = self._differences(
                self._stored.get(place, NOTHING), self.handed.get(place, NOTHING), self._waiting.get(place, 0)
            )
            for kind, records in differences:
                if records:
                    yield Finding(
                        kind, window_ms, offsets_of(partition), records, application=self.group, tier=CONSUMED
                    )

    def _differences(self, stored: Tally, handed: Tally, waiting: int) -> list[tuple[Kind, int]]:
        more = handed.records - stored.records
        if more > 0:
            return [(Kind.AGAIN, more)]
        if more < 0:
            return [(Kind.OPEN, min(waiting, -more)), (Kind.LOST, max(0, -more - waiting))]
        if handed.fingerprint == stored.fingerprint:
            return []
        # The counts are equal but the records differ, so at least one record is repeated and as many are missing.
        return [(Kind.AGAIN, 1), (Kind.OPEN, 1)] if waiting else [(Kind.EXCHANGED, 1)]


def _latest_events(group: str, events: Iterable[MonitoringEvent], topic_id: str) -> Iterable[MonitoringEvent]:
    latest: dict[bytes, MonitoringEvent] = {}
    for event in events:
        is_of = not event.topic_id or not topic_id or event.topic_id == topic_id
        if event.tier == CONSUMED and event.application == group and is_of:
            before = latest.get(event.key)
            if before is None or before.number <= event.number:
                latest[event.key] = event
    return latest.values()
