"""Tells in the target's topic `_audit` what is mirrored, and reads there what was told before. What: `account.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from barnabas.audit.events import BadEventError, MonitoringEvent
from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.event_sender import AUDIT_TOPIC, AUDIT_TOPIC_CONFIG
from barnabas.client.offset_queries import LATEST_TIMESTAMP, list_offsets
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.errors import ErrorCode, KafkaError, TimedOutError
from barnabas.mirror.account import PartitionAccount, TopicAccount
from barnabas.mirror.side import Side
from barnabas.model import TopicPartition

TIMEOUT_MS = 30_000
POLL_RECORDS = 5_000
POLL_S = 0.5


class AuditTelling:
    """Tells in one cluster.

    :param side: the target.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self._producer: AsyncProducer | None = None

    async def tell(self, accounts: Iterable[PartitionAccount]) -> None:
        """Tell what is new, all of it.

        :raises BarnabasError: some of it may be told; it is told once more with the next call.
        """
        counted = [(account, account.counted_to) for account in accounts]
        topics = list({id(account.topic): account.topic for account, _to in counted}.values())
        await self._read(topics)
        for topic in topics:
            events = topic.news()
            await self._write(events)
            topic.told(events)
        for account, counted_to in counted:
            account.told_to = counted_to

    async def _read(self, topics: Iterable[TopicAccount]) -> None:
        unknown = [(topic, windows) for topic in topics if (windows := topic.to_be_read)]
        if not unknown:
            return
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                events = await self._events_since(min(min(windows) for _topic, windows in unknown))
        except TimeoutError:
            raise TimedOutError(f"what {AUDIT_TOPIC} has could not be read within {TIMEOUT_MS} ms") from None
        for topic, windows in unknown:
            own = (each for each in events if each.instance == topic.instance and each.topic_id == topic.topic_id)
            topic.read(windows, (each for each in own if each.window_ms in windows))

    async def _events_since(self, since_ms: int) -> list[MonitoringEvent]:
        view = await self._side.cluster.refresh()
        topic = view.topics.get(AUDIT_TOPIC)
        if topic is None:
            return []
        places = [TopicPartition(AUDIT_TOPIC, each.partition) for each in topic.partitions]
        ends = await list_offsets(self._side.cluster, dict.fromkeys(places, LATEST_TIMESTAMP))
        # The timestamp of an event's record is its window.
        begins = await list_offsets(self._side.cluster, dict.fromkeys(places, max(since_ms, 0)))
        to_read = {tp: (at.offset, end.offset) for tp, end in ends.items() if end and (at := begins[tp]) is not None}
        events: list[MonitoringEvent] = []
        async with AsyncConsumer(dict(self._side.settings), auto_offset_reset="earliest") as consumer:
            consumer.assign(list(to_read))
            for tp, (begin, _end) in to_read.items():
                consumer.seek(tp, begin)
            while any([await consumer.position(tp) < end for tp, (_begin, end) in to_read.items()]):
                events += _events_in(record.value for record in await consumer.poll(POLL_RECORDS, POLL_S))
        return events

    async def _write(self, events: Iterable[MonitoringEvent]) -> None:
        told = list(events)
        if not told:
            return
        if self._producer is None:
            await self._make_topic()
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

    async def _make_topic(self) -> None:
        cluster = self._side.cluster
        if AUDIT_TOPIC in (await cluster.refresh()).topics:
            return
        try:
            await create_topic(
                cluster, AUDIT_TOPIC, partitions=1, replication_factor=None, config=AUDIT_TOPIC_CONFIG,
                timeout_ms=TIMEOUT_MS,
            )  # fmt: skip
        except KafkaError as error:
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
