"""All groups of one coordinator: finds the group that a call is for, and knows which deadline comes next.

Pure, as `barnabas.groups.group` is: `now` is monotonic seconds, `waiter` any token, replies are returned. Keep
to this pattern: after every call deliver the replies, store what `take_writes` returns and call `stored` for each of
these when that is done, and arm one timer for `next_deadline()` that calls `tick`. Not thread-safe: one thread, or one
event loop, owns a coordinator.

What is stored is what the next coordinator of these groups begins with (`load`): members, generation and assignment
are as they were, and the members notice nothing. A rebalance that was under way is forgotten; members begin it anew.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.errors import ErrorCode
from barnabas.groups.group import NEVER, Group, GroupConfig, GroupWrite
from barnabas.groups.memory import GroupMemory
from barnabas.groups.requests import UNKNOWN_MEMBER, JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import (
    GroupDescription,
    JoinResult,
    LeaveResult,
    LeftMember,
    Reply,
    SyncResult,
)
from barnabas.groups.stored import StoredGroup


class GroupCoordinator:
    """Many groups, each reached by its id.

    :param config: the limits that hold for every group.
    :param new_uuid: makes the random part of a member id; the ids are `<client id>-<uuid>` as in Kafka.
    :param memory: counts what groups hold, also those of other coordinators.

    >>> coordinator = GroupCoordinator(GroupConfig(initial_rebalance_delay_ms=0), new_uuid=lambda: "1")
    >>> request = JoinRequest(client_id="app", session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
    ...                       protocol_type="consumer", protocols=(("range", b""),))
    >>> [(waiter, joined)] = coordinator.join(0.0, "waiter", "clicks", request)
    >>> waiter, joined.member_id, joined.generation, joined.leader
    ('waiter', 'app-1', 1, 'app-1')
    """

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str], memory: GroupMemory | None = None) -> None:
        self._config = config
        self._memory = memory or GroupMemory()
        self._held_bytes: dict[str, int] = {}  # of each group, as the memory counts it
        self._new_uuid = new_uuid
        self._groups: dict[str, Group] = {}
        self._empty_since: dict[str, float] = {}
        # The earliest deadline of each group that has one, and a heap of (deadline, group id). An entry of the
        # heap that does not agree with the dict is stale and skipped.
        self._scheduled: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._writes: list[GroupWrite] = []
        self._is_closed = False

    # -- what lasts ----------------------------------------------------------------------------------------

    def load(self, now: float, group_id: str, stored: StoredGroup, empty_for_s: float = 0.0) -> None:
        """Take over a group as it was stored.

        :param empty_for_s: for how long it has had no members, if it has none.
        """
        group = Group.restore(now, group_id, stored, self._config, self._new_member_id, self._memory)
        self._groups[group_id] = group
        if not stored.members:
            self._empty_since[group_id] = now - empty_for_s
        self._schedule(now, group)

    def take_writes(self) -> list[GroupWrite]:
        """Return what is to be stored, in this order; `stored` is to be called for each."""
        writes, self._writes = self._writes, []
        return writes

    def stored(self, now: float, write: GroupWrite, error: ErrorCode = ErrorCode.NONE) -> list[Reply]:
        """Go on with what waited for a write, or tell its members what went wrong with it."""
        group = write.group
        if self._groups.get(group.group_id) is not group:
            return []  # it was deleted meanwhile
        replies = group.stored(now, write, error)
        self._schedule(now, group)
        return replies

    # -- what members ask ----------------------------------------------------------------------------------

    def join(self, now: float, waiter: Any, group_id: str, request: JoinRequest) -> list[Reply]:
        """JoinGroup: see `Group.join`. A group is made by the first member that joins it without an id."""
        error = self._join_error(group_id, request)
        if error:
            return [Reply(waiter, JoinResult(error, request.member_id))]
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._config, self._new_member_id, self._memory)
        replies = group.join(now, waiter, request)
        self._schedule(now, group)
        return replies

    def sync(self, now: float, waiter: Any, group_id: str, request: SyncRequest) -> list[Reply]:
        """SyncGroup: see `Group.sync`."""
        group, error = self._find(group_id)
        if group is None:
            return [Reply(waiter, SyncResult(error))]
        replies = group.sync(now, waiter, request)
        self._schedule(now, group)
        return replies

    def heartbeat(
        self, now: float, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Heartbeat: see `Group.heartbeat`. It never makes a reply to another member due."""
        group, error = self._find(group_id)
        if group is None:
            return error
        error = group.heartbeat(now, member_id, group_instance_id, generation)
        self._schedule(now, group)
        return error

    def leave(self, now: float, group_id: str, members: Sequence[LeavingMember]) -> tuple[LeaveResult, list[Reply]]:
        """LeaveGroup: see `Group.leave`. Versions 0 to 2 name one member, whose error is the request's."""
        group, error = self._find(group_id)
        if group is not None:
            result, replies = group.leave(now, members)
            self._schedule(now, group)
            return result, replies
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveResult(error), []
        left = tuple(LeftMember(each.member_id, each.group_instance_id, error) for each in members)
        return LeaveResult(ErrorCode.NONE, left), []

    def check_commit(
        self, now: float, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """OffsetCommit: tell whether offsets may be stored; see `Group.check_commit`.

        A group that is not known may be used for its offsets alone, also one without a name, as in Kafka;
        a request that names a generation of it gets ILLEGAL_GENERATION.
        """
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        error = group.check_commit(now, member_id, group_instance_id, generation)
        self._schedule(now, group)
        return error

    # -- time ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `tick` is wanted next (monotonic seconds; it may lie in the past), or None."""
        while self._heap and self._scheduled.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def tick(self, now: float, groups_max: int | None = None) -> list[Reply]:
        """Do what has become due: expired members, ended waits.

        :param groups_max: of so many groups; where others are due as well, `next_deadline()` lies in the past.
        """
        replies: list[Reply] = []
        numbers = itertools.count() if groups_max is None else range(groups_max)
        for _ in numbers:
            if (deadline := self.next_deadline()) is None or deadline > now:
                break
            _, group_id = heapq.heappop(self._heap)
            del self._scheduled[group_id]
            group = self._groups[group_id]
            replies += group.tick(now)
            self._schedule(now, group)
        return replies

    # -- administration ------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as administrators see it; None if no member has joined it, or it was forgotten since."""
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def subscriptions(self, group_id: str) -> list[list[bytes]]:
        """Return of each member of a group the metadata of its last join; see `Group.subscriptions`."""
        group = self._groups.get(group_id)
        return [] if group is None else group.subscriptions()

    def empty_for_s(self, now: float, group_id: str) -> float | None:
        """Return for how long a group has had no members; 0 if it has some, None if nothing is known of it."""
        if group_id not in self._groups:
            return None
        return now - self._empty_since.get(group_id, now)

    def group_ids(self) -> list[str]:
        """Return the ids of the groups that have members, or had some and were not forgotten since."""
        return list(self._groups)

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members; GROUP_ID_NOT_FOUND may still have offsets that are stored."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_forgettable:
            return ErrorCode.NON_EMPTY_GROUP
        self._drop(group_id)
        return ErrorCode.NONE

    def forget_if_unused(self, group_id: str) -> bool:
        """Forget a group if it has no members; call this for one that has no offsets. Return whether it is gone."""
        group = self._groups.get(group_id)
        if group is None or not group.is_forgettable:
            return False
        self._drop(group_id)
        return True

    def close(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> list[Reply]:
        """Stop coordinating: all waiting requests are answered with `error`, and so are all later ones."""
        self._is_closed = True
        replies = [reply for group in self._groups.values() for reply in group.kill(error)]
        self._writes.clear()
        for group_id in list(self._held_bytes):
            self._count(group_id, 0)
        self._groups.clear()
        self._empty_since.clear()
        self._scheduled.clear()
        self._heap.clear()
        return replies

    # -- inside --------------------------------------------------------------------------------------------

    def _join_error(self, group_id: str, request: JoinRequest) -> ErrorCode:
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        config = self._config
        if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group_id not in self._groups and request.member_id != UNKNOWN_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _find(self, group_id: str) -> tuple[Group | None, ErrorCode]:
        if self._is_closed:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        return group, ErrorCode.NONE if group is not None else ErrorCode.UNKNOWN_MEMBER_ID

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._new_uuid()}"

    def _schedule(self, now: float, group: Group) -> None:
        if group.is_forgettable and not group.generation:
            # Ids were given out and nobody came back with one: there is nothing to remember.
            self._drop(group.group_id)
            return
        self._count(group.group_id, group.size_bytes)
        self._writes += group.take_writes()
        deadline = group.next_deadline()
        if group.is_forgettable:
            self._empty_since.setdefault(group.group_id, now)
        else:
            self._empty_since.pop(group.group_id, None)
        if deadline < self._scheduled.get(group.group_id, NEVER):
            self._scheduled[group.group_id] = deadline
            heapq.heappush(self._heap, (deadline, group.group_id))

    def _count(self, group_id: str, size: int) -> None:
        """Let the memory know what a group holds now."""
        before = self._held_bytes.get(group_id, 0)
        if size == before:
            return
        self._memory.change(size - before)
        if size:
            self._held_bytes[group_id] = size
        else:
            del self._held_bytes[group_id]

    def _drop(self, group_id: str) -> None:
        group = self._groups.pop(group_id)
        self._count(group_id, 0)
        if group.generation:
            self._writes.append(GroupWrite(group, None))
        self._empty_since.pop(group_id, None)
        self._scheduled.pop(group_id, None)
