"""The audit of a producer: counts acknowledged batches by windows of event time, and reports the counts.

The interceptor reports every few seconds, in `flush` and in `close`, with its own requests. It keeps events that cannot
be sent. A failed report does not affect the producer's records.
"""

from __future__ import annotations

import logging
import platform
import uuid
from typing import NamedTuple

from barnabas.audit.batch_windows import RecordRange, batches_by_window
from barnabas.audit.events import PRODUCED, Doubt, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import WINDOW_MS, Run, WindowCounter, window_of
from barnabas.client.audit.event_sender import EventSender, PeriodicReports, SerialReports, topic_id_of
from barnabas.client.cluster import Cluster, ClusterView
from barnabas.client.interceptors import ClientContext, ProducerInterceptor, SentBatch
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError
from barnabas.model import NO_TIMESTAMP
from barnabas.records.header import SEQUENCE_MAX

log = logging.getLogger(__name__)

LATE_MS = 5 * 60_000
"""A batch acknowledged more than this many ms after the end of its window is late."""

WINDOWS_MAX = 5_000
"""The maximum number of windows whose counts an instance keeps. Above it, a new instance starts.
"""

DOUBTS_MAX = 10_000
"""The maximum number of batches with an unknown outcome that an instance lists in its reports."""

EARLIER_MAX = 4
"""The maximum number of earlier instances with unreported counts. Above it, the oldest instance is dropped. The audit
shows its unreported windows as open, because the producer never reports the instance as complete.
"""

EVENTS_AT_ONCE = 500
"""The maximum number of events in one request. If a later request fails, the events of earlier requests are not sent
again.
"""


class Topic(NamedTuple):
    """A topic, identified by name and id. A recreated topic has the same name and another id."""

    name: str
    id: str


Place = tuple[Topic, int]
"""A topic and the start of a window."""


class _Instance:
    """The counts under one instance name, and the windows that are not reported yet."""

    def __init__(self, window_ms: int) -> None:
        self.name = uuid.uuid4().hex
        self.windows: WindowCounter[Topic] = WindowCounter(window_ms, LATE_MS)
        self.doubts: dict[Place, list[Doubt]] = {}
        self.unreported: dict[Place, None] = {}
        self.unsure: dict[Place, None] = {}
        """The windows in requests with an unknown outcome. Such a request may reach the broker late, and compaction
        would then keep its outdated counts. So these windows are reported again one interval later.
        """
        self._number = 0

    def take_unreported(self) -> list[Place]:
        """Return the windows to report, with the least recently changed window first."""
        self.unreported.update(dict.fromkeys(self.windows.take_changes()))
        return list(self.unreported)

    def report_all_again(self) -> None:
        """Mark all windows as unreported."""
        self.unreported.update(dict.fromkeys((*self.windows.places(), *self.doubts)))

    def next_number(self) -> int:
        self._number += 1
        return self._number


