"""The leader's side of followers' fetch sessions (KIP-227): their partitions, and the changes of these partitions.

For a consumer's request, the broker reads all partitions of the session (`barnabas.broker.handlers.fetch`). This is too
expensive for a follower, which may fetch a thousand idle partitions twice per second. So each partition notifies the
session of its changes, and the cost of a request depends only on the number of changes. Each request also proves that
the follower has all records below its current fetch offsets. The session reports this to a partition before the next
append (`LeaderReplica.note_caught_up`).

Requests skip partitions that a throttle withholds from out-of-sync followers (`barnabas.broker.throttles`). In-sync
followers are not delayed.

A session lives as long as its connection. Used from the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.error_codes import error_code
from barnabas.broker.pipeline.call import ENTRIES_PER_STEP, LAST_OF_STEP, Steps
from barnabas.broker.throttles import NO_LEADER_THROTTLE, LeaderThrottle
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import INITIAL_SESSION_EPOCH, NO_OFFSET, next_session_epoch
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from barnabas.replication.truncation import diverging_epoch
from barnabas.storage.log_reader import NO_BATCHES, Batches

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.call import ConnectionState
    from barnabas.broker.replica_storage import ReadListener

SESSION_ID_MAX = 2**31 - 1

PARTITIONS_MAX = 200_000
"""The maximum number of partitions in a fetch session."""

HELD_BACK_S_MAX = 1.0
"""The time in seconds after which a request reads throttled partitions again, because the follower may have become in
sync.
"""

NOTHING_SENT = NO_OFFSET, NO_OFFSET
"""The "last sent" high watermark and log start offset of a partition that no response has contained yet."""

Key = tuple[bytes, int]
"""Topic id and partition."""

LeaderOf = Callable[[bytes, int], "LeaderReplica"]
"""Returns the leader replica of a partition, by topic id and number. Raises an ApiError if this broker does not lead.
"""


class Position:
    """The fetch offset of a follower in one partition. It is also the `LogEndListener` of the partition."""

    __slots__ = ("_sent", "_session", "_topic_id", "partition", "wanted")

    def __init__(self, session: FollowerSession, topic_id: bytes, wanted: FetchPartition) -> None:
        self._session = session
        self._topic_id = topic_id
        self._sent = NOTHING_SENT
        self.wanted = wanted
        self.partition: LeaderReplica | None = None

    @property
    def key(self) -> Key:
        return self._topic_id, self.wanted.partition

    def ask(self, wanted: FetchPartition) -> None:
        """Set the fetch offset.

        The next response contains the leader's offsets again, because the follower may have ignored an earlier response
        that did not match its log.
        """
        self.wanted = wanted
        self._sent = NOTHING_SENT

    def detach(self) -> None:
        """Stop listening to changes of the partition."""
        if self.partition is not None:
            self.partition.unwatch_log_end(self)
            self.partition = None

    # --- partition events (`LogEndListener`) ---

    def on_appended(self, size: int, *, is_urgent: bool) -> None:
        """Mark the partition as ready for the next read, unless it is throttled."""
        session, partition = self._session, self.partition
        if self in session.held_back:
            if partition is not None and session.holds_back(partition):
                return
            session.release(self)
        if self not in session.ready and partition is not None:
            offset, at_s = self.wanted.fetch_offset, session.last_fetch_s
            partition.note_caught_up(session.broker_id, session.broker_epoch, offset, at_s)
        session.note_readable(self, size, is_urgent=is_urgent)

    def on_fetch_awaited(self) -> None:
        """Make the follower fetch immediately, unless the partition is throttled."""
        self.on_appended(0, is_urgent=True)

    def on_offsets_moved(self) -> None:
        """Include the partition's offsets in the next response."""
        self._session.mentions[self] = None

    def on_leadership_lost(self) -> None:
        """Mark the partition as ready for the next read, which will return the error."""
        self._session.release(self)
        self._session.note_readable(self, 0, is_urgent=True)

    def read(self, leader_of: LeaderOf, bytes_max: int, *, min_one_batch: bool) -> PartitionData:
        """Read from the fetch offset, and return the partition's part of the response.

        Also record that the follower has all records below the fetch offset.
        """
        wanted, session = self.wanted, self._session
        try:
            partition = self._attached(leader_of)
            partition.check_epoch(wanted.current_leader_epoch)
            log = partition.storage.log
            parting = diverging_epoch(
                log.leader_epochs, log.log_end_offset, wanted.fetch_offset, wanted.last_fetched_epoch
            )
            if parting is not None:
                data = self.describe()
                data.diverging_epoch = EpochEndOffset(epoch=parting.epoch, end_offset=parting.start_offset)
                return data
            batches: Batches = NO_BATCHES
            if wanted.fetch_offset < log.log_end_offset and session.holds_back(partition):
                session.hold_back(self)
            else:
                limit = min(max(0, wanted.partition_max_bytes), bytes_max)
                batches = partition.read_for_follower(wanted.fetch_offset, limit, min_one_batch=min_one_batch).batches
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
        if batches:
            data.records = batches
            session.throttle.note(partition, len(batches))
        return data

    def is_news(self, data: PartitionData) -> bool:
        """Return whether a response must contain this data, and record its offsets as sent."""
        known = NOTHING_SENT if data.error_code else (data.high_watermark, data.log_start_offset)
        is_news = known != self._sent or known == NOTHING_SENT
        self._sent = known
        return is_news or len(data.records) > 0 or data.diverging_epoch.epoch >= 0

    def describe(self) -> PartitionData:
        """Return the partition's part of a response, without records."""
        assert self.partition
        offsets = self.partition.storage.log.offsets
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=ErrorCode.NONE,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            log_start_offset=offsets.log_start_offset,
            aborted_transactions=None,
            records=NO_BATCHES,
        )

    def _attached(self, leader_of: LeaderOf) -> LeaderReplica:
        if self.partition is None or self.partition.storage.has_ended:
            self.detach()
            self.partition = leader_of(self._topic_id, self.wanted.partition)
            self.partition.watch_log_end(self)
        return self.partition

    def _refusal(self, error: BarnabasError) -> PartitionData:
        code = error_code(error)
        start = NO_OFFSET
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.partition is not None:
            start = self.partition.log.log_start_offset  # The follower can restart its log at this offset.
        return PartitionData(
            partition_index=self.wanted.partition,
            error_code=code,
            high_watermark=NO_OFFSET,
            log_start_offset=start,
            records=b"",
        )


