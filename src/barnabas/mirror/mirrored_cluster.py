"""One of the two clusters of a mirror: its connections, its id, and queries about one partition."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.cluster import FETCH_VERSION_MAX, Cluster, dial_with
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.offset_requests import end_offsets_at_leader, list_offsets, missing_in_response
from barnabas.client.permissions import Need
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, ErrorCode
from barnabas.mirror.partition_link import LeaderTerm
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

TAIL_WAIT_MS = 500
ANSWER_S = 5.0
"""The time in seconds within which a cluster must respond; otherwise the start of the mirror waits and retries."""

log = logging.getLogger(__name__)


class MirroredCluster:
    """Connections to one cluster, on the running event loop.

    :param name: `source` or `target`, for messages.
    :param settings: client settings under Kafka's names, with `bootstrap.servers`.
    :param purpose: purpose of the connections that carry mirrored records; the loss of such a connection ends a leader
    term.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], purpose: str) -> None:
        self.name = name
        self.purpose = purpose
        self.settings = settings
        self.config = make_config(AdminConfig, dict(settings), {})
        self.cluster = Cluster(self.config, dial=dial_with(self.config), clock=SYSTEM_CLOCK, random=random.random)
        self.cluster.hold_topics(None)
        self.id = ""
        self._fresh: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetch the cluster's metadata and start to refresh it periodically. After a failure, the caller may call
        `start` again.

        :raises TimedOutError: no broker responds within `ANSWER_S`.
        :raises ConfigurationError: the cluster has no id.
        """
        await self.cluster.retrying(self.cluster.refresh, what=f"the {self.name} does not answer", timeout_s=ANSWER_S)
        self.id = self.cluster.view.cluster_id or ""
        if not self.id:
            raise ConfigurationError(
                f"the {self.name} cluster has no cluster id; the mirror needs the id to detect circles of mirrors"
            )
        self._fresh = asyncio.create_task(self.cluster.refresh_forever())

    async def stop(self) -> None:
        if self._fresh is not None:
            self._fresh.cancel()
            await asyncio.gather(self._fresh, return_exceptions=True)
        self.cluster.close()

    async def ends(self, where: TopicPartition) -> tuple[int, int]:
        """Return the log start offset and the log end offset of a partition."""
        found = []
        for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            at = (await list_offsets(self.cluster, {where: which}))[where]
            if at is None:
                raise missing_in_response(f"offsets of {where}")
            found.append(at.offset)
        return found[0], found[1]

    def term(self, where: TopicPartition) -> LeaderTerm | None:
        """Return the current term of a partition; None if the partition has no leader or no connection to the leader is
        open."""
        leader = self.cluster.view.leader(where)
        channel = None if leader is None else self.cluster.open_channel(leader, self.purpose)
        if leader is None or channel is None:
            return None
        return LeaderTerm(leader, self.cluster.view.leader_epoch(where), channel)

    async def begin_term(self, where: TopicPartition) -> LeaderTerm:
        """Return the current term of a partition, connecting to the leader if necessary.

        :raises ApiError: LEADER_NOT_AVAILABLE: the partition has no leader.
        """
        leader = self.cluster.view.leader(where)
        if leader is None:
            raise self._no_leader(where)
        channel = await self.cluster.channel_to(leader, self.purpose)
        return LeaderTerm(leader, self.cluster.view.leader_epoch(where), channel)

    def _no_leader(self, where: TopicPartition) -> ApiError:
        self.cluster.request_refresh()
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")

    async def check_topic(self, topic: str, topic_id: bytes) -> None:
        """Check that a topic still has the given id. The check passes if the cluster has no topic ids.

        :raises ApiError: UNKNOWN_TOPIC_ID if the topic was deleted, and possibly recreated.
        """
        (view,) = await self.cluster.describe([topic])
        if topic_id not in (ZERO_UUID, view.topic_id):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, subject=f"topic {topic!r} of the {self.name}")

    async def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offsets of partitions, without retries; partitions whose leader does not respond are
        omitted."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for where in partitions:
            if (leader := self.cluster.view.leader(where)) is not None:
                by_leader.setdefault(leader, []).append(where)
        found: dict[TopicPartition, int] = {}
        for leader, led in by_leader.items():
            try:
                found |= await end_offsets_at_leader(self.cluster, leader, led)
            except BarnabasError as error:
                log.debug("cannot get log end offsets from %s broker %d: %s", self.name, leader, error)
        return found

    async def fetch(self, where: TopicPartition, offset: int, bytes_max: int, end: int) -> memoryview:
        """Return the batches that start at `offset`, without retries; empty if there are none.

        :param end: the log end offset that the mirror has seen before. A new leader may report a lower high watermark
        at first (KIP-207), but the records above it are not lost.
        :raises ApiError: OFFSET_NOT_AVAILABLE: the high watermark is below `end`.
        """
        leader = self.cluster.view.leader(where)
        if leader is None:
            raise self._no_leader(where)
        part = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_wait_ms=TAIL_WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            topics=[FetchTopic(topic=where.topic, partitions=[part])],
        )
        response: FetchResponse = await self.cluster.send(
            leader, request, purpose="mirror-tail", version_max=FETCH_VERSION_MAX
        )
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code:
                    error = ApiError(each.error_code, subject=f"{where} at offset {offset}")
                    raise self.cluster.refused(error, Need("read", "topic", where.topic))
                if each.high_watermark < end:
                    shown = f"{where} has high watermark {each.high_watermark}, below its earlier end offset {end}"
                    raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, shown)
                return memoryview(each.records or b"")
        raise missing_in_response(f"{where} at offset {offset}")
