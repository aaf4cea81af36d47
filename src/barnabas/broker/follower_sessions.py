"""The fetch sessions of other brokers (KIP-227), at the leader: which partitions a follower follows, and which of them
have something new for it.

A consumer's session is read through with every request (`barnabas.broker.fetch_sessions`). A broker that follows a
thousand partitions of which nothing is new asks twice a second, so here each partition says when it has something: a
request costs as much as has changed. Also, a follower that asks says of all the others that it has all of them up to
where it was; that is noted when it matters, before something is appended.

What followers that are not in sync are not to have yet (`barnabas.broker.throttles`) is held back: it is not looked at,
whatever is appended, until it may be had. So it keeps nothing from those that are in sync.

A session lives as long as its connection.

Used from the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.error_codes import error_code
from barnabas.broker.pipeline.reply import ENTRIES_PER_STEP, LAST_OF_STEP, Steps
from barnabas.broker.replica import GONE_BYTES, URGENT_BYTES
from barnabas.broker.throttles import NO_LEADER_THROTTLE, LeaderThrottle
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.model import NO_OFFSET
from barnabas.protocol.messages.fetch import (
    INITIAL_EPOCH,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    PartitionData,
    next_session_epoch,
)
from barnabas.replication.truncation import diverging_epoch

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.connection_state import ConnectionState
    from barnabas.broker.topics import Topics
    from barnabas.model import FileRegion

SESSION_ID_MAX = 2**31 - 1

PARTITIONS_MAX = 200_000
"""How many partitions a session may have."""

HELD_BACK_S_MAX = 1.0
"""After this time it is looked again at what is held back: it may be in sync by now, or the settings others."""

NOTHING_TOLD = NO_OFFSET, NO_OFFSET
"""High watermark and start of the log."""

Key = tuple[bytes, int]
"""Id of the topic, and partition."""


class Position:
    """Where a follower is in one partition."""

    __slots__ = ("_session", "_told", "_topic_id", "partition", "wanted")

    def __init__(self, session: FollowerSession, topic_id: bytes, wanted: FetchPartition) -> None:
        self._session = session
        self._topic_id = topic_id
        self._told = NOTHING_TOLD
        self.wanted = wanted
        self.partition: LeaderReplica | None = None

    @property
    def key(self) -> Key:
        return self._topic_id, self.wanted.partition

    def ask(self, wanted: FetchPartition) -> None:
        """Take over what the follower asks for now. What it was told before it may have passed over, since its log was
        not any more as the answer had it: so it is told again how far the leader is."""
        self.wanted = wanted
        self._told = NOTHING_TOLD

    def detach(self) -> None:
        """Watch the partition no longer."""
        if self.partition is not None:
            self.partition.unwatch_changes(self.on_change)
            self.partition = None

    def on_change(self, size: int) -> None:
        """Called by the partition; see `LeaderReplica.watch_changes`."""
        session = self._session
        if not size:
            session.mentions[self] = None
            return
        if self in session.held_back:
            if size != GONE_BYTES and self.partition is not None and session.holds_back(self.partition):
                return
            session.release(self)
        if self not in session.ready:
            if size != GONE_BYTES and self.partition is not None:
                offset, at_s = self.wanted.fetch_offset, session.last_fetch_s
                self.partition.note_caught_up(session.broker_id, session.broker_epoch, offset, at_s)
            session.ready[self] = None
        if size >= URGENT_BYTES:
            session.is_urgent = True
        session.change_count += 1
        session.on_ready(size)

    def read(self, topics: Topics, bytes_max: int, *, min_one_batch: bool) -> PartitionData:
        """Return what comes next, or what is wrong. The follower has all that is before."""
        wanted, session = self.wanted, self._session
        try:
            partition = self._attached(topics)
            partition.check_epoch(wanted.current_leader_epoch)
            log = partition.log
            parting = diverging_epoch(
                log.leader_epochs, log.log_end_offset, wanted.fetch_offset, wanted.last_fetched_epoch
            )
            if parting is not None:
                data = self.describe()
                data.diverging_epoch = EpochEndOffset(epoch=parting.epoch, end_offset=parting.start_offset)
                return data
            records: FileRegion | bytearray | None = None
            if wanted.fetch_offset < log.log_end_offset and session.holds_back(partition):
                session.hold_back(self)
            else:
                limit = min(max(0, wanted.partition_max_bytes), bytes_max)
                records = partition.read_for_follower(wanted.fetch_offset, limit, min_one_batch=min_one_batch)
            partition.on_follower_fetch(
                session.broker_id,
                session.broker_epoch,
                wanted.fetch_offset,
                session.last_fetch_s,
                wanted.log_start_offset,
            )
        except BarnabasError as error:
            session.release(self)
            return self._refusal(error)
        data = self.describe()
        if records is not None:
            data.records = records
            session.throttle.note(partition, len(records))
        return data

    def tell(self, data: PartitionData) -> bool:
        """Return whether an answer must hold this; if so, the follower knows it from now on."""
        known = NOTHING_TOLD if data.error_code else (data.high_watermark, data.log_start_offset)
        is_news = known != self._told or known == NOTHING_TOLD
        self._told = known
        return is_news or len(data.records) > 0 or data.diverging_epoch.epoch >= 0

    def describe(self) -> PartitionData:
        """Return what there is to say without records."""
        assert self.partition
        log = self.partition.log
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=log.high_watermark,
            last_stable_offset=log.high_watermark,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _attached(self, topics: Topics) -> LeaderReplica:
        if self.partition is None or self.partition.has_ended:
            self.detach()
            self.partition = topics.partition(topics.name_of(self._topic_id), self.wanted.partition)
            self.partition.watch_changes(self.on_change)
        return self.partition

    def _refusal(self, error: BarnabasError) -> PartitionData:
        code = error_code(error)
        start = NO_OFFSET
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.partition is not None:
            start = self.partition.log.log_start_offset  # where the follower can start over
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=code,
            high_watermark=NO_OFFSET,
            log_start_offset=start,
            records=b"",
        )


def _no_wait(_size: int) -> None:
    """Where no request waits."""


class FollowerSession:
    """What one connection of a follower's broker follows."""

    def __init__(self, session_id: int, broker_id: int, throttle: LeaderThrottle = NO_LEADER_THROTTLE) -> None:
        self.id = session_id
        self.throttle = throttle
        self.next_epoch = next_session_epoch(INITIAL_EPOCH)
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.last_fetch_s = 0.0
        self.ready: dict[Position, None] = {}
        """Those from which something may be read; who was given something comes last."""
        self.held_back: dict[Position, None] = {}
        """Those from which something could be read, and is not to be yet."""
        self._held_back_s = 0.0
        self.mentions: dict[Position, None] = {}
        """Those of which the follower may be told a high watermark or a log start."""
        self.on_ready: Callable[[int], None] = _no_wait
        """Called with the number of bytes that there are more to read."""
        self.change_count = 0
        """How often there was more to read."""
        self.is_urgent = False
        """Whether somebody waits until the follower has what there is to read, however little it is."""
        self._positions: dict[Key, Position] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def update(self, request: FetchRequest, now_s: float) -> Steps[None]:
        """Take over what a request changes.

        :raises KafkaError: there are too many partitions.
        """
        if self.broker_epoch != request.replica_state.replica_epoch:
            # What it has in this life it says of every partition.
            self.broker_epoch = request.replica_state.replica_epoch
            self.ready |= dict.fromkeys(self._positions.values())
            self.held_back.clear()
        self.last_fetch_s = now_s
        for number, key in enumerate(_forgotten(request)):
            if (position := self._positions.pop(key, None)) is not None:
                self._forget(position)
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
        for number, (topic_id, wanted) in enumerate(_wanted(request)):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            position = self._positions.get((topic_id, wanted.partition))
            if position is None:
                if len(self._positions) >= PARTITIONS_MAX:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions")
                position = self._positions[topic_id, wanted.partition] = Position(self, topic_id, wanted)
            position.ask(wanted)
            self.mentions[position] = None  # should it wait, another pass makes the answer than the one that reads now
            self.release(position)
            self.ready.setdefault(position)

    def holds_back(self, partition: LeaderReplica) -> bool:
        """Whether the follower is to get nothing of a partition now."""
        return self.throttle.holds_back(partition, self.broker_id)

    def hold_back(self, position: Position) -> None:
        """Do not look at a position for now."""
        self.ready.pop(position, None)
        self.held_back[position] = None

    def release(self, position: Position) -> None:
        """Look at a position again, if it was held back."""
        if position in self.held_back:
            del self.held_back[position]
            self.ready.setdefault(position)

    def release_due(self) -> None:
        """Look again at what may be had now."""
        if self.last_fetch_s - self._held_back_s >= HELD_BACK_S_MAX or not self.throttle.quota.is_exceeded:
            self._held_back_s = self.last_fetch_s
            self.ready |= self.held_back
            self.held_back.clear()

    def wait_no_more(self) -> None:
        """Call nobody any longer when there is more to read."""
        self.on_ready = _no_wait

    def close(self) -> None:
        """Watch nothing any more."""
        for position in self._positions.values():
            position.detach()
        self._positions.clear()
        self.ready.clear()
        self.held_back.clear()
        self.mentions.clear()

    def _forget(self, position: Position) -> None:
        position.detach()
        self.ready.pop(position, None)
        self.held_back.pop(position, None)
        self.mentions.pop(position, None)


