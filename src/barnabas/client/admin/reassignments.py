"""Reassignments of partitions to other brokers (KIP-455), as coroutines of the admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.client.admin.controller import controller_id, refusal
from barnabas.client.cluster import Cluster
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that moves to other brokers.

    :param replicas: the ids of all current replicas, including the replicas being added or removed.
    :param adding: the ids of the replicas being added.
    :param removing: the ids of the replicas to remove once all added replicas are in sync.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The ids of the replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)


async def alter_reassignments(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    timeout_ms: int,
) -> None:
    """Start or cancel reassignments; the request goes to the controller.

    :param targets: the future replicas of each partition; None cancels its reassignment.
    :raises ApiError: the error of the first rejected partition. Other partitions may already be moving.
    """
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        wanted = ReassignablePartition(
            partition_index=number, replicas=None if replicas is None else [int(each) for each in replicas]
        )
        topics.setdefault(topic, []).append(wanted)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )

    async def attempt() -> ApiError | None:
        response: AlterPartitionReassignmentsResponse = await cluster.send(await controller_id(cluster), request)
        if response.error_code:
            raise ApiError(response.error_code, response.error_message or "")
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code:
                    subject = f"{topic.name}-{each.partition_index}"
                    error = refusal(each.error_code, subject, subject, each.error_message)
                    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        return error  # raised below without a retry
                    raise error
        return None

    failure = await cluster.retrying(attempt, what="cannot reassign partitions", needs=(Need("alter", "cluster"),))
    if failure is not None:
        raise failure


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress of these partitions, or of all partitions.

    :raises ApiError: the controller rejected the request.
    """
    topics: list[ListPartitionReassignmentsTopics] | None = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)

    async def attempt() -> dict[TopicPartition, Reassignment]:
        response: ListPartitionReassignmentsResponse = await cluster.send(await controller_id(cluster), request)
        if response.error_code:
            raise ApiError(response.error_code, response.error_message or "")
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    found: dict[TopicPartition, Reassignment] = await cluster.retrying(
        attempt, what="cannot list reassignments", needs=(Need("describe", "cluster"),)
    )
    return found
