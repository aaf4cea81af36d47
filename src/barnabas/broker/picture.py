"""What this broker knows of the whole cluster: which brokers live, which topics there are, who leads each partition.

Pure: what was read of the tree comes in, what changed by it comes out. The same fact may come twice, by the broker's
own write and by the others' telling (`barnabas.coordination.changes`), and an older one after a newer one: the versions
of the nodes tell.

The tree is untrusted. A state that no broker can have written after the known one is not believed. The known state
stays, with the version of the node, so that the next write of a broker replaces what a stranger wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from barnabas.coordination.changes import StateChange
from barnabas.coordination.registry import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, LiveBroker, PartitionState
from barnabas.model import NO_LEADER_EPOCH, TopicPartition


@dataclass(frozen=True, slots=True)
class BrokersChange:
    """Which brokers came and went; one that lives a new life did both."""

    came: frozenset[int]
    gone: frozenset[int]
    changed: frozenset[int]
    """They live on, and tell something else of themselves."""


class Picture:
    """Used from the event loop's thread only."""

    def __init__(self) -> None:
        self.brokers: Mapping[int, LiveBroker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.moving: set[TopicPartition] = set()
        """The partitions whose replicas are being changed."""
        self._moving_of: dict[str, list[TopicPartition]] = {}
        """The same by topic."""
        self.disbelieved: dict[TopicPartition, PartitionState] = {}
        """The states of nodes that are not believed."""
        self._earlier: dict[tuple[bytes, int], int] = {}
        """By topic's id and partition: a topic that is deleted and made again begins with epoch 0 once more."""

    # -- this broker's lives --------------------------------------------------------------------------------

    def begin_life(self, broker_id: int, topics: Iterable[TopicInfo]) -> None:
        """This broker has registered anew. Where the tree says now that it leads, that was in an earlier life: what it
        has of those epochs others may lack, so it leads in later ones only.

        :param topics: as they are in the tree.
        """
        self._earlier = {}
        for topic in topics:
            self.begin_life_with(broker_id, topic)

    def begin_life_with(self, broker_id: int, topic: TopicInfo) -> None:
        """Do the same for a topic that could not be read when this broker registered."""
        known = self.topics.get(topic.name)
        both = [topic, known] if known is not None and known.topic_id == topic.topic_id else [topic]
        for info in both:
            for number, each in enumerate(info.partitions):
                if each.state.leader == broker_id:
                    earlier = self._earlier.get((topic.topic_id, number), NO_LEADER_EPOCH)
                    self._earlier[topic.topic_id, number] = max(earlier, each.state.leader_epoch)

    def leads_in_this_life(self, broker_id: int, where: TopicPartition, state: PartitionState) -> bool:
        """Whether the state makes this broker the leader, in an epoch that began after it had registered.

        :param where: of a topic that is known.
        """
        earlier = self._earlier.get((self.topics[where.topic].topic_id, where.partition), NO_LEADER_EPOCH)
        return state.leader == broker_id and state.leader_epoch > earlier

    # -- what is known --------------------------------------------------------------------------------------

    def partition(self, where: TopicPartition) -> PartitionInfo | None:
        """Return what is known of a partition, or None if there is none."""
        topic = self.topics.get(where.topic)
        return topic.partitions[where.partition] if topic and 0 <= where.partition < len(topic.partitions) else None

    def leader_of(self, info: PartitionInfo) -> int:
        """Return who leads a partition, if it lives, or -1."""
        return info.state.leader if info.state.leader in self.brokers else NO_LEADER

    def offline_replicas(self, info: PartitionInfo) -> list[int]:
        """Return the replicas whose brokers do not live."""
        return [each for each in info.replicas if each not in self.brokers]

    def is_eligible(self, broker_id: int, epoch: int | None = None) -> bool:
        """Whether a broker may be in sync: it lives, in this epoch if one is given, and is not leaving."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.registration.is_leaving and epoch in {None, broker.epoch}

    def epoch_for_leader(self, leader: int, broker_id: int) -> int | None:
        """Return the broker epoch that a leader of release 0.1 compares: the `created_at` of the registration's node.

        For any other leader, return None.
        """
        known, own = self.brokers.get(leader), self.brokers.get(broker_id)
        return None if known is None or known.has_random_epoch or own is None else own.created_at

    def has_heard_of(self, wanted: StateChange) -> bool:
        """Whether it is known that a partition's state was changed, to this one or to another instead."""
        info = self.partition(wanted.where)
        return info is not None and info.version >= wanted.version

    def has_instead(self, wanted: StateChange) -> bool:
        """Whether somebody else has changed a partition's state instead."""
        info = self.partition(wanted.where)
        return info is not None and self.has_heard_of(wanted) and info.state != wanted.state

    @property
    def spokesman(self) -> int:
        """The live broker with the least id: named where Kafka's clients want to know a controller, and the one that
        clears away what all have seen. Any other could as well."""
        return min(self.brokers, default=NO_LEADER)

    # -- what becomes known ---------------------------------------------------------------------------------

    def put_brokers(self, brokers: Mapping[int, LiveBroker]) -> BrokersChange:
        """Take over which brokers live."""
        before, self.brokers = self.brokers, dict(brokers)
        same = {each for each, broker in brokers.items() if each in before and before[each].epoch == broker.epoch}
        return BrokersChange(
            came=frozenset(brokers.keys() - same),
            gone=frozenset(before.keys() - same),
            changed=frozenset(each for each in same if before[each] != brokers[each]),
        )

    def put_topic(self, info: TopicInfo) -> bool:
        """Take over a topic as it was read; return whether that is news. Newer states and replicas are kept."""
        known = self.topics.get(info.name)
        if known is not None and known.topic_id == info.topic_id:
            info = replace(info, partitions=tuple(self._believed(info.name, known.partitions, info.partitions)))
            older, newer = (info, known) if known.version > info.version else (known, info)
            states = dict(enumerate(older.partitions))
            partitions = tuple(_newer(each, states.get(number, each)) for number, each in enumerate(newer.partitions))
            info = replace(info, partitions=partitions, version=newer.version)
        self._forget_moving(info.name)
        moving = [
            TopicPartition(info.name, number)
            for number, each in enumerate(info.partitions)
            if each.adding or each.removing
        ]
        if moving:
            self._moving_of[info.name] = moving
            self.moving.update(moving)
        self.topics[info.name] = info
        return info != known

    def _believed(
        self, name: str, known: tuple[PartitionInfo, ...], found: tuple[PartitionInfo, ...]
    ) -> Iterable[PartitionInfo]:
        for number, each in enumerate(found):
            if number < len(known) and each.version >= known[number].version:
                state = self._believe(TopicPartition(name, number), known[number].state, each.state, each.replicas)
                yield each if state == each.state else replace(each, state=state)
            else:
                yield each

    def _believe(
        self, where: TopicPartition, known: PartitionState, found: PartitionState, replicas: tuple[int, ...]
    ) -> PartitionState:
        """Return the state that counts where another one than the known one was read."""
        is_believed = _can_follow(known, found) and {found.leader, *found.isr} <= {NO_LEADER, *replicas}
        if is_believed:
            self.disbelieved.pop(where, None)
            return found
        self.disbelieved[where] = found
        return known

    def remove_topic(self, name: str) -> bool:
        """Forget a topic; return whether it was known."""
        self._forget_moving(name)
        self.disbelieved = {where: found for where, found in self.disbelieved.items() if where.topic != name}
        return self.topics.pop(name, None) is not None

    def _forget_moving(self, name: str) -> None:
        self.moving.difference_update(self._moving_of.pop(name, ()))

    def put_states(self, changes: Iterable[StateChange]) -> dict[str, list[int]]:
        """Take over states; return the partitions, by topic, of which that is news."""
        by_topic: dict[tuple[str, bytes], list[StateChange]] = {}
        for change in changes:
            by_topic.setdefault((change.where.topic, change.topic_id), []).append(change)
        return {
            name: changed
            for (name, topic_id), of_topic in by_topic.items()
            if (changed := self._put_states_of(name, topic_id, of_topic))
        }

    def _put_states_of(self, name: str, topic_id: bytes, changes: Iterable[StateChange]) -> list[int]:
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return []
        partitions, changed = list(topic.partitions), []
        for change in changes:
            number = change.where.partition
            # A partition that is not known yet is read with its topic.
            if number < len(partitions) and change.version > partitions[number].version:
                known = partitions[number]
                state = self._believe(change.where, known.state, change.state, known.replicas)
                partitions[number] = replace(known, state=state, version=change.version)
                changed.append(number)
        if changed:
            self.topics[name] = replace(topic, partitions=tuple(partitions))
        return changed


def _can_follow(known: PartitionState, found: PartitionState) -> bool:
    """Return whether brokers can have written a state after the known one: epochs grow, and each has one leader."""
    if found.leader_epoch != known.leader_epoch:
        return found.leader_epoch > known.leader_epoch
    return found.leader in {known.leader, NO_LEADER}


def _newer(replicas_of: PartitionInfo, other: PartitionInfo) -> PartitionInfo:
    """Return a partition with the replicas of the one, and the newer state of both."""
    if other.version <= replicas_of.version:
        return replicas_of
    return replace(replicas_of, state=other.state, version=other.version)


def next_state(where: TopicPartition, topic: TopicInfo, state: PartitionState) -> StateChange:
    """Return the change to `state` of a partition that nobody else changes meanwhile."""
    return StateChange(where, topic.topic_id, state, topic.partitions[where.partition].version + 1)
