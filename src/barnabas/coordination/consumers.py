"""Registration of consumers that coordinate through the metadata store: group members and partition owners.

As in the paper (3.2), the nodes of a consumer and of its owned partitions are ephemeral, and its committed offsets are
persistent. A consumer commits in the session that owns the partitions, and the `multi` of the commit checks the
ownership. So a consumer whose session has expired cannot commit. The JSON and the paths are as in Kafka 0.8, except
that a consumer has one entry per topic and not one per stream.
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
    """The state that a consumer needs to assign partitions to itself."""

    subscriptions: dict[str, frozenset[str]]
    """The subscribed topics of each consumer of the group, by consumer id."""
    partition_counts: dict[str, int]
    """The partition counts of the existing topics."""


class ConsumerRegistry:
    """The registration of one consumer in one session. The methods block and are not thread-safe.

    :param consumer_id: an id that is unique in the group.
    :param on_change: called by the metadata store's thread after a change of the nodes that `read` or `await_release`
        watches.
    """

    def __init__(self, tree: MetadataStore, group: str, consumer_id: str, on_change: Callable[[], None]) -> None:
        self._tree = tree
        self._group = group
        self._consumer_id = consumer_id
        self._watch: Watch = lambda _event: on_change()
        """The only watch object.

        The metadata store keeps an object once per node, so repeated reads do not add a second watch.
        """

    # --- group members ----------------------------------------------------------------------------------

    def register(self, topics: Iterable[str], now_ms: int) -> None:
        """Register this consumer with the topics that it subscribes to.

        An existing node is deleted and created again, because other consumers watch the list of members and not the
        data of their nodes.

        :raises NodeExistsError: another session has registered the same consumer id.
        """
        path = paths.group_member(self._group, self._consumer_id)
        ensure_paths(self._tree, [parent_of(path)])
        own: list[Operation] = [Delete(each) for each in self._own([path])]
        self._tree.multi([*own, Create(path, encode_consumer(topics, now_ms), ephemeral=True)])

    def leave(self, owned: Iterable[TopicPartition]) -> None:
        """Delete this consumer's registration and ownership, if they exist.

        :param owned: the partitions that this consumer may own.
        """
        self.release(owned)
        self._delete_own([paths.group_member(self._group, self._consumer_id)])

    def read(self, topics: Iterable[str]) -> Members:
        """Read and watch the members of the group and the partition counts of the given topics.

        A consumer with a damaged node is returned without topics. A node that no session owns is ignored, because a
        backup or another program created it.
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
                report_damaged(self._tree, [error], "not consuming the topic in")
                return 0
            except NoNodeError:
                if self._tree.exists(path, self._watch) is None:
                    return 0

    # --- partition owners -------------------------------------------------------------------------------

    def claim(self, partitions: Iterable[TopicPartition]) -> str | None:
        """Register this consumer as owner of the partitions.

        :return: None on success; otherwise the path of a partition's node that another consumer owns. In this case,
            this consumer may already own other partitions and must release them.
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
        """Delete owner nodes that no session owns, because no consumer can release them; return `nodes`."""
        strange = [path for path, node in self._tree.get_all(nodes).items() if not node.stat.owner]
        report_damaged(
            self._tree,
            [DamagedNodeError(path, "no session owns the node") for path in strange],
            "deleting the partition owner",
        )
        for path in strange:
            with suppress(NoNodeError, NotEmptyError):
                self._tree.delete(path)
        return nodes

    def await_release(self, path: str) -> bool:
        """Return whether an owner node exists. If it exists, `on_change` is called after its deletion."""
        return self._tree.exists(path, self._watch) is not None

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Release the given partitions; ignore partitions that this session does not own."""
        self._delete_own([paths.group_owner(self._group, tp) for tp in sorted(partitions)])

    def _delete_own(self, nodes: list[str]) -> None:
        for part in in_parts(Delete(path) for path in self._own(nodes)):
            if part:
                self._tree.multi(part)

    def _own(self, nodes: list[str]) -> list[str]:
        """Return the paths of the nodes that this session owns."""
        there = self._tree.get_all(nodes)
        return [path for path in nodes if path in there and there[path].stat.owner == self._tree.session_id]

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, now_ms: int, *, as_owner: bool = True) -> None:
        """Commit all offsets or none.

        If there are thousands of offsets, they are written in several steps, and a failure may leave some of them
        committed.

        :param as_owner: True if this consumer must own the partitions.
        :raises NoNodeError: a partition is not owned, or its topic does not exist.
        """
        values = {paths.group_offset(self._group, tp): encode_offset(offset, now_ms) for tp, offset in offsets.items()}
        owned = [paths.group_owner(self._group, tp) for tp in offsets] if as_owner else []
        topics = dict.fromkeys(paths.topic(tp.topic) for tp in offsets)
        if values:
            put_all(self._tree, values, needed=[*owned, *topics])

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets. Partitions without a committed offset are absent."""
        where = {paths.group_offset(self._group, tp): tp for tp in partitions}
        nodes = self._tree.get_all(list(where))
        found = readable_offsets(self._tree, nodes)
        return {where[path]: committed.offset for path, committed in found.items()}
