"""The image of the cluster that a broker holds now, and the rules by which reports of the metadata tree replace it.

A report may come twice: from the broker's own write, and from the notifications of others
(`barnabas.coordination.change_notifications`). An older report may follow a newer one. The versions of the nodes
decide.

The tree is untrusted. A state that no broker can have written after the known state is not believed. The image keeps
the known state with the version of the node, so that the next write of a broker replaces what a stranger wrote.
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


class MetadataCache:
    """Used from the event loop's thread only. Each change replaces `image` as a whole.

    It computes how the new image differs from the one before, once, and publishes this `MetadataDelta`.

    :ivar image: the present image.
    :ivar disbelieved: the states of nodes that the image does not believe, by partition.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.image = MetadataImage()
        self.disbelieved: dict[TopicPartition, PartitionState] = {}
        self._earlier: dict[tuple[bytes, int], int] = {}
        """The latest epoch that this broker led in an earlier incarnation, by topic id and partition. A topic that is
        deleted and created again begins with epoch 0."""

    # -- incarnations of this broker -------------------------------------------------------------------------

    def begin_incarnation(self, broker_id: int, topics: Iterable[TopicInfo]) -> None:
        """Note that this broker has registered again.

        It leads a partition in later epochs only: followers may lack what it has of the epochs of its earlier
        incarnation.

        :param topics: as they are in the tree.
        """
        self._earlier = {}
        for topic in topics:
            self.add_to_incarnation(broker_id, topic)

    def add_to_incarnation(self, broker_id: int, topic: TopicInfo) -> None:
        """Do the same for a topic that the broker could not read when it registered."""
        known = self.image.topics.get(topic.name)
        both = [topic, known] if known is not None and known.topic_id == topic.topic_id else [topic]
        for info in both:
            for number, each in enumerate(info.partitions):
                if each.state.leader == broker_id:
                    earlier = self._earlier.get((topic.topic_id, number), NO_LEADER_EPOCH)
                    self._earlier[topic.topic_id, number] = max(earlier, each.state.leader_epoch)

    def leads_in_this_incarnation(self, broker_id: int, where: TopicPartition, state: PartitionState) -> bool:
        """Return whether a state makes this broker the leader, in an epoch that began after it had registered.

        :param where: a partition of a topic in the image.
        """
        topic_id = self.image.topics[where.topic].topic_id
        earlier = self._earlier.get((topic_id, where.partition), NO_LEADER_EPOCH)
        return state.leader == broker_id and state.leader_epoch > earlier

    # -- reports of the tree ---------------------------------------------------------------------------------

    def put_brokers(self, brokers: Mapping[int, LiveBroker]) -> MetadataDelta:
        """Apply the list of live brokers."""
        return self._replace(self.image.with_brokers(brokers), [])

    def put_topic(self, info: TopicInfo) -> MetadataDelta:
        """Apply a topic as it was read. States and replicas of the image stay where they are newer."""
        return self.put_topics([info])

    def put_topics(self, topics: Iterable[TopicInfo]) -> MetadataDelta:
        """Apply topics as they were read, as one change of the image."""
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
        """Apply states of partitions that are newer than those of the image."""
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
        """Remove a topic."""
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

    # -- belief ----------------------------------------------------------------------------------------------

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
        """Return the state that counts after another one than the known state was read."""
        is_believed = _can_follow(known, found) and {found.leader, *found.isr} <= {NO_LEADER, *replicas}
        if is_believed:
            self.disbelieved.pop(where, None)
            return found
        self.disbelieved[where] = found
        return known

    def _with_states(self, name: str, topic_id: bytes, changes: Iterable[StateChange]) -> TopicInfo | None:
        """Return a topic with newer states; None if the image has no such topic, or no state is newer."""
        topic = self.image.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return None
        partitions, is_changed = list(topic.partitions), False
        for change in changes:
            number = change.where.partition
            # A partition that the image lacks is read with its topic.
            if number < len(partitions) and change.version > partitions[number].version:
                known = partitions[number]
                state = self._believe(change.where, known.state, change.state, known.replicas)
                partitions[number] = replace(known, state=state, version=change.version)
                is_changed = True
        return replace(topic, partitions=tuple(partitions)) if is_changed else None


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
