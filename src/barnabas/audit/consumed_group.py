"""What a group was handed against what the log holds: by windows and partitions, with offsets for numbers.

A group may be handed a record again, after a rebalance or a crash: that is what at least once means, and nothing is
wrong with it. What the group has committed and no member was handed is lost to it; what comes later is open.
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
"""A window and a partition."""


@dataclass(slots=True)
class ConsumedGroup:
    """What is known of a group, and what of the log it should have been handed.

    :param events: of the topic, with those of the group among them.
    :param topic_id: of the topic, in hex.
    :param committed: by partition, what the group had committed before the events were read.
    :param width_ms: of a window; windows of events fit into it.
    :param since_ms: leave out earlier windows.
    """

    group: str
    events: list[MonitoringEvent]
    topic_id: str
    committed: Mapping[int, int]
    width_ms: int
    since_ms: int | None = None
    handed: dict[Place, Tally] = field(init=False)
    _begins: dict[int, int] = field(init=False)
    """By partition, the first offset that anybody was handed: what is before was not read by those that tell."""
    _unknown: dict[int, set[Reach]] = field(default_factory=dict)
    """By partition, among which offsets members were handed records that they could not tell of."""
    _stored: dict[Place, Tally] = field(default_factory=dict)
    _waiting: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.handed, self._begins = {}, {}
        for event in _last_words(self.group, self.events, self.topic_id):
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
        """Take a range of the log. Each is taken once.

        :param producer: whose records they are.
        :param offset: of the first of them.
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
        # What members could not tell of may be missing, too; where these overlap, more is open than need be.
        unknown = self._unknown.get(partition, ())
        untold = sum(max(0, min(committed, each.next) - max(first, each.first)) for each in unknown)
        self._waiting[place] = self._waiting.get(place, 0) + end - committed + untold

    def findings(self) -> Iterable[Finding]:
        """Yield what is the matter, after all of the log was taken."""
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
        # As many again as are missing, at least one.
        return [(Kind.AGAIN, 1), (Kind.OPEN, 1)] if waiting else [(Kind.EXCHANGED, 1)]


def _last_words(group: str, events: Iterable[MonitoringEvent], topic_id: str) -> Iterable[MonitoringEvent]:
    latest: dict[bytes, MonitoringEvent] = {}
    for event in events:
        is_of = not event.topic_id or not topic_id or event.topic_id == topic_id
        if event.tier == CONSUMED and event.application == group and is_of:
            before = latest.get(event.key)
            if before is None or before.number <= event.number:
                latest[event.key] = event
    return latest.values()
