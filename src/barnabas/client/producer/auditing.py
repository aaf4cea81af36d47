"""A producer's part in the audit: it counts what was acknowledged, and tells that in the topic `_audit`.

Counting is a comparison for each batch (`barnabas.audit.windows`). Telling is done every few seconds, with `flush` and
with `close`, in requests of its own: monitoring events are cumulative, so that one that comes twice does no harm, and
needs neither a sequence number nor a place in the queue. While they cannot be told they are kept, and records are
delivered all the same.
"""

from __future__ import annotations

import logging
import platform
import uuid
from typing import NamedTuple

from barnabas.audit.event_times import Stretch, batches_by_window
from barnabas.audit.events import PRODUCED, Doubt, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import WINDOW_MS, Run, WindowCounter, window_of
from barnabas.client.audit.event_sender import EventSender, topic_id_of
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import ClusterView
from barnabas.client.producer.batch import ProducerBatch
from barnabas.client.telling_turns import TellingTurns, every_few_seconds
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, KafkaError
from barnabas.model import NO_TIMESTAMP
from barnabas.records.header import SEQUENCE_MAX

log = logging.getLogger(__name__)

LATE_MS = 5 * 60_000
"""What is acknowledged so long after the end of its window is late."""

WINDOWS_MAX = 5_000
"""So many windows are remembered, so that what comes for them later is added. With more, the producer ends one instance
of itself and begins another one."""

DOUBTS_MAX = 10_000
"""So many batches are named of which nobody knows whether they were stored."""

EARLIER_MAX = 4
"""So many instances wait to be told to the end; with more, the oldest is given up. What it has counted and not told is
open then, for the producer never says that it has told everything."""

EVENTS_AT_ONCE = 500
"""So many events are told in one go; what was told is not told again because later ones could not be."""


class Topic(NamedTuple):
    """A topic: another one of the same name has another id."""

    name: str
    id: str


Place = tuple[Topic, int]
"""A topic, and when a window begins."""


class _Instance:
    """What is counted under one name, and what of it is still to be told."""

    def __init__(self, window_ms: int) -> None:
        self.name = uuid.uuid4().hex
        self.windows: WindowCounter[Topic] = WindowCounter(window_ms, LATE_MS)
        self.doubts: dict[Place, list[Doubt]] = {}
        self.untold: dict[Place, None] = {}
        self.unsure: dict[Place, None] = {}
        """Told in requests of which nobody knows what became: one that comes late would stand behind what is told now,
        and compaction keep it. So these are told once more, an interval later."""
        self._number = 0

    def news(self) -> list[Place]:
        """Return what is to be told, the oldest news first."""
        self.untold.update(dict.fromkeys(self.windows.take_news()))
        return list(self.untold)

    def tell_all_again(self) -> None:
        """Let everything be told once more, as if nothing had been."""
        self.untold.update(dict.fromkeys((*self.windows.places(), *self.doubts)))

    def next_number(self) -> int:
        """Return the number of the next event."""
        self._number += 1
        return self._number


