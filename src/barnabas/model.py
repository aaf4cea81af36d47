"""Ids and value types that every layer shares: immutable, without behaviour, without I/O."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.addresses import host_port, without_brackets

NO_TIMESTAMP = -1
"""A record or batch without a timestamp, as the protocol writes it."""

NO_OFFSET = -1
"""An offset that is not known, as the protocol writes it."""

NO_PRODUCER_ID = -1
"""The producer id of a batch that no idempotent producer wrote (KIP-98)."""

PLAUSIBLE_PRODUCER_IDS = 2**60
"""No broker allocates a producer id from here on: the counter does not start above it."""

NO_LEADER_EPOCH = -1
"""A leader epoch that is not known (KIP-101)."""

Bytes = bytes | bytearray | memoryview
"""What a producer without serializers takes."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # Python has defaults of type variables from 3.13 on

    K_contra = TypeVar("K_contra", contravariant=True, default=Bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=Bytes)
    K_co = TypeVar("K_co", covariant=True, default=bytes)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
    GivenK = TypeVar("GivenK", default=Any)  # of a lambda without types: it takes whatever it is given
    GivenV = TypeVar("GivenV", default=Any)
else:
    from typing import TypeVar

    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)
    GivenK = TypeVar("GivenK")
    GivenV = TypeVar("GivenV")

Header = tuple[str, bytes | None]
"""A record header (KIP-82): a name that may repeat within a record, and a value that may be null."""


class RecordHeader(NamedTuple):
    """A header of a record that was read: a pair with names, which polars takes for a struct."""

    name: str
    value: bytes | None


Headers = Sequence[Header]
GivenHeaders = Headers | Mapping[str, bytes | None]
"""What `send` takes: pairs, or a dict."""


class TopicPartition(NamedTuple):
    """One partition of one topic: the unit of order, of storage and of parallelism (paper, 3.1 and 3.2).

    >>> str(TopicPartition("clicks", 3))
    'clicks-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def in_file_name(name: str, bytes_max: int = 120) -> str:
    """Return a name as a part of the name of a file: a long one is cut, and ends with a digest of the whole.

    A topic's name has up to 249 letters, and that of a file up to 255 bytes.

    >>> in_file_name("clicks"), len(in_file_name("c" * 249))
    ('clicks', 120)
    """
    encoded = name.encode(errors="surrogateescape")
    if len(encoded) <= bytes_max:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: bytes_max - 1 - len(digest)].decode(errors='ignore')}-{digest}"


class TimestampType(enum.IntEnum):
    """What a record's timestamp means (KIP-32)."""

    CREATE_TIME = 0
    """Set by the producer."""
    LOG_APPEND_TIME = 1
    """Set by the broker when it appended the batch."""


class IsolationLevel(enum.IntEnum):
    """Which records a reader is shown (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Acks(enum.IntEnum):
    """When a produce request counts as done (paper 5: no acknowledgement; article: leader, all replicas)."""

    NONE = 0
    LEADER = 1
    ALL = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, and a string that the committer may keep with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """The answer to a search by time: the first offset whose timestamp is at least the one asked for."""

    offset: int
    timestamp_ms: int


NO_FETCH_SESSION = 0
INITIAL_SESSION_EPOCH = 0
"""The epoch of a fetch that asks for a new session, and closes the session that it names (KIP-227)."""

FINAL_SESSION_EPOCH = -1
"""The epoch of a fetch that wants no session, or closes the session that it names."""

_SESSION_EPOCH_MAX = 2**31 - 1


def next_session_epoch(epoch: int) -> int:
    """Return the epoch of the fetch after the fetch with `epoch`: 1 follows the greatest."""
    return INITIAL_SESSION_EPOCH + 1 if epoch == _SESSION_EPOCH_MAX else epoch + 1


class LifeMark(NamedTuple):
    """How old a log directory is, by its life counter.

    :param life: the counter; the broker raises it at each start and every 10 s.
    :param noted_ms: wall time at which the broker raised it.
    :param record_count: the sum of the log end offsets in the directory at that time.
    """

    life: int
    noted_ms: int = 0
    record_count: int = 0

    def is_older_than(self, other: LifeMark | None) -> bool:
        """Return whether the other mark has a higher counter."""
        return other is not None and self.life < other.life


LIFE_MAX = 2**53
"""A number of a `LifeMark` that is higher than this does not come from a broker."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where an acknowledged record is. Offset and timestamp are -1 where acks=0 leaves them unknown."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address, and the rack that it stands in, where that is known."""

    id: int
    host: str
    port: int
    rack: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.host.startswith("["):  # as other brokers may give it
            object.__setattr__(self, "host", without_brackets(self.host))

    def __str__(self) -> str:
        return f"{host_port(self.host, self.port)} (broker {self.id})"


class HasFileno(Protocol):
    """An open file; holding a reference keeps it open."""

    def fileno(self) -> int: ...


class FileRegion:
    """Bytes `position` to `position + length` of an open file, to be sent without being read.

    Storage hands these out and the listener passes them to sendfile. The region keeps its file open, so a
    segment that retention unlinks meanwhile can still be sent.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: HasFileno, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion(position={self.position}, length={self.length})"
