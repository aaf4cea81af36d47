"""Decodes the frames of ZooKeeper clients. Invalid frames raise `MalformedMessageError`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordination.zookeeper.server.jute import JuteReader
from barnabas.errors import MalformedMessageError

PATHS_MAX = 65_536
"""The maximum number of paths for each kind of watch in a setWatches request.

The limit on the watches of a connection is lower.
"""


class Kind(enum.IntEnum):
    """The supported types of requests (`ZooDefs.OpCode`)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    CLOSE_SESSION = -11


READS = frozenset({Kind.EXISTS, Kind.GET_DATA, Kind.GET_CHILDREN, Kind.GET_CHILDREN2})
WRITES = frozenset({Kind.CREATE, Kind.CREATE2, Kind.DELETE, Kind.SET_DATA, Kind.CHECK})


class ConnectRequest(NamedTuple):
    """The first frame of a connection. `session_id` is 0 for a new session.

    `has_read_only` is true if the client supports read-only servers (since 3.4); the response then has one more field.
    """

    last_change: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A request that reads a node or its children and may set a watch."""

    kind: Kind
    path: str
    watch: bool


class Acl(NamedTuple):
    """An entry of an ACL: the permissions of one client identity."""

    permissions: int
    scheme: str
    id: str


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changes or checks a node. `kind` determines which fields are used."""

    kind: Kind
    path: str
    data: bytes = b""
    version: int = -1
    flags: int = 0
    acl: tuple[Acl, ...] = ()


@dataclass(frozen=True, slots=True)
class Multi:
    """A request with several operations. All of them are applied, or none."""

    operations: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class SetWatches:
    """A request that sets the watches of a lost connection again.

    `since` is the number of the last change that the client has seen.
    """

    since: int
    data: tuple[str, ...]
    existence: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Any other request.

    `text` is its path or its authentication scheme. The `kind` of an unsupported request is not a member of `Kind`.
    """

    kind: int
    text: str = ""


Request = Read | Write | Multi | SetWatches | Other


def read_connect(frame: bytes) -> ConnectRequest:
    """Decode the first frame of a connection.

    :raises MalformedMessageError: the frame is not a `ConnectRequest`.
    """
    reader = JuteReader(frame)
    reader.integer()  # Skip the protocol version, which is always 0.
    last_change, timeout_ms, session_id = reader.long(), reader.integer(), reader.long()
    return ConnectRequest(last_change, timeout_ms, session_id, reader.buffer(), has_read_only=reader.left > 0)


def read_request(frame: bytes) -> tuple[int, Request]:
    """Decode a request; return its number (xid) and the request.

    :raises MalformedMessageError: the frame is not a request.
    """
    reader = JuteReader(frame)
    xid, kind = reader.integer(), reader.integer()
    try:
        known = Kind(kind)
    except ValueError:
        return xid, Other(kind)
    return xid, _WRITES[known](known, reader) if known in WRITES else _read_rest(known, reader)


def _read_rest(kind: Kind, reader: JuteReader) -> Request:
    if kind in READS:
        return Read(kind, reader.string(), reader.boolean())
    if kind is Kind.MULTI:
        return Multi(tuple(_read_operations(reader)))
    if kind is Kind.SET_WATCHES:
        since = reader.long()
        data, existence, children = (tuple(reader.vector(reader.string, PATHS_MAX)) for _ in range(3))
        return SetWatches(since, data, existence, children)
    if kind is Kind.AUTH:
        reader.integer()  # An unused field.
    return Other(kind, reader.string() if kind in (Kind.AUTH, Kind.SYNC, Kind.GET_ACL) else "")


def _read_operations(reader: JuteReader) -> list[Write]:
    operations: list[Write] = []
    while True:
        kind, is_end, _ = reader.integer(), reader.boolean(), reader.integer()
        if is_end:
            return operations
        if kind not in WRITES:
            raise MalformedMessageError(f"a multi contains an operation of type {kind}, which is not supported")
        operations.append(_WRITES[Kind(kind)](Kind(kind), reader))


def _read_create(kind: Kind, reader: JuteReader) -> Write:
    path, data = reader.string(), reader.buffer()
    acl = reader.vector(lambda: Acl(reader.integer(), reader.string(), reader.string()))
    return Write(kind, path, data, acl=tuple(acl), flags=reader.integer())


def _read_set(kind: Kind, reader: JuteReader) -> Write:
    return Write(kind, reader.string(), reader.buffer(), reader.integer())


def _read_versioned(kind: Kind, reader: JuteReader) -> Write:
    return Write(kind, reader.string(), version=reader.integer())


_WRITES: dict[Kind, Callable[[Kind, JuteReader], Write]] = {
    Kind.CREATE: _read_create,
    Kind.CREATE2: _read_create,
    Kind.SET_DATA: _read_set,
    Kind.DELETE: _read_versioned,
    Kind.CHECK: _read_versioned,
}