class Auditor:
    """Counts the batches of one producer, and tells of them. Used on the sender's event loop only.

    :param application: the producer's client id.
    :param window_ms: how wide windows are.
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, application: str, request_timeout_ms: int, window_ms: int = WINDOW_MS
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._application = application
        self._request_timeout_ms = request_timeout_ms
        self._host = platform.node()
        self._sender = EventSender(cluster, request_timeout_ms)
        self._turns = TellingTurns(self._sender)
        self._window_ms = window_ms
        self._topics: dict[str, Topic] = {}
        """As the cluster's view has them."""
        self._runs: dict[tuple[str, int], Run] = {}
        """By topic and partition, the runs of `_instance` that were counted in last. Some of them may be over."""
        cluster.updated.append(self._look_again)
        self._instance = _Instance(window_ms)
        self._earlier: list[_Instance] = []
        """They count no more, and are not told to the end yet."""
        self._doubt_count = 0
        self._is_whole = True
        """Whether all that was counted is told, or will be."""
        self._last_told: tuple[_Instance, Place] | None = None

    # --- counting ---

    def settled(self, batch: ProducerBatch, log_append_time_ms: int, error: BarnabasError | None) -> None:
        """Count a batch whose outcome is known, before it is let go of.

        Each batch comes through here, and finds the processor's caches full of other things. So what nearly all of them
        need, to extend the open run of their partition, is done without calls and with few objects; whether it is late
        is not asked anew, since no run is open for longer than it takes until the next telling.
        """
        run = self._runs.get((batch.topic, batch.partition))
        if run is not None and error is None:
            builder, data = batch.builder, batch.data
            if (
                run.next == batch.base_sequence
                and run.producer_id == batch.producer_id
                and run.producer_epoch == batch.producer_epoch
                and log_append_time_ms == NO_TIMESTAMP
                and run.begin_ms <= builder.min_timestamp_ms
                and builder.max_timestamp_ms < run.end_ms
                and data is not None
            ):
                run.next = (run.next + builder.count) & SEQUENCE_MAX
                run.size_bytes += len(data)
                return
        self._count(batch, log_append_time_ms, error)

    def _count(self, batch: ProducerBatch, log_append_time_ms: int, error: BarnabasError | None) -> None:
        """Count a batch that is the first of a run, or of which nobody knows what became."""
        if not batch.in_sequence or (error is not None and _is_refused(batch, error)):
            return
        topic, now_ms = self._topic(batch.topic), self._clock.time_ms()
        producer = Producer(batch.producer_id, batch.producer_epoch, batch.partition)
        first, size_bytes = batch.base_sequence, len(batch.payload())
        for records, window_ms in _stretches(batch, log_append_time_ms, self._window_ms):
            if error is None:
                counter = self._instance.windows
                self._runs[batch.topic, batch.partition] = counter.count(
                    topic, producer, first, records, size_bytes, window_ms, now_ms
                )
            else:
                self._doubt(topic, Doubt(producer, first, records, window_ms))
            first, size_bytes = (first + records) & SEQUENCE_MAX, 0

    def _topic(self, name: str) -> Topic:
        """Return the topic of this name, as far as is known now."""
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = Topic(name, topic_id_of(self._cluster, name))
        return known

    def _look_again(self, _view: ClusterView) -> None:
        """Find topics, and so runs, anew: what had the name of one may be another one now."""
        self._topics.clear()
        self._runs.clear()

    def _doubt(self, topic: Topic, doubt: Doubt) -> None:
        if self._doubt_count >= DOUBTS_MAX:
            self._is_whole = False
            return
        self._doubt_count += 1
        place = (topic, doubt.window_ms)
        self._instance.doubts.setdefault(place, []).append(doubt)
        self._instance.untold[place] = None

    # --- telling ---

    async def run(self) -> None:
        """Tell what is new, every few seconds, for ever."""
        await every_few_seconds(self.tell)

    async def tell(self, *, is_last: bool = False, timeout_s: float | None = None) -> None:
        """Tell what is new. What cannot be told now is told the next time; that is logged.

        :param is_last: nothing will be counted any more.
        :param timeout_s: how long that may take, at most `TELLING_S`.
        """
        await self._turns.take(lambda: self._tell(is_last=is_last), timeout_s)

    async def _tell(self, *, is_last: bool) -> None:
        self._instance.news()
        if len(self._instance.windows) > WINDOWS_MAX:
            # What is acknowledged while this is told belongs to the next instance already.
            self._earlier.append(self._instance)
            self._instance, self._doubt_count = _Instance(self._window_ms), 0
            if len(self._earlier) > EARLIER_MAX:
                self._give_up(self._earlier.pop(0))
        while self._earlier:
            await self._tell_of(self._earlier[0])
            self._earlier.pop(0)
        await self._tell_of(self._instance)
        if is_last and self._is_whole and self._last_told is not None:
            # By itself, after all others: who reads it may rely on them.
            instance, place = self._last_told
            await self._sender.send([self._event(instance, place, is_last=True)])

    async def _tell_of(self, instance: _Instance) -> None:
        if not instance.news():
            return
        await self._have_topic(instance)
        places = instance.news()
        for begin in range(0, len(places), EVENTS_AT_ONCE):
            told = places[begin : begin + EVENTS_AT_ONCE]
            for place in told:
                del instance.untold[place]  # before: what comes in meanwhile is told the next time
            try:
                refused = await self._sender.send([self._event(instance, place) for place in told])
            except BaseException:
                instance.untold.update(dict.fromkeys(told))
                instance.unsure.update(dict.fromkeys(told))
                raise
            for place in told:
                if instance.unsure.pop(place, place) is None:
                    instance.untold[place] = None
            self._turns.went_well()
            self._is_whole = self._is_whole and not refused
            self._last_told = (instance, told[-1])

    def _give_up(self, instance: _Instance) -> None:
        self._is_whole = False
        log.warning("the audit gives up what it could not tell for so long: %d windows stay open", len(instance.untold))

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

    async def _have_topic(self, instance: _Instance) -> None:
        """Have the topic there; where it had to be made anew, let all be told again that was in it."""
        if await self._sender.have_topic():
            instance.tell_all_again()


def _stretches(batch: ProducerBatch, log_append_time_ms: int, width_ms: int) -> list[Stretch]:
    """Return a batch's records by windows: without a look at them where all are in one."""
    if log_append_time_ms != NO_TIMESTAMP:
        return [Stretch(batch.count, window_of(log_append_time_ms, width_ms))]
    builder = batch.builder
    window_ms = window_of(builder.min_timestamp_ms, width_ms)
    if window_ms == window_of(builder.max_timestamp_ms, width_ms):
        return [Stretch(batch.count, window_ms)]
    ((_header, stretches),) = batches_by_window(batch.payload(), width_ms)
    return stretches


def _is_refused(batch: ProducerBatch, error: BarnabasError) -> bool:
    """Whether a batch surely was not stored: its first and only try was refused for good."""
    return isinstance(error, KafkaError) and not error.retriable and batch.attempts <= 1
