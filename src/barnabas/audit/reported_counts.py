"""The merged counts that producers and mirrors have reported. Only the last event of each instance for each window is
used.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.audit.events import MIRRORED, PRODUCED, Doubt, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, Tally, window_of


class ReportedCounts:
    """The last reports of the instances (producers and mirrors) that append records to the log.

    :param since_ms: windows before this time are skipped; only the number of their records is kept.
    """

    def __init__(
        self, events: Iterable[MonitoringEvent], topic_id: str, width_ms: int, since_ms: int | None = None
    ) -> None:
        latest: dict[bytes, MonitoringEvent] = {}
        ended: set[str] = set()
        for event in events:
            if event.tier not in (PRODUCED, MIRRORED):
                continue
            if event.is_last:
                ended.add(event.instance)
            before = latest.get(event.key)
            if before is None or before.number <= event.number:
                latest[event.key] = event
        self._width_ms = width_ms
        self.events: list[MonitoringEvent] = []
        self.instance_of: dict[int, MonitoringEvent] = {}
        """One event of the producer's instance, by producer id."""
        self.ended: set[int] = set()
        """Ids of producers that ended after their last report."""
        self.doubts: dict[tuple[int, Producer], set[Doubt]] = {}
        """The batches that may or may not be stored, by window and producer."""
        self.begins: dict[Producer, int] = {}
        """The first source offset that a mirror has reported, by the mirror's producer."""
        self.left_out: dict[Producer, int] = {}
        """The number of records reported for skipped windows, by producer."""
        earlier: set[int] = set()
        for event in latest.values():
            producer_ids = {each.producer_id for each in (*event.counted, *(doubt.producer for doubt in event.doubts))}
            if not _is_of(event, topic_id):
                # A producer with outdated metadata may report records of a recreated topic under the earlier topic id.
                earlier |= producer_ids
                continue
            if since_ms is not None and event.window_ms < since_ms:
                self._leave_out(event)
                continue
            self.events.append(event)
            for producer_id in producer_ids:
                self.instance_of[producer_id] = event
            self._note_begins(event)
            if event.instance in ended:
                self.ended |= producer_ids
            for doubt in event.doubts:
                place = (window_of(doubt.window_ms, width_ms), doubt.producer)
                self.doubts.setdefault(place, set()).add(doubt)
        self.ended -= earlier

    def _leave_out(self, event: MonitoringEvent) -> None:
        for producer, counted in event.counted.items():
            self.left_out[producer] = self.left_out.get(producer, 0) + counted.records

    def _note_begins(self, event: MonitoringEvent) -> None:
        reached = {} if event.upstream is None else event.upstream.reached
        for producer in event.counted:
            reach = reached.get(producer.partition)
            if reach is not None:
                self.begins[producer] = min(reach.first, self.begins.get(producer, reach.first))

    def produced(self) -> dict[tuple[int, Producer], Tally]:
        """Return the acknowledged records by window and producer."""
        produced: dict[tuple[int, Producer], Tally] = {}
        for event in self.events:
            window_ms = window_of(event.window_ms, self._width_ms)
            for producer, counted in event.counted.items():
                place = (window_ms, producer)
                produced[place] = produced.get(place, NOTHING).plus(counted)
        return produced


def _is_of(event: MonitoringEvent, topic_id: str) -> bool:
    """Return whether an event belongs to the topic with this id. An unknown id matches all topics."""
    return not event.topic_id or not topic_id or event.topic_id == topic_id
