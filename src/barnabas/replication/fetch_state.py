"""The fetch state of a follower for one leader's broker: all partitions in one fetch session (KIP-227).

The module does no I/O. It processes responses and creates requests, and the caller owns the connection.

- A request contains only partitions that are new, have a new fetch offset, or are removed from the session. So the cost
  of a request depends on the number of changes, not on the number of partitions.
- A partition that cannot be fetched for a while (busy log, or an error) is removed from the session and added later.
- Up to two requests can be in flight, so a change need not wait for the end of a long poll. The data of a partition in
  a response is used only if it is the response to the latest request for this partition.
- Each fetch starts at the log end offset and contains the epoch of the last record. The leader compares this epoch
  with its own log to detect divergence (KIP-595).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import INITIAL_SESSION_EPOCH, NO_FETCH_SESSION, NO_LEADER_EPOCH, next_session_epoch
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

R = TypeVar("R")

IN_FLIGHT_MAX = 2
"""The maximum number of requests in flight: one request that waits at the leader, and one that ends this wait."""

CUTS_FREE = 8
"""The number of consecutive truncations that cause no pause. Each further truncation pauses the partition."""

BULK_BYTES = 256 * 1024
"""The minimum size in bytes of a bulk response. After a bulk response, more data probably follows."""
BULK_BYTES_MIN = 2 * 1024 * 1024
BULK_WAIT_MS = 5
"""The maximum wait in ms for `BULK_BYTES_MIN` in the fetch after a bulk response.

The cost of a fetch hardly depends on its size, so fewer and larger fetches are more efficient. The leader ends the wait
early if a producer (acks=all) or a consumer waits for the follower.
"""

FIRST_PAUSE_S = 0.05
"""The pause in seconds after the first error of a partition.

It doubles after each further error, up to `Limits.pause_s_max`. The first error is usually temporary, because the
leader has not yet read that it leads.
"""


class Limits(NamedTuple):
    """The limits of fetch requests: sizes in bytes, and the maximum wait at the leader."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    pause_s_max: float


@dataclass(slots=True, eq=False)
class Followed(Generic[R]):
    """The fetch state of one partition that follows this leader."""

    replica: R
    topic_id: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record before `fetch_offset`."""
    log_start_offset: int = 0
    is_paused: bool = False
    """True if the partition is currently excluded from requests."""
    resumes_at_s: float | None = None
    pause_s: float = 0.0
    """The duration of the last pause after an error, in seconds. The caller sets it to 0 after a successful fetch."""
    brought_s: float = 0.0
    """The monotonic time at which the last throttled records arrived."""
    asked_in: int = 0
    """The number of the request that contains the current fetch offset, or 0 if it was not sent yet."""
    answered_in: int = 0
    """The number of the last request whose response was used for this partition."""
    furthest_offset: int = -1
    """The highest log end offset that the follower's log has ever had."""
    cuts: int = 0
    """The number of truncations since the log end offset last exceeded `furthest_offset`."""

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition


class FetchState(Generic[R]):
    """The fetch session and the followed partitions of one connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._followed: dict[tuple[bytes, int], Followed[R]] = {}
        self._in_session: set[tuple[bytes, int]] = set()
        """The partitions in the leader's fetch session after the last request that was sent."""
        self._to_name: dict[tuple[bytes, int], None] = {}
        self._to_forget: set[tuple[bytes, int]] = set()
        self._paused: dict[tuple[bytes, int], None] = {}
        """The partitions whose pause ends at a known time, unordered."""
        self._session_id = NO_FETCH_SESSION
        self._session_epoch = INITIAL_SESSION_EPOCH
        self._numbers: deque[int] = deque()
        """The numbers of the requests in flight."""
        self._number = 0
        self._brought_bytes = 0
        """The size of the records in the last response, in bytes."""

    def __len__(self) -> int:
        return len(self._followed)

    def all(self) -> Iterable[Followed[R]]:
        """Return the followed partitions."""
        return tuple(self._followed.values())

    # --- followed partitions ---

    def follow(self, followed: Followed[R]) -> None:
        """Start fetching a partition. This replaces an earlier `Followed` object of the same partition."""
        self._paused.pop(followed.key, None)
        self._followed[followed.key] = followed
        self._to_name[followed.key] = None
        self._to_forget.discard(followed.key)

    def unfollow(self, followed: Followed[R]) -> None:
        """Stop fetching a partition, unless another `Followed` object has replaced this one."""
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]
            self._paused.pop(followed.key, None)
            self._take_out(followed.key)

    def is_followed(self, followed: Followed[R]) -> bool:
        return self._followed.get(followed.key) is followed

    def continue_at(self, followed: Followed[R], fetch_offset: int, last_epoch: int) -> None:
        """Resume fetching a partition at the given offset."""
        followed.fetch_offset, followed.last_epoch = fetch_offset, last_epoch
        followed.asked_in = 0
        followed.is_paused, followed.resumes_at_s = False, None
        if self.is_followed(followed):
            self._paused.pop(followed.key, None)
            self._to_name[followed.key] = None
            self._to_forget.discard(followed.key)

    def pause(self, followed: Followed[R]) -> None:
        """Exclude a partition from requests until `continue_at` is called."""
        followed.is_paused, followed.asked_in = True, 0
        if self.is_followed(followed):
            self._take_out(followed.key)

    def pause_after_error(self, followed: Followed[R], now_s: float) -> None:
        """Exclude a partition from requests for `pause_s`, after an error of the leader or of the local log."""
        self.pause(followed)
        followed.pause_s = min(max(2 * followed.pause_s, FIRST_PAUSE_S), self.limits.pause_s_max)
        followed.resumes_at_s = now_s + followed.pause_s
        if self.is_followed(followed):
            self._paused[followed.key] = None

    def note_log_end(self, followed: Followed[R], log_end_offset: int) -> None:
        """Record a new log end offset. Reset the truncation count if the log is longer than ever before."""
        if log_end_offset > followed.furthest_offset:
            followed.furthest_offset, followed.cuts = log_end_offset, 0

    def note_truncation(self, followed: Followed[R]) -> bool:
        """Record a truncation of a partition. Return whether there were too many consecutive truncations."""
        followed.cuts += 1
        return followed.cuts > CUTS_FREE

    def resume_due(self, now_s: float) -> list[Followed[R]]:
        """Return the partitions whose pause has ended. The caller passes each one to `continue_at`."""
        return [
            followed
            for key in self._paused
            if (followed := self._followed[key]).resumes_at_s is not None and followed.resumes_at_s <= now_s
        ]

    def next_due_s(self) -> float | None:
        """Return the time at which the next pause ends, or None if there is none."""
        ends = [self._followed[key].resumes_at_s for key in self._paused]
        return min((each for each in ends if each is not None), default=None)

    def _take_out(self, key: tuple[bytes, int]) -> None:
        self._to_name.pop(key, None)
        if key in self._in_session:
            self._to_forget.add(key)

    # --- requests ---

    @property
    def in_flight(self) -> int:
        """The number of requests in flight."""
        return len(self._numbers)

    @property
    def must_interrupt(self) -> bool:
        """True if the follower should send changes now, although a request is waiting at the leader."""
        # The first response must have arrived, because it contains the session id.
        return len(self._numbers) == 1 and self._session_id != NO_FETCH_SESSION and bool(self._to_name)

    def next_request(self, replica_id: int, broker_epoch: int) -> FetchRequest | None:
        """Return the next request, or None if too many requests are in flight or no partition needs a fetch.

        :param broker_epoch: the broker epoch of this broker's registration.
        """
        limits = self.limits
        if len(self._numbers) >= IN_FLIGHT_MAX or (self._numbers and self._session_id == NO_FETCH_SESSION):
            return None
        is_new = self._session_epoch == INITIAL_SESSION_EPOCH
        is_bulk = self._brought_bytes >= BULK_BYTES
        if is_new:
            self._to_name = {key: None for key, each in self._followed.items() if not each.is_paused}
            self._in_session, self._to_forget = set(), set()
        if not self._to_name and len(self._in_session) <= len(self._to_forget):
            return None
        self._number += 1
        self._numbers.append(self._number)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch),
            # Do not delay the first response, because further requests need its session id.
            max_wait_ms=0 if is_new else min(BULK_WAIT_MS, limits.max_wait_ms) if is_bulk else limits.max_wait_ms,
            min_bytes=max(BULK_BYTES_MIN, limits.min_bytes) if is_bulk else limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._named(),
            forgotten_topics_data=_forgotten(self._to_forget),
        )
        self._in_session |= self._to_name.keys()
        self._in_session -= self._to_forget
        self._to_name, self._to_forget = {}, set()
        if not is_new:
            self._session_epoch = next_session_epoch(self._session_epoch)
        return request

    def _named(self) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for key in self._to_name:
            followed = self._followed[key]
            followed.asked_in = self._number
            topic = topics.get(followed.topic_id)
            if topic is None:
                topic = topics[followed.topic_id] = FetchTopic(topic_id=followed.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=followed.partition,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=followed.fetch_offset,
                    last_fetched_epoch=followed.last_epoch,
                    log_start_offset=followed.log_start_offset,
                    partition_max_bytes=self.limits.partition_max_bytes,
                )
            )
        return list(topics.values())

    # --- answers ---

    def on_response(self, response: FetchResponse) -> list[tuple[Followed[R], PartitionData]]:
        """Process the response to the oldest request in flight.

        Return the partitions for which this was the latest request, with their data.

        :raises ApiError: the leader rejected the whole request. The caller must call `reset_session`.
        """
        number = self._numbers.popleft()
        if response.error_code:
            raise ApiError(response.error_code, "the leader rejected a fetch request")
        if self._session_id == NO_FETCH_SESSION:
            self._session_id = response.session_id
            self._session_epoch = next_session_epoch(INITIAL_SESSION_EPOCH)
        if response.session_id != self._session_id or self._session_id == NO_FETCH_SESSION:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the fetch response has a missing or wrong session id")
        news = []
        self._brought_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                self._brought_bytes += len(data.records or b"")
                followed = self._followed.get((topic.topic_id, data.partition_index))
                # Use only the first entry of a partition if a response contains several.
                if followed is not None and 0 < followed.asked_in <= number != followed.answered_in:
                    followed.answered_in = number
                    news.append((followed, data))
        return news

    def reset_session(self) -> None:
        """Start a new fetch session with all partitions, because the connection or the session has ended."""
        self._numbers.clear()
        self._brought_bytes = 0
        self._session_id, self._session_epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH
        for followed in self._followed.values():
            followed.asked_in = 0


def _forgotten(keys: Iterable[tuple[bytes, int]]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [ForgottenTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]
