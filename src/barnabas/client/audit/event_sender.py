"""Sends monitoring events to the topic `_audit`, which it makes where there is none, over the connections of a client.

Events are cumulative, so one that comes twice does no harm: they need neither sequence numbers nor a place in a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from barnabas.audit.events import MonitoringEvent
from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.cluster import PRODUCE_VERSION_MAX, Cluster
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.protocol.types import ZERO_UUID
from barnabas.records import BatchBuilder, Compression, murmur2

log = logging.getLogger(__name__)

AUDIT_TOPIC = "_audit"
AUDIT_TOPIC_CONFIG = {"cleanup.policy": "compact"}

TELLING_S = 10.0
"""How long one telling is tried."""

BATCH_BYTES = 256 * 1024
"""A request with events is closed when it has about so many bytes, uncompressed."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def topic_id_of(cluster: Cluster, name: str) -> str:
    """Return the id of a topic, in hex, as far as is known now; empty where it is not, or brokers have none."""
    view = cluster.view.topics.get(name)
    return "" if view is None or view.topic_id == ZERO_UUID else view.topic_id.hex()


class EventSender:
    """Sends for one client, on its event loop."""

    def __init__(self, cluster: Cluster, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._has_topic = False
        self._warned_of: set[str] = set()

    def look_again(self) -> None:
        """The topic may be gone."""
        self._has_topic = False

    async def have_topic(self) -> bool:
        """Have the topic there; return whether it had to be made, so that nothing is in it."""
        if self._has_topic:
            return False
        is_new = True
        try:
            await create_topic(
                self._cluster, AUDIT_TOPIC, partitions=1, replication_factor=None, config=AUDIT_TOPIC_CONFIG,
                timeout_ms=int(TELLING_S * 1000),
            )  # fmt: skip
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            is_new = False
        self._has_topic = True
        return is_new

    async def send(self, events: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        """Send events; they are in the log of all in-sync replicas when this returns.

        :returns: those that are larger than the topic takes, which can never be told; a warning says so, once a topic.
        :raises BarnabasError: some of them may be there.
        """
        partitions = len((await self._cluster.topic(AUDIT_TOPIC, timeout_s=TELLING_S)).partitions)
        refused: list[MonitoringEvent] = []
        for partition, batch in _batches(events, partitions):
            refused += await self._send_parts(TopicPartition(AUDIT_TOPIC, partition), batch)
        for event in refused:
            if event.topic not in self._warned_of:
                self._warned_of.add(event.topic)
                log.warning(
                    "the audit's events of topic %s, the first of window %d ms, are larger than the topic %s takes, "
                    "and cannot be told; raise its max.message.bytes",
                    event.topic, event.window_ms, AUDIT_TOPIC,
                )  # fmt: skip
        return refused

    async def _send_parts(self, where: TopicPartition, events: list[MonitoringEvent]) -> list[MonitoringEvent]:
        """Send a batch, in halves where it is too large; return the events that are by themselves."""
        try:
            await self._cluster.retrying(
                lambda: self._send_batch(where, events),
                what=f"{AUDIT_TOPIC} could not be written",
                timeout_s=TELLING_S,
            )
        except KafkaError as error:
            if error.code not in TOO_LARGE:
                raise
            if len(events) == 1:
                return events
            middle = len(events) // 2
            return [*await self._send_parts(where, events[:middle]), *await self._send_parts(where, events[middle:])]
        return []

    async def _send_batch(self, where: TopicPartition, events: list[MonitoringEvent]) -> None:
        self._cluster.use_topics([where.topic])
        leader = self._cluster.view.leader(where)
        if leader is None:
            leader = (await self._cluster.refresh()).leader(where)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")
        builder = BatchBuilder(Compression.LZ4)
        for event in events:
            builder.append(max(event.window_ms, 0), event.key, event.to_json())
        data = PartitionProduceData(index=where.partition, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[data])],
        )
        response: ProduceResponse = await self._cluster.send(leader, request, version_max=PRODUCE_VERSION_MAX)
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        found = answers.get((where.topic, where.partition))
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer in response", subject=str(where))
        if found.error_code:
            raise KafkaError(found.error_code, found.error_message or "", subject=str(where))


def _batches(events: Iterable[MonitoringEvent], partitions: int) -> Iterator[tuple[int, list[MonitoringEvent]]]:
    """Put events together, by the partitions that their keys belong to."""
    open_ones: dict[int, list[MonitoringEvent]] = {}
    size_bytes: dict[int, int] = {}
    for event in events:
        partition = (murmur2(event.key) & 0x7FFFFFFF) % partitions
        open_ones.setdefault(partition, []).append(event)
        size_bytes[partition] = size_bytes.get(partition, 0) + event.size_bytes
        if size_bytes[partition] >= BATCH_BYTES:
            size_bytes[partition] = 0
            yield partition, open_ones.pop(partition)
    yield from open_ones.items()
