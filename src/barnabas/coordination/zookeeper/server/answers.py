"""The encoding of frames for clients: responses, errors and watch events."""

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
"""The xid in the header of an event. In the header of a response, the xid is that of the request."""

_HEADER = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_OPERATION = struct.Struct(">i?i")
_EVENT = struct.Struct(">ii")
_CONNECTED = 3
"""The session state in each event; 3 means connected."""
_ERROR = -1
"""The operation type in the header of a failed operation's result in a multi.

The header after the last result has the same type.
"""


class Error(enum.IntEnum):
    """The reason why a request failed (`KeeperException.Code`)."""

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
    """Return the error code for a failed operation of the metadata store."""
    return _ERRORS.get(type(error), Error.SYSTEM_ERROR)


def frame(content: bytes) -> bytes:
    return buffer(content)


def connected(timeout_ms: int, session_id: int, password: bytes, *, has_read_only: bool) -> bytes:
    """Return the response to a `ConnectRequest`. A timeout of 0 means that the session has expired."""
    content = int_(0) + int_(timeout_ms) + long(session_id) + buffer(password)
    return frame(content + boolean(False) if has_read_only else content)


def session_over(*, has_read_only: bool) -> bytes:
    """Return the response to a `ConnectRequest` for an expired session."""
    return connected(0, 0, bytes(PASSWORD_BYTES), has_read_only=has_read_only)


def answer(xid: int, change: int, body: bytes = b"", error: Error = Error.NONE) -> bytes:
    """Return the response frame for a request.

    :param change: the number (zxid) of the last change that the response may reflect.
    """
    return frame(_HEADER.pack(xid, change, error) + body)


def event(happened: WatchEvent) -> bytes:
    """Return the frame that notifies a client of a watch event."""
    content = _EVENT.pack(_EVENT_TYPES[happened.kind], _CONNECTED) + string(happened.path)
    return frame(_HEADER.pack(EVENT_XID, -1, Error.NONE) + content)


def stat(found: FullStat) -> bytes:
    """Return the encoded stat of a node. The ACL version is always 0, because clients cannot change ACLs."""
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
    """Return the encoded ACL that all nodes have. It grants all permissions to all clients."""
    return vector([int_(31) + string("world") + string("anyone")])


def results(bodies: Iterable[tuple[Kind, bytes]]) -> bytes:
    """Return the encoded results of a successful multi."""
    return b"".join([_OPERATION.pack(kind, False, 0) + body for kind, body in bodies] + [_OPERATION.pack(-1, True, -1)])


def refused_results(count: int, failed: int, error: Error) -> bytes:
    """Return the encoded results of a failed multi of `count` operations.

    `failed` is the index of the operation that failed.

    Operations before the failed operation were rolled back, and operations after it were not started.
    """
    errors = [Error.NONE] * failed + [error] + [Error.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    content = [_OPERATION.pack(_ERROR, False, each) + int_(each) for each in errors]
    return b"".join([*content, _OPERATION.pack(-1, True, -1)])
