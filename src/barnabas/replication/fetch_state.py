"""What a follower asks one leader's broker for, over one connection: all partitions in one fetch session (KIP-227).

Pure: answers and the time go in, requests come out, and the connection is the caller's. A request names what has
changed since the one before: a partition that is new, or from which something came. The others the leader remembers. So
a request costs as much as has changed, not as much as is followed.

A partition that cannot be fetched for a while (its log is busy, or something went wrong) is taken out of the session,
and put in again when it can. Requests may overtake their answers: one more than the leader has answered can be sent, so
that a change need not wait for the end of a long poll. What an answer holds counts only if it answers what was asked of
that partition last.

For each partition: what is asked next begins where its log ends, and says of which epoch the record before it is, by
which the leader tells whether the logs are the same up to there (KIP-595).
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
"""Requests that may be on their way: one that waits at the leader, and one that ends its wait."""

CUTS_FREE = 8
"""So often in a row a log may be cut at once, as leaders with other epochs ask for; then each cut makes a pause."""

BULK_BYTES = 256 * 1024
"""An answer that brings so much is one of many."""
BULK_BYTES_MIN = 2 * 1024 * 1024
BULK_WAIT_MS = 5
"""After such an answer the next one may wait so long until there is so much: a fetch costs both sides about the same,
whatever it brings. The leader waits only while nobody waits for it (acks=all, consumers)."""

FIRST_PAUSE_S = 0.05
"""The pause after the first trouble with a partition; it doubles, up to the limit of the settings. Most trouble is that
the leader has not heard yet that it leads."""


class Limits(NamedTuple):
    """How much is asked for, and how long the leader may wait until there is as much."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    pause_s_max: float


@dataclass(slots=True, eq=False)
class Followed(Generic[R]):
    """A partition that is fetched from this leader."""

    replica: R
    topic_id: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int = NO_LEADER_EPOCH
    """Of the record before `fetch_offset`."""
    log_start_offset: int = 0
    is_paused: bool = False
    """Whether it is not to be asked for."""
    resumes_at_s: float | None = None
    pause_s: float = 0.0
    """How long the last pause was that trouble made; the caller sets it to 0 when all is well again."""
    brought_s: float = 0.0
    """When records came that count against a quota."""
    asked_in: int = 0
    """The number of the request that has asked for it as it is now; 0: none has."""
    answered_in: int = 0
    """The number of the last request whose answer counted for it."""
    furthest_offset: int = -1
    """The greatest log end offset so far."""
    cuts: int = 0
    """How often the leader had the log cut since it last grew beyond `furthest_offset`."""

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition


