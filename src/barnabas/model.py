"""Identifiers and value types that all layers share: immutable values without I/O."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.addresses import host_port, without_brackets

NO_TIMESTAMP = -1
"""The timestamp of a record or batch without a timestamp."""

NO_OFFSET = -1
"""An unknown offset."""

NO_PRODUCER_ID = -1
"""The producer id of a batch from a producer without idempotence (KIP-98)."""

PLAUSIBLE_PRODUCER_IDS = 2**60
"""Brokers only allocate producer ids below this number."""

NO_LEADER_EPOCH = -1
"""An unknown leader epoch (KIP-101)."""

Bytes = bytes | bytearray | memoryview
"""The types of keys and values that a producer without serializers accepts."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # TypeVar in Python's `typing` supports defaults only since version 3.13

    K_contra = TypeVar("K_contra", contravariant=True, default=Bytes)
    V_contra = TypeVar("V_contra", contravariant=True, default=Bytes)
    K_co = TypeVar("K_co", covariant=True, default=bytes)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
    GivenK = TypeVar("GivenK", default=Any)  # Any, so that a lambda without type annotations is accepted
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
"""A record header (KIP-82): a name, which may repeat within a record, and a value, which may be None."""


class RecordHeader(NamedTuple):
    """A header of a consumed record. Polars displays this named tuple as a struct."""

    name: str
    value: bytes | None


Headers = Sequence[Header]
GivenHeaders = Headers | Mapping[str, bytes | None]
"""The headers argument of `send`: pairs of name and value, or a dict."""


class TopicPartition(NamedTuple):
    """A partition of a topic: the unit of order, storage and parallelism (paper, 3.1 and 3.2).

    >>> str(TopicPartition("clicks", 3))
    'clicks-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def in_file_name(name: str, bytes_max: int = 120) -> str:
    """Return `name` for use in a file name.

    A name of more than `bytes_max` bytes is cut and ends with a digest of the name.

    Kafka allows 249 characters in a topic name; file systems allow 255 bytes in a file name.

    >>> in_file_name("clicks"), len(in_file_name("c" * 249))
    ('clicks', 120)
    """
    encoded = name.encode(errors="surrogateescape")
    if len(encoded) <= bytes_max:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: bytes_max - 1 - len(digest)].decode(errors='ignore')}-{digest}"


class TimestampType(enum.IntEnum):
    """The origin of a record's timestamp (KIP-32)."""

    CREATE_TIME = 0
    """The producer has set the timestamp."""
    LOG_APPEND_TIME = 1
    """The broker has set the timestamp when it appended the batch."""


class IsolationLevel(enum.IntEnum):
    """The visibility of transactional records for a consumer (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Acks(enum.IntEnum):
    """The replicas that acknowledge a produce request: none, the leader, or all in-sync replicas."""

    NONE = 0
    LEADER = 1
    ALL = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    """The offset of the next record to read."""
    metadata: str = ""
    """A string that the application stores with the offset."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record read; -1 if it is unknown."""


class OffsetAndTimestamp(NamedTuple):
    """The first offset with a timestamp of at least the requested time, and that timestamp."""

    offset: int
    timestamp_ms: int
    """The timestamp of the record in milliseconds since 1970."""


NO_FETCH_SESSION = 0
INITIAL_SESSION_EPOCH = 0
"""The epoch of a fetch request that opens a new fetch session and closes the session that it names (KIP-227)."""

FINAL_SESSION_EPOCH = -1
"""The epoch of a fetch request without a session; it closes the session that it names."""

_SESSION_EPOCH_MAX = 2**31 - 1


def next_session_epoch(epoch: int) -> int:
    """Return the session epoch of the next fetch request. After the maximum, epochs continue at 1."""
    return INITIAL_SESSION_EPOCH + 1 if epoch == _SESSION_EPOCH_MAX else epoch + 1


class LifeMark(NamedTuple):
    """The life counter of a log directory at one time.

    :param life: the life counter; the broker increments it at each start and every 10 s.
    :param noted_ms: the wall time of the increment, in ms since the epoch.
    :param record_count: the sum of the log end offsets in the directory at that time.
    """

    life: int
    noted_ms: int = 0
    record_count: int = 0

    def is_older_than(self, other: LifeMark | None) -> bool:
        """Return whether the other mark has a higher life counter."""
        return other is not None and self.life < other.life


LIFE_MAX = 2**53
"""The upper limit of the numbers in a `LifeMark`. A broker never writes a higher number."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The partition, offset and timestamp of an acknowledged record.

    :param offset: the offset of the record in its partition; -1 with acks=0.
    :param timestamp_ms: the timestamp in ms since the epoch; -1 with acks=0.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its id and address, and its rack if the broker has one."""

    id: int
    host: str
    port: int
    rack: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.host.startswith("["):  # some brokers return IPv6 addresses in brackets
            object.__setattr__(self, "host", without_brackets(self.host))

    def __str__(self) -> str:
        return f"{host_port(self.host, self.port)} (broker {self.id})"


class HasFileno(Protocol):
    """An open file. Python closes the file when the last reference to this object is deleted."""

    def fileno(self) -> int: ...


class FileRegion:
    """A range of `length` bytes of an open file, starting at `position`, to send with sendfile.

    Storage returns file regions, and the listener sends them without reading the bytes. A region keeps its file open,
    so the bytes of a deleted segment can still be sent.
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
