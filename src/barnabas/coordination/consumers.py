"""The registries of consumers that coordinate among themselves: who is in a group, and who owns which partition.

The paper, 3.2: a consumer's node, and the nodes of what it owns, go with its session; its offsets stay. Commits go
through the session that owns the partitions, and each checks in the same step that they are owned: who has lost its
session cannot commit any more, whatever it believes. JSON and paths are those of Kafka 0.8, but that a consumer counts
once for each topic, not once for each of its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import report_damaged, usable_names
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Watch,
    parent_of,
)
from barnabas.coordination.offsets import Offsets, readable_offsets
from barnabas.coordination.subtrees import ensure_paths, in_parts, put_all
from barnabas.coordination.values import decode_consumer, decode_topic, encode_consumer, encode_offset
from barnabas.model import OffsetAndMetadata, TopicPartition


class Members(NamedTuple):
    """What consumers read before they take their shares."""

    subscriptions: dict[str, frozenset[str]]
    """Of each consumer of the group, by its id, the topics that it wants."""
    partition_counts: dict[str, int]
    """Of the topics that exist."""


class ConsumerRegistry:
    """One consumer's part of the registries, by one session. Calls block; one thread at a time may make them.

    :param consumer_id: a name that no other consumer of the group has.
    :param on_change: called from the tree's own thread when something has changed since it was read.
    """

    def __init__(self, tree: MetadataStore, group: str, consumer_id: str, on_change: Callable[[], None]) -> None:
        self._tree = tree
        self._group = group
        self._consumer_id = consumer_id
        self._watch: Watch = lambda _event: on_change()
        """One for all, so that reading again leaves no second one where it has not fired."""

    # --- who is in the group ----------------------------------------------------------------------------

    def register(self, topics: Iterable[str], now_ms: int) -> None:
        """Say that this consumer wants these topics.

        The node is made anew, since others watch which nodes there are, and not what is in them.

        :raises NodeExistsError: another session has a consumer of this name.
        """
        path = paths.group_member(self._group, self._consumer_id)
        ensure_paths(self._tree, [parent_of(path)])
        own: list[Operation] = [Delete(each) for each in self._own([path])]
        self._tree.multi([*own, Create(path, encode_consumer(topics, now_ms), ephemeral=True)])

    def leave(self, owned: Iterable[TopicPartition]) -> None:
        """Own nothing and want nothing any more; does nothing if that is so.

        :param owned: what this consumer may own.
        """
        self.release(owned)
        self._delete_own([paths.group_member(self._group, self._consumer_id)])

    def read(self, topics: Iterable[str]) -> Members:
        """Read who is in the group, and how many partitions these topics have; and watch all of it.

        A consumer whose node cannot be understood wants nothing. A node that belongs to no session is no consumer's: a
        backup or a stranger left it there.
        """
        folder = paths.group_members(self._group)
        names = self._tree.children(folder, self._watch)
        nodes = self._tree.get_all([f"{folder}/{name}" for name in names])
        subscriptions = {}
        for path, node in nodes.items():
            if not node.stat.owner:
                continue
            try:
                wanted = decode_consumer(path, node.data)
            except NodeError:
                wanted = frozenset()
            for name in usable_names(self._tree, folder, [path.removeprefix(f"{folder}/")]):
                subscriptions[name] = wanted
        counts = {topic: self._partition_count(topic) for topic in topics}
        return Members(subscriptions, {topic: count for topic, count in counts.items() if count})

    def _partition_count(self, topic: str) -> int:
        path = paths.topic(topic)
        while True:
            try:
                return len(decode_topic(path, self._tree.get(path, self._watch).data).replicas)
            except DamagedNodeError as error:
                report_damaged(self._tree, [error], "consuming nothing of the topic in")
                return 0
            except NoNodeError:
                if self._tree.exists(path, self._watch) is None:
                    return 0

    # --- who owns what ----------------------------------------------------------------------------------

    def claim(self, partitions: Iterable[TopicPartition]) -> str | None:
        """Become the owner of partitions.

        :return: None, or the path of a node that belongs to another consumer: then some of the others may have become
            this one's, which has to release them.
        """
        nodes = [paths.group_owner(self._group, tp) for tp in sorted(partitions)]
        ensure_paths(self._tree, dict.fromkeys(map(parent_of, nodes)))
        data = self._consumer_id.encode()
        try:
            for part in in_parts(Create(path, data, ephemeral=True) for path in self._without_strangers(nodes)):
                if part:
                    self._tree.multi(part)
        except NodeExistsError as refused:
            return refused.path
        return None

    def _without_strangers(self, nodes: list[str]) -> list[str]:
        """Delete those of the nodes that belong to no session, since nobody else does; return all."""
        strange = [path for path, node in self._tree.get_all(nodes).items() if not node.stat.owner]
        report_damaged(
            self._tree, [DamagedNodeError(path, "it belongs to no session") for path in strange], "deleting the owner"
        )
        for path in strange:
            with suppress(NoNodeError, NotEmptyError):
                self._tree.delete(path)
        return nodes

    def await_release(self, path: str) -> bool:
        """Whether a node is still there; then `on_change` is called when it is not any more."""
        return self._tree.exists(path, self._watch) is not None

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Own these partitions no longer, those that this session does own."""
        self._delete_own([paths.group_owner(self._group, tp) for tp in sorted(partitions)])

    def _delete_own(self, nodes: list[str]) -> None:
        for part in in_parts(Delete(path) for path in self._own(nodes)):
            if part:
                self._tree.multi(part)

    def _own(self, nodes: list[str]) -> list[str]:
        """Return those of the nodes that this session has made."""
        there = self._tree.get_all(nodes)
        return [path for path in nodes if path in there and there[path].stat.owner == self._tree.session_id]

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, now_ms: int, *, as_owner: bool = True) -> None:
        """Commit offsets, all or none; some thousands go in several steps.

        :param as_owner: this consumer must own the partitions.
        :raises NoNodeError: one of them is not owned, or its topic does not exist.
        """
        values = {paths.group_offset(self._group, tp): encode_offset(offset, now_ms) for tp, offset in offsets.items()}
        owned = [paths.group_owner(self._group, tp) for tp in offsets] if as_owner else []
        topics = dict.fromkeys(paths.topic(tp.topic) for tp in offsets)
        if values:
            put_all(self._tree, values, needed=[*owned, *topics])

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed; partitions for which it has not are left out."""
        where = {paths.group_offset(self._group, tp): tp for tp in partitions}
        nodes = self._tree.get_all(list(where))
        found = readable_offsets(self._tree, nodes)
        return {where[path]: committed.offset for path, committed in found.items()}
