"""The state machine of a classic group: members join a generation, and the group leader assigns partitions to all
members.

The state machine does no I/O and has no clock. Each method takes `now` (monotonic seconds) and returns the replies that
are due. A join or sync passes a `waiter`, an arbitrary token of the caller, which identifies the later `Reply`. The
group returns records to append (`take_writes`), and is notified of their outcome (`stored`). It stores a generation
with its assignment before any member gets the assignment. It stores the new id of a static member before it replies to
this member. It also stores that it has become empty. `restore` creates a group from its last record.

Invariants:
- each waiter gets exactly one reply, even if its member leaves, expires, is replaced or sends another request;
- generations only increase, by one at the end of each rebalance;
- in state STABLE, each member has an assignment (which may be empty), and no member waits for its assignment;
- all information about a generation is stored before members receive it;
- after `tick(now)`, `next_deadline()` is later than `now`.

The rules are the same as in Apache Kafka's coordinator for classic groups: KIP-62 (rebalance timeout), KIP-134 (initial
rebalance delay), KIP-345 (static members), KIP-389 (maximum size), KIP-394 (member id required), KIP-814 (a restarted
static leader). There are three differences:
- a waiter gets REBALANCE_IN_PROGRESS if its member sends another request; Kafka sometimes sends no response;
- a waiter gets UNKNOWN_MEMBER_ID if its member is removed; Kafka sometimes sends no response;
- the memory for members' data is limited (`barnabas.groups.memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.errors import ErrorCode
from barnabas.groups.group import NEVER, GroupWrite
from barnabas.groups.members import GroupMembers, Member
from barnabas.groups.memory import GroupMemory
from barnabas.groups.records import StoredGroup
from barnabas.groups.requests import MEMBER_BYTES, UNKNOWN_MEMBER, JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import (
    GroupDescription,
    GroupKind,
    GroupState,
    JoinResult,
    LeaveResult,
    LeftMember,
    SyncResult,
)
from barnabas.groups.subscriptions import has_same_topics
from barnabas.state_machine import Reply

_SYNC_TIMEOUT_MS_MIN = 1_000
"""The minimum timeout for SyncGroup after the JoinGroup response in ms, because some clients send a rebalance timeout
of 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The limits of all groups, with Kafka's defaults (`group.*` in Kafka's broker settings)."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000


