"""What a client knows of the cluster: its brokers, its topics, who leads what. A value: replaced, never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.errors import ErrorCode
from barnabas.model import NO_LEADER_EPOCH, Node, TopicPartition
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.protocol.types import ZERO_UUID

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as the brokers last described it."""

    partition: int
    leader: int
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the brokers last described it; with an error it has no partitions."""

    name: str
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionView, ...] = ()
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment.

    >>> ClusterView().leader(TopicPartition("clicks", 0)) is None
    True
    """

    brokers: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    _leaders: dict[TopicPartition, int | None] = field(init=False, default_factory=dict, repr=False, compare=False)
    """Those that were asked for, which clients do for each partition with each request."""

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the id of the broker that leads `tp`, or None if there is none, or it is not known."""
        try:
            return self._leaders[tp]
        except KeyError:
            leader = self._leaders[tp] = self._find_leader(tp)
            return leader

    def _find_leader(self, tp: TopicPartition) -> int | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        leader = topic.partitions[tp.partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of `tp`, or -1 if it is not known."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return NO_LEADER_EPOCH
        return topic.partitions[tp.partition].leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, or None if the topic is not known."""
        view = self.topics.get(topic)
        return len(view.partitions) if view is not None and view.partitions else None

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all known partitions of `topics`."""
        return [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(self.partition_count(topic) or 0)
        ]

    def limited_to(self, topics: Collection[str]) -> ClusterView:
        """Return the view without topics that nobody is interested in any more."""
        if all(name in topics for name in self.topics):
            return self
        return replace(self, topics={name: topic for name, topic in self.topics.items() if name in topics})

    def merged(self, response: MetadataResponse, *, all_topics: bool) -> ClusterView:
        """Return the view after an answer to a Metadata request.

        :param all_topics: all topics were asked for, so those that are not in the answer do not exist.
        """
        known = {} if all_topics else dict(self.topics)
        for topic in response.topics:
            if topic.name is None:
                continue
            before = self.topics.get(topic.name)
            if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE and before is not None and before.partitions:
                known[topic.name] = before  # it is there, and has no leader for a moment: its partitions are the same
            else:
                known[topic.name] = _not_older(_topic_view(topic), before)
        return replace(
            self,
            brokers={each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
            topics=known,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
        )


def _not_older(now: TopicView, before: TopicView | None) -> TopicView:
    """Keep of `before` the partitions of which a later leader is known: a broker may not have heard of it yet.

    Who believed it would ask the leader before, which lacks what was read since, and says that there is no such offset
    (KIP-320). Epochs of another topic that had the name earlier say nothing.
    """
    if before is None or now.topic_id == ZERO_UUID or now.topic_id != before.topic_id:
        return now
    later = before.partitions
    partitions = tuple(
        later[each.partition]
        if each.partition < len(later) and each.leader_epoch < later[each.partition].leader_epoch
        else each
        for each in now.partitions
    )
    return replace(now, partitions=partitions)


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    assert topic.name is not None
    ordered = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    # Partitions are numbered from 0 without gaps; what comes after a gap cannot be addressed by its place.
    whole = [each for place, each in enumerate(ordered) if each.partition_index == place]
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        error=ErrorCode.of(topic.error_code),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionView(
                partition=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                isr=tuple(each.isr_nodes),
                offline_replicas=tuple(each.offline_replicas),
            )
            for each in whole
        ),
    )