class FollowerSession:
    """The fetch session of one connection from a follower's broker.

    A `DelayedFetch` waits for changes of its partitions.
    """

    def __init__(self, session_id: int, broker_id: int, throttle: LeaderThrottle = NO_LEADER_THROTTLE) -> None:
        self.id = session_id
        self.throttle = throttle
        self.next_epoch = next_session_epoch(INITIAL_SESSION_EPOCH)
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.last_fetch_s = 0.0
        self.ready: dict[Position, None] = {}
        """The partitions that the next request reads. Partitions that had records in the last response come last."""
        self.held_back: dict[Position, None] = {}
        """The partitions with new records that the throttle withholds."""
        self._held_back_s = 0.0
        self.mentions: dict[Position, None] = {}
        """The partitions whose high watermark or log start offset may have changed since the last response."""
        self.change_count = 0
        """The number of partition events since the session began."""
        self.is_urgent = False
        """True if a request of a producer, consumer or administrator waits for a fetch of the follower."""
        self._listener: ReadListener | None = None
        """The waiting fetch request of the follower, or None."""
        self._positions: dict[Key, Position] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def update(self, request: FetchRequest, now_s: float) -> Steps[None]:
        """Apply the changes in a fetch request to the session.

        :raises ApiError: the session would have too many partitions.
        """
        if self.broker_epoch != request.replica_state.replica_epoch:
            # The follower may have restarted and may have different fetch offsets, so read all partitions again.
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
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"a fetch session can have at most {PARTITIONS_MAX} partitions"
                    )
                position = self._positions[topic_id, wanted.partition] = Position(self, topic_id, wanted)
            position.ask(wanted)
            # The response must contain the partition, even if it is created after a wait.
            self.mentions[position] = None
            self.release(position)
            self.ready.setdefault(position)

    def holds_back(self, partition: LeaderReplica) -> bool:
        """Return whether the throttle withholds a partition from the follower."""
        return self.throttle.holds_back(partition, self.broker_id)

    def hold_back(self, position: Position) -> None:
        """Do not read a throttled partition until `release` is called."""
        self.ready.pop(position, None)
        self.held_back[position] = None

    def release(self, position: Position) -> None:
        """Allow reads of a throttled partition again."""
        if position in self.held_back:
            del self.held_back[position]
            self.ready.setdefault(position)

    def release_due(self) -> None:
        """Allow reads of throttled partitions again if `HELD_BACK_S_MAX` has passed or the quota is no longer
        exceeded.
        """
        if self.last_fetch_s - self._held_back_s >= HELD_BACK_S_MAX or not self.throttle.quota.is_exceeded:
            self._held_back_s = self.last_fetch_s
            self.ready |= self.held_back
            self.held_back.clear()

    def watch(self, listener: ReadListener) -> None:
        """Set the listener for reads, which is the waiting fetch request."""
        self._listener = listener

    def unwatch(self, _listener: ReadListener) -> None:
        """Remove the listener for reads."""
        self._listener = None

    def note_readable(self, position: Position, size: int, *, is_urgent: bool) -> None:
        """Mark a partition as ready for the next read.

        :param is_urgent: True if the waiting request must be completed now.
        """
        self.ready.setdefault(position)
        self.change_count += 1
        self.is_urgent = self.is_urgent or is_urgent
        if self._listener is None:
            return
        if is_urgent:
            self._listener.on_reads_changed()
        else:
            self._listener.on_readable(size)

    def close(self) -> None:
        """Stop listening to changes of all partitions."""
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
    """One read of all ready partitions of a session."""

    def __init__(self, session: FollowerSession, leader_of: LeaderOf, bytes_max: int) -> None:
        self._session = session
        self._leader_of = leader_of
        self._bytes_left = bytes_max
        self.size = 0
        self.must_answer = False
        """True if a partition has an error or has diverged, so that the response must not wait."""
        self._data: dict[Position, PartitionData] = {}

    def all(self) -> Steps[None]:
        """Read all partitions that are ready."""
        if self._session.held_back:
            self._session.release_due()
        for number, position in enumerate(list(self._session.ready)):
            if number % ENTRIES_PER_STEP == LAST_OF_STEP:
                yield
            if position in self._session.ready:
                self._read(position)

    def _read(self, position: Position) -> None:
        ready = self._session.ready
        data = position.read(self._leader_of, self._bytes_left, min_one_batch=self.size == 0)
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
        """Return the changed partitions for the response, and count the bytes of their records."""
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
            if data is not None and position.is_news(data):
                if position.partition is not None and (size := len(data.records)):
                    position.partition.log.note_replicated_out(size)
                topic_id = position.key[0]
                topic = topics.get(topic_id)
                if topic is None:
                    topic = topics[topic_id] = FetchableTopicResponse(topic_id=topic_id, partitions=[])
                topic.partitions.append(data)
        return list(topics.values())


class FollowerSessions:
    """The fetch sessions of all followers, one per connection.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    def __init__(self, random_below: Callable[[int], int], throttle: LeaderThrottle = NO_LEADER_THROTTLE) -> None:
        self._random_below = random_below
        self._throttle = throttle
        self._sessions: dict[ConnectionState, FollowerSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, connection: ConnectionState, broker_id: int) -> FollowerSession:
        """Begin a new session. It replaces an earlier session of the same connection."""
        for gone in [each for each in self._sessions if each.is_gone or each is connection]:
            self.drop(gone)
        session = self._sessions[connection] = FollowerSession(
            self._random_below(SESSION_ID_MAX) + 1, broker_id, self._throttle
        )
        return session

    def resume(self, connection: ConnectionState, request: FetchRequest) -> FollowerSession:
        """Return the session to which a fetch request belongs.

        :raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        session = self._sessions.get(connection)
        broker_id = request.replica_state.replica_id
        if session is None or (session.id, session.broker_id) != (request.session_id, broker_id):
            message = f"broker {broker_id} has no fetch session {request.session_id} on this connection"
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, message)
        if request.session_epoch != session.next_epoch:
            message = f"fetch session {session.id} expects epoch {session.next_epoch}, not {request.session_epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
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
