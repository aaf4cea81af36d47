"""The positions of the assigned partitions, and the plan of the fetches. No I/O. Callers must hold the consumer's
guard.

Positions. A partition has three offsets, always in this order: `done` <= `position` <= `fetch_offset`.

- `fetch_offset`: the next offset to fetch. It is ahead of `position` while records are buffered.
- `position`: the next offset to return to the application.
- `done`: the application has processed all records below this offset. A record counts as processed when the application
  asks for more records. Auto-commit commits this offset, so a crash delivers the current record again (at least once).

Prefetch. The fetcher buffers up to two responses of each partition. It sends the next fetch when the application has
used half of the buffered records, or all records of one partition. So each fetch is large. The sum of the buffered
bytes and the maximum bytes of the fetches in flight stays below `buffer_bytes_max`. The only exception is a batch
larger than the partition's maximum bytes, which brokers send nevertheless.

Several fetches. A fetch without new records waits at the broker, so another fetch requests the other partitions. A
partition is never in two fetches. At most `FETCHES_MAX` fetches to a broker are in flight, and the last one waits only
briefly. Otherwise all fetches could wait for idle partitions, while no fetch requests the busy partitions.

Errors. The fetcher skips a partition with an error until the application has received the error. Brokers return errors
immediately, so without this rule the fetcher would repeat the fetch in a tight loop.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from barnabas.client.cluster import ClusterView
from barnabas.client.permissions import Need, with_permission
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, CorruptBatchError, ErrorCode
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.records import BATCH_HEADER_SIZE

NOWHERE = "none"
OUT_OF_RANGE = -1
"""The value of `validation_cause` for a position that the leader has rejected as out of range."""
RESET_TIMESTAMPS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


class AssignedPartition:
    """The position of the consumer in one assigned partition."""

    __slots__ = (
        "buffered_bytes",
        "committed",
        "committed_version",
        "done",
        "fetch_offset",
        "high_watermark",
        "is_refused",
        "last_turn",
        "leader_epoch",
        "paused",
        "position",
        "reset",
        "tp",
        "validation_cause",
        "version",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.fetch_offset: int | None = None
        """The next offset to fetch, or None if the position is unknown."""
        self.position: int | None = None
        self.done: int | None = None
        self.committed: int | None = None
        """The last committed offset, or None if it is unknown."""
        self.committed_version = -1
        """The value of `version` when the application committed the current record, or -1 if there
        was no such commit.
        """
        self.reset: str | None = None
        """The reset policy to apply instead of a committed offset: `earliest` or `latest`. With `none`, only a seek can
        set a position.
        """
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last fetched batch; -1 after a seek, because the epoch before the new position is
        unknown.
        """
        self.validation_cause: int | None = None
        """The reason to validate the position: the log may have lost records before `fetch_offset`. The value is the
        later leader epoch of the next batch, or OUT_OF_RANGE. The partition is not fetched until the leader has
        returned the end offset of `leader_epoch` (KIP-320).
        """
        self.paused = False
        self.is_refused = False
        """True if the consumer lacks the permission to describe the topic. The consumer then requests no position."""
        self.version = 0
        """The number of seeks. Records that were fetched before a seek are not returned after it."""
        self.buffered_bytes = 0
        self.last_turn = 0
        """The value of the fetcher's chunk counter when this partition's last chunk arrived."""
        self.high_watermark: int | None = None
        """The high watermark in the last response."""

    def move_to(self, offset: int) -> None:
        """Continue at `offset`."""
        self.fetch_offset = self.position = self.done = offset
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = None
        self.version += 1

    def refetch(self) -> None:
        """Discard the fetched records that were not returned, so that they are fetched again."""
        self.fetch_offset = self.position
        self.version += 1

    def forget_position(self, reset: str | None) -> None:
        """Make the position unknown. The reset policy `reset` then determines the new position. With None, the position
        is found as after an assignment.
        """
        self.fetch_offset = self.position = self.done = None
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = reset
        self.version += 1