class FetchState(Generic[R]):
    """The fetches of one connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._followed: dict[tuple[bytes, int], Followed[R]] = {}
        self._in_session: set[tuple[bytes, int]] = set()
        """What the leader remembers when the last request has reached it."""
        self._to_name: dict[tuple[bytes, int], None] = {}
        self._to_forget: set[tuple[bytes, int]] = set()
        self._paused: dict[tuple[bytes, int], None] = {}
        """Those with an end of the pause, in no order."""
        self._session_id = NO_FETCH_SESSION
        self._session_epoch = INITIAL_SESSION_EPOCH
        self._numbers: deque[int] = deque()
        """Of the requests on their way."""
        self._number = 0
        self._brought_bytes = 0
        """By the last answer."""

    def __len__(self) -> int:
        return len(self._followed)

    def all(self) -> Iterable[Followed[R]]:
        """Return what is followed."""
        return tuple(self._followed.values())

    # --- what is followed ---

    def follow(self, followed: Followed[R]) -> None:
        """Fetch this partition too; in place of what was followed of it before."""
        self._paused.pop(followed.key, None)
        self._followed[followed.key] = followed
        self._to_name[followed.key] = None
        self._to_forget.discard(followed.key)

    def unfollow(self, followed: Followed[R]) -> None:
        """Fetch this partition no longer, unless another replica has taken its place."""
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]
            self._paused.pop(followed.key, None)
            self._take_out(followed.key)

    def is_followed(self, followed: Followed[R]) -> bool:
        """Whether it still is."""
        return self._followed.get(followed.key) is followed

    def continue_at(self, followed: Followed[R], fetch_offset: int, last_epoch: int) -> None:
        """Go on with a partition, at this offset."""
        followed.fetch_offset, followed.last_epoch = fetch_offset, last_epoch
        followed.asked_in = 0
        followed.is_paused, followed.resumes_at_s = False, None
        if self.is_followed(followed):
            self._paused.pop(followed.key, None)
            self._to_name[followed.key] = None
            self._to_forget.discard(followed.key)

    def pause(self, followed: Followed[R]) -> None:
        """Do not ask for a partition until `continue_at`."""
        followed.is_paused, followed.asked_in = True, 0
        if self.is_followed(followed):
            self._take_out(followed.key)

    def pause_after_error(self, followed: Followed[R], now_s: float) -> None:
        """Do not ask for a partition for a while: something is wrong with it, here or there."""
        self.pause(followed)
        followed.pause_s = min(max(2 * followed.pause_s, FIRST_PAUSE_S), self.limits.pause_s_max)
        followed.resumes_at_s = now_s + followed.pause_s
        if self.is_followed(followed):
            self._paused[followed.key] = None

    def note_log_end(self, followed: Followed[R], log_end_offset: int) -> None:
        """Note that a partition has new records; only beyond all that it ever had they are progress."""
        if log_end_offset > followed.furthest_offset:
            followed.furthest_offset, followed.cuts = log_end_offset, 0

    def note_truncation(self, followed: Followed[R]) -> bool:
        """Note that the leader had the log of a partition cut; return whether that happened too often in a row."""
        followed.cuts += 1
        return followed.cuts > CUTS_FREE

    def resume_due(self, now_s: float) -> list[Followed[R]]:
        """Return those whose pause has ended: the caller looks where their logs end, and calls `continue_at`."""
        return [
            followed
            for key in self._paused
            if (followed := self._followed[key]).resumes_at_s is not None and followed.resumes_at_s <= now_s
        ]

    def next_due_s(self) -> float | None:
        """Return when the next pause ends, or None."""
        ends = [self._followed[key].resumes_at_s for key in self._paused]
        return min((each for each in ends if each is not None), default=None)

    def _take_out(self, key: tuple[bytes, int]) -> None:
        self._to_name.pop(key, None)
        if key in self._in_session:
            self._to_forget.add(key)

    # --- requests ---

    @property
    def in_flight(self) -> int:
        """Requests that were not answered yet."""
        return len(self._numbers)

    @property
    def must_interrupt(self) -> bool:
        """Whether there is something to say to the leader while it lets a request wait."""
        # Where there is no session yet, the leader has to give it a number first.
        return len(self._numbers) == 1 and self._session_id != NO_FETCH_SESSION and bool(self._to_name)

    def next_request(self, replica_id: int, broker_epoch: int) -> FetchRequest | None:
        """Return what to send now; None if there is nothing to ask for.

        :param broker_epoch: of this broker's registration.
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
            # The first answer brings the session's number, without which nothing more can be asked.
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
        """Take the answer to the request that has waited longest; return what it says of partitions.

        :raises ApiError: the leader refuses the request as a whole; the next one begins a new session.
        """
        number = self._numbers.popleft()
        if response.error_code:
            raise ApiError(response.error_code, "a fetch from the leader was refused")
        if self._session_id == NO_FETCH_SESSION:
            self._session_id = response.session_id
            self._session_epoch = next_session_epoch(INITIAL_SESSION_EPOCH)
        if response.session_id != self._session_id or self._session_id == NO_FETCH_SESSION:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer is for no fetch session, or for another one")
        news = []
        self._brought_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                self._brought_bytes += len(data.records or b"")
                followed = self._followed.get((topic.topic_id, data.partition_index))
                # An answer counts once for each partition, however often it names the partition.
                if followed is not None and 0 < followed.asked_in <= number != followed.answered_in:
                    followed.answered_in = number
                    news.append((followed, data))
        return news

    def reset_session(self) -> None:
        """Say everything again: the connection has ended, or the session."""
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
