"""The immutable image of the cluster's metadata, and the difference between two images.

`MetadataImage` is a value. A broker replaces its image as a whole (`barnabas.broker.metadata_cache`). Successive images
share the unchanged topics. To add other metadata (quotas, feature levels), add a field with an empty default to
`MetadataImage`, and a field with the differences to `MetadataDelta`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, LiveBroker, PartitionState
from barnabas.model import TopicPartition
from barnabas.security.authorizer import Acls

NO_ACLS = Acls()


@dataclass(frozen=True)
class MetadataImage:
    """The metadata of the cluster that a broker has at one point in time.

    :param brokers: the live brokers, by id.
    :param topics: the topics, by name.
    :param acls: the ACLs.
    """

    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    acls: Acls = field(default_factory=lambda: NO_ACLS)
    _moving: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict, compare=False, repr=False)
    """The partitions under reassignment, by topic. Derived from `topics`."""

    # -- changed copies of the image -------------------------------------------------------------------------

    def with_brokers(self, brokers: Mapping[int, LiveBroker]) -> MetadataImage:
        """Return a copy of this image with these live brokers."""
        return replace(self, brokers=dict(brokers))

    def with_acls(self, acls: Acls) -> MetadataImage:
        """Return a copy of this image with these ACLs."""
        return replace(self, acls=acls)

    def with_topics(self, *changed: TopicInfo) -> MetadataImage:
        """Return a copy of this image with added or replaced topics."""
        topics, moving = dict(self.topics), dict(self._moving)
        for info in changed:
            topics[info.name] = info
            moving.pop(info.name, None)
            if found := tuple(_moving_of(info)):
                moving[info.name] = found
        return replace(self, topics=topics, _moving=moving)

    def without_topic(self, name: str) -> MetadataImage:
        """Return a copy of this image without a topic."""
        topics, moving = dict(self.topics), dict(self._moving)
        del topics[name]
        moving.pop(name, None)
        return replace(self, topics=topics, _moving=moving)

    # -- brokers ---------------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """The controller id in responses to clients: the lowest id of the live brokers, or -1 if no broker is live.

        Only this broker purges old change notifications. There is no other controller role.
        """
        return min(self.brokers, default=NO_LEADER)

    def is_eligible(self, broker_id: int, epoch: int | None = None) -> bool:
        """Return whether a broker may join an ISR: it is live and not in controlled shutdown.

        :param epoch: the broker epoch that the broker's registration must have, or None to accept any epoch.
        """
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.registration.is_leaving and epoch in {None, broker.epoch}

    def epoch_for_leader(self, leader: int, broker_id: int) -> int | None:
        """Return the broker epoch that a leader with release 0.1 expects, which is `created_at` of the registration
        node.

        The result is None if the leader has a later release.
        """
        known, own = self.brokers.get(leader), self.brokers.get(broker_id)
        return None if known is None or known.has_random_epoch or own is None else own.created_at

    # -- partitions ------------------------------------------------------------------------------------------

    def partition(self, where: TopicPartition) -> PartitionInfo | None:
        """Return a partition, or None if it does not exist."""
        topic = self.topics.get(where.topic)
        return topic.partitions[where.partition] if topic and 0 <= where.partition < len(topic.partitions) else None

    @property
    def moving(self) -> list[TopicPartition]:
        """The partitions under reassignment, sorted."""
        return sorted(where for partitions in self._moving.values() for where in partitions)

    @property
    def is_moving(self) -> bool:
        """True if a partition is under reassignment."""
        return bool(self._moving)

    def leader_of(self, info: PartitionInfo) -> int:
        """Return the leader of a partition if its broker is live; otherwise -1."""
        return info.state.leader if info.state.leader in self.brokers else NO_LEADER

    def offline_replicas(self, info: PartitionInfo) -> list[int]:
        """Return the replicas of a partition whose brokers are not live."""
        brokers, offline = self.brokers, []
        for (
            each
        ) in info.replicas:  # A comprehension would take twice as long, and Metadata requests call this method often.
            if each not in brokers:
                offline.append(each)
        return offline

    def has_version_of(self, change: StateChange) -> bool:
        """Return whether this metadata image contains the partition state of a change, or a later state."""
        info = self.partition(change.where)
        return info is not None and info.version >= change.version

    def has_other_than(self, change: StateChange) -> bool:
        """Return whether this metadata image contains a later partition state than a change, or a different state with
        the same version.
        """
        info = self.partition(change.where)
        return info is not None and self.has_version_of(change) and info.state != change.state


def next_state(where: TopicPartition, topic: TopicInfo, state: PartitionState) -> StateChange:
    """Return the change to a new partition state. Its write fails if another broker changes the partition first."""
    return StateChange(where, topic.topic_id, state, topic.partitions[where.partition].version + 1)


def _moving_of(info: TopicInfo) -> Iterable[TopicPartition]:
    for number, each in enumerate(info.partitions):
        if each.adding or each.removing:
            yield TopicPartition(info.name, number)


@dataclass(frozen=True, slots=True)
class BrokersDelta:
    """The difference between the live brokers of two metadata images.

    :ivar came: the brokers that are only in the later image. A broker that registered again is in both `came` and
        `gone`.
    :ivar gone: the brokers that are only in the earlier image.
    :ivar changed: the brokers whose registration changed while their broker epoch did not.
    """

    came: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()

    @property
    def all(self) -> frozenset[int]:
        """All brokers that differ."""
        return self.came | self.gone | self.changed


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The difference between two images.

    :ivar brokers: the difference between the live brokers.
    :ivar topics: the names of topics that are new, deleted, recreated or otherwise changed.
    :ivar partitions: the numbers of new or changed partitions, by topic. Deleted topics are not included.
    :ivar acls: True if the ACLs differ.
    """

    before: MetadataImage
    after: MetadataImage
    brokers: BrokersDelta
    topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]]
    acls: bool = False

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage, among: Iterable[str] | None = None) -> MetadataDelta:
        """Compare two images.

        :param among: the names of the topics to compare, or None to compare all topics of both images.
        """
        names = dict.fromkeys([*before.topics, *after.topics] if among is None else among)
        differing = tuple(name for name in names if before.topics.get(name) != after.topics.get(name))
        partitions = {
            name: _changed_partitions(before.topics.get(name), info)
            for name in differing
            if (info := after.topics.get(name)) is not None
        }
        brokers = _brokers_delta(before.brokers, after.brokers)
        # Unchanged ACLs stay the same object. Comparing thousands of them would take long.
        return cls(before, after, brokers, differing, partitions, acls=before.acls is not after.acls)

    def __bool__(self) -> bool:
        return self.before is not self.after and (bool(self.topics) or self.brokers != BrokersDelta() or self.acls)


def _brokers_delta(before: Mapping[int, LiveBroker], after: Mapping[int, LiveBroker]) -> BrokersDelta:
    if before is after:
        return BrokersDelta()
    same = {each for each, broker in after.items() if each in before and before[each].epoch == broker.epoch}
    return BrokersDelta(
        came=frozenset(after.keys() - same),
        gone=frozenset(before.keys() - same),
        changed=frozenset(each for each in same if before[each] != after[each]),
    )


def _changed_partitions(before: TopicInfo | None, after: TopicInfo) -> tuple[int, ...]:
    known = before.partitions if before is not None and before.topic_id == after.topic_id else ()
    return tuple(
        number
        for number, each in enumerate(after.partitions)
        if number >= len(known) or (each is not known[number] and each != known[number])
    )
