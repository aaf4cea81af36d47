"""One of the two clusters, as a mirror sees it: its connections, its id, and questions about one partition."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from barnabas.client.answers import left_out
from barnabas.client.cluster import FETCH_VERSION_MAX, Cluster
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.dialing import dial_with
from barnabas.client.offset_queries import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError, ErrorCode, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

TAIL_WAIT_MS = 500


class Side:
    """Connections to one cluster, on the running event loop.

    :param name: `source` or `target`, for messages.
    :param settings: of its clients, under Kafka's names; where the brokers are is among them.
    """

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.settings = settings
        self.config = make_config(AdminConfig, dict(settings), {})
        self.cluster = Cluster(self.config, dial=dial_with(self.config), clock=SYSTEM_CLOCK, random=random.random)
        self.cluster.hold_topics(None)
        self.id = ""
        self._fresh: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Learn of the cluster, and go on doing so.

        :raises TimedOutError: no broker answers.
        :raises ConfigurationError: the cluster has no id.
        """
        await self.cluster.retrying(self.cluster.refresh, what=f"the {self.name} does not answer")
        self.id = self.cluster.view.cluster_id or ""
        if not self.id:
            raise ConfigurationError(f"the {self.name} cluster tells no id; without one circles cannot be seen")
        self._fresh = asyncio.create_task(self.cluster.keep_fresh())

    async def stop(self) -> None:
        """End all connections."""
        if self._fresh is not None:
            self._fresh.cancel()
            await asyncio.gather(self._fresh, return_exceptions=True)
        self.cluster.close()

    async def ends(self, where: TopicPartition) -> tuple[int, int]:
        """Return where a partition's log begins and ends now."""
        found = []
        for which in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            at = (await list_offsets(self.cluster, {where: which}))[where]
            if at is None:
                raise left_out(f"offsets of {where}")
            found.append(at.offset)
        return found[0], found[1]

    async def fetch(self, where: TopicPartition, offset: int, bytes_max: int, end: int) -> memoryview:
        """Return batches from `offset` on, which may be none where there is nothing; one try.

        :param end: where the log ended when it was asked. A new leader may not show all of that yet (KIP-207): what it
            does not show is not gone.
        :raises KafkaError: OFFSET_NOT_AVAILABLE: the log is shown up to an earlier offset only.
        """
        leader = self.cluster.view.leader(where)
        if leader is None:
            self.cluster.want_refresh()
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")
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
                    raise KafkaError(each.error_code, subject=f"{where} at offset {offset}")
                if each.high_watermark < end:
                    shown = f"{where} is shown up to offset {each.high_watermark}, and ended at {end} before"
                    raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, shown)
                return memoryview(each.records or b"")
        raise left_out(f"{where} at offset {offset}")
