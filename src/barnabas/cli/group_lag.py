"""How far a group is in each partition, and who reads it: pure, from what the brokers said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from barnabas import MemberDescription


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition.

    `committed` is None where it has committed nothing, `end` where the partition does not exist any more; `member` is
    the id of the one that reads it now. `lag` counts records, is never negative, and is None where it is not known.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """How many records lie between the committed offset and the end."""
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def lags(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    members: Iterable[MemberDescription] = (),
) -> list[PartitionLag]:
    """Return the lag in each partition that has a committed offset or a reader, in order of topic and partition."""
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
    """Return the lag in all partitions where it is known."""
    return sum(row.lag or 0 for row in rows)


def short_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions in short.

    >>> short_partitions([TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)])
    'a:0,2 b:1'
    """
    numbers: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return " ".join(f"{topic}:{','.join(map(str, each))}" for topic, each in numbers.items())


def member_name(member: MemberDescription) -> str:
    """Return what tells a member from the others: the id that its operator gave it, else the coordinator's."""
    return member.instance_id or member.member_id


def count_members(members: Sequence[object]) -> str:
    """Return how many members there are, in words."""
    return "no members" if not members else f"{len(members)} member{'s' if len(members) > 1 else ''}"
