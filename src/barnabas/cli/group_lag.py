"""The lag and the current consumer of each partition of a group. The module does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from barnabas import MemberDescription


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The offsets of a group in one partition.

    :param committed: the committed offset, or None.
    :param end: the log end offset; None if the partition does not exist.
    :param member: the id of the member to which the partition is assigned.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """The number of records between the committed offset and the log end offset, at least 0; None if unknown."""
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def lags(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    members: Iterable[MemberDescription] = (),
) -> list[PartitionLag]:
    """Return the lag of each partition with a committed offset or an assigned member, sorted by topic and partition."""
    readers = {tp: member.member_id for member in members for tp in member.partitions}
    return [
        PartitionLag(
            tp.topic,
            tp.partition,
            committed[tp].offset if tp in committed else None,
            ends.get(tp),
            readers.get(tp),
        )
        for tp in sorted(committed.keys() | readers.keys())
    ]


def total_lag(rows: Iterable[PartitionLag]) -> int:
    """Return the total lag over all partitions with a known lag."""
    return sum(row.lag or 0 for row in rows)


def short_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions in compact notation.

    >>> short_partitions([TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)])
    'a:0,2 b:1'
    """
    numbers: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return " ".join(f"{topic}:{','.join(map(str, each))}" for topic, each in numbers.items())


def member_name(member: MemberDescription) -> str:
    """Return the member's group.instance.id. If it has none, return the member id that the coordinator assigned."""
    return member.instance_id or member.member_id


def count_members(members: Sequence[object]) -> str:
    """Return a phrase such as "2 members"."""
    return "no members" if not members else f"{len(members)} member{'s' if len(members) > 1 else ''}"
