"""The positions of the assigned partitions, and the fetches that read on from there. No I/O; the consumer guards it.

Positions. A partition has three offsets, always in this order: `done` <= `position` <= `fetch_offset`.

- `fetch_offset`: the next offset to fetch; prefetching runs ahead of the application.
- `position`: the next offset to return to the application.
- `done`: the application has asked for more after it had all records below, so these are processed. Auto-commit commits
  this offset: a crash delivers the record in hand again (at least once).

Prefetch. The fetcher buffers up to two responses' worth of each partition. It fetches more when half of that is used,
or all of one partition, so that a fetch is large. Buffered bytes and the bytes that fetches under way may bring stay
below `buffer_bytes_max`. The only exception is a batch larger than its limit, which brokers send nevertheless.

Several fetches. A fetch without new records waits at the broker, so another fetch asks for the other partitions. A
partition is never in two fetches. There are `FETCHES_MAX` to one broker at most, and the last one waits only briefly.
Otherwise all could wait for idle partitions while the busy ones have no fetch.

Errors. The fetcher skips a partition with an error until the application has got the error: brokers answer an error at
once, so fetches would go on without a pause.
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
"""The cause of a validation where the leader has refused the offset."""
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
        """None while the position is unknown."""
        self.position: int | None = None
        self.done: int | None = None
        self.committed: int | None = None
        """The last committed offset."""
        self.committed_version = -1
        """`version` when the application committed the record in hand; -1: it did not."""
        self.reset: str | None = None
        """`earliest` or `latest`: begin there, whatever is committed. `none`: only a seek can help."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last fetched batch; -1 after a seek, which says nothing of the records before."""
        self.validation_cause: int | None = None
        """Why the log may have lost records before `fetch_offset`: a batch with this later leader epoch follows, or
        OUT_OF_RANGE. No fetch asks for the partition before the leader has answered where `leader_epoch` ends
        (KIP-320)."""
        self.paused = False
        self.version = 0
        """Counts seeks: records that were fetched before a seek are not returned after it."""
        self.buffered_bytes = 0
        self.last_turn = 0
        """The number of chunks that the consumer had fetched when this partition last got one."""
        self.high_watermark: int | None = None
        """The high watermark of the last response."""

    def move_to(self, offset: int) -> None:
        """Continue at `offset`."""
        self.fetch_offset = self.position = self.done = offset
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = None
        self.version += 1

    def refetch(self) -> None:
        """Fetch again what was fetched and not returned."""
        self.fetch_offset = self.position
        self.version += 1

    def forget_position(self, reset: str | None) -> None:
        """Find a position again: by the policy `reset`, or as after the assignment."""
        self.fetch_offset = self.position = self.done = None
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = reset
        self.version += 1