class FollowerRead:
    """One pass over those partitions of a session that may have something new."""

    def __init__(self, session: FollowerSession, topics: Topics, bytes_max: int) -> None:
        self._session = session
        self._topics = topics
        self._bytes_left = bytes_max
        self.size = 0
        self.must_answer = False
        """Whether there is something to tell that does not wait."""
        self._data: dict[Position, PartitionData] = {}

    def all(self) -> Steps[None]:
        """Read."""
        if self._session.held_back:
            self._session.release_due()
        for number, position in enumerate(list(self._session.ready)):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            if position in self._session.ready:
                self._read(position)

    def _read(self, position: Position) -> None:
        ready = self._session.ready
        data = position.read(self._topics, self._bytes_left, min_one_batch=self.size == 0)
        size = len(data.records)
        if size:
            self.size += size
            self._bytes_left = max(0, self._bytes_left - size)
            del ready[position]
            ready[position] = None
        elif data.error_code or data.diverging_epoch.epoch >= 0:
            self.must_answer = True
        elif position in ready:
            assert position.partition
            if position.wanted.fetch_offset >= position.partition.log.log_end_offset:
                del ready[position]
        self._data[position] = data

    def answer(self) -> Steps[list[FetchableTopicResponse]]:
        """Return what was read and is news, and what else there is to mention."""
        session = self._session
        mentions, session.mentions = session.mentions, {}
        session.is_urgent = False
        topics: dict[bytes, FetchableTopicResponse] = {}
        for number, position in enumerate({**mentions, **self._data}):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            data = self._data.get(position)
            if data is None and position.partition is not None:
                data = position.describe()
            if data is not None and position.tell(data):
                topic_id = position.key[0]
                topic = topics.get(topic_id)
                if topic is None:
                    topic = topics[topic_id] = FetchableTopicResponse(topic_id=topic_id, partitions=[])
                topic.partitions.append(data)
        return list(topics.values())


