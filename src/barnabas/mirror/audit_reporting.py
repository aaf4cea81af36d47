"""Reports the counts of a mirror to the target's topic `_audit`, and reads the earlier reports (`audit_account.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.audit.events import BadEventError, MonitoringEvent
from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.audit.event_sender import AUDIT_TOPIC, AUDIT_TOPIC_CONFIG
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.offset_requests import list_offsets
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.errors import ApiError, ErrorCode, TimedOutError
from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_offsets import LATEST_TIMESTAMP

TIMEOUT_MS = 30_000
POLL_RECORDS = 5_000
POLL_S = 0.5


class _Reporter(NamedTuple):
    """The sender and topic of an audit event. Brokers without topic ids distinguish topics by name only."""

    instance: str
    topic: str
    topic_id: str


class AuditReporter:
    """Reports counts to the `_audit` topic of one cluster.

    :param side: the target cluster.
    """

    def __init__(self, side: MirroredCluster) -> None:
        self._side = side
        self._producer: AsyncProducer | None = None
        self.event_count = 0
        """The number of events written."""

    async def report(self, accounts: Iterable[PartitionAuditAccount]) -> None:
        """Report all unreported counts.

        :raises BarnabasError: some events may not be written; the next call writes all unreported counts again.
        """
        counted = [(account, account.counted_to) for account in accounts]
        topics = list({id(account.topic): account.topic for account, _to in counted}.values())
        await self._read(topics)
        unreported_events = [(topic, events) for topic in topics if (events := topic.unreported_events())]
        if unreported_events:
            await self._make_topic()  # automatic creation would not compact the topic
        for topic, events in unreported_events:
            await self._write(events)
            topic.mark_reported(events)
        for account, counted_to in counted:
            account.reported_to = counted_to

    async def _read(self, topics: Iterable[TopicAuditAccount]) -> None:
        unknown = {
            _Reporter(topic.instance, topic.topic, topic.topic_id): topic for topic in topics if topic.to_be_read
        }
        if not unknown:
            return
        wanted = {reporter: topic.to_be_read for reporter, topic in unknown.items()}
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000) as limit:
                events = await self._events_of(wanted, limit)
        except TimeoutError:
            raise TimedOutError(
                f"cannot read earlier audit events from {AUDIT_TOPIC}: no progress for {TIMEOUT_MS} ms"
            ) from None
        for reporter, topic in unknown.items():
            topic.read(wanted[reporter], events[reporter])

    async def _events_of(
        self, wanted: Mapping[_Reporter, Collection[int]], limit: asyncio.Timeout
    ) -> Mapping[_Reporter, list[MonitoringEvent]]:
        """Return the audit events of the given windows.

        :param limit: the timeout, which each poll with records extends. The scan covers all events since the first
        window. If a record arrives very late, the scan may cover many events.
        """
        events: dict[_Reporter, list[MonitoringEvent]] = {reporter: [] for reporter in wanted}
        since_ms = min(min(windows) for windows in wanted.values())
        view = await self._side.cluster.refresh()
        topic = view.topics.get(AUDIT_TOPIC)
        if topic is None:
            return events
        places = [TopicPartition(AUDIT_TOPIC, each.partition) for each in topic.partitions]
        ends = await list_offsets(self._side.cluster, dict.fromkeys(places, LATEST_TIMESTAMP))
        # An event record has the start of its window as its timestamp.
        begins = await list_offsets(self._side.cluster, dict.fromkeys(places, max(since_ms, 0)))
        to_read = {tp: (at.offset, end.offset) for tp, end in ends.items() if end and (at := begins[tp]) is not None}
        loop = asyncio.get_running_loop()
        async with AsyncConsumer(dict(self._side.settings), auto_offset_reset="earliest") as consumer:
            consumer.assign(list(to_read))
            for tp, (begin, _end) in to_read.items():
                consumer.seek(tp, begin)
            while any([await consumer.position(tp) < end for tp, (_begin, end) in to_read.items()]):
                records = await consumer.poll(max_records=POLL_RECORDS, timeout_s=POLL_S)
                if records:
                    limit.reschedule(loop.time() + TIMEOUT_MS / 1000)
                for event in _events_in(record.value for record in records):
                    reporter = _Reporter(event.instance, event.topic, event.topic_id)
                    if event.window_ms in wanted.get(reporter, ()):
                        events[reporter].append(event)
        return events

    async def _write(self, events: Iterable[MonitoringEvent]) -> None:
        reported = list(events)
        if self._producer is None:
            settings = dict(self._side.settings)
            self._producer = AsyncProducer(settings, acks="all", linger_ms=0, delivery_timeout_ms=TIMEOUT_MS)
        sent = await self._producer.send_many(
            AUDIT_TOPIC,
            [event.to_json() for event in reported],
            keys=[event.key for event in reported],
            timestamps_ms=[max(event.window_ms, 0) for event in reported],
        )
        for delivery in sent:
            await delivery
        self.event_count += len(reported)

    async def _make_topic(self) -> None:
        cluster = self._side.cluster
        (view,) = await cluster.describe([AUDIT_TOPIC])
        if view.partitions:
            return
        try:
            await create_topic(
                cluster, AUDIT_TOPIC, partitions=1, replication_factor=None, config=AUDIT_TOPIC_CONFIG,
                timeout_ms=TIMEOUT_MS,
            )  # fmt: skip
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await cluster.topic(AUDIT_TOPIC, timeout_s=TIMEOUT_MS / 1000)

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.close()


def _events_in(values: Iterable[bytes | None]) -> Iterable[MonitoringEvent]:
    for value in values:
        try:
            yield MonitoringEvent.from_json(value)
        except BadEventError:
            continue  # skip invalid events here; `barnabas audit` reports them
