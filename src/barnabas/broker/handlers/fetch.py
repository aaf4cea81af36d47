"""Fetch, versions 4 to 18: read record batches, and wait for more if necessary.

The response contains whole batches as file regions for sendfile. It begins with the first batch that ends at or after
the fetch offset. If compaction has removed all batches up to the high watermark, an empty batch moves the reader there.
The first batch is returned even if it exceeds the limits; all others stay within `max_bytes`. Below `min_bytes`, the
response waits for at most `max_wait_ms` (`barnabas.broker.delayed_fetch`).

Version 7 added fetch sessions (KIP-227): the broker remembers the partitions of a reader, so requests and responses
contain only changes. Knowledge of the session id is enough to use a session, unless ACLs are in force. Then a session
belongs to a principal and an address, and ends when the ACLs change. Each request of a session has the next
session epoch; the broker rejects any other epoch, and the reader then opens a new session. If the cache is full, a
session that has been idle for a while is evicted; otherwise the response has no session.

Only the inter-broker listener accepts the replica id of a request (CVE-2018-1288). On other listeners, each reader
reads up to the high watermark. Readers of committed records read up to the last stable offset and get the aborted
transactions to skip.

If a Fetch request needs a remote segment, its response waits until the segment has been read, but not for more records.

Version 11 added the reader's rack (KIP-392). With `replica.selector.class`, the leader returns the preferred replica in
that rack, and the reader fetches from that replica, up to the high watermark that the replica knows.

Only the event loop's thread uses the Fetch handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.delayed_fetch import DelayedFetch
from barnabas.broker.error_codes import error_code
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.membership import Membership
from barnabas.broker.pipeline.call import (
    ENTRIES_PER_STEP,
    LAST_OF_STEP,
    WAITING_ENTRY_BYTES,
    Call,
    LaterReply,
    Reply,
    Steps,
    serves,
)
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.static import RACK_AWARE_SELECTORS
from barnabas.broker.topic_names import TOPIC_NAME_CHARACTERS_MAX
from barnabas.broker.topics import Topics
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import (
    FINAL_SESSION_EPOCH,
    INITIAL_SESSION_EPOCH,
    NO_FETCH_SESSION,
    NO_OFFSET,
    IsolationLevel,
    next_session_epoch,
)
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.replication.read_replica import read_replica
from barnabas.storage.log_reader import NO_BATCHES, ReadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from barnabas.broker.authorization.access import Reader
    from barnabas.broker.replica import Replica
    from barnabas.protocol.messages.fetch import AbortedTransaction
    from barnabas.storage.log import Log


T = TypeVar("T")

SESSION_ID_MAX = 2**31 - 1

PARTITIONS_MAX = 200_000
"""The maximum total number of partitions in all fetch sessions."""

CAUGHT_UP_MAX = 1_000
"""The maximum number of partitions in a `CaughtUp`. Each entry takes a few hundred bytes."""

EVICTION_S = 120.0
"""The idle time in seconds after which a fetch session may be evicted."""


class FetchKey(NamedTuple):
    """A partition in a request.

    The topic is identified by its name or, from version 13 on, by its id. The other field is empty.
    """

    topic: str
    topic_id: bytes
    partition: int

    @property
    def is_by_id(self) -> bool:
        return self.topic_id != ZERO_UUID


@dataclass(slots=True)
class FollowedPartition:
    """A partition of a fetch session: the reader's request for the partition, and the offsets in the last response."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, data: PartitionData) -> bool:
        """Return whether the response must contain this partition, and record the offsets as sent."""
        changed = (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        if data.error_code:
            # Each response contains the error until the error is gone or the reader removes the partition from the
            # session.
            self.high_watermark = self.log_start_offset = -1
            return True
        return changed or len(data.records) > 0 or data.diverging_epoch.epoch >= 0


class CaughtUp:
    """The partitions whose end a reader has reached.

    A fetch need not read such a partition until the partition changes.

    This helps readers of many partitions, because usually only one partition has new records.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[FetchKey, tuple[FetchPartition, LeaderReplica, PartitionData]] = {}

    def note(self, where: FetchKey, wanted: FetchPartition, partition: LeaderReplica, data: PartitionData) -> None:
        """Store the response for a partition that has no records at the fetch offset."""
        if len(self._known) >= CAUGHT_UP_MAX:
            self._known.clear()
        self._known[where] = wanted, partition, data

    def find(
        self, where: FetchKey, wanted: FetchPartition, aborted: list[AbortedTransaction] | None
    ) -> tuple[LeaderReplica, PartitionData] | None:
        """Return the partition and its part of the response if it has not changed, or None."""
        known = self._known.get(where)
        if known is None:
            return None
        same, partition, data = known
        log = partition.storage.log
        if (
            same is wanted
            and log.high_watermark == data.high_watermark
            and log.log_start_offset == data.log_start_offset
            and data.aborted_transactions == aborted
            and partition.is_led
            and not log.is_offline
        ):
            return partition, data
        del self._known[where]
        return None

    def forget(self, where: FetchKey) -> None:
        """Drop a partition that was removed from the session."""
        self._known.pop(where, None)


class FetchSession:
    """The fetch session of one reader."""

    __slots__ = ("caught_up", "id", "next_epoch", "partitions", "reader", "used_at_s")

    def __init__(self, session_id: int, now_s: float, reader: Reader | None) -> None:
        self.id = session_id
        self.reader = reader
        self.next_epoch = next_session_epoch(INITIAL_SESSION_EPOCH)
        self.used_at_s = now_s
        self.partitions: dict[FetchKey, FollowedPartition] = {}
        self.caught_up = CaughtUp()

    def is_outdated_for(self, reader: Reader | None) -> bool:
        """Return whether a reader opened this session before the ACLs changed, so that it cannot continue."""
        return self.reader is not None and self.reader.is_before(reader)

    def update(self, request: FetchRequest) -> Steps[None]:
        """Apply the changes in an incremental fetch request."""
        for number, where in enumerate(_forgotten_partitions(request)):
            self.partitions.pop(where, None)
            self.caught_up.forget(where)
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
        for number, (where, wanted) in enumerate(wanted_partitions(request)):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            followed = self.partitions.get(where)
            if followed is None:
                self.partitions[where] = FollowedPartition(wanted)
            else:
                followed.wanted = wanted

    def mixes_kinds(self, request: FetchRequest) -> bool:
        """Return whether the request identifies topics by id although the session uses names, or vice versa."""
        known = next(iter(self.partitions), None)
        by_id = None if known is None else known.is_by_id
        return any((topic.topic_id != ZERO_UUID) is not by_id for topic in request.topics if topic.partitions)

    def news(self, read: Iterable[tuple[FetchKey, PartitionData]]) -> Steps[list[tuple[FetchKey, PartitionData]]]:
        """Return the changed partitions. For fairness, the next request reads partitions that had records last."""
        news = []
        for number, (where, data) in enumerate(read):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            followed = self.partitions.get(where)
            if followed is None or not followed.is_news(data):
                continue
            news.append((where, data))
            if len(data.records):
                self.partitions[where] = self.partitions.pop(where)
        return news


@dataclass(slots=True)
class FetchPlan:
    """The plan of a fetch: the partitions to read, and the form of the response."""

    wanted: list[tuple[FetchKey, FetchPartition]]
    session: FetchSession | None = None
    is_full: bool = True
    """True if the response contains all partitions, or False if it contains only changed partitions."""
    caught_up: CaughtUp = field(default_factory=CaughtUp)

    def respond(self, read: list[tuple[FetchKey, PartitionData]]) -> Steps[FetchResponse]:
        """Return the response with the results of a pass."""
        if self.session is not None:
            news = yield from self.session.news(read)
            read = read if self.is_full else news
        topics: list[FetchableTopicResponse] = []
        for number, (where, data) in enumerate(read):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            if not topics or (topics[-1].topic, topics[-1].topic_id) != where[:2]:
                topics.append(FetchableTopicResponse(topic=where.topic, topic_id=where.topic_id, partitions=[]))
            topics[-1].partitions.append(data)
        return FetchResponse(session_id=self.session.id if self.session else NO_FETCH_SESSION, responses=topics)


class FetchSessions:
    """The fetch sessions of all readers.

    :param slots: the maximum number of sessions.
    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        self._sessions: dict[int, FetchSession] = {}  # The least recently used session comes first.

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, now_s: float, reader: Reader | None = None) -> Steps[FetchPlan]:
        """Return the plan of a request.

        :param now_s: monotonic seconds.
        :param reader: only requests with an equal reader may use a session (`Access.reader`).
        :raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH; FETCH_SESSION_TOPIC_ID_ERROR if a
            session mixes topic names and topic ids.
        """
        if request.session_epoch in {INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH}:
            self._close(request.session_id, reader)
            wanted = yield from _list_in_steps(wanted_partitions(request))
            session = (
                self._open(request, now_s, reader)
                if request.session_epoch == INITIAL_SESSION_EPOCH and wanted
                else None
            )
            if session is not None:
                yield from session.update(request)
            return FetchPlan(wanted) if session is None else FetchPlan(wanted, session, caught_up=session.caught_up)
        session = self._continue(request, now_s, reader)
        if _names_no_topics(request):
            self._sessions.pop(session.id, None)
            message = f"fetch session {session.id}: a topic name has more than {TOPIC_NAME_CHARACTERS_MAX} characters"
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, message)
        if session.mixes_kinds(request):
            message = f"fetch session {session.id} mixes topic ids and topic names"
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, message)
        count_before = len(session.partitions)
        yield from session.update(request)
        # Count the partitions of all sessions only if this session has grown, which is rare.
        if len(session.partitions) > count_before and self._partition_count() > PARTITIONS_MAX:
            self._sessions.pop(session.id, None)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.id} became too large")
        # Do not yield here, because another request could change the session.
        wanted = [(where, followed.wanted) for where, followed in session.partitions.items()]
        if not wanted:
            self._sessions.pop(session.id, None)
            return FetchPlan([])
        return FetchPlan(wanted, session, is_full=False, caught_up=session.caught_up)

    def _close(self, session_id: int, reader: Reader | None) -> None:
        session = self._sessions.get(session_id)
        if session is not None and (session.reader == reader or session.is_outdated_for(reader)):
            del self._sessions[session_id]

    def _continue(self, request: FetchRequest, now_s: float, reader: Reader | None) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is not None and session.reader != reader:
            if session.is_outdated_for(reader):
                del self._sessions[session.id]
            session = None
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {request.session_id} does not exist")
        self._sessions[session.id] = self._sessions.pop(session.id)
        if request.session_epoch != session.next_epoch:
            message = f"fetch session {session.id} expects epoch {session.next_epoch}, not {request.session_epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        session.next_epoch = next_session_epoch(session.next_epoch)
        session.used_at_s = now_s
        return session

    def _open(self, request: FetchRequest, now_s: float, reader: Reader | None) -> FetchSession | None:
        """Return a new session, or None if the cache is full or a topic name is too long."""
        if _names_no_topics(request):
            return None
        if len(self._sessions) >= self._slots and not self._evict(now_s):
            return None
        if self._partition_count() + sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
            return None
        session_id = self._random_below(SESSION_ID_MAX) + 1
        while session_id in self._sessions:
            session_id = self._random_below(SESSION_ID_MAX) + 1
        session = self._sessions[session_id] = FetchSession(session_id, now_s, reader)
        return session

    def _partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _evict(self, now_s: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_s - oldest.used_at_s < EVICTION_S:
            return False
        del self._sessions[oldest.id]
        return True


def wanted_partitions(request: FetchRequest) -> Iterable[tuple[FetchKey, FetchPartition]]:
    """Yield the partitions in a fetch request, in order."""
    for topic in request.topics:
        for wanted in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, wanted.partition), wanted