class FollowerSessions:
    """The sessions of all other brokers: one for each connection.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    :param throttle: what they are not to get for now.
    """

    def __init__(self, random_below: Callable[[int], int], throttle: LeaderThrottle = NO_LEADER_THROTTLE) -> None:
        self._random_below = random_below
        self._throttle = throttle
        self._sessions: dict[ConnectionState, FollowerSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, connection: ConnectionState, broker_id: int) -> FollowerSession:
        """Begin a session, in place of the one that this connection had."""
        for gone in [each for each in self._sessions if each.is_gone or each is connection]:
            self.drop(gone)
        session = self._sessions[connection] = FollowerSession(
            self._random_below(SESSION_ID_MAX) + 1, broker_id, self._throttle
        )
        return session

    def go_on(self, connection: ConnectionState, request: FetchRequest) -> FollowerSession:
        """Return the session that a request belongs to.

        :raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        session = self._sessions.get(connection)
        broker_id = request.replica_state.replica_id
        if session is None or (session.id, session.broker_id) != (request.session_id, broker_id):
            message = f"broker {broker_id} has no fetch session {request.session_id} on this connection"
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, message)
        if request.session_epoch != session.next_epoch:
            message = f"fetch session {session.id} goes on with epoch {session.next_epoch}, not {request.session_epoch}"
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        session.next_epoch = next_session_epoch(session.next_epoch)
        return session

    def drop(self, connection: ConnectionState) -> None:
        """End the session of a connection, if it has one."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.close()


def _wanted(request: FetchRequest) -> Iterable[tuple[bytes, FetchPartition]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield topic.topic_id, wanted


def _forgotten(request: FetchRequest) -> Iterable[Key]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield topic.topic_id, partition
