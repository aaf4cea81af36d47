"""The common interface of all kinds of groups, for the coordinator.

Kafka has three kinds: classic groups (JoinGroup, SyncGroup), consumer groups (KIP-848) and share groups (KIP-932). Each
kind is a pure state machine with its own requests. The coordinator schedules, stores, describes and deletes all kinds
in the same way. Barnabas supports classic groups (`barnabas.groups.classic_group`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.errors import ErrorCode
from barnabas.groups.records import Change, GroupRecord, StoredGroup
from barnabas.groups.results import GroupDescription, GroupKind, GroupState
from barnabas.state_machine import Append, Reply

NEVER = float("inf")
"""The deadline if there is none."""


class Group(Protocol):
    """A group of any kind. Methods return the replies that are due, and `take_writes` returns the records to store."""

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
        """The memory in bytes that the group uses for its members."""

    @property
    def is_forgettable(self) -> bool:
        """True if the group can be deleted without losing state: the next join would create it again."""

    @property
    def was_stored(self) -> bool:
        """True if the log may contain a record of the group, so that its deletion needs a tombstone."""

    @property
    def has_waiters(self) -> bool:
        """True if a request may be waiting for the group."""

    def take_writes(self) -> Sequence[GroupWrite]:
        """Return the records to append, in this order.

        The caller must call `stored` with the outcome of each record.
        """

    def stored(self, now: float, write: GroupWrite, error: ErrorCode) -> list[Reply]:
        """Process the outcome of a write. If the write failed, waiting members get `error`."""

    def check_commit(self, now: float, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Return the error if a member must not commit offsets, or NONE.

        :param generation: the member's generation or member epoch, depending on the kind of group. It is negative if
            the request has none.
        """

    def next_deadline(self) -> float:
        """Return the time at which `tick` must be called next, or `NEVER`.

        The time may be too early, but never too late.
        """

    def tick(self, now: float) -> list[Reply]:
        """Process all deadlines that have passed."""

    def kill(self, error: ErrorCode) -> list[Reply]:
        """End the group and reply to all waiting requests with an error."""

    def describe(self) -> GroupDescription:
        """Return the description of the group for administrators."""

    def subscriptions(self) -> list[list[bytes]]:
        """Return the metadata from the last join of each member."""


class GroupWrite(Append[Change]):
    """A write of a group record. `stored` is None for the tombstone of a deleted group."""

    __slots__ = ("group", "stored")

    def __init__(self, group: Group, stored: StoredGroup | None) -> None:
        super().__init__((GroupRecord(group.group_id, stored),))
        self.group = group
        self.stored = stored