def _names_no_topics(request: FetchRequest) -> bool:
    """Return whether a topic name is too long. Sessions must not keep long invalid names."""
    return any(len(topic.topic) > TOPIC_NAME_CHARACTERS_MAX for topic in request.topics)


def _forgotten_partitions(request: FetchRequest) -> Iterable[FetchKey]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, partition)


def _list_in_steps(items: Iterable[T]) -> Steps[list[T]]:
    found: list[T] = []
    for number, item in enumerate(items):
        found.append(item)
        if number % ENTRIES_PER_STEP == LAST_OF_STEP:
            yield
    return found


NO_PREFERRED_REPLICA = -1

KEPT_PER_PARTITION = 4 * WAITING_ENTRY_BYTES
"""The memory in bytes that a waiting fetch without a session keeps for each partition."""


@serves(FetchRequest, ends_with_client=True)
def fetch(
    topics: Topics,
    replicas: ReplicaManager,
    fetch_sessions: FetchSessions,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    membership: Membership,
    clock: Clock,
    request: FetchRequest,
    call: Call,
) -> Steps[FetchResponse | Reply]:
    """Read records. If there are too few bytes and no error, wait and read again.

    If there is no memory for another waiting request, respond immediately.
    """
    try:
        reader = None if call.access is None else call.access.reader
        plan = yield from fetch_sessions.plan(request, clock.monotonic(), reader)
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])
    read = _Read(topics, replicas, settings, request, plan, partial(_may_serve_followers, membership, call))
    yield from read.all()
    if read.awaited:
        return LaterReply(_respond_after_remote_reads(read, plan), kept_bytes=_kept_bytes(request, plan))
    if read.is_enough or request.max_wait_ms <= 0:
        read.count_consumed()
        return (yield from plan.respond(read.data))
    delayed = DelayedFetch(scheduler, read.partitions, request.min_bytes - read.size, request.max_wait_ms)
    yield from delayed.begin(partial(_check, delayed, read))
    kept_bytes = _kept_bytes(request, plan)
    request.topics, request.forgotten_topics_data = [], []  # The next pass reads all partitions of the plan.
    return LaterReply(_read_later(delayed, read, plan), kept_bytes=kept_bytes, end=delayed.complete)


