"""An immutable picture of the cluster, and the difference between two pictures.

`MetadataImage` is a value. A broker replaces its image as a whole (`barnabas.broker.metadata_cache`); two images share
all topics that are equal. Other parts of the metadata (ACLs, quotas, levels of features) become further fields: a value
with an empty default here, and a field of `MetadataDelta` that names what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, LiveBroker, PartitionState
from barnabas.model import TopicPartition


@dataclass(frozen=True)
class MetadataImage:
    """What a broker knows of the cluster at one moment.

    :param brokers: the live brokers, by id.
    :param topics: by name.
    """

    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    _moving: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict, compare=False, repr=False)
    """The partitions under reassignment, by topic; follows from `topics`."""

    # -- the next image --------------------------------------------------------------------------------------

    def with_brokers(self, brokers: Mapping[int, LiveBroker]) -> MetadataImage:
        """Return this image with other live brokers."""
        return MetadataImage(dict(brokers), self.topics, self._moving)

    def with_topics(self, *changed: TopicInfo) -> MetadataImage:
        """Return this image with topics that are new, or replace those of the same name."""
        topics, moving = dict(self.topics), dict(self._moving)
        for info in changed:
            topics[info.name] = info
            moving.pop(info.name, None)
            if found := tuple(_moving_of(info)):
                moving[info.name] = found
        return MetadataImage(self.brokers, topics, moving)

    def without_topic(self, name: str) -> MetadataImage:
        """Return this image without a topic."""
        topics, moving = dict(self.topics), dict(self._moving)
        del topics[name]
        moving.pop(name, None)
        return MetadataImage(self.brokers, topics, moving)

    # -- brokers ---------------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """The id that clients see as the controller's: the lowest of the live brokers. -1 if no broker is known.

        This broker also clears away what all brokers have seen. Any other broker could do so.
        """
        return min(self.brokers, default=NO_LEADER)

    def is_eligible(self, broker_id: int, epoch: int | None = None) -> bool:
        """Return whether a broker may be in sync: it lives and is not leaving.

        :param epoch: the broker epoch in which it must live; None: any.
        """
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.registration.is_leaving and epoch in {None, broker.epoch}

    def epoch_for_leader(self, leader: int, broker_id: int) -> int | None:
        """Return the broker epoch that a leader of release 0.1 compares: the `created_at` of the registration's node.

        For any other leader, return None.
        """
        known, own = self.brokers.get(leader), self.brokers.get(broker_id)
        return None if known is None or known.has_random_epoch or own is None else own.created_at

    # -- partitions ------------------------------------------------------------------------------------------

    def partition(self, where: TopicPartition) -> PartitionInfo | None:
        """Return a partition; None if there is none."""
        topic = self.topics.get(where.topic)
        return topic.partitions[where.partition] if topic and 0 <= where.partition < len(topic.partitions) else None

    @property
    def moving(self) -> list[TopicPartition]:
        """The partitions under reassignment, sorted."""
        return sorted(where for partitions in self._moving.values() for where in partitions)

    @property
    def is_moving(self) -> bool:
        """Whether a partition is under reassignment."""
        return bool(self._moving)

    def leader_of(self, info: PartitionInfo) -> int:
        """Return the leader of a partition if it lives, or -1."""
        return info.state.leader if info.state.leader in self.brokers else NO_LEADER

    def offline_replicas(self, info: PartitionInfo) -> list[int]:
        """Return the replicas whose brokers do not live."""
        brokers, offline = self.brokers, []
        for each in info.replicas:  # Metadata of all topics comes here: a comprehension takes twice the time
            if each not in brokers:
                offline.append(each)
        return offline

    def has_version_of(self, change: StateChange) -> bool:
        """Return whether the image has the state of a change, or another state in its place."""
        info = self.partition(change.where)
        return info is not None and info.version >= change.version

    def has_other_than(self, change: StateChange) -> bool:
        """Return whether the image has another state in place of that of a change."""
        info = self.partition(change.where)
        return info is not None and self.has_version_of(change) and info.state != change.state


def next_state(where: TopicPartition, topic: TopicInfo, state: PartitionState) -> StateChange:
    """Return the change of a partition to a state, to be written if no other broker changes the partition before."""
    return StateChange(where, topic.topic_id, state, topic.partitions[where.partition].version + 1)


def _moving_of(info: TopicInfo) -> Iterable[TopicPartition]:
    for number, each in enumerate(info.partitions):
        if each.adding or each.removing:
            yield TopicPartition(info.name, number)


@dataclass(frozen=True, slots=True)
class BrokersDelta:
    """How the live brokers of two images differ.

    :ivar came: brokers of the later image only. A broker that registered again is in both `came` and `gone`.
    :ivar gone: brokers of the earlier image only.
    :ivar changed: brokers that live on with another registration.
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
    """How two images differ.

    :ivar brokers: the live brokers.
    :ivar topics: the names of topics that are new, gone, recreated, or otherwise differ.
    :ivar partitions: the partitions that are new or differ, by topic. Topics that are gone are not among them.
    """

    before: MetadataImage
    after: MetadataImage
    brokers: BrokersDelta
    topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]]

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage, among: Iterable[str] | None = None) -> MetadataDelta:
        """Compare two images.

        :param among: the topics that may differ; None: all of both images.
        """
        names = dict.fromkeys([*before.topics, *after.topics] if among is None else among)
        differing = tuple(name for name in names if before.topics.get(name) != after.topics.get(name))
        partitions = {
            name: _changed_partitions(before.topics.get(name), info)
            for name in differing
            if (info := after.topics.get(name)) is not None
        }
        return cls(before, after, _brokers_delta(before.brokers, after.brokers), differing, partitions)

    def __bool__(self) -> bool:
        return self.before is not self.after and (bool(self.topics) or self.brokers != BrokersDelta())


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
