"""The replicated state machine with all groups of one coordinator and their committed offsets.

The coordinator passes each request to its group, and keeps the next deadline of all groups. It does no I/O
(`barnabas.state_machine`). `now` is the monotonic time in seconds, and `waiter` is an arbitrary token. The class is not
thread-safe.

After a failover, the next coordinator loads the records. Members, generations and assignments are unchanged, so members
need not rejoin. An unfinished rebalance is lost, and the members start it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.classic_group import ClassicGroup, GroupConfig
from barnabas.groups.group import NEVER, Group, GroupWrite
from barnabas.groups.memory import GroupMemory
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Change, Committed, OffsetRecord, StoredGroup
from barnabas.groups.requests import UNKNOWN_MEMBER, JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import (
    GroupDescription,
    GroupSummary,
    JoinResult,
    LeaveResult,
    LeftMember,
    SyncResult,
)
from barnabas.groups.topic_metadata import TopicMetadata, TopicSnapshot
from barnabas.model import NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from barnabas.state_machine import Append, Effects, Reply

GROUPS_PER_STEP = 32
"""The number of groups that are loaded before loading yields."""
GROUPS_PER_RELEASE = 256
"""The number of groups that `release` frees per slice."""

Effect: TypeAlias = Effects[Change]


class OffsetWrite(Append[Change]):
    """A write of committed offsets, or of tombstones for deleted offsets.

    :param waiter: gets the set of partitions whose offsets are not kept, because their topics were deleted during the
        write; or an ApiError. None if no request waits.
    """

    __slots__ = ("group_id", "waiter")

    def __init__(self, group_id: str, records: Sequence[Change], waiter: Any) -> None:
        super().__init__(records)
        self.group_id = group_id
        self.waiter = waiter


class GroupEnd(GroupWrite):
    """A write of the tombstone of a deleted group.

    :param empty_since: the time at which the last member left the group.
    :param waiter: gets None, or an ApiError. None if no request waits.
    """

    __slots__ = ("empty_since", "waiter")

    def __init__(self, group: Group, empty_since: float, waiter: Any) -> None:
        super().__init__(group, None)
        self.empty_since = empty_since
        self.waiter = waiter

    def answer(self, error: ApiError | None = None) -> Effect:
        waiter, self.waiter = self.waiter, None
        return Effects() if waiter is None else Effects((Reply(waiter, error),))


class NoTopics:
    """Topic metadata without topics."""

    def topic(self, _name: str) -> TopicSnapshot | None:
        return None

    def topic_id(self, _name: str) -> bytes | None:
        return None

    def has_topic_id(self, _topic_id: bytes) -> bool:
        return False


class GroupCoordinator:
    """All groups of one coordinator and their committed offsets.

    :param config: the limits of all groups.
    :param new_uuid: returns the random part of a member id. As in Kafka, member ids have the form `<client id>-<uuid>`.
    :param memory: the memory accounting of all groups on this broker.
    :param topics: returns the current metadata of topics.

    >>> coordinator = GroupCoordinator(GroupConfig(initial_rebalance_delay_ms=0), new_uuid=lambda: "1")
    >>> request = JoinRequest(client_id="app", session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
    ...                       protocol_type="consumer", protocols=(("range", b""),))
    >>> [(waiter, joined)] = coordinator.join(0.0, "waiter", "clicks", request).replies
    >>> waiter, joined.member_id, joined.generation, joined.leader
    ('waiter', 'app-1', 1, 'app-1')
    """

    def __init__(
        self,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        memory: GroupMemory | None = None,
        topics: Callable[[], TopicMetadata] = NoTopics,
    ) -> None:
        self.offsets = GroupOffsets()
        self._config = config
        self._memory = memory or GroupMemory()
        self._topics = topics
        self._held_bytes: dict[str, int] = {}  # The size of each group, as added to the memory accounting.
        # Use a lambda: a bound method would create a reference cycle between groups and coordinator, which only the
        # garbage collector frees.
        self._new_member_id: Callable[[str], str] = lambda prefix: f"{prefix}-{new_uuid()}"
        self._groups: dict[str, Group] = {}
        self._empty_since: dict[str, float] = {}
        # The earliest deadline of each group, and a heap of (deadline, group id). A heap entry that differs from the
        # dict is obsolete and is skipped.
        self._scheduled: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._writes: list[GroupWrite] = []
        self._unsettled: dict[tuple[str, TopicPartition], int] = {}
        """The number of unfinished appends that replace an offset, by group and partition."""
        self._loading: _Loading | None = _Loading()
        self._is_closed = False
        self._released: list[dict[str, Any]] = []
        """The data of the groups of a closed coordinator, until `release` frees it."""

    # -- the log -------------------------------------------------------------------------------------------

    def apply(self, record: Change) -> None:
        """Apply a record to the offsets.

        A group record is used only during loading. A running group has already changed when its record is written.
        """
        loading = self._loading
        if isinstance(record, OffsetRecord):
            group_id, where, committed = record
            if loading is not None and committed is not None:
                where, committed = loading.shared(self._topics, where, committed)
                if committed.committed_ms == NO_TIMESTAMP:
                    loading.without_time[group_id, where] = None
            self.offsets.apply(group_id, where, committed)
        elif loading is None:
            return
        elif record.stored is None:
            loading.groups.pop(record.group_id, None)
        else:
            loading.groups[record.group_id] = record.stored

    def loaded(self, now: float, now_ms: int | None) -> Generator[None, None, None]:
        """Create the groups from their last records.

        The time for which a group has been empty includes the downtime of the coordinator.

        Offsets and groups without a timestamp were written while the wall clock was unreliable. They get the time of
        loading.
        """
        loading, self._loading = self._loading, None
        assert loading is not None
        if now_ms is not None:
            for group_id, where in loading.without_time:
                committed = self.offsets.of(group_id).get(where)
                if committed is not None and committed.committed_ms == NO_TIMESTAMP:
                    self.offsets.apply(group_id, where, committed._replace(committed_ms=now_ms))
        for number, (group_id, stored) in enumerate(loading.groups.items()):
            if number % GROUPS_PER_STEP == 0:
                yield
                if self._is_closed:
                    return
            empty_for_s = 0.0
            if now_ms is not None and stored.since_ms >= 0:
                empty_for_s = max(0, now_ms - stored.since_ms) / 1000
            self.load(now, group_id, stored, empty_for_s)

    def load(self, now: float, group_id: str, stored: StoredGroup, empty_for_s: float = 0.0) -> None:
        """Create a group from its last record.

        :param empty_for_s: the time in seconds for which a group without members has been empty.
        """
        group = ClassicGroup.restore(now, group_id, stored, self._config, self._new_member_id, self._memory)
        self._groups[group_id] = group
        if not stored.members:
            self._empty_since[group_id] = now - empty_for_s
        self._schedule(now, group)

    def appended(self, now: float, append: Append[Change]) -> Effect:
        if isinstance(append, GroupEnd):
            return append.answer()
        if isinstance(append, GroupWrite):
            return self._stored(now, append, ErrorCode.NONE)
        assert isinstance(append, OffsetWrite)
        self._settle(append)
        topics = self._topics()
        gone = [
            each
            for each in append.records
            if isinstance(each, OffsetRecord) and each.committed and not topics.has_topic_id(each.committed.topic_id)
        ]
        replies = () if append.waiter is None else (Reply(append.waiter, {each.where for each in gone}),)
        if not gone:
            return Effects(replies)
        # Skip offsets that a commit for a new topic with the same name has replaced or will replace.
        last = [
            each
            for each in gone
            if self.offsets.of(each.group_id).get(each.where) is each.committed
            and not self.is_unsettled(each.group_id, each.where)
        ]
        if not last:
            return Effects(replies)
        forgotten = self._write_offsets(append.group_id, [each._replace(committed=None) for each in last], None)
        return Effects(replies, forgotten.appends)

    def unconfirmed(self, now: float, append: Append[Change], error: ApiError) -> Effect:
        if isinstance(append, GroupEnd):
            return append.answer(ApiError(_group_error(error), error.message))
        if isinstance(append, GroupWrite):
            return self._stored(now, append, _group_error(error))
        assert isinstance(append, OffsetWrite)
        return _refused(append, error)

    def failed(self, now: float, append: Append[Change], error: ApiError) -> Effect:
        """Process a failed append.

        If a group record failed, the group rebalances again. If a tombstone failed, the group is kept. If a commit
        failed, it is dropped, because it has not changed anything yet.
        """
        if isinstance(append, OffsetWrite):
            self._settle(append)
        elif isinstance(append, GroupEnd):
            self._put_back(now, append)
        return self.unconfirmed(now, append, error)

    def _stored(self, now: float, write: GroupWrite, error: ErrorCode) -> Effect:
        group = write.group
        if self._groups.get(group.group_id) is not group:
            return Effects()  # The group was deleted, or replaced by a new group, during the write.
        replies = group.stored(now, write, error)
        self._schedule(now, group)
        return self._effects(replies)

    # -- member requests -------------------------------------------------------------------------------

    def join(self, now: float, waiter: Any, group_id: str, request: JoinRequest) -> Effect:
        """Process JoinGroup (`ClassicGroup.join`). The first member that joins without an id creates the group."""
        error = self._join_error(group_id, request)
        if error:
            return Effects((Reply(waiter, JoinResult(error, request.member_id)),))
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id, self._config, self._new_member_id, self._memory)
        elif not isinstance(group, ClassicGroup):
            return Effects((Reply(waiter, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)),))
        replies = group.join(now, waiter, request)
        self._schedule(now, group)
        return self._effects(replies)

    def sync(self, now: float, waiter: Any, group_id: str, request: SyncRequest) -> Effect:
        """Process SyncGroup (`ClassicGroup.sync`)."""
        group, error = self._find_classic(group_id)
        if group is None:
            return Effects((Reply(waiter, SyncResult(error)),))
        replies = group.sync(now, waiter, request)
        self._schedule(now, group)
        return self._effects(replies)

    def heartbeat(
        self, now: float, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Process Heartbeat (`ClassicGroup.heartbeat`). A heartbeat never completes requests of other members."""
        group, error = self._find_classic(group_id)
        if group is None:
            return error
        error = group.heartbeat(now, member_id, group_instance_id, generation)
        self._schedule(now, group)
        return error

    def leave(self, now: float, group_id: str, members: Sequence[LeavingMember]) -> tuple[LeaveResult, Effect]:
        """Process LeaveGroup (`ClassicGroup.leave`)."""
        group, error = self._find_classic(group_id)
        if group is not None:
            result, replies = group.leave(now, members)
            self._schedule(now, group)
            return result, self._effects(replies)
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveResult(error), Effects()
        left = tuple(LeftMember(each.member_id, each.group_instance_id, error) for each in members)
        return LeaveResult(ErrorCode.NONE, left), Effects()

    def check_commit(
        self, now: float, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Check that a member may commit offsets (`Group.check_commit`).

        As in Kafka, clients may commit offsets for a group that does not exist, even with an empty group id. If the
        request contains a generation, it gets ILLEGAL_GENERATION.
        """
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        error = group.check_commit(now, member_id, group_instance_id, generation)
        self._schedule(now, group)
        return error

    # -- offsets -------------------------------------------------------------------------------------------

    def commit(
        self, now_ms: int, waiter: Any, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Effect:
        """Store the committed offsets of existing partitions. See `OffsetWrite` for the reply."""
        topics = self._topics()
        records: list[Change] = []
        for where, (offset, metadata, leader_epoch) in offsets.items():
            topic = topics.topic(where.topic)
            assert topic
            committed = Committed(offset, metadata, leader_epoch, now_ms, topic.id)
            records.append(OffsetRecord(group_id, topic.partition(where.partition), committed))
        return self._write_offsets(group_id, records, waiter)

    def forget(self, waiter: Any, group_id: str, tombstones: Sequence[Change]) -> Effect:
        """Write tombstones for committed offsets. See `OffsetWrite` for the reply."""
        return self._write_offsets(group_id, tombstones, waiter)

    def is_unsettled(self, group_id: str, where: TopicPartition) -> bool:
        """Return whether an unfinished append replaces this offset."""
        return (group_id, where) in self._unsettled

    def _write_offsets(self, group_id: str, records: Sequence[Change], waiter: Any) -> Effect:
        unsettled = self._unsettled
        for each in records:
            if isinstance(each, OffsetRecord):
                key = each.group_id, each.where
                unsettled[key] = unsettled.get(key, 0) + 1
        return Effects((), (OffsetWrite(group_id, records, waiter),))

    def _settle(self, write: OffsetWrite) -> None:
        unsettled = self._unsettled
        for each in write.records:
            if isinstance(each, OffsetRecord):
                key = each.group_id, each.where
                if unsettled[key] == 1:
                    del unsettled[key]
                else:
                    unsettled[key] -= 1

    # -- time ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        heap = self._heap
        while heap:
            deadline, group_id = heap[0]
            if self._scheduled.get(group_id) == deadline:
                return deadline
            heapq.heappop(heap)
        return None

    def tick(self, now: float, events_max: int) -> Effect:
        """Process the deadlines that have passed, in at most `events_max` groups."""
        replies: list[Reply] = []
        for _ in range(events_max):
            if (deadline := self.next_deadline()) is None or deadline > now:
                break
            _, group_id = heapq.heappop(self._heap)
            del self._scheduled[group_id]
            group = self._groups[group_id]
            replies += group.tick(now)
            self._schedule(now, group)
        return self._effects(replies)

    # -- administration ------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the description of a group for administrators, or None if it does not exist.

        Its id may still have committed offsets.
        """
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def subscriptions(self, group_id: str) -> list[list[bytes]]:
        """Return the metadata from the last join of each member of a group. See `Group.subscriptions`."""
        group = self._groups.get(group_id)
        return [] if group is None else group.subscriptions()

    def empty_for_s(self, now: float, group_id: str) -> float | None:
        """Return the time in seconds for which a group has been empty.

        Return 0 if the group has members, or None if it does not exist.
        """
        if group_id not in self._groups:
            return None
        return now - self._empty_since.get(group_id, now)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that have members, or have had members and were not deleted."""
        return list(self._groups)

    def summaries(self) -> Iterator[GroupSummary]:
        """Yield the state and the number of members of each group. Any thread may call this method."""
        for name, each in self._groups.copy().items():
            yield GroupSummary(name, each.state, each.member_count)

    def delete(self, now: float, waiter: Any, group_id: str) -> tuple[ErrorCode, Effect]:
        """Delete a group without members. Its committed offsets are not deleted. See `GroupEnd` for the reply."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, Effects()
        if not group.is_forgettable:
            return ErrorCode.NON_EMPTY_GROUP, Effects()
        was_stored = group.was_stored
        self._drop(now, group_id, waiter)
        return ErrorCode.NONE, self._effects(() if was_stored else (Reply(waiter, None),))

    def forget_if_unused(self, now: float, group_id: str) -> tuple[bool, Effect]:
        """Delete a group without members. The caller must have checked that the group has no offsets.

        Return whether the group is deleted. If its tombstone cannot be written, the group is restored later.
        """
        group = self._groups.get(group_id)
        if group is None or not group.is_forgettable:
            return False, Effects()
        self._drop(now, group_id)
        return True, self._effects()

    def close(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> list[Reply]:
        """Stop coordinating. Waiting requests get `error`, and later requests also get an error."""
        self._is_closed = True
        # There may be many groups, and most of them have no waiting requests.
        replies = [reply for group in self._groups.values() if group.has_waiters for reply in group.kill(error)]
        self._writes.clear()
        self._memory.change(-sum(self._held_bytes.values()))
        # Clearing the containers of many groups takes long, so `release` does it in slices.
        self._released += (self._groups, self._held_bytes, self._empty_since, self._scheduled)
        self._groups, self._held_bytes, self._empty_since, self._scheduled = {}, {}, {}, {}
        self._heap = []
        return replies

    def release(self) -> Iterator[None]:
        """Free the groups and offsets of a closed coordinator in slices."""
        while self._released:
            kept = self._released.pop()
            while kept:
                for _ in range(min(GROUPS_PER_RELEASE, len(kept))):
                    kept.popitem()
                yield
        yield from self.offsets.release()

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

    def _find_classic(self, group_id: str) -> tuple[ClassicGroup | None, ErrorCode]:
        if self._is_closed:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group, ErrorCode.NONE
        return None, ErrorCode.UNKNOWN_MEMBER_ID

    def _effects(self, replies: Sequence[Reply] = ()) -> Effect:
        writes, self._writes = self._writes, []
        return Effects(replies, writes)

    def _schedule(self, now: float, group: Group) -> None:
        if group.is_forgettable and not group.was_stored:
            # The group assigned member ids, but no client has joined with them, so the group has no state to keep.
            self._drop(now, group.group_id)
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
        """Update the size of a group in the memory accounting of all groups."""
        before = self._held_bytes.get(group_id, 0)
        if size == before:
            return
        self._memory.change(size - before)
        if size:
            self._held_bytes[group_id] = size
        else:
            del self._held_bytes[group_id]

    def _drop(self, now: float, group_id: str, waiter: Any = None) -> None:
        group = self._groups.pop(group_id)
        self._count(group_id, 0)
        empty_since = self._empty_since.pop(group_id, now)
        if group.was_stored:
            self._writes.append(GroupEnd(group, empty_since, waiter))
        self._scheduled.pop(group_id, None)

    def _put_back(self, now: float, end: GroupEnd) -> None:
        """Restore a deleted group whose tombstone was not written, unless a new group has its id."""
        group_id = end.group.group_id
        if group_id in self._groups or self._is_closed:
            return
        self._groups[group_id] = end.group
        self._empty_since[group_id] = end.empty_since
        self._schedule(now, end.group)


class _Loading:
    """The intermediate state of loading.

    Only the last record of each group is used, when all records have been read.
    """

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.without_time: dict[tuple[str, TopicPartition], None] = {}
        """The offsets that were committed while the wall clock was unreliable."""
        self._topics: dict[str, TopicSnapshot | None] = {}

    def shared(
        self, topics: Callable[[], TopicMetadata], where: TopicPartition, committed: Committed
    ) -> tuple[TopicPartition, Committed]:
        """Return equal values that share existing objects where possible, to save memory: there may be millions of
        offsets.
        """
        try:
            topic = self._topics[where.topic]
        except KeyError:
            topic = self._topics[where.topic] = topics().topic(where.topic)
        if topic is None:
            return where, committed
        if topic.id == committed.topic_id:
            committed = committed._replace(topic_id=topic.id)
        if 0 <= where.partition < topic.partition_count:
            where = topic.partition(where.partition)
        return where, committed


def _group_error(error: ApiError) -> ErrorCode:
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code is ErrorCode.MESSAGE_TOO_LARGE else error.code


def _refused(write: OffsetWrite, error: ApiError) -> Effect:
    if write.waiter is None:
        return Effects()
    code = error.code
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        is_commit = any(isinstance(each, OffsetRecord) and each.committed for each in write.records)
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.UNKNOWN_SERVER_ERROR
    refusal = ApiError(code, f"offsets of group {write.group_id!r} are not stored: {error.message}")
    return Effects((Reply(write.waiter, refusal),))