class ClassicGroup:
    """A classic group. Implements `barnabas.groups.group.Group`.

    :param new_member_id: returns a unique member id with the given prefix. It is the only source of randomness.
    :param memory: the memory accounting of all groups, for checking limits. The caller adds this group's `size_bytes`.
    """

    __slots__ = (
        "_assigning",
        "_config",
        "_earliest",
        "_initial_wait_left_ms",
        "_is_initial_round",
        "_join_deadline",
        "_member_added_in_initial_wait",
        "_memory",
        "_new_member_id",
        "_pending",
        "_pending_bytes",
        "_pending_sync",
        "_replies",
        "_sync_deadline",
        "_unstored",
        "_writes",
        "generation",
        "group_id",
        "members",
        "protocol_name",
        "state",
    )

    kind = GroupKind.CLASSIC

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        new_member_id: Callable[[str], str],
        memory: GroupMemory | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self._config = config
        self._new_member_id = new_member_id
        self._memory = memory or GroupMemory()
        self._pending_bytes = 0
        self._pending: dict[str, float] = {}  # the deadlines of assigned member ids that have not joined yet
        self._pending_sync: set[str] = set()
        self._join_deadline = NEVER
        self._sync_deadline = NEVER
        self._is_initial_round = False
        self._initial_wait_left_ms = 0
        self._member_added_in_initial_wait = False
        self._earliest = NEVER
        self._replies: list[Reply] = []
        self._writes: list[GroupWrite] = []
        self._assigning: GroupWrite | None = None  # The pending record with the assignment of the current generation.
        self._unstored: dict[GroupWrite, tuple[Any, JoinResult]] = {}  # the joins that wait until a record is stored

    # -- records -------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls,
        now: float,
        group_id: str,
        stored: StoredGroup,
        config: GroupConfig,
        new_member_id: Callable[[str], str],
        memory: GroupMemory | None = None,
    ) -> ClassicGroup:
        """Create a group from its last record. The sessions of its members start again."""
        group = cls(group_id, config, new_member_id, memory)
        group.generation, group.protocol_name = stored.generation, stored.protocol_name
        group.members.protocol_type = stored.protocol_type
        for each in stored.members:
            member = Member.restore(each, stored.protocol_name or "")
            group.members.add(member, stored.protocol_type)
            group._extend_session(now, member)
        if stored.members:
            group.members.leader_id = stored.leader_id
            group.state = GroupState.STABLE
        return group

    def take_writes(self) -> list[GroupWrite]:
        writes, self._writes = self._writes, []
        return writes

    def stored(self, now: float, write: GroupWrite, error: ErrorCode) -> list[Reply]:
        waiting = self._unstored.pop(write, None)
        if waiting is not None:
            waiter, joined = waiting
            self._reply(waiter, JoinResult(error, joined.member_id) if error else joined)
        if write is self._assigning:
            self._assigning = None
            if self.state is GroupState.COMPLETING_REBALANCE:
                self._complete_sync(now, error)
        return self._drain()

    def _store(self) -> GroupWrite:
        members = tuple(member.stored(self.protocol_name) for member in self.members)
        leader_id = self.members.leader_id
        stored = StoredGroup(self.members.protocol_type, self.generation, self.protocol_name, leader_id, members)
        write = GroupWrite(self, stored)
        self._writes.append(write)
        return write

    # -- member requests -------------------------------------------------------------------------------

    def join(self, now: float, waiter: Any, request: JoinRequest) -> list[Reply]:
        """Add a member to the next generation. The reply is due when the generation is complete."""
        error = self._join_error(request)
        if error:
            member_id = UNKNOWN_MEMBER if error is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
            self._reply(waiter, JoinResult(error, member_id))
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id:
                self._forget(request.member_id)
                self._maybe_complete_join(now)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_new(now, waiter, request)
        elif request.member_id in self._pending:
            self._admit(now, waiter, request.member_id, request)
        else:
            self._rejoin(now, waiter, self.members[request.member_id], request)
        return self._drain()

    def sync(self, now: float, waiter: Any, request: SyncRequest) -> list[Reply]:
        """Reply with the assignment of a member, immediately or after the SyncGroup request of the group leader."""
        error = self._sync_error(request)
        if error:
            self._reply(waiter, SyncResult(error))
            return self._drain()
        member = self.members[request.member_id]
        self._note_synced(member)
        if self.state is GroupState.STABLE:
            self._reply(waiter, self._assignment_of(member))
            self._extend_session(now, member)
            return self._drain()
        self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter
        if member.member_id == self.members.leader_id and self._assigning is None:
            self._assign(now, request)
        return self._drain()

    def _assign(self, now: float, request: SyncRequest) -> None:
        """Store the assignment from the group leader. If the assignment is too large, start another rebalance."""
        more_bytes = sum(
            len(request.assignments.get(each.member_id, b"")) - len(each.assignment) for each in self.members
        )
        if self._memory.refusal(self.group_id, self.size_bytes, more_bytes):
            self._complete_sync(now, ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka uses this error if a record is too large.
            return
        self.members.assign(request.assignments)
        self._assigning = self._store()

    def heartbeat(self, now: float, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Extend the session of a member.

        If the result is REBALANCE_IN_PROGRESS, the member must join the next generation.
        """
        error = self._member_error(member_id, group_instance_id, generation)
        if error:
            return error
        self._extend_session(now, self.members[member_id])
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, now: float, members: Sequence[LeavingMember]) -> tuple[LeaveResult, list[Reply]]:
        """Remove members, and start one rebalance of the remaining members.

        Return an error code for each leaving member.
        """
        if self.state is GroupState.DEAD:
            return LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE), []
        size_before = len(self.members)
        left = tuple(LeftMember(each.member_id, each.group_instance_id, self._leave_one(each)) for each in members)
        self._after_removal(now, size_before)
        return LeaveResult(ErrorCode.NONE, left), self._drain()

    def check_commit(self, now: float, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Check that a member may commit offsets, and extend its session.

        Without a generation (below 0), offsets may be committed only if the group has no members.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._member_error(member_id, group_instance_id, generation)
        if error:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._extend_session(now, self.members[member_id])
        return ErrorCode.NONE

    # -- time ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        return self._earliest

    def tick(self, now: float) -> list[Reply]:
        """Remove members whose sessions have expired, and end rebalance phases whose deadlines have passed."""
        if now < self._earliest:
            return []
        self._expire_members(now)
        if self._join_deadline <= now:
            self._end_join_wait(now)
        if self._sync_deadline <= now:
            self._expire_pending_syncs(now)
        self._earliest = min(
            min(self._pending.values(), default=NEVER),
            min((member.session_deadline for member in self.members), default=NEVER),
            self._join_deadline,
            self._sync_deadline,
        )
        return self._drain()

    # -- the group as a whole ------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """The memory in bytes for the group's members and for assigned member ids that have not joined yet."""
        return self.members.size_bytes + self._pending_bytes

    @property
    def is_forgettable(self) -> bool:
        return self.state is GroupState.EMPTY and not self._pending

    @property
    def was_stored(self) -> bool:
        return self.generation > 0

    @property
    def has_waiters(self) -> bool:
        # Compare with `is`: `close` calls this property for many groups, and hashing an enum is slow.
        state = self.state
        return not (state is GroupState.EMPTY or state is GroupState.STABLE) or bool(self._unstored)

    def kill(self, error: ErrorCode) -> list[Reply]:
        for member in self.members:
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        for waiter, joined in self._unstored.values():
            self._reply(waiter, JoinResult(error, joined.member_id))
        self._unstored.clear()
        self._assigning = None
        self.state = GroupState.DEAD
        self._pending.clear()
        self._pending_bytes = 0
        self._join_deadline = self._sync_deadline = self._earliest = NEVER
        return self._drain()

    @property
    def member_count(self) -> int:
        """The number of members, in all states of the group."""
        return len(self.members)

    def describe(self) -> GroupDescription:
        name = self.protocol_name if self.state is GroupState.STABLE else None
        members = tuple(member.description(name) for member in self.members)
        return GroupDescription(
            self.group_id, self.kind, self.state, self.generation, self.members.protocol_type, name or "", members
        )

    def subscriptions(self) -> list[list[bytes]]:
        """Return the metadata from the last join of each member.

        Members of a generation have the metadata of the selected protocol, as in Kafka. During a rebalance, members may
        have joined with other protocols, so the metadata of all their protocols is returned.
        """
        if self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            return [[member.metadata(self.protocol_name)] for member in self.members]
        return [[metadata for _, metadata in member.protocols] for member in self.members]

    # -- joining -------------------------------------------------------------------------------------------

    def _join_error(self, request: JoinRequest) -> ErrorCode:
        return self._membership_error(request) or self._memory_error(request)

    def _memory_error(self, request: JoinRequest) -> ErrorCode:
        """Return the error if the data of a joining member would exceed the memory limit of groups, or NONE."""
        member_id = request.member_id
        if member_id == UNKNOWN_MEMBER and request.group_instance_id is not None:
            member_id = self.members.static_member_id(request.group_instance_id) or member_id
        member = self.members.get(member_id)
        more_bytes = request.size_bytes - (0 if member is None else member.request_bytes)
        return self._memory.refusal(self.group_id, self.size_bytes, more_bytes)

    def _membership_error(self, request: JoinRequest) -> ErrorCode:
        member_id = request.member_id
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_for(member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self.members.supports(request.protocol_type, [name for name, _ in request.protocols]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if member_id == UNKNOWN_MEMBER:
            return ErrorCode.NONE
        if member_id in self._pending:
            # Only dynamic members get a member id before they join, so a static member with such an id is an error.
            return ErrorCode.NONE if request.group_instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        return self.members.check(member_id, request.group_instance_id)

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            # Count only members that have rejoined, so that the last members to rejoin are rejected.
            member = self.members.get(member_id)
            is_waiting = member is not None and member.is_awaiting_join
            return is_waiting or self.members.count_awaiting_join() < self._config.members_max
        return member_id in self.members or len(self.members) < self._config.members_max

    def _join_new(self, now: float, waiter: Any, request: JoinRequest) -> None:
        instance_id = request.group_instance_id
        member_id = self._new_member_id(request.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            replaced = self.members.static_member_id(instance_id)
            if replaced is None:
                self._admit(now, waiter, member_id, request)
            else:
                self._replace_static(now, waiter, replaced, member_id, request)
        elif request.require_member_id:
            self._pending[member_id] = self._deadline(now, request.session_timeout_ms)
            self._pending_bytes += MEMBER_BYTES + len(member_id)
            self._reply(waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._admit(now, waiter, member_id, request)

    def _admit(self, now: float, waiter: Any, member_id: str, request: JoinRequest) -> None:
        self._end_pending(member_id)
        member = Member(member_id, request)
        member.join_waiter = waiter
        # A member does not send heartbeats while its join waits, and the group is not notified of lost connections.
        # Without this limit, a client that retries its join could leave many dead members.
        member.session_deadline = self._deadline(now, self._config.new_member_join_timeout_ms)
        self.members.add(member, request.protocol_type)
        self._member_added_in_initial_wait = self._is_initial_round
        self._rebalance(now)

    def _rejoin(self, now: float, waiter: Any, member: Member, request: JoinRequest) -> None:
        is_unchanged = member.protocols == request.protocols
        is_leader = member.member_id == self.members.leader_id
        repeats_join = self.state is GroupState.COMPLETING_REBALANCE and is_unchanged
        # The leader rejoins a stable group to start a rebalance, for example because a topic has new partitions.
        follows_on = self.state is GroupState.STABLE and is_unchanged and not is_leader
        if repeats_join or follows_on:
            self._reply(waiter, self._joined(member))
            self._extend_session(now, member)
            return
        self.members.update(member, request)
        self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_waiter = waiter
        self._rebalance(now)

    def _replace_static(self, now: float, waiter: Any, old_id: str, new_id: str, request: JoinRequest) -> None:
        """Fence the old member id of a restarted static member, and replace it with the new member id."""
        old_leader = self.members.leader_id
        old = self.members[old_id]
        self._answer_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._answer_unstored(old_id, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member = self.members.rename_static(old_id, new_id)
        subscription = member.metadata(self.protocol_name)
        if old_id in self._pending_sync:
            self._pending_sync.remove(old_id)
            self._pending_sync.add(new_id)
        self.members.update(member, request)
        self._extend_session(now, member)
        keeps_protocol = self.state is GroupState.STABLE and self.members.select_protocol() == self.protocol_name
        # Assignments depend on subscriptions, so a changed subscription requires a rebalance. Kafka keeps the old
        # assignment in this case (KAFKA-12759).
        if keeps_protocol and has_same_topics(subscription, member.metadata(self.protocol_name)):
            joined = self._rejoined_static(member, old_leader, request.supports_skip_assignment)
            self._unstored[self._store()] = waiter, joined
            return
        member.join_waiter = waiter
        self._rebalance(now)

    def _rejoined_static(self, member: Member, old_leader: str | None, can_skip: bool) -> JoinResult:
        """Return the join result of a restarted static member if no rebalance is necessary.

        A group leader that does not support `skip_assignment` must not assign again. So its result contains its old
        member id as the leader id.
        """
        is_leader = member.member_id == self.members.leader_id
        if can_skip:
            return self._joined(member, skip_assignment=is_leader)
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.members.protocol_type,
            self.protocol_name,
            old_leader or "",
        )

    def _joined(self, member: Member, skip_assignment: bool = False) -> JoinResult:
        is_leader = member.member_id == self.members.leader_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.members.protocol_type,
            self.protocol_name,
            self.members.leader_id or "",
            tuple(each.joined(self.protocol_name) for each in self.members) if is_leader else (),
            skip_assignment,
        )

    # -- rebalancing ---------------------------------------------------------------------------------------

    def _rebalance(self, now: float) -> None:
        """Start a rebalance. If a rebalance is in progress, complete it if all members have joined."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(now)
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.members.assign({})
            self._answer_all_syncs(now, ErrorCode.REBALANCE_IN_PROGRESS)
        self._pending_sync.clear()
        self._sync_deadline = NEVER
        self._assigning = None
        is_initial = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        if is_initial and self._config.initial_rebalance_delay_ms > 0:
            self._begin_initial_wait(now)
        elif self._have_all_joined():
            self._complete_join(now)
        else:
            self._join_deadline = self._deadline(now, self.members.rebalance_timeout_ms)

    def _begin_initial_wait(self, now: float) -> None:
        """Wait for more members, so that a new group does not rebalance for each new member."""
        delay_ms = self._config.initial_rebalance_delay_ms
        self._is_initial_round = True
        self._member_added_in_initial_wait = False
        self._initial_wait_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
        self._join_deadline = self._deadline(now, delay_ms)

    def _end_join_wait(self, now: float) -> None:
        delay_ms = min(self._config.initial_rebalance_delay_ms, self._initial_wait_left_ms)
        if self._is_initial_round and self._member_added_in_initial_wait and delay_ms > 0:
            self._member_added_in_initial_wait = False
            self._initial_wait_left_ms -= delay_ms
            self._join_deadline = self._deadline(now, delay_ms)
        else:
            self._complete_join(now)

    def _have_all_joined(self) -> bool:
        return not self._pending and all(member.is_awaiting_join for member in self.members)

    def _maybe_complete_join(self, now: float) -> None:
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        if is_preparing and not self._is_initial_round and self._have_all_joined():
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """Start the next generation with the members that have joined, and with all static members, which may return
        later.
        """
        self._is_initial_round = False
        self._join_deadline = NEVER
        for member in list(self.members):
            if not member.is_awaiting_join and not member.is_static:
                self._forget(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            # All members are static and none has rejoined: wait until one of them rejoins or their sessions expire.
            self._join_deadline = self._deadline(now, max(self.members.rebalance_timeout_ms, _SYNC_TIMEOUT_MS_MIN))
            return
        self.generation += 1
        if not len(self.members):
            self.protocol_name = None
            self.state = GroupState.EMPTY
            self._store()
            return
        self.protocol_name = self.members.select_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self._pending_sync = {member.member_id for member in self.members}
        self._sync_deadline = self._deadline(now, max(self.members.rebalance_timeout_ms, _SYNC_TIMEOUT_MS_MIN))
        for member in self.members:
            self._answer_join(member, self._joined(member))
            self._extend_session(now, member)
            member.is_new = False

    # -- leaving and expiring ------------------------------------------------------------------------------

    def _leave_one(self, leaving: LeavingMember) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id == UNKNOWN_MEMBER and instance_id is not None:
            member_id = self.members.static_member_id(instance_id) or UNKNOWN_MEMBER
        if member_id not in self._pending:
            error = self.members.check(member_id, instance_id)
            if error:
                return error
        self._forget(member_id)
        return ErrorCode.NONE

    def _forget(self, member_id: str) -> None:
        """Remove a member, or a member id that has not joined yet, and reply to the member's waiting requests."""
        self._end_pending(member_id)
        self._pending_sync.discard(member_id)
        if member_id in self.members:
            member = self.members.remove(member_id)
            self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
            self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            self._answer_unstored(member_id, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))

    def _answer_unstored(self, member_id: str, result: JoinResult) -> None:
        """Reply to joins that wait for a record of a member id which is no longer in the group."""
        for write, (waiter, joined) in list(self._unstored.items()):
            if joined.member_id == member_id:
                del self._unstored[write]
                self._reply(waiter, result)

    def _end_pending(self, member_id: str) -> None:
        if self._pending.pop(member_id, None) is not None:
            self._pending_bytes -= MEMBER_BYTES + len(member_id)

    def _after_removal(self, now: float, size_before: int) -> None:
        """Start a rebalance if members were removed.

        Otherwise, complete a rebalance that was only waiting for removed member ids.
        """
        if len(self.members) < size_before:
            self._rebalance(now)
        else:
            self._maybe_complete_join(now)

    def _expire_members(self, now: float) -> None:
        """Remove members whose sessions have expired, and member ids that have not joined in time."""
        size_before = len(self.members)
        expired = [member_id for member_id, deadline in self._pending.items() if deadline <= now]
        for member in self.members:
            if member.session_deadline <= now and member.shows_life:
                self._extend_session(now, member)
            elif member.session_deadline <= now:
                expired.append(member.member_id)
        for member_id in expired:
            self._forget(member_id)
        self._after_removal(now, size_before)

    def _expire_pending_syncs(self, now: float) -> None:
        """Remove the members that have not sent SyncGroup in time."""
        self._sync_deadline = NEVER
        for member_id in list(self._pending_sync):
            self._forget(member_id)
        self._rebalance(now)

    # -- assignments ---------------------------------------------------------------------------------------

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        error = self._member_error(request.member_id, request.group_instance_id, request.generation)
        if error:
            return error
        if request.protocol_type not in (None, self.members.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _note_synced(self, member: Member) -> None:
        self._pending_sync.discard(member.member_id)
        if not self._pending_sync:
            self._sync_deadline = NEVER

    def _complete_sync(self, now: float, error: ErrorCode) -> None:
        """Send each waiting member its stored assignment. After an error, start another rebalance."""
        self._answer_all_syncs(now, error)
        if error:
            self._rebalance(now)
        else:
            self.state = GroupState.STABLE

    def _assignment_of(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.members.protocol_type, self.protocol_name, member.assignment)

    def _answer_all_syncs(self, now: float, error: ErrorCode) -> None:
        for member in self.members:
            if member.sync_waiter is not None:
                self._answer_sync(member, SyncResult(error) if error else self._assignment_of(member))
                self._extend_session(now, member)

    # -- checks, deadlines and replies ---------------------------------------------------------------------

    def _member_error(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(member_id, group_instance_id)
        if error:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _extend_session(self, now: float, member: Member) -> None:
        member.session_deadline = self._deadline(now, member.session_timeout_ms)

    def _deadline(self, now: float, delay_ms: int) -> float:
        """Return the time `delay_ms` after `now`, and include it in `next_deadline`."""
        deadline = now + max(delay_ms, 1) / 1000
        self._earliest = min(self._earliest, deadline)
        return deadline

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        if member.join_waiter is not None:
            self._reply(member.join_waiter, result)
            member.join_waiter = None

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync_waiter is not None:
            self._reply(member.sync_waiter, result)
            member.sync_waiter = None

    def _reply(self, waiter: Any, result: JoinResult | SyncResult) -> None:
        self._replies.append(Reply(waiter, result))

    def _drain(self) -> list[Reply]:
        replies, self._replies = self._replies, []
        return replies
