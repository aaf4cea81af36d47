"""The committed offsets of many groups in memory.

They correspond to the records in one partition of `__consumer_offsets`.

The module does no I/O. `CommittedOffsets` contains the offsets that are visible to clients. `of_deleted` and `expired`
select offsets to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

from barnabas.groups.records import Committed
from barnabas.groups.topic_metadata import TopicMetadata
from barnabas.model import NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from barnabas.protocol.declare import ZERO_UUID

OFFSETS_PER_RELEASE = 2_048
"""The approximate number of offsets that `GroupOffsets.release` frees per slice."""

_NONE: Mapping[TopicPartition, Committed] = {}


class GroupOffsets:
    """Committed offsets by group and partition. A group without offsets uses no memory."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, Committed]] = {}

    def __len__(self) -> int:
        return len(self._by_group)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_group)

    def of(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Return the offsets of a group. The mapping is empty if the group has none."""
        return self._by_group.get(group_id, _NONE)

    def apply(self, group_id: str, where: TopicPartition, committed: Committed | None) -> None:
        """Apply a record: set an offset, or remove it if `committed` is None."""
        offsets = self._by_group.get(group_id)
        if committed is not None:
            if offsets is None:
                offsets = self._by_group[group_id] = {}
            offsets[where] = committed
        elif offsets is not None:
            offsets.pop(where, None)
            if not offsets:
                del self._by_group[group_id]

    def copies(self) -> Iterator[tuple[str, dict[TopicPartition, Committed]]]:
        """Yield each group with a copy of its offsets. Any thread may call this method."""
        for group_id, offsets in self._by_group.copy().items():
            yield group_id, offsets.copy()

    def release(self) -> Iterator[None]:
        """Free all offsets in slices, and yield after each slice."""
        freed = 0
        while self._by_group:
            _, offsets = self._by_group.popitem()
            freed += 1 + len(offsets)
            if freed >= OFFSETS_PER_RELEASE:
                freed = 0
                yield


class CommittedOffsets:
    """The offsets of one group that are visible to clients: their topics exist and have the same topic id as at the
    commit.
    """

    def __init__(self, topics: TopicMetadata, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._topics = topics
        self._offsets = offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return (where for where, committed in self._offsets.items() if self._is_valid(where, committed))

    def get(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition, or None."""
        committed = self._offsets.get(where)
        if committed is None or not self._is_valid(where, committed):
            return None
        return OffsetAndMetadata(committed.offset, committed.metadata, committed.leader_epoch)

    def _is_valid(self, where: TopicPartition, committed: Committed) -> bool:
        if committed.topic_id == ZERO_UUID:
            return True
        return self._topics.topic_id(where.topic) == committed.topic_id


def of_deleted(
    offsets: Mapping[TopicPartition, Committed], topic_ids: Container[bytes], names: Container[str]
) -> list[TopicPartition]:
    """Return the partitions whose committed offsets belong to deleted topics.

    :param topic_ids: the ids of the deleted topics.
    :param names: the names of the deleted topics, for offsets without a topic id.
    """
    return [
        where
        for where, committed in offsets.items()
        if committed.topic_id in topic_ids or (committed.topic_id == ZERO_UUID and where.topic in names)
    ]


def expired(
    offsets: Mapping[TopicPartition, Committed],
    now_ms: int,
    retention_ms: int,
    empty_for_ms: int | None,
    read: Collection[str] | None,
) -> list[TopicPartition]:
    """Return the partitions whose committed offsets have expired (KIP-211).

    In a group without members, an offset expires if the group has been empty, and the offset has not been committed
    again, for the retention time. In a group with members, an offset expires after this time if no member reads the
    topic. An offset without a timestamp does not expire. It was committed while the wall clock was unreliable, and gets
    a timestamp when it is next loaded.

    :param empty_for_ms: the time in ms for which the group has been empty, or None if it has members.
    :param read: the topics that the group's members read, or None if unknown.
    """

    def is_old(committed: Committed) -> bool:
        if committed.expires_ms >= 0:
            return now_ms >= committed.expires_ms
        if committed.committed_ms == NO_TIMESTAMP:
            return False
        return now_ms - committed.committed_ms >= retention_ms

    if empty_for_ms is None:
        if read is None:
            return []
        return [where for where, committed in offsets.items() if where.topic not in read and is_old(committed)]
    return [
        where
        for where, committed in offsets.items()
        if is_old(committed) and (committed.expires_ms >= 0 or empty_for_ms >= retention_ms)
    ]
