"""What every kind of group has in common: the interface that the coordinator of many groups knows.

Kafka has three kinds: classic groups (JoinGroup, SyncGroup), consumer groups (KIP-848) and share groups (KIP-932). Each
kind is a pure state machine of its own with its own requests; the coordinator schedules, stores, describes and deletes
all of them alike. Barnabas serves classic groups (`barnabas.groups.classic_group`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.errors import ErrorCode
from barnabas.groups.records import Change, GroupRecord, StoredGroup
from barnabas.groups.results import GroupDescription, GroupKind, GroupState
from barnabas.state_machine import Append, Reply

NEVER = float("inf")
"""The deadline of something that is not waited for."""


class Group(Protocol):
    """One group. Calls that may answer members return the replies; `take_writes` returns what they want stored."""

    @property
    def kind(self) -> GroupKind: ...

    @property
    def group_id(self) -> str: ...

    @property
    def state(self) -> GroupState: ...

    @property
    def member_count(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """What the group holds for its members."""

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be missed if the group were made again at its next join."""

    @property
    def was_stored(self) -> bool:
        """Whether the log may have a record of the group, so that its end needs a tombstone."""

    @property
    def has_waiters(self) -> bool:
        """Whether a request may be waiting for the group."""

    def take_writes(self) -> Sequence[GroupWrite]:
        """Return the records to append, in this order; `stored` follows for each."""

    def stored(self, now: float, write: GroupWrite, error: ErrorCode) -> list[Reply]:
        """Go on with what waited for a write; an error says why it failed, and is for its members."""

    def check_commit(self, now: float, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Return whether a member may commit offsets.

        :param generation: the generation or the epoch of the member, as the kind of the group has it; below 0: none.
        """

    def next_deadline(self) -> float:
        """Return when `tick` is wanted next, `NEVER` for never. It may be early, it is never late."""

    def tick(self, now: float) -> list[Reply]:
        """Do what has become due."""

    def kill(self, error: ErrorCode) -> list[Reply]:
        """End the group: everyone who waits is answered with an error."""

    def describe(self) -> GroupDescription:
        """Return the group as administrators see it."""

    def subscriptions(self) -> list[list[bytes]]:
        """Return for each member the metadata of its last join."""


class GroupWrite(Append[Change]):
    """The record of a group. None is a tombstone: the group is gone."""

    __slots__ = ("group", "stored")

    def __init__(self, group: Group, stored: StoredGroup | None) -> None:
        super().__init__((GroupRecord(group.group_id, stored),))
        self.group = group
        self.stored = stored
