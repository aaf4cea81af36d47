"""The committed offsets of many groups, in memory, as the records of one partition of `__consumer_offsets` have them.

Pure. `CommittedOffsets` has the offsets that clients may see; `of_deleted` and `expired` choose those to forget.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

from barnabas.groups.records import Committed
from barnabas.groups.topic_metadata import TopicMetadata
from barnabas.model import NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from barnabas.protocol.declare import ZERO_UUID

OFFSETS_PER_RELEASE = 2_048
"""One slice of `GroupOffsets.release` frees about so many offsets."""

_NONE: Mapping[TopicPartition, Committed] = {}


class GroupOffsets:
    """Offsets by group and partition. A group without offsets takes no room."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, Committed]] = {}

    def __len__(self) -> int:
        return len(self._by_group)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_group)

    def of(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Return a group's offsets; empty for one that has none."""
        return self._by_group.get(group_id, _NONE)

    def apply(self, group_id: str, where: TopicPartition, committed: Committed | None) -> None:
        """Change an offset as a record says."""
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
        """Yield each group with a copy of its offsets. Any thread may call it."""
        for group_id, offsets in self._by_group.copy().items():
            yield group_id, offsets.copy()

    def release(self) -> Iterator[None]:
        """Free all offsets in slices."""
        freed = 0
        while self._by_group:
            _, offsets = self._by_group.popitem()
            freed += 1 + len(offsets)
            if freed >= OFFSETS_PER_RELEASE:
                freed = 0
                yield


class CommittedOffsets:
    """The offsets of one group that clients see: those in topics that exist, with the id of the commit."""

    def __init__(self, topics: TopicMetadata, offsets: Mapping[TopicPartition, Committed]) -> None:
        self._topics = topics
        self._offsets = offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return (where for where, committed in self._offsets.items() if self._is_valid(where, committed))

    def get(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """Return the offset in a partition."""
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
    """Return the offsets that were committed for topics that were deleted.

    :param topic_ids: the ids that these topics had.
    :param names: their names, for offsets without an id.
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
    """Return the offsets that are to be forgotten (KIP-211).

    They are those of a group without members, once it has been so, and the offset has not been committed, for the
    retention time; and those in topics that no member of a group reads any more, once they are as old. Offsets
    without a time stay: they were committed while the wall clock was in doubt. The next load gives them a time.

    :param empty_for_ms: for how long the group has had no members; None if it has some.
    :param read: the topics that its members read; None if that is not known.
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