class ProducerAudit(ProducerInterceptor):
    """Counts and reports the batches of one producer. All methods run on the producer's event loop.

    :param window_ms: the width of a window.
    """

    _cluster: Cluster
    _clock: Clock
    _sender: EventSender
    _reports: SerialReports

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self._application = ""
        self._host = platform.node()
        self._window_ms = window_ms
        self._periodic = PeriodicReports(self.report)
        self._topics: dict[str, Topic] = {}
        """The topics in the current cluster view, by name."""
        self._runs: dict[tuple[str, int], Run] = {}
        """The latest run of consecutive batches for each topic and partition. Some runs may have ended."""
        self._instance = _Instance(window_ms)
        self._earlier: list[_Instance] = []
        """Earlier instances, whose counts are final but not fully reported."""
        self._doubt_count = 0
        self._is_whole = True
        """True as long as no unreported count was dropped."""
        self._last_reported: tuple[_Instance, Place] | None = None

    # --- life -------------------------------------------------------------------------------------------

    async def start(self, context: ClientContext) -> None:
        self.attach(context)
        self._periodic.begin()

    def attach(self, context: ClientContext) -> None:
        """Start counting and reporting the batches of the client in `context`."""
        self._cluster, self._clock = context.cluster, context.clock
        self._application = context.client_id
        self._sender = EventSender(context.cluster, context.request_timeout_ms)
        self._reports = SerialReports(self._sender)
        context.cluster.updated.append(self._look_again)

    async def flush(self, timeout_s: float | None) -> None:
        await self.report(timeout_s=timeout_s)

    async def close(self, timeout_s: float | None) -> None:
        try:
            await self.report(is_last=True, timeout_s=timeout_s)
        finally:
            await self._periodic.end()

    # --- counting ---------------------------------------------------------------------------------------

    def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
        """Count a batch that is acknowledged or has failed. The producer calls this method for each batch, so the usual
        case makes no calls and touches few objects: the batch extends the current run of its partition. Such a batch is
        late if its run is, because the next report ends all runs.
        """
        run = self._runs.get((batch.topic, batch.partition))
        if run is not None and error is None:
            builder, data = batch.builder, batch.data
            if (
                run.next == batch.base_sequence
                and run.producer_id == batch.producer_id
                and run.producer_epoch == batch.producer_epoch
                and batch.log_append_time_ms == NO_TIMESTAMP
                and run.begin_ms <= builder.min_timestamp_ms
                and builder.max_timestamp_ms < run.end_ms
                and data is not None
            ):
                run.next = (run.next + builder.count) & SEQUENCE_MAX
                run.size_bytes += len(data)
                return
        self._count(batch, error)

    def _count(self, batch: SentBatch, error: BarnabasError | None) -> None:
        """Count a batch that starts a run, or has an unknown outcome."""
        if not batch.in_sequence or (error is not None and _is_refused(batch, error)):
            return
        topic, now_ms = self._topic(batch.topic), self._clock.time_ms()
        producer = Producer(batch.producer_id, batch.producer_epoch, batch.partition)
        first, size_bytes = batch.base_sequence, len(batch.payload())
        for records, window_ms in _ranges(batch, self._window_ms):
            if error is None:
                counter = self._instance.windows
                self._runs[batch.topic, batch.partition] = counter.count(
                    topic, producer, first, records, size_bytes, window_ms, now_ms
                )
            else:
                self._doubt(topic, Doubt(producer, first, records, window_ms))
            first, size_bytes = (first + records) & SEQUENCE_MAX, 0

    def _topic(self, name: str) -> Topic:
        """Return the topic that currently has this name."""
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = Topic(name, topic_id_of(self._cluster, name))
        return known

    def _look_again(self, _view: ClusterView) -> None:
        """Discard the cached topics and runs, because a topic may have been deleted and recreated."""
        self._topics.clear()
        self._runs.clear()

    def _doubt(self, topic: Topic, doubt: Doubt) -> None:
        if self._doubt_count >= DOUBTS_MAX:
            self._is_whole = False
            return
        self._doubt_count += 1
        place = (topic, doubt.window_ms)
        self._instance.doubts.setdefault(place, []).append(doubt)
        self._instance.unreported[place] = None

    # --- reporting --------------------------------------------------------------------------------------

    async def report(self, *, is_last: bool = False, timeout_s: float | None = None) -> None:
        """Report new counts. If the report fails, the next report includes its counts; a warning is logged.

        :param is_last: True if this is the last report of a closed producer.
        :param timeout_s: the time limit in seconds, at most `REPORT_S_MAX`.
        """
        await self._reports.run(lambda: self._report(is_last=is_last), timeout_s)

    async def _report(self, *, is_last: bool) -> None:
        self._instance.take_unreported()
        if len(self._instance.windows) > WINDOWS_MAX:
            # Batches that are acknowledged during this report belong to the next instance.
            self._earlier.append(self._instance)
            self._instance, self._doubt_count = _Instance(self._window_ms), 0
            if len(self._earlier) > EARLIER_MAX:
                self._give_up(self._earlier.pop(0))
        while self._earlier:
            await self._report_on(self._earlier[0])
            self._earlier.pop(0)
        await self._report_on(self._instance)
        if is_last and self._is_whole and self._last_reported is not None:
            # Send the final event alone, after all other events: a reader of the final event can then rely on the
            # others.
            instance, place = self._last_reported
            await self._sender.send([self._event(instance, place, is_last=True)])

    async def _report_on(self, instance: _Instance) -> None:
        if not instance.take_unreported():
            return
        await self._ensure_topic(instance)
        places = instance.take_unreported()
        for begin in range(0, len(places), EVENTS_AT_ONCE):
            sent = places[begin : begin + EVENTS_AT_ONCE]
            for place in sent:
                # Clear the list before the request, so that the next report includes counts that change during the
                # request.
                del instance.unreported[place]
            try:
                refused = await self._sender.send([self._event(instance, place) for place in sent])
            except BaseException:
                instance.unreported.update(dict.fromkeys(sent))
                instance.unsure.update(dict.fromkeys(sent))
                raise
            for place in sent:
                if instance.unsure.pop(place, place) is None:
                    instance.unreported[place] = None
            self._reports.on_success()
            self._is_whole = self._is_whole and not refused
            self._last_reported = (instance, sent[-1])

    def _give_up(self, instance: _Instance) -> None:
        self._is_whole = False
        log.warning(
            "dropping %d unreported audit windows, which stay open: more than %d instances have unreported counts",
            len(instance.unreported),
            EARLIER_MAX,
        )

    def _event(self, instance: _Instance, place: Place, *, is_last: bool = False) -> MonitoringEvent:
        topic, window_ms = place
        counted = instance.windows.of(topic, window_ms)
        return MonitoringEvent(
            topic=topic.name,
            topic_id=topic.id,
            tier=PRODUCED,
            window_ms=window_ms,
            width_ms=self._window_ms,
            instance=instance.name,
            number=instance.next_number(),
            host=self._host,
            application=self._application,
            counted=dict(counted.partitions),
            late=counted.late,
            doubts=tuple(instance.doubts.get(place, ())),
            is_last=is_last,
        )

    async def _ensure_topic(self, instance: _Instance) -> None:
        """Create the topic if it does not exist. A new topic is empty, so mark all counts as unreported then."""
        if await self._sender.ensure_topic():
            instance.report_all_again()


def _ranges(batch: SentBatch, width_ms: int) -> list[RecordRange]:
    """Return the records of a batch by windows. Records are decoded only if the batch spans several windows."""
    if batch.log_append_time_ms != NO_TIMESTAMP:
        return [RecordRange(batch.count, window_of(batch.log_append_time_ms, width_ms))]
    builder = batch.builder
    window_ms = window_of(builder.min_timestamp_ms, width_ms)
    if window_ms == window_of(builder.max_timestamp_ms, width_ms):
        return [RecordRange(batch.count, window_ms)]
    ((_header, ranges),) = batches_by_window(batch.payload(), width_ms)
    return ranges


def _is_refused(batch: SentBatch, error: BarnabasError) -> bool:
    """Return whether certainly no broker has stored the batch, because its only request was rejected."""
    return isinstance(error, ApiError) and not error.retriable and batch.attempts <= 1
