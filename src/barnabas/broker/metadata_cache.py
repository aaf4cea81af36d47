"""The metadata cache of a broker: the current metadata image, and the rules for updating it from the metadata store.

The cache may get the same partition state twice, from the broker's own write and from the notifications of other
brokers (`barnabas.coordination.change_notifications`). It may also get an older state after a newer state. The node
versions decide which state is newer. The metadata store is not trusted. The cache rejects a state that no broker can
have written after the known state. The image then keeps the known state, but with the new node version. So the next
write of a broker replaces the invalid state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from barnabas.broker.broker_events import Events
from barnabas.broker.metadata_image import MetadataDelta, MetadataImage
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, LiveBroker, PartitionState
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.security.authorizer import Acls


class MetadataCache:
    """The metadata cache of a broker.

    Used from the event loop's thread only. Each change replaces `image` as a whole, and publishes a `MetadataDelta`,
    which contains the changes from the previous image.

    :ivar image: the current metadata image.
    :ivar disbelieved: the rejected partition states, by partition.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.image = MetadataImage()
        self.disbelieved: dict[TopicPartition, PartitionState] = {}
        self._earlier: dict[tuple[bytes, int], int] = {}
        """The last leader epoch in which this broker led before its current registration, by topic id and partition.

        The key contains the topic id, because the leader epochs of a recreated topic begin with 0 again.
        """

    # -- incarnations of this broker -------------------------------------------------------------------------

    def begin_incarnation(self, broker_id: int, topics: Iterable[TopicInfo]) -> None:
        """Begin a new incarnation: this broker has registered again.

        In the new incarnation, the broker leads a partition only in later leader epochs.

        :param topics: the topics in the metadata store.
        """
        self._earlier = {}
        for topic in topics:
            self.add_to_incarnation(broker_id, topic)

    def add_to_incarnation(self, broker_id: int, topic: TopicInfo) -> None:
        """Record the leader epochs of a topic that the broker could not read when the incarnation began."""
        known = self.image.topics.get(topic.name)
        both = [topic, known] if known is not None and known.topic_id == topic.topic_id else [topic]
        for info in both:
            for number, each in enumerate(info.partitions):
                if each.state.leader == broker_id:
                    earlier = self._earlier.get((topic.topic_id, number), NO_LEADER_EPOCH)
                    self._earlier[topic.topic_id, number] = max(earlier, each.state.leader_epoch)

    def leads_in_this_incarnation(self, broker_id: int, where: TopicPartition, state: PartitionState) -> bool:
        """Return whether this broker is the leader in a partition state whose leader epoch began after its
        registration.

        :param where: a partition of a topic in the metadata image.
        """
        topic_id = self.image.topics[where.topic].topic_id
        earlier = self._earlier.get((topic_id, where.partition), NO_LEADER_EPOCH)
        return state.leader == broker_id and state.leader_epoch > earlier

    # -- data from the metadata store ------------------------------------------------------------------------

    def put_brokers(self, brokers: Mapping[int, LiveBroker]) -> MetadataDelta:
        """Apply the list of live brokers."""
        return self._replace(self.image.with_brokers(brokers), [])

    def put_acls(self, acls: Acls) -> MetadataDelta:
        """Apply the ACLs."""
        return self._replace(self.image.with_acls(acls), [])

    def put_topic(self, info: TopicInfo) -> MetadataDelta:
        """Apply the metadata of a topic.

        Partition states and replicas that are newer in the metadata image do not change.
        """
        return self.put_topics([info])

    def put_topics(self, topics: Iterable[TopicInfo]) -> MetadataDelta:
        """Apply the metadata of several topics as one change of the metadata image."""
        changed = [info for each in topics if (info := self._merged(each)) != self.image.topics.get(each.name)]
        if not changed:
            return self._replace(self.image, [])
        return self._replace(self.image.with_topics(*changed), [info.name for info in changed])

    def _merged(self, info: TopicInfo) -> TopicInfo:
        known = self.image.topics.get(info.name)
        if known is None or known.topic_id != info.topic_id:
            return info
        info = replace(info, partitions=tuple(self._believed(info.name, known.partitions, info.partitions)))
        older, newer = (info, known) if known.version > info.version else (known, info)
        states = dict(enumerate(older.partitions))
        partitions = tuple(_newer(each, states.get(number, each)) for number, each in enumerate(newer.partitions))
        return replace(info, partitions=partitions, version=newer.version)

    def put_states(self, changes: Iterable[StateChange]) -> MetadataDelta:
        """Apply the partition states that are newer than the states in the metadata image."""
        by_topic: dict[tuple[str, bytes], list[StateChange]] = {}
        for change in changes:
            by_topic.setdefault((change.where.topic, change.topic_id), []).append(change)
        changed = [
            info
            for (name, topic_id), of_topic in by_topic.items()
            if (info := self._with_states(name, topic_id, of_topic)) is not None
        ]
        if not changed:
            return self._replace(self.image, [])
        return self._replace(self.image.with_topics(*changed), [info.name for info in changed])

    def remove_topic(self, name: str) -> MetadataDelta:
        """Remove a topic from the metadata image."""
        self.disbelieved = {where: found for where, found in self.disbelieved.items() if where.topic != name}
        if name not in self.image.topics:
            return self._replace(self.image, [])
        return self._replace(self.image.without_topic(name), [name])

    def _replace(self, image: MetadataImage, among: Iterable[str]) -> MetadataDelta:
        before, self.image = self.image, image
        delta = MetadataDelta.between(before, image, among)
        if delta:
            self._events.publish(delta)
        return delta

    # -- validation ------------------------------------------------------------------------------------------

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
        """Return the new state if it can follow the known state and contains only replicas; otherwise the known
        state.
        """
        is_believed = _can_follow(known, found) and {found.leader, *found.isr} <= {NO_LEADER, *replicas}
        if is_believed:
            self.disbelieved.pop(where, None)
            return found
        self.disbelieved[where] = found
        return known

    def _with_states(self, name: str, topic_id: bytes, changes: Iterable[StateChange]) -> TopicInfo | None:
        """Return a topic with updated partition states, or None if the topic is not in the metadata image or no state
        is newer.
        """
        topic = self.image.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return None
        partitions, is_changed = list(topic.partitions), False
        for change in changes:
            number = change.where.partition
            # If the metadata image does not contain the partition yet, a later read of the topic adds it.
            if number < len(partitions) and change.version > partitions[number].version:
                known = partitions[number]
                state = self._believe(change.where, known.state, change.state, known.replicas)
                partitions[number] = replace(known, state=state, version=change.version)
                is_changed = True
        return replace(topic, partitions=tuple(partitions)) if is_changed else None


def _can_follow(known: PartitionState, found: PartitionState) -> bool:
    """Return whether a broker can have written a state after the known state.

    Leader epochs only grow, and each has one leader.
    """
    if found.leader_epoch != known.leader_epoch:
        return found.leader_epoch > known.leader_epoch
    return found.leader in {known.leader, NO_LEADER}


def _newer(replicas_of: PartitionInfo, other: PartitionInfo) -> PartitionInfo:
    """Return a partition with the replicas of the first argument and the newer of the two states."""
    if other.version <= replicas_of.version:
        return replicas_of
    return replace(replicas_of, state=other.state, version=other.version)
