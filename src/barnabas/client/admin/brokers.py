"""What an administrator asks of brokers, as coroutines: who they are, and what lies on their disks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.cluster import Cluster
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its live brokers by id, and which of them is the controller (None: none is known)."""

    id: str
    controller: Node | None
    brokers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A folder in which a broker keeps logs.

    `sizes` are the bytes of each partition's log; `total_bytes` and `usable_bytes` those of the volume, None where
    the broker is too old to tell. `error` is NONE unless the folder is offline.
    """

    broker: int
    path: str
    error: ErrorCode
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]

    @property
    def size_bytes(self) -> int:
        """Bytes of all logs in the folder."""
        return sum(self.sizes.values())


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return which brokers there are.

    :raises TimedOutError: no broker answered in time.
    """

    async def attempt() -> ClusterDescription:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response: DescribeClusterResponse = await cluster.ask(await cluster.any_channel(), request)
        if response.error_code:
            subject = "" if response.error_message else "description of the cluster"
            raise KafkaError(response.error_code, response.error_message or "", subject)
        nodes = sorted(
            (Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers), key=lambda n: n.id
        )
        controller = next((node for node in nodes if node.id == response.controller_id), None)
        return ClusterDescription(response.cluster_id, controller, tuple(nodes))

    return await cluster.retrying(attempt, what="the cluster is not known")


async def log_dirs(cluster: Cluster) -> list[LogDir]:
    """Return the folders of all live brokers, with the size of each log in them.

    :raises TimedOutError: a broker did not answer in time.
    """
    request = DescribeLogDirsRequest(topics=None)

    async def attempt() -> list[LogDir]:
        await cluster.refresh()
        brokers = sorted(cluster.view.brokers)
        answers = await asyncio.gather(*(cluster.send(node_id, request) for node_id in brokers))
        return [
            folder
            for node_id, response in zip(brokers, answers, strict=True)
            for folder in _log_dirs(node_id, response)
        ]

    return await cluster.retrying(attempt, what="the brokers' log folders are not known")


def _log_dirs(node_id: int, response: DescribeLogDirsResponse) -> list[LogDir]:
    if response.error_code:
        raise KafkaError(response.error_code, subject=f"log folders of broker {node_id}")
    return [_log_dir(node_id, result) for result in response.results]


def _log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        broker=node_id,
        path=result.log_dir,
        error=ErrorCode.of(result.error_code),
        total_bytes=None if result.total_bytes < 0 else result.total_bytes,
        usable_bytes=None if result.usable_bytes < 0 else result.usable_bytes,
        sizes={
            TopicPartition(topic.name, each.partition_index): each.partition_size
            for topic in result.topics
            for each in topic.partitions
            if not each.is_future_key
        },
    )
