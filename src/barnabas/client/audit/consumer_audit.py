"""The audit of a consumer: counts the records that the application receives, by windows of event time, and reports
them.

The interceptor records the windows and offsets of each decoded batch (`ConsumedCounts.note_decoded`). It counts up to
the consumer's positions every few seconds, before each commit, and before a seek or a revocation. A monitoring event
contains the offset ranges of a window's records that one consumer instance has returned. Records that are returned
again after a seek back are counted again.
"""

from __future__ import annotations

import platform
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from barnabas.audit.account import offsets_of
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.windows import NO_WINDOW_MS, NOTHING, WINDOW_MS, Tally, tally
from barnabas.client.audit.event_sender import EventSender, PeriodicReports, SerialReports, topic_id_of
from barnabas.client.interceptors import ClientContext, ConsumerInterceptor, FetchedBatch
from barnabas.model import OffsetAndMetadata, TopicPartition

WINDOWS_MAX = 5_000
"""The maximum number of windows whose counts stay in memory. Above it, the audit starts again under a new instance
name.
"""

UNREPORTED_MAX = 50_000
"""The maximum number of windows in memory while reports fail. Above it, all windows are dropped, and their records are
reported as unknown. The audit then shows these records as open, not as lost.
"""

Window = tuple[str, int, str]
"""A topic, the start of a window, and the topic id. The id distinguishes a recreated topic from the deleted one."""


class Offsets(NamedTuple):
    """A range of consecutive records in the same window."""

    first: int
    records: int
    window_ms: int


