"""Computes the health of a cluster (leaders, replicas, problems) from the responses of its brokers. The module does no
I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.addresses import host_port
from barnabas.client.admin.brokers import ClusterDescription
from barnabas.client.admin.topics import TopicDescription

NOBODY = -1
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The state of a partition's replicas; `leader` is None if there is no leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_insync: int
    """The minimum number of in-sync replicas for produce requests with acks=all."""

    @property
    def lagging(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        return tuple(each for each in self.replicas if each not in self.isr)

    @property
    def problems(self) -> list[str]:
        """Descriptions of the problems, the most severe first; empty if the partition is healthy."""
        found = []
        if self.leader is None:
            found.append("no leader")
        if len(self.isr) < self.min_insync:
            found.append(f"below min.insync.replicas={self.min_insync}")
        if self.lagging:
            found.append(f"{','.join(map(str, sorted(self.lagging)))} not in sync")
        return found

    @property
    def severity(self) -> tuple[bool, bool]:
        """A sort key: the more severe the problems, the larger the key."""
        return self.leader is None, len(self.isr) < self.min_insync


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """The state of a broker.

    `address` is None if the broker has replicas but is not registered. `groups` is None if the broker does not respond.
    """

    id: int
    address: str | None
    rack: str | None
    leads: int
    replicas: int
    in_sync: int
    coordinates: tuple[int, ...]
    """The partitions of OFFSETS_TOPIC that the broker leads. The broker is the coordinator of the groups in these
    partitions."""
    groups: int | None
    offline_folders: tuple[str, ...] = ()
    """The log directories of the broker that are offline."""


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of all brokers and partitions of a cluster."""

    id: str
    spokesman: int | None
    """The broker that metadata responses name as the controller."""
    brokers: tuple[BrokerHealth, ...]
    partitions: tuple[PartitionHealth, ...]
    undescribed: Mapping[str, str] = field(default_factory=dict)
    """The error name of each topic whose partitions the brokers could not describe, by topic."""

    @property
    def unhealthy(self) -> list[PartitionHealth]:
        """The partitions with problems, the most severe first."""
        found = [each for each in self.partitions if each.problems]
        return sorted(found, key=lambda each: each.severity, reverse=True)

    @property
    def is_healthy(self) -> bool:
        """True if every replica is in sync, every partition is described and has a leader, every broker responds, and
        no log directory is offline."""
        return (
            not self.unhealthy
            and not self.undescribed
            and all(each.address and each.groups is not None and not each.offline_folders for each in self.brokers)
        )

    @property
    def summary(self) -> str:
        """The health of the cluster in one line."""
        replicas = sum(len(each.replicas) for each in self.partitions)
        if self.is_healthy:
            return "its replica in sync" if replicas == 1 else f"all {replicas} replicas in sync"
        lagging = sum(len(each.lagging) for each in self.partitions)
        without_leader = sum(each.leader is None for each in self.partitions)
        below = sum(len(each.isr) < each.min_insync for each in self.partitions)
        return "; ".join(
            [
                *([f"{lagging} of {replicas} replicas not in sync"] if lagging else []),
                *([f"{_partitions(without_leader)} without a leader"] if without_leader else []),
                *([f"{_partitions(below)} below min.insync.replicas"] if below else []),
                *(f"topic {topic} cannot be described: {error}" for topic, error in self.undescribed.items()),
                *(f"broker {each.id} is not registered" for each in self.brokers if each.address is None),
                *(
                    f"broker {each.id} does not respond"
                    for each in self.brokers
                    if each.address and each.groups is None
                ),
                *(
                    f"{folder} of broker {each.id} is offline"
                    for each in self.brokers
                    for folder in each.offline_folders
                ),
            ]
        )


def assess(
    cluster: ClusterDescription,
    topics: Iterable[TopicDescription],
    min_insync: Mapping[str, int],
    groups: Mapping[int, int | None],
    offline_folders: Mapping[int, tuple[str, ...]],
) -> ClusterHealth:
    """Compute the health of a cluster from the responses of its brokers.

    :param min_insync: min.insync.replicas by topic; 1 for missing topics.
    :param groups: number of groups that each broker coordinates, by broker id; None if the broker did not respond.
    :param offline_folders: offline log directories by broker id.
    """
    found = sorted(topics, key=lambda topic: topic.name)
    partitions = tuple(
        PartitionHealth(
            topic.name,
            each.partition,
            None if each.leader == NOBODY else each.leader,
            each.replicas,
            each.isr,
            min_insync.get(topic.name, 1),
        )
        for topic in found
        for each in topic.partitions
    )
    nodes = {node.id: node for node in cluster.brokers}
    ids = sorted({*nodes, *(broker for each in partitions for broker in each.replicas)})
    brokers = []
    for broker in ids:
        node = nodes.get(broker)
        brokers.append(
            BrokerHealth(
                broker,
                host_port(node.host, node.port) if node else None,
                node.rack if node else None,
                leads=sum(each.leader == broker for each in partitions),
                replicas=sum(broker in each.replicas for each in partitions),
                in_sync=sum(broker in each.isr for each in partitions),
                coordinates=tuple(
                    each.partition for each in partitions if each.topic == OFFSETS_TOPIC and each.leader == broker
                ),
                groups=groups.get(broker),
                offline_folders=offline_folders.get(broker, ()),
            )
        )
    return ClusterHealth(
        cluster.id,
        cluster.controller.id if cluster.controller else None,
        tuple(brokers),
        partitions,
        {topic.name: topic.error.name for topic in found if topic.error},
    )


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers in compact notation.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
