"""What clients are sent: answers, errors and events, as frames."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable

from barnabas.coordination.metadata_store import (
    BadVersionError,
    EventKind,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    WatchEvent,
)
from barnabas.coordination.node_table import FullStat
from barnabas.coordination.zookeeper.server.jute import boolean, buffer, int_, long, string, vector
from barnabas.coordination.zookeeper.server.requests import Kind

PASSWORD_BYTES = 16
EVENT_XID = -1
"""Stands in the header of an event, where an answer has the number of its request."""

_HEADER = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_OPERATION = struct.Struct(">i?i")
_EVENT = struct.Struct(">ii")
_CONNECTED = 3
"""The state of a session that every event tells."""
_ERROR = -1
"""The kind of an operation's result that is an error, and of the end of all results."""


class Error(enum.IntEnum):
    """Why a request was not carried out (`KeeperException.Code`)."""

    NONE = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    QUOTA_EXCEEDED = -125


_ERRORS: dict[type[NodeError], Error] = {
    NoNodeError: Error.NO_NODE,
    NodeExistsError: Error.NODE_EXISTS,
    BadVersionError: Error.BAD_VERSION,
    NotEmptyError: Error.NOT_EMPTY,
    NoChildrenForEphemeralsError: Error.NO_CHILDREN_FOR_EPHEMERALS,
    InvalidPathError: Error.BAD_ARGUMENTS,
}

_EVENT_TYPES = {
    EventKind.CREATED: 1,
    EventKind.DELETED: 2,
    EventKind.CHANGED: 3,
    EventKind.CHILDREN_CHANGED: 4,
}


def error_of(error: NodeError) -> Error:
    """Return the code for an operation that the tree has refused."""
    return _ERRORS.get(type(error), Error.SYSTEM_ERROR)


def frame(content: bytes) -> bytes:
    """Return the frame with this content."""
    return buffer(content)


def connected(timeout_ms: int, session_id: int, password: bytes, *, has_read_only: bool) -> bytes:
    """Return the answer to a `ConnectRequest`; without a timeout the session is over."""
    content = int_(0) + int_(timeout_ms) + long(session_id) + buffer(password)
    return frame(content + boolean(False) if has_read_only else content)


def session_over(*, has_read_only: bool) -> bytes:
    """Return the answer to one whose session has expired."""
    return connected(0, 0, bytes(PASSWORD_BYTES), has_read_only=has_read_only)


def answer(xid: int, change: int, body: bytes = b"", error: Error = Error.NONE) -> bytes:
    """Return the answer to a request.

    :param change: the number of the last change that it can know of (zxid).
    """
    return frame(_HEADER.pack(xid, change, error) + body)


def event(happened: WatchEvent) -> bytes:
    """Return what tells a client of a change that it has watched for."""
    content = _EVENT.pack(_EVENT_TYPES[happened.kind], _CONNECTED) + string(happened.path)
    return frame(_HEADER.pack(EVENT_XID, -1, Error.NONE) + content)


def stat(found: FullStat) -> bytes:
    """Return a node's stat; what ZooKeeper counts of ACLs is 0, since they do not change."""
    node = found.stat
    return _STAT.pack(
        node.created_at,
        node.modified_at,
        node.created_ms,
        node.modified_ms,
        node.version,
        found.children_version,
        0,
        node.owner,
        node.data_size,
        node.children_count,
        found.children_changed_at,
    )


def open_acl() -> bytes:
    """Return the ACL of every node: all may do everything."""
    return vector([int_(31) + string("world") + string("anyone")])


def results(bodies: Iterable[tuple[Kind, bytes]]) -> bytes:
    """Return the results of a multi that was done."""
    return b"".join([_OPERATION.pack(kind, False, 0) + body for kind, body in bodies] + [_OPERATION.pack(-1, True, -1)])


def refused_results(count: int, failed: int, error: Error) -> bytes:
    """Return the results of a multi of `count` operations of which that number `failed` could not be done.

    Those before it were taken back, those behind it were not begun.
    """
    errors = [Error.NONE] * failed + [error] + [Error.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    content = [_OPERATION.pack(_ERROR, False, each) + int_(each) for each in errors]
    return b"".join([*content, _OPERATION.pack(-1, True, -1)])