class _Decoded:
    """The decoded records of a partition that are not yet counted."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.offsets: deque[Offsets] = deque()

    def forget_from(self, first: int) -> None:
        """Discard the records at or after this offset, because the consumer decodes them again."""
        while self.offsets and self.offsets[-1].first + self.offsets[-1].records > first:
            last = self.offsets.pop()
            if last.first < first:
                self.offsets.append(last._replace(records=first - last.first))

    def taken_to(self, position: int) -> Iterator[Offsets]:
        """Remove and yield the records before a position."""
        while self.offsets and self.offsets[0].first < position:
            first = self.offsets.popleft()
            taken = min(first.records, position - first.first)
            if taken < first.records:
                self.offsets.appendleft(Offsets(first.first + taken, first.records - taken, first.window_ms))
            yield first._replace(records=taken)


@dataclass(slots=True)
class _Handed:
    """The records of one window that the application has received."""

    tallies: dict[int, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)
    is_too_large: bool = False
    """True if the full event exceeds the topic's maximum message size. The report then contains only the first and last
    offset.
    """


class ConsumedCounts:
    """Counts the records that one consumer has returned. Not thread-safe, no I/O.

    :param group: the consumer's group.
    :param topic_id: returns the id of a topic in hexadecimal; an empty string if it is unknown.
    """

    def __init__(self, group: str, topic_id: Callable[[str], str] = lambda _topic: "") -> None:
        self._topic_id = topic_id
        self._group = group
        self._instance = uuid.uuid4().hex
        self._number = 0
        self._decoded: dict[TopicPartition, _Decoded] = {}
        self._windows: dict[Window, _Handed] = {}
        self._changed: dict[Window, None] = {}
        self._unknown: dict[tuple[str, str], dict[int, Reach]] = {}
        """For each topic name and id, the offset ranges by partition whose records the audit must report as unknown. A
        range is removed after its report.
        """

    @property
    def window_count(self) -> int:
        """Return the number of windows in memory."""
        return len(self._windows)

    # --- counting ---------------------------------------------------------------------------------------

    def note_decoded(self, partition: TopicPartition, position: int, offsets: Iterable[Offsets]) -> None:
        """Add decoded records.

        :param position: the offset of the next record that the consumer returns from this partition. Earlier entries at
            or after this offset become invalid.
        """
        topic_id = self._topic_id(partition.topic)
        known = self._decoded.get(partition)
        if known is None or (known.topic_id and topic_id and known.topic_id != topic_id):
            known = self._decoded[partition] = _Decoded(topic_id)
        known.topic_id = known.topic_id or topic_id
        known.forget_from(position)
        known.offsets.extend(offsets)

    def count(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Count the records that the consumer has returned since the last call.

        :param positions: for each partition, the offset after the last record that the application has received, or
            None if it is unknown.
        """
        for partition, decoded in self._decoded.items():
            position = positions.get(partition)
            if position is not None:
                for offsets in decoded.taken_to(position):
                    self._add(partition, decoded.topic_id, offsets)

    def forget_decoded(self, partitions: Iterable[TopicPartition]) -> None:
        """Discard decoded records that the consumer does not return, because of a seek or a revocation."""
        for partition in partitions:
            self._decoded.pop(partition, None)

    def _add(self, tp: TopicPartition, topic_id: str, offsets: Offsets) -> None:
        window = (tp.topic, offsets.window_ms, topic_id)
        if window not in self._windows and len(self._windows) >= UNREPORTED_MAX:
            self._drop_all()
        handed = self._windows.setdefault(window, _Handed())
        found = tally(offsets_of(tp.partition), offsets.first, offsets.records, 0)
        handed.tallies[tp.partition] = handed.tallies.get(tp.partition, NOTHING).plus(found)
        _reach(handed.reached, tp.partition, Reach(offsets.first, offsets.first + offsets.records))
        self._changed[window] = None

    def _drop_all(self) -> None:
        """Discard all windows, and continue under a new instance name."""
        for window in self._changed:
            self._note_unknown(window, self._windows[window].reached)
        self._windows, self._changed, self._instance = {}, {}, uuid.uuid4().hex

    def _note_unknown(self, window: Window, reached: Mapping[int, Reach]) -> None:
        topic, _window_ms, topic_id = window
        unknown = self._unknown.setdefault((topic, topic_id), {})
        for partition, reach in reached.items():
            _reach(unknown, partition, reach)

    # --- reporting --------------------------------------------------------------------------------------

    @property
    def has_unreported(self) -> bool:
        """Return whether there are unreported counts."""
        return bool(self._changed or self._unknown)

    def forget_reported(self) -> None:
        """If there are too many windows and all are reported, discard them, and continue under a new instance name.

        Do not call this while a report is in flight: if the report fails, `restore_unreported` needs its windows.
        """
        if len(self._windows) > WINDOWS_MAX and not self._changed:
            self._windows, self._instance = {}, uuid.uuid4().hex

    def take_unreported(self) -> list[MonitoringEvent]:
        """Return the events to send, and mark the counts in them as reported."""
        changed, self._changed = self._changed, {}
        all_unknown, self._unknown = self._unknown, {}
        # The event for unknown records has its own key, without a window, so compaction never replaces an event with
        # counts by it.
        name = f"{self._instance}-unknown"
        return [
            *(
                self._event((topic, NO_WINDOW_MS, topic_id), name, unknown=unknown)
                for (topic, topic_id), unknown in all_unknown.items()
            ),
            *map(self._account, changed),
        ]

    def restore_unreported(self, events: Iterable[MonitoringEvent]) -> None:
        """Mark events as unreported, because the request failed or its outcome is unknown."""
        for event in events:
            if event.instance == self._instance:
                self._changed[_window_of(event)] = None
            else:
                self._note_unknown(_window_of(event), event.reached or event.unknown)

    def replacements_of(self, refused: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        """Return smaller events to send instead of events that exceed the topic's maximum message size. An event with a
        single offset range cannot be smaller and is omitted.
        """
        found = []
        for event in refused:
            if not event.offsets:
                continue
            if event.instance == self._instance:
                self._windows[_window_of(event)].is_too_large = True
            self._number += 1
            found.append(replace(event, number=self._number, offsets={}, reached={}, unknown=event.reached))
        return found

    def report_all_again(self) -> None:
        """Mark all counts as unreported."""
        self._changed.update(dict.fromkeys(self._windows))

    def _account(self, window: Window) -> MonitoringEvent:
        handed = self._windows[window]
        if handed.is_too_large:
            return self._event(window, self._instance, unknown=handed.reached)
        return self._event(window, self._instance, handed.tallies, handed.reached)

    def _event(
        self,
        window: Window,
        instance: str,
        offsets: Mapping[int, Tally] = MappingProxyType({}),
        reached: Mapping[int, Reach] = MappingProxyType({}),
        unknown: Mapping[int, Reach] = MappingProxyType({}),
    ) -> MonitoringEvent:
        topic, window_ms, topic_id = window
        self._number += 1
        return MonitoringEvent(
            topic=topic,
            topic_id=topic_id,
            tier=CONSUMED,
            window_ms=window_ms,
            width_ms=WINDOW_MS,
            instance=instance,
            number=self._number,
            host=platform.node(),
            application=self._group,
            offsets=dict(offsets),
            reached=dict(reached),
            unknown=dict(unknown),
        )


def _window_of(event: MonitoringEvent) -> Window:
    return event.topic, event.window_ms, event.topic_id


def _reach(reached: dict[int, Reach], partition: int, more: Reach) -> None:
    before = reached.get(partition, more)
    reached[partition] = Reach(min(before.first, more.first), max(before.next, more.next))


class ConsumerAudit(ConsumerInterceptor):
    """Counts and reports the records of one consumer, every few seconds and before offsets are committed.

    A commit waits for the report within its timeout, so the records before a committed offset are usually reported. If
    the report fails, the commit proceeds. After a report has failed in spite of the full `REPORT_S_MAX`, commits do not
    wait for reports until one succeeds.

    :ivar counts: guarded by the consumer's lock.
    """

    _context: ClientContext
    _sender: EventSender
    _reports: SerialReports

    def __init__(self, group: str) -> None:
        self.counts = ConsumedCounts(group, self._topic_id)
        self._periodic = PeriodicReports(self.report)
        self._is_unsure = False
        """True if a request with an unknown outcome may still be in flight."""

    # --- life -------------------------------------------------------------------------------------------

    async def start(self, context: ClientContext) -> None:
        self.attach(context)
        self._periodic.begin()

    def attach(self, context: ClientContext) -> None:
        """Start counting and reporting the records of the client in `context`."""
        self._context = context
        self._sender = EventSender(context.cluster, context.request_timeout_ms)
        self._reports = SerialReports(self._sender)

    async def close(self, timeout_s: float | None) -> None:
        try:
            await self.report(timeout_s)
        finally:
            await self._periodic.end()

    def _topic_id(self, topic: str) -> str:
        return topic_id_of(self._context.cluster, topic)

    # --- counting ---------------------------------------------------------------------------------------

    def on_records_batch(self, batch: FetchedBatch) -> None:
        self.counts.note_decoded(batch.partition, batch.position, map(Offsets._make, batch.stretches(WINDOW_MS)))

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        self.counts.count(reached)
        self.counts.forget_decoded(reached)

    # --- reporting --------------------------------------------------------------------------------------

    async def before_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None) -> None:
        """Report new counts before a commit. After a failed report, do nothing: the periodic reports retry."""
        if not self._reports.is_in_trouble:
            await self.report(timeout_s)

    async def report(self, timeout_s: float | None = None) -> None:
        """Report new counts. If the report fails, the next report includes its counts; a warning is logged.

        :param timeout_s: the time limit in seconds, at most `REPORT_S_MAX`.
        """
        await self._reports.run(self._report, timeout_s)

    async def _report(self) -> None:
        locked, counts = self._context.locked, self.counts
        with locked():
            counts.forget_reported()
            counts.count(self._context.positions())
            if not counts.has_unreported:
                return
        if await self._sender.ensure_topic():
            with locked():
                counts.report_all_again()
        with locked():
            news = events = counts.take_unreported()
        try:
            while events:
                refused = await self._sender.send(events)
                with locked():
                    events = counts.replacements_of(refused)
        except BaseException:
            self._is_unsure = True
            with locked():
                counts.restore_unreported(news)
            raise
        self._reports.on_success()
        if self._is_unsure:
            # A request with an unknown outcome may reach the broker after this one, so send all events again.
            self._is_unsure = False
            with locked():
                counts.restore_unreported(news)
