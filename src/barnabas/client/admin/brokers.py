"""The brokers of a cluster and their log directories, as coroutines of the admin clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas import __version__
from barnabas.client.cluster import Cluster
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster: its id, its live brokers by id, and the id of the controller (None if unknown)."""

    id: str
    controller: Node | None
    brokers: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker.

    `sizes` maps each partition to the size of its log in bytes. `coming` maps each log that moves to this directory to
    its lag: the number of offsets not yet copied. `total_bytes` and `usable_bytes` describe the file system; they are
    None if the broker is too old to return them. `error` is NONE, unless the directory is offline.
    """

    broker: int
    path: str
    error: ErrorCode
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]
    coming: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size in bytes of all logs in the directory."""
        return sum(self.sizes.values())


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return the cluster id, the live brokers and the controller.

    :raises TimedOutError: no broker responded in time.
    """

    async def attempt() -> ClusterDescription:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response: DescribeClusterResponse = await cluster.ask(await cluster.any_channel(), request)
        if response.error_code:
            subject = "" if response.error_message else "description of the cluster"
            raise ApiError(response.error_code, response.error_message or "", subject)
        nodes = sorted(
            (Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers), key=lambda n: n.id
        )
        controller = next((node for node in nodes if node.id == response.controller_id), None)
        return ClusterDescription(response.cluster_id, controller, tuple(nodes))

    return await cluster.retrying(attempt, what="cannot describe the cluster")


async def api_versions(cluster: Cluster, broker: int | None = None) -> dict[str, range]:
    """Return the versions of each API that both a broker and this client support, by the name of the API.

    :raises TimedOutError: the broker did not respond in time.
    """

    async def attempt() -> dict[str, range]:
        if broker is not None:
            await cluster.refresh()
        channel = await cluster.any_channel() if broker is None else await cluster.channel_to(broker)
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        response: ApiVersionsResponse = await cluster.ask(channel, request)
        if response.error_code:
            raise ApiError(response.error_code, subject="versions of APIs")
        ours = declared_apis()
        return {
            ours[each.api_key].name: versions
            for each in response.api_keys
            if each.api_key in ours and (versions := _common(each, ours[each.api_key].versions))
        }

    return await cluster.retrying(attempt, what="cannot read the versions of APIs")


def _common(served: ApiVersion, ours: range) -> range:
    return range(max(served.min_version, ours.start), min(served.max_version + 1, ours.stop))


async def log_dirs(cluster: Cluster, broker: int | None = None, *, with_sizes: bool = True) -> list[LogDir]:
    """Return the log directories of one broker, or of all live brokers. `with_sizes` adds the size of each log.

    :raises TimedOutError: a broker did not respond in time.
    """
    request = DescribeLogDirsRequest(topics=None if with_sizes else [])

    async def attempt() -> list[LogDir]:
        await cluster.refresh()
        brokers = sorted(cluster.view.brokers) if broker is None else [broker]
        answers = await asyncio.gather(*(cluster.send(node_id, request) for node_id in brokers))
        return [
            folder
            for node_id, response in zip(brokers, answers, strict=True)
            for folder in _log_dirs(node_id, response)
        ]

    return await cluster.retrying(
        attempt, what="cannot describe the log directories", needs=(Need("describe", "cluster"),)
    )


async def alter_replica_log_dirs(
    cluster: Cluster, broker: int, folders: Mapping[tuple[str, int], str]
) -> dict[TopicPartition, ErrorCode]:
    """Start to move logs to other log directories of the same broker; return an error code for each partition.

    :raises TimedOutError: the broker did not respond in time.
    """
    wanted: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), path in folders.items():
        wanted.setdefault(path, {}).setdefault(topic, []).append(partition)
    dirs = [
        AlterReplicaLogDir(
            path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics.items()]
        )
        for path, topics in wanted.items()
    ]

    async def attempt() -> dict[TopicPartition, ErrorCode]:
        await cluster.refresh()
        response: AlterReplicaLogDirsResponse = await cluster.send(broker, AlterReplicaLogDirsRequest(dirs=dirs))
        return {
            TopicPartition(topic.topic_name, each.partition_index): ErrorCode.of(each.error_code)
            for topic in response.results
            for each in topic.partitions
        }

    return await cluster.retrying(attempt, what=f"cannot move logs of broker {broker}")


def _log_dirs(node_id: int, response: DescribeLogDirsResponse) -> list[LogDir]:
    if response.error_code:
        raise ApiError(response.error_code, subject=f"log directories of broker {node_id}")
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
        coming={
            TopicPartition(topic.name, each.partition_index): each.offset_lag
            for topic in result.topics
            for each in topic.partitions
            if each.is_future_key
        },
    )
