"""Fetch sessions (KIP-227): the broker remembers which partitions a reader follows, so that a request names only
what changed, and an answer holds only what is new.

Pure: time and randomness are arguments. What goes through all partitions of a session, of which there may be many, is
done in steps. Whoever knows the id of a session may use it. Each request of a session carries an epoch, one more than
the request before it; a request with another epoch is refused, and the reader begins anew. When the cache is full, a
session that has not been used for a while makes room; if there is none, the reader is answered without session.

Used from the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.pipeline.reply import ENTRIES_PER_STEP, LAST_OF_STEP, Steps
from barnabas.broker.topic_names import TOPIC_NAME_CHARACTERS_MAX
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import FINAL_SESSION_EPOCH, INITIAL_SESSION_EPOCH, NO_FETCH_SESSION, next_session_epoch
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.protocol.messages.fetch import AbortedTransaction

T = TypeVar("T")

SESSION_ID_MAX = 2**31 - 1

PARTITIONS_MAX = 200_000
"""How many partitions all sessions together may follow."""

CAUGHT_UP_MAX = 1_000
"""Of so many partitions of a reader it is remembered that there is nothing to read, at a few hundred bytes each."""

EVICTION_S = 120.0
"""A session that was not used for this long may be dropped to make room for another one."""


class FetchKey(NamedTuple):
    """A partition as a request names it: by the topic's name, or (version 13) by its id; the other one is empty."""

    topic: str
    topic_id: bytes
    partition: int

    @property
    def is_by_id(self) -> bool:
        return self.topic_id != ZERO_UUID


@dataclass(slots=True)
class FollowedPartition:
    """A partition of a session: what is wanted of it, and what the reader was told last."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, data: PartitionData) -> bool:
        """Return whether the answer must hold this partition; remember what the reader was told."""
        changed = (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        if data.error_code:
            # An error is told each time, until it passes or the reader stops asking.
            self.high_watermark = self.log_start_offset = -1
            return True
        return changed or len(data.records) > 0 or data.diverging_epoch.epoch >= 0


class CaughtUp:
    """Partitions of which a reader has everything: until something changes, there is nothing to read.

    A reader of many partitions waits for all of them at once, and mostly one brings something.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[FetchKey, tuple[FetchPartition, LeaderReplica, PartitionData]] = {}

    def note(self, where: FetchKey, wanted: FetchPartition, partition: LeaderReplica, data: PartitionData) -> None:
        """Note what was told of a partition that has nothing at the offset that is wanted."""
        if len(self._known) >= CAUGHT_UP_MAX:
            self._known.clear()
        self._known[where] = wanted, partition, data

    def find(
        self, where: FetchKey, wanted: FetchPartition, aborted: list[AbortedTransaction] | None
    ) -> tuple[LeaderReplica, PartitionData] | None:
        """Return the partition, and what is to be told of it, if that is the same as before."""
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
        """Forget a partition that is not followed any more."""
        self._known.pop(where, None)


class FetchSession:
    """One reader's session."""

    __slots__ = ("caught_up", "id", "next_epoch", "partitions", "used_at_s")

    def __init__(self, session_id: int, now_s: float) -> None:
        self.id = session_id
        self.next_epoch = next_session_epoch(INITIAL_SESSION_EPOCH)
        self.used_at_s = now_s
        self.partitions: dict[FetchKey, FollowedPartition] = {}
        self.caught_up = CaughtUp()

    def update(self, request: FetchRequest) -> Steps[None]:
        """Take over what an incremental request changes."""
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
        """Whether a request names topics by id in a session that names them by name, or the other way round."""
        known = next(iter(self.partitions), None)
        by_id = None if known is None else known.is_by_id
        return any((topic.topic_id != ZERO_UUID) is not by_id for topic in request.topics if topic.partitions)

    def news(self, read: Iterable[tuple[FetchKey, PartitionData]]) -> Steps[list[tuple[FetchKey, PartitionData]]]:
        """Return what the reader must be told. A partition that brought records is read last the next time, for
        fairness."""
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
    """What to read for a request, and in which form to answer."""

    wanted: list[tuple[FetchKey, FetchPartition]]
    session: FetchSession | None = None
    is_full: bool = True
    """Whether the answer holds every partition, or only those with news."""
    caught_up: CaughtUp = field(default_factory=CaughtUp)

    def respond(self, read: list[tuple[FetchKey, PartitionData]]) -> Steps[FetchResponse]:
        """Return the response to what was read."""
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
    """The sessions of all readers.

    :param slots: how many there can be.
    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        self._sessions: dict[int, FetchSession] = {}  # the one that was used longest ago comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, now_s: float) -> Steps[FetchPlan]:
        """Return what to read.

        :param now_s: monotonic seconds.
        :raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH; FETCH_SESSION_TOPIC_ID_ERROR
            where names and ids of topics are mixed.
        """
        if request.session_epoch in {INITIAL_SESSION_EPOCH, FINAL_SESSION_EPOCH}:
            self._sessions.pop(request.session_id, None)
            wanted = yield from _list_in_steps(wanted_partitions(request))
            session = self._open(request, now_s) if request.session_epoch == INITIAL_SESSION_EPOCH and wanted else None
            if session is not None:
                yield from session.update(request)
            return FetchPlan(wanted) if session is None else FetchPlan(wanted, session, caught_up=session.caught_up)
        session = self._continue(request, now_s)
        if _names_no_topics(request):
            self._sessions.pop(session.id, None)
            message = f"fetch session {session.id}: a name is longer than {TOPIC_NAME_CHARACTERS_MAX} characters"
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, message)
        if session.mixes_kinds(request):
            message = f"fetch session {session.id} names topics by id and by name"
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, message)
        count_before = len(session.partitions)
        yield from session.update(request)
        # Only a session that grows makes it necessary to count all sessions, and nearly no request makes one grow.
        if len(session.partitions) > count_before and self._partition_count() > PARTITIONS_MAX:
            self._sessions.pop(session.id, None)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.id} grew too large")
        # Not in steps: another request could change the session in between.
        wanted = [(where, followed.wanted) for where, followed in session.partitions.items()]
        if not wanted:
            self._sessions.pop(session.id, None)
            return FetchPlan([])
        return FetchPlan(wanted, session, is_full=False, caught_up=session.caught_up)

    def _continue(self, request: FetchRequest, now_s: float) -> FetchSession:
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {request.session_id}")
        self._sessions[session.id] = session
        if request.session_epoch != session.next_epoch:
            message = f"fetch session {session.id} goes on with epoch {session.next_epoch}, not {request.session_epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        session.next_epoch = next_session_epoch(session.next_epoch)
        session.used_at_s = now_s
        return session

    def _open(self, request: FetchRequest, now_s: float) -> FetchSession | None:
        """Return a new session, or None if there is no room for one, or for its names."""
        if _names_no_topics(request):
            return None
        if len(self._sessions) >= self._slots and not self._evict(now_s):
            return None
        if self._partition_count() + sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
            return None
        session_id = self._random_below(SESSION_ID_MAX) + 1
        while session_id in self._sessions:
            session_id = self._random_below(SESSION_ID_MAX) + 1
        session = self._sessions[session_id] = FetchSession(session_id, now_s)
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
    """Yield the partitions that a request names, in its order."""
    for topic in request.topics:
        for wanted in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, wanted.partition), wanted


def _names_no_topics(request: FetchRequest) -> bool:
    """Whether a name is too long for a topic: a session would keep it for minutes."""
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
