"""One face for every client that the tests use, so that each test is written once and run with all of them.

An adapter per client stands beside this file. Adapters translate, they do not soften: no retries, no defaults
that hide what a broker answers. What a broker refuses comes out as `ApiError` with the code it sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.model import Header, OffsetAndMetadata

SESSION_TIMEOUT_MS = 6_000
"""Long enough for a machine that is busy with other things."""
HEARTBEAT_INTERVAL_MS = 100
"""Short, because members hear of a rebalance with their next heartbeat."""
RETRY_BACKOFF_MS = 20
FETCH_WAIT_MS = 100
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The clients' own limit for a request, so large that the broker's is what is tested."""


class Event(NamedTuple):
    """What a producer sends."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Received(NamedTuple):
    """What a consumer got, and from where."""

    place: Place
    event: Event


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How a producer sends."""

    compression: str = "none"
    acks: int = -1
    idempotent: bool = False


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How a consumer takes part in a group."""

    group: str
    instance_id: str | None = None
    assignor: str = "range"
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    commits_by_itself: bool = True
    """Commits what was handed out when partitions are taken away and when it is closed."""


class Producer(Protocol):
    """Sends to any topic."""

    def produce(self, topic: str, events: Sequence[Event], partition: int | None = None) -> list[Place]:
        """Send all, wait for all, and return where they are; with acks=0 that is not known.

        :raises ApiError: the broker refused one.
        """
        ...

    def close(self) -> None: ...


class Consumer(Protocol):
    """Reads one topic: as a member of a group, or, without one, all partitions from the beginning."""

    def poll(self, timeout_s: float) -> list[Received]: ...
    def assigned(self) -> set[int]: ...
    def commit(self, offsets: Mapping[int, OffsetAndMetadata] | None = None) -> None: ...
    def committed(self, partition: int) -> OffsetAndMetadata | None: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def beginning_offset(self, partition: int) -> int: ...
    def end_offset(self, partition: int) -> int: ...
    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None: ...

    def close(self) -> None:
        """Commit, if the membership says so, and leave the group; a static member does not leave."""
        ...


class Admin(Protocol):
    """Looks after topics.

    :raises ApiError: from each method, what the broker refused.
    """

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None: ...
    def delete_topic(self, name: str) -> None: ...

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        ...

    def brokers(self) -> dict[int, str]:
        """Return the address of every broker, by its id."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """A client library."""

    name: str
    sends_null_headers: bool
    """Whether its producer can send a header without a value."""
    reads_metadata_of_others: bool
    """Whether its consumer can be asked for metadata that another client has committed."""
    closes_without_coordinator: bool
    """Whether its consumer can be closed while it has lost the coordinator of its group."""

    def producer(self, bootstrap: str, sending: Sending = Sending()) -> Producer: ...
    def consumer(self, bootstrap: str, topic: str, membership: Membership | None = None) -> Consumer: ...
    def admin(self, bootstrap: str) -> Admin: ...