def _may_serve_followers(membership: Membership, call: Call) -> bool:
    """Return whether a consumer may fetch from followers of this broker. With ACLs, a broker without contact with the
    metadata store serves no records, because the client may have lost its permissions.
    """
    return call.access is None or membership.is_member


def _check(delayed: DelayedFetch, read: _Read) -> Steps[None] | None:
    return _read_again(delayed, read) if read.is_outdated else None


def _read_again(delayed: DelayedFetch, read: _Read) -> Steps[None]:
    """Account for records that were appended between the read and the start of the wait."""
    delayed.expect(read.min_bytes)
    second = read.again()
    yield from second.all()
    second.leave_remote()
    if second.is_enough:
        delayed.complete()
    else:
        delayed.on_readable(second.size)


async def _read_later(delayed: DelayedFetch, read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    read.data = []
    await delayed.wait()
    return _read_at_last(read.again(), plan)


def _read_at_last(read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    """Read local segments only, and respond with the result, even if it is empty."""
    yield from read.all()
    read.leave_remote()
    read.count_consumed()
    return (yield from plan.respond(read.data))


def _kept_bytes(request: FetchRequest, plan: FetchPlan) -> int:
    """Return the memory in bytes that a waiting fetch keeps for its partitions and the topic names in its response.

    The partitions of a session are not included, because the session keeps them in any case.
    """
    count = len(plan.wanted)
    if plan.session is not None:
        return WAITING_ENTRY_BYTES * count + len(request.rack_id)
    return KEPT_PER_PARTITION * count + len(request.rack_id) + sum(len(topic.topic) for topic in request.topics)


async def _respond_after_remote_reads(read: _Read, plan: FetchPlan) -> Steps[FetchResponse]:
    await read.finish_remote()
    read.count_consumed()
    return plan.respond(read.data)


class _Read:
    """One pass over the partitions of a fetch. `data` contains the results."""

    def __init__(
        self,
        topics: Topics,
        replicas: ReplicaManager,
        settings: DynamicSettings,
        request: FetchRequest,
        plan: FetchPlan,
        may_serve_followers: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._replicas = replicas
        self._settings = settings
        self._request = request
        self._plan = plan
        self._bytes_left = max(0, min(request.max_bytes, settings.config.fetch_max_bytes))
        self._committed = request.isolation_level == IsolationLevel.READ_COMMITTED
        self._aborted: list[AbortedTransaction] | None = [] if self._committed else None
        self._must_answer = False
        self._may_serve_followers = may_serve_followers
        serves_followers = request.rack_id and may_serve_followers()
        self._replica: Callable[[str, int], Replica] = replicas.replica if serves_followers else replicas.leader
        self.size = 0
        self._brought: list[tuple[Log, int]] = []
        """The logs whose records are in the response, with the size of these records."""
        self.awaited: list[tuple[Log, PartitionData, Coroutine[Any, Any, ReadResult]]] = []
        """The pending reads of remote segments, each with its log and its part of the response."""
        self.partitions: list[Replica] = []
        self._high_watermarks: list[int] = []
        self.data: list[tuple[FetchKey, PartitionData]] = []

    def again(self) -> _Read:
        """Return a new pass over the same partitions."""
        return _Read(self._topics, self._replicas, self._settings, self._request, self._plan, self._may_serve_followers)

    def all(self) -> Steps[None]:
        """Read each partition."""
        find, aborted = self._plan.caught_up.find, self._aborted
        for number, (where, wanted) in enumerate(self._plan.wanted):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            partition, data = find(where, wanted, aborted) or self._read(where, wanted)
            self.data.append((where, data))
            if partition is not None:
                self.partitions.append(partition)
                self._high_watermarks.append(data.high_watermark)

    def count_consumed(self) -> None:
        """Count the bytes of the response as consumed. Called just before the response is sent."""
        for log, size in self._brought:
            log.note_consumed(size)

    @property
    def min_bytes(self) -> int:
        """The minimum size of the records in bytes for a response before the maximum wait has passed."""
        return self._request.min_bytes

    @property
    def is_enough(self) -> bool:
        """True if the response is due: there are enough bytes, an error, or no partitions to wait for."""
        return self.size >= self._request.min_bytes or self._must_answer or not self.partitions

    @property
    def is_outdated(self) -> bool:
        """True if a new pass could have a different result."""
        seen = zip(self.partitions, self._high_watermarks, strict=True)
        return any(
            replica.storage.has_ended or replica.storage.log.high_watermark != offset for replica, offset in seen
        )

    def _read(self, where: FetchKey, wanted: FetchPartition) -> tuple[Replica | None, PartitionData]:
        """Read a partition. Return its replica (None after an error) and its part of the response."""
        try:
            partition = self._replica(self._topic_name(where), where.partition)
            partition.check_epoch(wanted.current_leader_epoch)
            data = self._read_partition(partition, wanted)
        except BarnabasError as error:
            self._must_answer = True
            return None, PartitionData(
                partition_index=wanted.partition, error_code=error_code(error), high_watermark=NO_OFFSET, records=b""
            )
        has_all = data.high_watermark == wanted.fetch_offset and data.preferred_read_replica == NO_PREFERRED_REPLICA
        if has_all and wanted.last_fetched_epoch < 0 and isinstance(partition, LeaderReplica):
            self._plan.caught_up.note(where, wanted, partition, data)
        return partition, data

    def _topic_name(self, where: FetchKey) -> str:
        return self._topics.name_of(where.topic_id) if where.is_by_id else where.topic

    def _read_partition(self, partition: Replica, wanted: FetchPartition) -> PartitionData:
        offsets = partition.storage.log.offsets
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            log_start_offset=offsets.log_start_offset,
            aborted_transactions=self._aborted,
            records=NO_BATCHES,
        )
        diverging = self._diverging_epoch(partition, wanted) if wanted.last_fetched_epoch >= 0 else None
        if diverging is not None:
            data.diverging_epoch = diverging
        elif self._request.rack_id and self._is_elsewhere(partition, wanted.fetch_offset, data):
            self._must_answer = True
        else:
            limit = min(max(0, wanted.partition_max_bytes), self._bytes_left)
            offset, is_first = wanted.fetch_offset, self.size == 0 and not self.awaited
            result = partition.read(offset, limit, min_one_batch=is_first, committed=self._committed)
            if isinstance(result, ReadResult):
                self._add(data, result)
                if size := len(result.batches):
                    self._bytes_left -= size
                    self._brought.append((partition.storage.log, size))
            else:
                self.awaited.append((partition.storage.log, data, result))
                self._must_answer = True
                self._bytes_left -= limit
        return data

    def _add(self, data: PartitionData, result: ReadResult) -> None:
        """Add the result of a read to the partition's part of the response."""
        data.records, _, aborted = result
        self.size += len(data.records)
        if aborted and self._committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
            ]

    async def finish_remote(self) -> None:
        """Wait for the pending reads of remote segments. If a read fails, only its partition gets an error."""
        results = await asyncio.gather(*(reading for _, _, reading in self.awaited), return_exceptions=True)
        for (log, data, _), result in zip(self.awaited, results, strict=True):
            if isinstance(result, BarnabasError):
                data.error_code, data.high_watermark = error_code(result), NO_OFFSET
            elif isinstance(result, BaseException):
                raise result
            else:
                self._add(data, result)
                self._brought.append((log, len(result.batches)))

    def leave_remote(self) -> None:
        """Cancel the pending reads of remote segments. The reader will request these records again."""
        for _, _, reading in self.awaited:
            reading.close()

    def _is_elsewhere(self, replica: Replica, offset: int, data: PartitionData) -> bool:
        """Return whether the reader must fetch from a replica in its rack. `data` then contains this replica (KIP-392).

        :raises ApiError: OFFSET_NOT_AVAILABLE if this replica is a follower and has not fetched the offset yet.
        """
        if not isinstance(replica, LeaderReplica):
            if offset > replica.log.log_end_offset:
                message = f"{replica.topic_partition}: the log of this follower ends at {replica.log.log_end_offset}"
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)
            return False
        if replica.followers is None or self._settings.config.replica_selector_class not in RACK_AWARE_SELECTORS:
            return False
        racks = {each: broker.registration.rack for each, broker in self._topics.image.brokers.items()}
        nearest = read_replica(replica.followers, replica.leader, self._request.rack_id, offset, racks)
        if nearest != replica.leader:
            data.preferred_read_replica = nearest
        return nearest != replica.leader

    def _diverging_epoch(self, partition: Replica, wanted: FetchPartition) -> EpochEndOffset | None:
        """Return the epoch and offset at which the reader's log diverges from this replica's log, or None (KIP-595)."""
        log = partition.log
        epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self._must_answer = True
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