class Subscription:
    """The subscription and the assignment. Not thread-safe: the consumer guards it."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.manual = False
        self.partitions: dict[TopicPartition, AssignedPartition] = {}

    @property
    def by_topics(self) -> bool:
        """Return whether the application has subscribed to topics, so that a group assigns partitions, or all are
        assigned."""
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Subscribe to topics by name, or by a regular expression for whole names.

        :raises ConfigurationError: partitions were assigned by hand, or nothing or both are given.
        """
        names = frozenset(topics)
        if pattern is not None and not isinstance(pattern, str | re.Pattern):
            raise TypeError(f"pattern must be a regular expression, not {pattern!r}")
        if self.manual:
            raise ConfigurationError("partitions were assigned by hand; call unsubscribe() before subscribe()")
        if bool(names) == (pattern is not None):
            raise ConfigurationError("subscribe needs topics or a pattern, one of the two")
        self.topics = names
        try:
            self.pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(f"pattern {pattern!r} is not a regular expression: {error}") from None

    def match_pattern(self, names: Iterable[str]) -> bool:
        """Subscribe to those `names` that match the pattern; return whether that changed the subscription."""
        assert self.pattern is not None
        matching = frozenset(name for name in names if self.pattern.fullmatch(name))
        changed = matching != self.topics
        self.topics = matching
        return changed

    def assign_by_hand(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that were assigned before keep their positions.

        :raises ConfigurationError: the application has subscribed to topics.
        """
        if self.by_topics:
            raise ConfigurationError("topics were subscribed to; call unsubscribe() before assign()")
        self.manual = True
        self.replace(partitions)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assignment; partitions that were assigned before keep their positions."""
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
        """:raises ConfigurationError: there is no subscription nor assignment, so a poll would wait for ever."""
        if not self.by_topics and not self.manual:
            raise ConfigurationError("nothing to read: call subscribe('a-topic') or assign([('a-topic', 0)]) before")

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
        return [state for state in self.partitions.values() if state.fetch_offset is None and state.reset != NOWHERE]

    @property
    def wants_positions(self) -> bool:
        """Return whether a position must be looked up, or validated by a leader."""
        return any(
            state.validation_cause is not None or (state.fetch_offset is None and state.reset != NOWHERE)
            for state in self.partitions.values()
        )

    def without_offset(self) -> list[TopicPartition]:
        """Return the partitions without an offset to begin at, unless the application seeks."""
        return [state.tp for state in self.partitions.values() if state.reset == NOWHERE]

    def owns(self, state: AssignedPartition) -> bool:
        """Return whether `state` is the current state of an assigned partition."""
        return self.partitions.get(state.tp) is state


class _Named(NamedTuple):
    node_id: int
    leader: int
    until_s: float


class PreferredReplicas:
    """The replicas to read from instead of leaders (KIP-392).

    A leader with a request of a consumer with `client_rack` names a replica near the consumer. The consumer reads from
    it for as long as metadata is valid (as Java's consumer does), but gives it up after an error, without a response,
    or when the leader changes. Then it asks the leader again. Not thread-safe: the consumer guards it.

    :param rack: the rack of the consumer; empty: all partitions are read from leaders.
    :param now_s: monotonic seconds.
    :param lease_s: how long to read from a replica before the leader is asked again.
    """

    def __init__(self, rack: str, now_s: Callable[[], float], lease_s: float) -> None:
        self.rack = rack
        self._now_s = now_s
        self._lease_s = lease_s
        self._named: dict[AssignedPartition, _Named] = {}

    def source(self, state: AssignedPartition, view: ClusterView) -> int | None:
        """Return the broker to read a partition from; None: it has no known leader."""
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
        """Read a partition from `node_id`, as its leader has answered."""
        self._named[state] = _Named(node_id, leader, self._now_s() + self._lease_s)

    def give_up(self, state: AssignedPartition, node_id: int) -> int | None:
        """Read from the leader again, if the partition is read from replica `node_id`; return the leader."""
        named = self._named.get(state)
        if named is None or named.node_id != node_id:
            return None
        del self._named[state]
        return named.leader

    def give_up_if_due(self, state: AssignedPartition, node_id: int) -> int | None:
        """Like `give_up`, if the lease of the replica is over."""
        named = self._named.get(state)
        return self.give_up(state, node_id) if named is not None and self._now_s() >= named.until_s else None

    def forget(self, is_gone: Callable[[AssignedPartition], bool]) -> None:
        """Forget partitions that are no longer assigned."""
        if self._named:
            self._named = {state: named for state, named in self._named.items() if not is_gone(state)}


Buffer = bytes | bytearray | memoryview

FETCH_BYTES = 6 * 1024 * 1024
"""Bytes of all partitions in a fetch: larger fetches cost no less for a byte, but more memory."""

SHARE_BYTES_MIN = 256 * 1024
"""The least bytes of a partition in a fetch: smaller chunks cost more for a record."""

SHARE_BYTES_MAX = 2 * 1024 * 1024
"""The most bytes of a partition in a fetch: the application uses a chunk while the next one arrives."""

SMALL_SHARE = 8
"""A smaller part of a response than this is copied out of it."""

FETCHES_MAX = 3
"""Fetches to one broker at a time: while some wait there for new records, others bring existing ones."""

ERRORS_MAX = 100
"""The most errors that wait for the next polls."""

LAST_WAIT_MS = 20
"""The longest wait of the last of the fetches."""

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
    """The fields that a consumer reads of a `FetchResponse` with one partition, as `FetchTemplates` decodes it."""

    session_id: int
    topic: str
    partition_index: int
    high_watermark: int
    records: memoryview
    error_code: int = 0
    """The error code of the response, and that of the partition."""
    preferred_read_replica: int = -1


@dataclass(slots=True)
class Chunk:
    """Whole batches of one partition, as fetched, still encoded."""

    state: AssignedPartition
    version: int
    data: Buffer
    next_offset: int
    """The offset after the last record in `data`."""


@dataclass(slots=True, eq=False)
class RequestedPartition:
    """A partition in a fetch, and its place in the request."""

    state: AssignedPartition
    version: int
    """The version of the state at the time of the request."""
    part: FetchPartition
    parts: list[FetchPartition]
    place: int


@dataclass(slots=True, eq=False)
class Fetch:
    """A request, and the state of each of its partitions at that time. A repeated fetch is the same object."""

    node_id: int
    request: FetchRequest
    """Names all partitions."""
    asked: dict[TopicPartition, RequestedPartition] = field(default_factory=dict)
    reserved_bytes: int = 0
    is_under_way: bool = True
    """False between a response and the next request."""
    changed: list[RequestedPartition] | None = None
    """The partitions that differ from the request before; None: there was none."""
    of_all: tuple[ClusterView, dict[TopicPartition, AssignedPartition], int] | None = None
    """Set if it asks for all partitions of the broker: the view, the partitions, and the bytes of each."""


class Fetcher:
    """Plans fetches and buffers the fetched records. Not thread-safe: the consumer guards it.

    :param reset_policy: `earliest`, `latest`, or `none`, which makes an offset out of range an error.
    :param partition_max_bytes: bytes of a partition in a fetch; None: less of each where there are many.
    :param preferred_replicas: the partitions that are not read from their leaders; None: all are.
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
    ) -> None:
        self._subscription = subscription
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
        """Fetched chunks so far."""
        self._reserved_bytes: Counter[int] = Counter()
        """The bytes that fetches under way may bring, by broker."""
        self._broker_bytes = buffer_bytes_max
        """The part of the buffer for the responses of one broker."""
        self._last_fetch: dict[AssignedPartition, Fetch] = {}
        """The last fetch of each partition."""
        self._parts: dict[AssignedPartition, FetchPartition] = {}
        """The last request of each partition: a waiting consumer repeats most of them."""
        self._fetch_counts: Counter[int] = Counter()
        """Fetches under way, by broker."""
        self.deferred_nodes: dict[int, None] = {}
        """Brokers to fetch from as soon as there is room, in order; and those that have just become the source of a
        partition."""
        self.wants_fetch = False
        """True if the application has used so much that a fetch may be due. The background resets it."""
        self.lost_positions = False
        """True if a response has found an offset out of range. The background resets it."""
        self.errors: deque[BarnabasError] = deque()
        """Errors for the next polls, apart from those of single partitions."""
        self._troubles: dict[AssignedPartition, tuple[int, BarnabasError]] = {}
        """The error of a partition, and the version then. No fetch asks for the partition before the application got
        the error."""
        self._ends: dict[AssignedPartition, int] = {}
        """The versions of partitions whose next offset is out of range, behind buffered records."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of batches that wait for the application."""
        return self._buffered_bytes

    # --- requests ---------------------------------------------------------------------------------------

    def next_fetch(self, node_id: int, view: ClusterView) -> Fetch | None:
        """Return the next fetch from broker `node_id`, or None if nothing is to be fetched, or there is no room.

        The caller has less than `FETCHES_MAX` fetches under way to the broker.
        """
        share = self._share()
        room = self._room(node_id, share)
        if room < share:
            return None
        here = self._read_from(node_id, view)
        states = [state for state in here if self._is_wanted(state, share)]
        # The emptiest first, and of those the one that has waited longest: brokers fill a response in the order of the
        # request. In a session they use their own order, in which a partition with new records comes last.
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
        """Account for a fetch that there is room for."""
        node_id = fetch.node_id
        # At most half of its part, to leave some for what the application may use up before the response.
        half = max(share, self._broker_bytes // 2)
        fetch.reserved_bytes = max_bytes = min(self._max_bytes, room, share * len(fetch.asked), half)
        fetch.is_under_way = True
        self._reserved_bytes[node_id] += max_bytes
        self._fetch_counts[node_id] += 1
        is_last = self._fetch_counts[node_id] >= FETCHES_MAX
        fetch.request.max_bytes = max_bytes
        fetch.request.max_wait_ms = min(self._max_wait_ms, LAST_WAIT_MS) if is_last else self._max_wait_ms

    def repeat(self, fetch: Fetch, view: ClusterView) -> bool:
        """Make a fetch, after its response, equal to the result of `next_fetch`, if the two differ in offsets only.

        This is nearly always so for a consumer that waits for new records. It is for fetch sessions alone: the order of
        partitions stays the same, and without a session the last ones would get nothing while the others fill the
        responses.

        :return: False if the two differ in more, or nothing is to be fetched.
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
        """Return the bytes that a broker may send now. No broker may take the room of all others."""
        room = self._buffer_bytes_max - self._buffered_bytes - sum(self._reserved_bytes.values())
        if self.deferred_nodes:
            self.deferred_nodes.pop(node_id, None)
        if room < share:
            self.deferred_nodes[node_id] = None
        return min(room, max(share, self._broker_bytes) - self._reserved_bytes[node_id])

    def _read_from(self, node_id: int, view: ClusterView) -> list[AssignedPartition]:
        """Return the partitions that are read from a broker."""
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
        """Return whether a fetch under way asks for the next offset of a partition."""
        fetch = self._last_fetch.get(state)
        return fetch is not None and fetch.is_under_way and fetch.asked[state.tp].version == state.version

    def _ended(self, state: AssignedPartition) -> bool:
        """Return whether buffered records must be used up before another fetch of an offset out of range."""
        return self._ends.get(state) == state.version and state.position != state.fetch_offset

    def _share(self) -> int:
        """Return the bytes of one partition in a fetch."""
        share = self._partition_max_bytes
        if share is None:
            share = FETCH_BYTES // max(len(self._subscription.partitions), 1)
            share = max(min(share, SHARE_BYTES_MAX), SHARE_BYTES_MIN)
        return min(share, self._buffer_bytes_max)

    def _half_is_used_up(self) -> bool:
        half = min(self._share() * len(self._subscription.partitions), self._buffer_bytes_max // 2)
        return self._buffered_bytes <= half

    def sources(self, view: ClusterView) -> set[int]:
        """Return the brokers that assigned partitions are read from."""
        states = self._subscription.partitions.values()
        sources = {source for state in states if (source := self._preferred_replicas.source(state, view)) is not None}
        self._broker_bytes = self._buffer_bytes_max // max(1, len(sources))
        return sources

    def source(self, tp: TopicPartition, view: ClusterView) -> int | None:
        """Return the broker that an assigned partition is read from: its leader or a preferred replica."""
        return self._preferred_replicas.source(self._subscription.partitions[tp], view)

    def lacks_leaders(self, view: ClusterView) -> bool:
        """Return whether an assigned partition has no known leader."""
        return any(view.leader(tp) is None for tp in self._subscription.partitions)

    # --- answers ----------------------------------------------------------------------------------------

    def on_failure(self, fetch: Fetch) -> None:
        """A fetch failed. The next one asks the leader for the same."""
        self._ended_with(fetch)
        for asked in fetch.asked.values():
            self._preferred_replicas.give_up(asked.state, fetch.node_id)

    def _ended_with(self, fetch: Fetch) -> None:
        self._reserved_bytes[fetch.node_id] -= fetch.reserved_bytes
        self._fetch_counts[fetch.node_id] -= 1
        fetch.is_under_way = False
        fetch.changed = []

    def on_response(self, fetch: Fetch, response: FetchResponse | SinglePartitionFetch) -> bool:
        """Buffer the records of a response; return whether to refresh the leaders and to pause, because of an error.

        :raises ApiError: the response is an error as a whole; call `on_failure` then.
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
        """The number of responses with buffered records."""
        return self._turns

    def _look_for_leases(self, fetch: Fetch) -> None:
        """Ask leaders for a preferred replica again where a lease is over."""
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
            return False  # not the next offset: there was a seek, or another broker was faster
        if not part.error_code and not self._preferred_replicas.rack:  # nearly always
            return self._keep(fetch, asked, part)
        return self._look_closer(fetch, asked, part)

    def _look_closer(self, fetch: Fetch, asked: RequestedPartition, part: PartitionData | SinglePartitionFetch) -> bool:
        code, state, node_id = ErrorCode.of(part.error_code), asked.state, fetch.node_id
        if code is not ErrorCode.NONE:
            leader = self._preferred_replicas.give_up(state, node_id)
            if leader is not None:
                # Whatever is wrong with a replica: the leader's response decides.
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
            self._stop(state, ApiError(code, subject=f"fetch of {state.tp} at offset {offset}"))
        return True

    def _stop(self, state: AssignedPartition, error: BarnabasError) -> None:
        """Fetch no more of a partition until the application has got `error`."""
        self._troubles[state] = state.version, error

    def _on_out_of_range(self, state: AssignedPartition, offset: int) -> None:
        if state.position is not None and state.position < offset:
            self._ends[state] = state.version
            return  # buffered records come first; the next fetch follows when they are used up
        if state.leader_epoch >= 0:
            self._await_validation(state, OUT_OF_RANGE)
            return
        state.forget_position(self._reset_policy)
        self.lost_positions = True

    def _await_validation(self, state: AssignedPartition, validation_cause: int) -> None:
        """Fetch no more of a partition until its leader has validated the position."""
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
                # A new leader wrote the batch, and may have truncated the log before it.
                self._await_validation(state, first_epoch)
                return False
            state.leader_epoch = last_epoch
        if isinstance(records, memoryview) and len(records) * SMALL_SHARE < len(records.obj):  # type: ignore[arg-type]
            records = bytes(records)  # a small part would keep a whole response in memory, which is not accounted for
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
        """Add an error for the application; an equal one that waits already is enough."""
        known = any(type(each) is type(error) and str(each) == str(error) for each in self.errors)
        if not known and len(self.errors) < ERRORS_MAX:
            self.errors.append(error)

    def take_error(self) -> BarnabasError | None:
        """Remove and return the next error. A partition that it stopped is fetched again."""
        if self.errors:
            return self.errors.popleft()
        if not self._troubles:  # nearly always
            return None
        self._drop_stale_troubles()
        if not self._troubles:
            return None
        _, error = self._troubles.pop(next(iter(self._troubles)))
        return error

    def take(self, accepts: Callable[[TopicPartition], bool]) -> Chunk | None:
        """Remove and return the oldest chunk of a partition that `accepts`, is assigned and is not paused."""
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
        """Return whether a fetch may be due after a chunk of `state` was taken."""
        if self.deferred_nodes:
            return True
        if self._is_under_way(state):
            return False  # the response arrives by itself
        return not state.buffered_bytes or (state.buffered_bytes <= self._share() and self._half_is_used_up())

    def has_chunk(self, accepts: Callable[[TopicPartition], bool]) -> bool:
        """Return whether `take` would find a chunk."""
        return any(
            self.is_current(chunk) and not chunk.state.paused and accepts(chunk.state.tp) for chunk in self._chunks
        )

    def refetch_from(self, state: AssignedPartition, offset: int) -> None:
        """Drop what was fetched of one partition, and its fetch under way; fetch again from `offset`."""
        state.fetch_offset = offset
        state.version += 1
        self.drop_stale()

    def is_current(self, chunk: Chunk) -> bool:
        """Return whether a chunk may be returned: there was no seek, and its partition is still assigned."""
        state = chunk.state  # like `_holds`, without the call: this runs several times for each response
        return state.version == chunk.version and self._subscription.partitions.get(state.tp) is state

    def _release(self, chunk: Chunk) -> None:
        self._buffered_bytes -= len(chunk.data)
        chunk.state.buffered_bytes -= len(chunk.data)

    def drop_stale(self) -> None:
        """Drop chunks of former positions and of partitions that are no longer assigned."""
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
        """Return whether something learnt at `version` is still valid."""
        return state.version == version and self._subscription.owns(state)


def _part(state: AssignedPartition, max_bytes: int) -> FetchPartition:
    assert state.fetch_offset is not None
    return FetchPartition(partition=state.tp.partition, fetch_offset=state.fetch_offset, partition_max_bytes=max_bytes)


def end_of_batches(records: Buffer) -> tuple[int | None, int]:
    """Return the offset after the last whole batch, None if there is none, and the leader epoch of that batch.

    It reads only the lengths of the batches before.

    :raises CorruptBatchError: a length that no batch can have.
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