class Subscription:
    """The subscription and the assignment of the consumer. Not thread-safe: callers must hold the consumer's guard."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.manual = False
        self.partitions: dict[TopicPartition, AssignedPartition] = {}

    @property
    def by_topics(self) -> bool:
        """Return whether the application has subscribed to topics.

        In this case, the group assigns the partitions; a consumer without a group gets all partitions.
        """
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Subscribe to topics by name, or by a regular expression that matches whole names.

        :raises ConfigurationError: partitions were assigned with `assign`, or neither or both of the arguments are
            given.
        """
        names = frozenset(topics)
        if pattern is not None and not isinstance(pattern, str | re.Pattern):
            raise TypeError(f"pattern must be a regular expression, not {pattern!r}")
        if self.manual:
            raise ConfigurationError("partitions were assigned with assign(); call unsubscribe() before subscribe()")
        if bool(names) == (pattern is not None):
            raise ConfigurationError("subscribe needs either topics or a pattern")
        self.topics = names
        try:
            self.pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(f"pattern {pattern!r} is not a regular expression: {error}") from None

    def match_pattern(self, names: Iterable[str]) -> bool:
        """Subscribe to the `names` that match the pattern; return whether the subscription has changed."""
        assert self.pattern is not None
        matching = frozenset(name for name in names if self.pattern.fullmatch(name))
        changed = matching != self.topics
        self.topics = matching
        return changed

    def assign_by_hand(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions. Partitions that were assigned before keep their positions."""
        if self.by_topics:
            raise ConfigurationError("the consumer has subscribed to topics; call unsubscribe() before assign()")
        self.manual = True
        self.replace(partitions)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment. Partitions that were assigned before keep their positions."""
        self.partitions = {tp: self.partitions.get(tp) or AssignedPartition(tp) for tp in partitions}

    def clear_partitions(self) -> list[TopicPartition]:
        """Remove all partitions from the assignment; return them."""
        given_up = list(self.partitions)
        self.partitions = {}
        return given_up

    def unsubscribe(self) -> None:
        """Remove the subscription and the assignment."""
        self.topics = frozenset()
        self.pattern = None
        self.manual = False
        self.partitions = {}

    def check_something_to_read(self) -> None:
        """Check that there is a subscription or an assignment. Otherwise a poll would wait forever.

        :raises ConfigurationError: there is neither a subscription nor an assignment.
        """
        if not self.by_topics and not self.manual:
            raise ConfigurationError("nothing to read: call subscribe('a-topic') or assign([('a-topic', 0)]) first")

    def state(self, tp: TopicPartition) -> AssignedPartition:
        """Return the state of an assigned partition.

        :raises ConfigurationError: the partition is not assigned to this consumer.
        """
        state = self.partitions.get(tp)
        if state is None:
            have = ", ".join(str(each) for each in self.partitions) or "none"
            raise ConfigurationError(f"{tp} is not assigned to this consumer (assigned: {have})")
        return state

    def without_position(self) -> list[AssignedPartition]:
        """Return the partitions without a known position."""
        return [
            state
            for state in self.partitions.values()
            if state.fetch_offset is None and state.reset != NOWHERE and not state.is_refused
        ]

    def without_valid_position(self) -> list[AssignedPartition]:
        """Return the partitions whose position a leader must validate."""
        return [
            state for state in self.partitions.values() if state.validation_cause is not None and not state.is_refused
        ]

    @property
    def wants_positions(self) -> bool:
        """Return whether a position is unknown or must be validated by a leader."""
        return any(
            not state.is_refused
            and (state.validation_cause is not None or (state.fetch_offset is None and state.reset != NOWHERE))
            for state in self.partitions.values()
        )

    def without_offset(self) -> list[TopicPartition]:
        """Return the partitions that have neither a committed offset nor a reset policy, and so
        need a call of `seek`.
        """
        return [state.tp for state in self.partitions.values() if state.reset == NOWHERE]

    def owns(self, state: AssignedPartition) -> bool:
        """Return whether `state` is the current state of an assigned partition, and not of an earlier assignment."""
        return self.partitions.get(state.tp) is state


class _Named(NamedTuple):
    node_id: int
    leader: int
    until_s: float


class PreferredReplicas:
    """The replicas that the consumer reads from instead of leaders (KIP-392).

    The consumer sends `client_rack`, and a leader returns the id of a replica near the consumer. As in Java's consumer,
    the lease of a replica is as long as metadata is valid. It returns to the leader after an error or a timeout, or
    when the leader changes. Not thread-safe: callers must hold the consumer's guard.

    :param rack: the rack of the consumer. If it is empty, the consumer reads all partitions from their leaders.
    :param now_s: returns monotonic time in seconds.
    :param lease_s: the time in seconds for which the consumer reads from a replica before it asks the leader again.
    """

    def __init__(self, rack: str, now_s: Callable[[], float], lease_s: float) -> None:
        self.rack = rack
        self._now_s = now_s
        self._lease_s = lease_s
        self._named: dict[AssignedPartition, _Named] = {}

    def source(self, state: AssignedPartition, view: ClusterView) -> int | None:
        """Return the id of the broker to read a partition from, or None if no leader is known."""
        leader = view.leader(state.tp)
        if not self._named:
            return leader
        named = self._named.get(state)
        if named is None:
            return leader
        if named.leader == leader and named.node_id in view.brokers:
            return named.node_id
        del self._named[state]
        return leader

    def name(self, state: AssignedPartition, node_id: int, leader: int) -> None:
        """Read a partition from replica `node_id`, because the leader has returned this replica as
        the preferred one.
        """
        self._named[state] = _Named(node_id, leader, self._now_s() + self._lease_s)

    def give_up(self, state: AssignedPartition, node_id: int) -> int | None:
        """If the consumer reads the partition from replica `node_id`, return to the leader. Return the id of the
        leader.
        """
        named = self._named.get(state)
        if named is None or named.node_id != node_id:
            return None
        del self._named[state]
        return named.leader

    def give_up_if_due(self, state: AssignedPartition, node_id: int) -> int | None:
        """Call `give_up` if the lease of the replica has expired."""
        named = self._named.get(state)
        return self.give_up(state, node_id) if named is not None and self._now_s() >= named.until_s else None

    def forget(self, is_gone: Callable[[AssignedPartition], bool]) -> None:
        """Remove the preferred replicas of partitions that are no longer assigned."""
        if self._named:
            self._named = {state: named for state, named in self._named.items() if not is_gone(state)}


Buffer = bytes | bytearray | memoryview

FETCH_BYTES = 6 * 1024 * 1024
"""The maximum bytes of a fetch. Larger fetches would use more memory without being faster."""

SHARE_BYTES_MIN = 256 * 1024
"""The minimum bytes of a partition in a fetch. Smaller chunks cost more time per record."""

SHARE_BYTES_MAX = 2 * 1024 * 1024
"""The maximum bytes of a partition in a fetch. The application processes one chunk while the next chunk arrives."""

SMALL_SHARE = 8
"""A chunk smaller than one eighth of its response is copied, so that the response's memory can be freed."""

FETCHES_MAX = 3
"""The maximum number of fetches in flight to a broker. Some wait for new records while others return existing ones."""

ERRORS_MAX = 100
"""The maximum number of errors that are kept for the next polls."""

LAST_WAIT_MS = 20
"""The maximum time in ms that the last of `FETCHES_MAX` fetches waits at the broker."""

_BUFFERED_BYTES = attrgetter("buffered_bytes")
_LAST_TURN = attrgetter("last_turn")
_BATCH_LENGTH = struct.Struct(">i")
_OFFSETS = struct.Struct(">q4xi7xi")
_LEADER_EPOCH = struct.Struct(">12xi")
_LENGTH_POSITION = 8
_LENGTH_END = 12

TRY_ELSEWHERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class SinglePartitionFetch(NamedTuple):
    """The fields of a `FetchResponse` with one partition that the consumer reads, as decoded by `FetchTemplates`."""

    session_id: int
    topic: str
    partition_index: int
    high_watermark: int
    records: memoryview
    error_code: int = 0
    """The error code of the response or of the partition."""
    preferred_read_replica: int = -1


@dataclass(slots=True)
class Chunk:
    """Complete, encoded record batches of one partition."""

    state: AssignedPartition
    version: int
    data: Buffer
    next_offset: int
    """The offset after the last record in `data`."""


@dataclass(slots=True, eq=False)
class RequestedPartition:
    """A partition in a fetch request, and its state at the time of the request."""

    state: AssignedPartition
    version: int
    """The version of the partition's state at the time of the request."""
    part: FetchPartition
    parts: list[FetchPartition]
    place: int


@dataclass(slots=True, eq=False)
class Fetch:
    """A fetch request and the state of its partitions. A repeated fetch reuses the object."""

    node_id: int
    request: FetchRequest
    """The request with all partitions, before the fetch session shortens it."""
    asked: dict[TopicPartition, RequestedPartition] = field(default_factory=dict)
    reserved_bytes: int = 0
    is_under_way: bool = True
    """False between a response and the next request."""
    changed: list[RequestedPartition] | None = None
    """The partitions whose fetch offset differs from the previous request, or None if there was no previous request."""
    of_all: tuple[ClusterView, dict[TopicPartition, AssignedPartition], int] | None = None
    """The cluster view, the partitions, and the maximum bytes of each, if the fetch requests all partitions of the
    broker. None otherwise.
    """


class Fetcher:
    """Plans fetches and buffers fetched records. Not thread-safe: callers must hold the consumer's guard.

    :param reset_policy: `earliest`, `latest` or `none`. With `none`, an offset out of range is an error for the
        application.
    :param partition_max_bytes: the maximum bytes of a partition in a fetch. With None, it depends on the number of
        partitions.
    :param preferred_replicas: the replicas to read from instead of leaders. With None, the consumer reads from leaders
        only.
    :param principal: the principal of the consumer, for the error of a missing permission; None if it is unknown.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        reset_policy: str,
        min_bytes: int,
        max_wait_ms: int,
        max_bytes: int,
        partition_max_bytes: int | None,
        buffer_bytes_max: int,
        preferred_replicas: PreferredReplicas | None = None,
        principal: str | None = None,
    ) -> None:
        self._subscription = subscription
        self._principal = principal
        self._preferred_replicas = preferred_replicas or PreferredReplicas("", lambda: 0.0, 0.0)
        self._reset_policy = reset_policy
        self._min_bytes = min_bytes
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._buffer_bytes_max = buffer_bytes_max
        self._chunks: deque[Chunk] = deque()
        self._buffered_bytes = 0
        self._turns = 0
        """The chunk counter: the total number of fetched chunks."""
        self._reserved_bytes: Counter[int] = Counter()
        """The maximum bytes of the fetches in flight, by broker."""
        self._broker_bytes = buffer_bytes_max
        """The number of bytes of the buffer that the responses of one broker may use."""
        self._last_fetch: dict[AssignedPartition, Fetch] = {}
        """The last fetch of each partition."""
        self._parts: dict[AssignedPartition, FetchPartition] = {}
        """The entry of each partition in its last request. A waiting consumer reuses most of these objects."""
        self._fetch_counts: Counter[int] = Counter()
        """The number of fetches in flight, by broker."""
        self.deferred_nodes: dict[int, None] = {}
        """The brokers to fetch from as soon as the buffer has space, in order. They include brokers from which a
        partition is fetched for the first time.
        """
        self.wants_fetch = False
        """True if a fetch may be due, because the application has used many buffered records. The background resets
        this flag.
        """
        self.lost_positions = False
        """True if the offset of a partition was out of range in a response. The background resets this flag."""
        self.errors: deque[BarnabasError] = deque()
        """Errors for the next polls that concern no single partition."""
        self._troubles: dict[AssignedPartition, tuple[int, BarnabasError]] = {}
        """The error of each partition, with the partition's version at the time of the error.

        The partition is not fetched until the application has received the error.
        """
        self._ends: dict[AssignedPartition, int] = {}
        """The partitions whose next offset is out of range while they still have buffered records,
        with their versions.
        """

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes of fetched batches that the application has not read."""
        return self._buffered_bytes

    # --- requests ---------------------------------------------------------------------------------------

    def next_fetch(self, node_id: int, view: ClusterView) -> Fetch | None:
        """Return the next fetch from a broker, or None if there is nothing to fetch or no space in the buffer.

        The caller ensures that fewer than `FETCHES_MAX` fetches to the broker are in flight.
        """
        share = self._share()
        room = self._room(node_id, share)
        if room < share:
            return None
        here = self._read_from(node_id, view)
        states = [state for state in here if self._is_wanted(state, share)]
        # Sort by buffered bytes, fewest first; among equals, the partition with the oldest chunk comes first. Without a
        # session, brokers fill a response in the order of the request. In a session, a partition with new records moves
        # to the end.
        states.sort(key=_LAST_TURN)
        states.sort(key=_BUFFERED_BYTES)
        if not states or (states[0].buffered_bytes and not self._half_is_used_up()):
            return None
        topics: dict[str, list[FetchPartition]] = {}
        request = FetchRequest(
            max_wait_ms=0, min_bytes=self._min_bytes, topics=[], rack_id=self._preferred_replicas.rack
        )
        fetch = Fetch(node_id, request)
        for state in states:
            part = self._parts.get(state)
            if part is None or part.fetch_offset != state.fetch_offset or part.partition_max_bytes != share:
                part = self._parts[state] = _part(state, share)
            parts = topics.setdefault(state.tp.topic, [])
            fetch.asked[state.tp] = RequestedPartition(state, state.version, part, parts, len(parts))
            self._last_fetch[state] = fetch
            parts.append(part)
        request.topics = [FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()]
        if len(states) == len(here):
            fetch.of_all = view, self._subscription.partitions, share
        self._begin(fetch, room, share)
        return fetch

    def _begin(self, fetch: Fetch, room: int, share: int) -> None:
        """Reserve space in the buffer for the response of a fetch, and mark it as in flight."""
        node_id = fetch.node_id
        # Use at most half of the broker's part of the buffer, to leave space for another fetch before this response
        # arrives.
        half = max(share, self._broker_bytes // 2)
        fetch.reserved_bytes = max_bytes = min(self._max_bytes, room, share * len(fetch.asked), half)
        fetch.is_under_way = True
        self._reserved_bytes[node_id] += max_bytes
        self._fetch_counts[node_id] += 1
        is_last = self._fetch_counts[node_id] >= FETCHES_MAX
        fetch.request.max_bytes = max_bytes
        fetch.request.max_wait_ms = min(self._max_wait_ms, LAST_WAIT_MS) if is_last else self._max_wait_ms

    def repeat(self, fetch: Fetch, view: ClusterView) -> bool:
        """Reuse a completed fetch for the next request, if the next fetch differs from it in offsets only. This is the
        usual case of a consumer that waits for new records. This needs a fetch session. The repeated request names the
        partitions in the same order, and without a session the first ones could fill every response.

        :return: False if the two fetches differ in more than offsets, or there is nothing to fetch.
        """
        if fetch.of_all is None or self._troubles or self._ends or self._preferred_replicas.rack:
            return False
        of_view, of_partitions, share = fetch.of_all
        if of_view is not view or of_partitions is not self._subscription.partitions:
            return False
        room = self._room(fetch.node_id, share)
        if room < share:
            return False
        is_one_empty = False
        for asked in fetch.asked.values():
            state = asked.state
            is_left_out = state.paused or state.buffered_bytes > share or state.validation_cause is not None
            if is_left_out or state.version != asked.version:
                return False
            is_one_empty = is_one_empty or not state.buffered_bytes
        if not is_one_empty and not self._half_is_used_up():
            return False
        for asked in fetch.changed or ():
            part = _part(asked.state, share)
            asked.part = asked.parts[asked.place] = self._parts[asked.state] = part
        self._begin(fetch, room, share)
        return True

    def _room(self, node_id: int, share: int) -> int:
        """Return the number of bytes that a broker may send now. The buffer is divided, so that one broker cannot use
        the space of all others.
        """
        room = self._buffer_bytes_max - self._buffered_bytes - sum(self._reserved_bytes.values())
        if self.deferred_nodes:
            self.deferred_nodes.pop(node_id, None)
        if room < share:
            self.deferred_nodes[node_id] = None
        return min(room, max(share, self._broker_bytes) - self._reserved_bytes[node_id])

    def _read_from(self, node_id: int, view: ClusterView) -> list[AssignedPartition]:
        """Return the assigned partitions that the consumer reads from this broker."""
        source = self._preferred_replicas.source
        return [state for state in self._subscription.partitions.values() if source(state, view) == node_id]

    def _is_wanted(self, state: AssignedPartition, share: int) -> bool:
        """Return whether to fetch more of a partition now."""
        return (
            state.fetch_offset is not None
            and not state.paused
            and state.buffered_bytes <= share
            and not self._is_under_way(state)
            and state not in self._troubles
            and state.validation_cause is None
            and not (self._ends and self._ended(state))
        )

    def _is_under_way(self, state: AssignedPartition) -> bool:
        """Return whether a fetch in flight requests the next offset of a partition."""
        fetch = self._last_fetch.get(state)
        return fetch is not None and fetch.is_under_way and fetch.asked[state.tp].version == state.version

    def _ended(self, state: AssignedPartition) -> bool:
        """Return whether the partition must not be fetched now: its next offset was out of range, and the application
        has not yet used the buffered records.
        """
        return self._ends.get(state) == state.version and state.position != state.fetch_offset

    def _share(self) -> int:
        """Return the maximum bytes of one partition in a fetch."""
        share = self._partition_max_bytes
        if share is None:
            share = FETCH_BYTES // max(len(self._subscription.partitions), 1)
            share = max(min(share, SHARE_BYTES_MAX), SHARE_BYTES_MIN)
        return min(share, self._buffer_bytes_max)

    def _half_is_used_up(self) -> bool:
        half = min(self._share() * len(self._subscription.partitions), self._buffer_bytes_max // 2)
        return self._buffered_bytes <= half

    def sources(self, view: ClusterView) -> set[int]:
        """Return the brokers that the consumer reads assigned partitions from."""
        states = self._subscription.partitions.values()
        sources = {source for state in states if (source := self._preferred_replicas.source(state, view)) is not None}
        self._broker_bytes = self._buffer_bytes_max // max(1, len(sources))
        return sources

    def source(self, tp: TopicPartition, view: ClusterView) -> int | None:
        """Return the broker that the consumer reads a partition from: its leader or a preferred replica."""
        return self._preferred_replicas.source(self._subscription.partitions[tp], view)

    def lacks_leaders(self, view: ClusterView) -> bool:
        """Return whether an assigned partition has no known leader."""
        return any(view.leader(tp) is None for tp in self._subscription.partitions)

    # --- answers ----------------------------------------------------------------------------------------

    def on_failure(self, fetch: Fetch) -> None:
        """Free the reserved space of a failed fetch. The next fetch requests the same offsets from the leaders."""
        self._ended_with(fetch)
        for asked in fetch.asked.values():
            self._preferred_replicas.give_up(asked.state, fetch.node_id)

    def _ended_with(self, fetch: Fetch) -> None:
        self._reserved_bytes[fetch.node_id] -= fetch.reserved_bytes
        self._fetch_counts[fetch.node_id] -= 1
        fetch.is_under_way = False
        fetch.changed = []

    def on_response(self, fetch: Fetch, response: FetchResponse | SinglePartitionFetch) -> bool:
        """Buffer the records of a response.

        :return: True if an error requires new metadata and a pause.
        :raises ApiError: the whole response is an error; call `on_failure`.
        """
        if response.error_code:
            raise ApiError(response.error_code, subject="fetch")
        self._ended_with(fetch)
        if self._preferred_replicas.rack:
            self._look_for_leases(fetch)
        if isinstance(response, SinglePartitionFetch):
            return self._on_partition(fetch, response.topic, response)
        stale = False
        for topic in response.responses:
            for part in topic.partitions:
                stale = self._on_partition(fetch, topic.topic, part) or stale
        return stale

    @property
    def kept_count(self) -> int:
        """The total number of responses whose records were buffered."""
        return self._turns

    def _look_for_leases(self, fetch: Fetch) -> None:
        """For partitions whose lease of a preferred replica has expired, read from the leader again."""
        for asked in fetch.asked.values():
            leader = self._preferred_replicas.give_up_if_due(asked.state, fetch.node_id)
            if leader is not None:
                self.deferred_nodes[leader] = None

    def _on_partition(self, fetch: Fetch, topic: str, part: PartitionData | SinglePartitionFetch) -> bool:
        tp = TopicPartition(topic, part.partition_index)
        asked = fetch.asked.get(tp)
        if asked is None:
            return False
        state = asked.state
        if (
            state.version != asked.version
            or state.fetch_offset != asked.part.fetch_offset
            or self._subscription.partitions.get(tp) is not state
        ):
            return False  # The response is outdated: a seek, or another broker's response, has changed the offset.
        if not part.error_code and not self._preferred_replicas.rack:  # the usual case
            return self._keep(fetch, asked, part)
        return self._look_closer(fetch, asked, part)

    def _look_closer(self, fetch: Fetch, asked: RequestedPartition, part: PartitionData | SinglePartitionFetch) -> bool:
        code, state, node_id = ErrorCode.of(part.error_code), asked.state, fetch.node_id
        if code is not ErrorCode.NONE:
            leader = self._preferred_replicas.give_up(state, node_id)
            if leader is not None:
                # Ignore the error of a preferred replica: the consumer fetches from the leader next.
                self.deferred_nodes[leader] = None
                return code is not ErrorCode.OFFSET_OUT_OF_RANGE
        elif (
            self._preferred_replicas.rack
            and part.preferred_read_replica >= 0
            and part.preferred_read_replica != node_id
        ):
            self._preferred_replicas.name(state, part.preferred_read_replica, node_id)
            self.deferred_nodes[part.preferred_read_replica] = None
            return False
        if code is ErrorCode.NONE:
            return self._keep(fetch, asked, part)
        offset = asked.part.fetch_offset
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(state, offset)
            return False
        if code not in TRY_ELSEWHERE:
            error = ApiError(code, subject=f"fetch of {state.tp} at offset {offset}")
            self._stop(state, with_permission(error, self._principal, Need("read", "topic", state.tp.topic)))
        return True

    def _stop(self, state: AssignedPartition, error: BarnabasError) -> None:
        """Stop fetching a partition until the application has received `error`."""
        self._troubles[state] = state.version, error

    def _on_out_of_range(self, state: AssignedPartition, offset: int) -> None:
        if state.position is not None and state.position < offset:
            self._ends[state] = state.version
            # The application gets the buffered records first. The next fetch then returns the error again.
            return
        if state.leader_epoch >= 0:
            self._await_validation(state, OUT_OF_RANGE)
            return
        state.forget_position(self._reset_policy)
        self.lost_positions = True

    def _await_validation(self, state: AssignedPartition, validation_cause: int) -> None:
        """Stop fetching a partition until its leader has validated the position."""
        state.validation_cause = validation_cause
        self.lost_positions = True

    def _keep(self, fetch: Fetch, asked: RequestedPartition, part: PartitionData | SinglePartitionFetch) -> bool:
        """Buffer the records of a partition; return whether they are damaged."""
        state, offset, records = asked.state, asked.part.fetch_offset, part.records
        state.high_watermark = part.high_watermark
        if records is None or not len(records):
            return False
        try:
            next_offset, last_epoch = end_of_batches(records)
        except CorruptBatchError as error:
            self._stop(state, CorruptBatchError(f"{state.tp} near offset {offset}: {error}"))
            return True
        if next_offset is None or next_offset <= offset:
            what = f"{state.tp} at offset {offset}: {len(records)} bytes without a whole batch"
            self._stop(state, CorruptBatchError(what))
            return True
        if last_epoch != state.leader_epoch:
            first_epoch: int = _LEADER_EPOCH.unpack_from(records)[0]
            if first_epoch > state.leader_epoch >= 0:
                # A new leader wrote this batch. It may have truncated the log before the batch, so validate the
                # position.
                self._await_validation(state, first_epoch)
                return False
            state.leader_epoch = last_epoch
        if isinstance(records, memoryview) and len(records) * SMALL_SHARE < len(records.obj):  # type: ignore[arg-type]
            # A view of a small part would keep the whole response in memory, while only the part is accounted for.
            records = bytes(records)
        self._turns += 1
        state.last_turn = self._turns
        state.fetch_offset = next_offset
        state.buffered_bytes += len(records)
        self._buffered_bytes += len(records)
        self._chunks.append(Chunk(state, state.version, records, next_offset))
        assert fetch.changed is not None
        fetch.changed.append(asked)
        return False

    # --- the application's side -------------------------------------------------------------------------

    def add_error(self, error: BarnabasError) -> None:
        """Add an error for the application, unless an equal one is already waiting."""
        known = any(type(each) is type(error) and str(each) == str(error) for each in self.errors)
        if not known and len(self.errors) < ERRORS_MAX:
            self.errors.append(error)

    def take_error(self) -> BarnabasError | None:
        """Remove and return the next error, and allow fetches of its partition again."""
        if self.errors:
            return self.errors.popleft()
        if not self._troubles:  # the usual case
            return None
        self._drop_stale_troubles()
        if not self._troubles:
            return None
        _, error = self._troubles.pop(next(iter(self._troubles)))
        return error

    def take(self, accepts: Callable[[TopicPartition], bool]) -> Chunk | None:
        """Remove and return the oldest chunk of an assigned, unpaused partition for which `accepts` returns True."""
        if not self._chunks:
            return None
        place = 0
        while place < len(self._chunks):
            chunk = self._chunks[place]
            if not self.is_current(chunk):
                del self._chunks[place]
                self._release(chunk)
            elif chunk.state.paused or not accepts(chunk.state.tp):
                place += 1
            else:
                del self._chunks[place]
                self._release(chunk)
                self.wants_fetch = self.wants_fetch or self._wants_fetch_after(chunk.state)
                return chunk
        return None

    def _wants_fetch_after(self, state: AssignedPartition) -> bool:
        """Return whether a fetch may be due, because a chunk of partition `state` was taken from the buffer."""
        if self.deferred_nodes:
            return True
        if self._is_under_way(state):
            return False  # not now: a fetch in flight will return more records
        return not state.buffered_bytes or (state.buffered_bytes <= self._share() and self._half_is_used_up())

    def has_chunk(self, accepts: Callable[[TopicPartition], bool]) -> bool:
        """Return whether `take` would find a chunk."""
        return any(
            self.is_current(chunk) and not chunk.state.paused and accepts(chunk.state.tp) for chunk in self._chunks
        )

    def refetch_from(self, state: AssignedPartition, offset: int) -> None:
        """Discard the fetched records of a partition, ignore the response to its fetch in flight, and fetch again from
        `offset`.
        """
        state.fetch_offset = offset
        state.version += 1
        self.drop_stale()

    def is_current(self, chunk: Chunk) -> bool:
        """Return whether a chunk may be returned: the partition is still assigned, and there was no seek after the
        fetch.
        """
        state = chunk.state  # same check as `_holds`, without the cost of a call: this runs several times per response
        return state.version == chunk.version and self._subscription.partitions.get(state.tp) is state

    def _release(self, chunk: Chunk) -> None:
        self._buffered_bytes -= len(chunk.data)
        chunk.state.buffered_bytes -= len(chunk.data)

    def drop_stale(self) -> None:
        """Discard chunks that were fetched before a seek, and chunks of partitions that are no longer assigned."""
        stale = [chunk for chunk in self._chunks if not self.is_current(chunk)]
        for chunk in stale:
            self._release(chunk)
        self._chunks = deque(chunk for chunk in self._chunks if self.is_current(chunk))
        owns = self._subscription.owns
        self._parts = {state: part for state, part in self._parts.items() if owns(state)}
        self._last_fetch = {state: fetch for state, fetch in self._last_fetch.items() if owns(state)}
        self._drop_stale_troubles()

    def _drop_stale_troubles(self) -> None:
        self._troubles = {state: trouble for state, trouble in self._troubles.items() if self._holds(state, trouble[0])}
        self._ends = {state: version for state, version in self._ends.items() if self._holds(state, version)}
        self._preferred_replicas.forget(lambda state: not self._subscription.owns(state))

    def _holds(self, state: AssignedPartition, version: int) -> bool:
        """Return whether fetched data is still valid; `version` is the partition's version at the time of the fetch."""
        return state.version == version and self._subscription.owns(state)


def _part(state: AssignedPartition, max_bytes: int) -> FetchPartition:
    assert state.fetch_offset is not None
    return FetchPartition(partition=state.tp.partition, fetch_offset=state.fetch_offset, partition_max_bytes=max_bytes)


def end_of_batches(records: Buffer) -> tuple[int | None, int]:
    """Return the offset after the last complete batch, and the leader epoch of this batch. The offset is None if there
    is no complete batch.

    The function reads only the lengths of the earlier batches.

    :raises CorruptBatchError: a batch has an impossible length.
    """
    position, last, end = 0, -1, len(records)
    while end - position >= BATCH_HEADER_SIZE:
        size: int = _BATCH_LENGTH.unpack_from(records, position + _LENGTH_POSITION)[0] + _LENGTH_END
        if size < BATCH_HEADER_SIZE:
            raise CorruptBatchError(f"batch at position {position}: length {size - _LENGTH_END} is too small")
        if size > end - position:
            break
        last, position = position, position + size
    if last < 0:
        return None, NO_LEADER_EPOCH
    base_offset, leader_epoch, last_offset_delta = _OFFSETS.unpack_from(records, last)
    return base_offset + last_offset_delta + 1, leader_epoch
