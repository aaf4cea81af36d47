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


class _Teller(NamedTuple):
    """Who tells of which topic. Of older brokers only the name tells topics apart."""

    instance: str
    topic: str
    topic_id: str


class AuditReporter:
    """Tells in one cluster.

    :param side: the target.
    """

    def __init__(self, side: MirroredCluster) -> None:
        self._side = side
        self._producer: AsyncProducer | None = None
        self.event_count = 0
        """The events that were written."""

    async def report(self, accounts: Iterable[PartitionAuditAccount]) -> None:
        """Tell what is new, all of it.

        :raises BarnabasError: some of it may be told; it is told once more with the next call.
        """
        counted = [(account, account.counted_to) for account in accounts]
        topics = list({id(account.topic): account.topic for account, _to in counted}.values())
        await self._read(topics)
        unreported_events = [(topic, events) for topic in topics if (events := topic.unreported_events())]
        if unreported_events:
            await self._make_topic()  # it may have been deleted, and brokers would make one that is not compacted
        for topic, events in unreported_events:
            await self._write(events)
            topic.mark_reported(events)
        for account, counted_to in counted:
            account.told_to = counted_to

    async def _read(self, topics: Iterable[TopicAuditAccount]) -> None:
        unknown = {_Teller(topic.instance, topic.topic, topic.topic_id): topic for topic in topics if topic.to_be_read}
        if not unknown:
            return
        wanted = {teller: topic.to_be_read for teller, topic in unknown.items()}
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000) as limit:
                events = await self._events_of(wanted, limit)
        except TimeoutError:
            raise TimedOutError(f"for {TIMEOUT_MS} ms nothing could be read of what {AUDIT_TOPIC} has") from None
        for teller, topic in unknown.items():
            topic.read(wanted[teller], events[teller])

    async def _events_of(
        self, wanted: Mapping[_Teller, Collection[int]], limit: asyncio.Timeout
    ) -> Mapping[_Teller, list[MonitoringEvent]]:
        """Return what they have told of these windows.

        :param limit: for it to get on. All that was told since the first of the windows has to be read, which may be
            much where a record comes very late.
        """
        events: dict[_Teller, list[MonitoringEvent]] = {teller: [] for teller in wanted}
        since_ms = min(min(windows) for windows in wanted.values())
        view = await self._side.cluster.refresh()
        topic = view.topics.get(AUDIT_TOPIC)
        if topic is None:
            return events
        places = [TopicPartition(AUDIT_TOPIC, each.partition) for each in topic.partitions]
        ends = await list_offsets(self._side.cluster, dict.fromkeys(places, LATEST_TIMESTAMP))
        # The timestamp of an event's record is its window.
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
                    teller = _Teller(event.instance, event.topic, event.topic_id)
                    if event.window_ms in wanted.get(teller, ()):
                        events[teller].append(event)
        return events

    async def _write(self, events: Iterable[MonitoringEvent]) -> None:
        told = list(events)
        if self._producer is None:
            settings = dict(self._side.settings)
            self._producer = AsyncProducer(settings, acks="all", linger_ms=0, delivery_timeout_ms=TIMEOUT_MS)
        sent = await self._producer.send_many(
            AUDIT_TOPIC,
            [event.to_json() for event in told],
            keys=[event.key for event in told],
            timestamps_ms=[max(event.window_ms, 0) for event in told],
        )
        for delivery in sent:
            await delivery
        self.event_count += len(told)

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
        """End its connections."""
        if self._producer is not None:
            await self._producer.close()


def _events_in(values: Iterable[bytes | None]) -> Iterable[MonitoringEvent]:
    for value in values:
        try:
            yield MonitoringEvent.from_json(value)
        except BadEventError:
            continue  # `barnabas audit` tells of them
