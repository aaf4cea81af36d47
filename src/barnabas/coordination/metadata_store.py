"""The interface of the metadata store: nodes with data, versions, owners and watches, as in ZooKeeper.

A node has a path (`/brokers/ids/1`), data (bytes), children, and a version that starts at 0 and increases with each
`set`. A write with an expected version is a compare-and-set: it fails with `BadVersionError` if another session has
changed the node first. An ephemeral node exists as long as the session that created it. A watch fires once. Its event
reports that the node has changed since the read that set the watch, but does not contain the new value.

Methods block until the operation is done and are thread-safe. All implementations pass the tests in
`tests/support/tree_contract.py`. Completed operations survive the death of the process; `flush` makes them survive a
power failure. Sources: ZooKeeper programmer's guide ("The ZooKeeper data model", "ZooKeeper watches"); the paper, 3.2.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.errors import CoordinationError

ANY_VERSION = -1
"""The expected version of an operation that accepts any version."""

_PATH = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


class NodeError(CoordinationError):
    """An operation on the node `path` failed and changed nothing."""

    reason = "operation failed"

    def __init__(self, path: str, detail: str = "") -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"{path}: {self.reason}{': ' if detail else ''}{detail}")

    def __reduce__(self) -> tuple[type[NodeError], tuple[str, str]]:
        return type(self), (self.path, self.detail)


class NoNodeError(NodeError):
    """The node, or the parent of the node to create, does not exist."""

    reason = "no such node"


class NodeExistsError(NodeError):
    """The node to create already exists."""

    reason = "node exists"


class BadVersionError(NodeError):
    """The node's version differs from the expected version, because another session has changed the node."""

    reason = "version differs"


class NotEmptyError(NodeError):
    """The node cannot be deleted because it has children."""

    reason = "node has children"


class NoChildrenForEphemeralsError(NodeError):
    """An ephemeral node cannot have children."""

    reason = "ephemeral nodes cannot have children"


class InvalidPathError(NodeError):
    """The path is not valid.

    A path must begin with `/` and must not end with `/`. Its parts must not be empty, `.` or `..`.
    """

    reason = "not a valid path"


class TooLargeError(NodeError):
    """The data of the node, or the `multi` that contains it, is larger than the metadata store accepts."""

    reason = "too large"


class MetadataStoreUnavailableError(CoordinationError):
    """The metadata store could not be read or written. Its disk is full or has failed, or no server is reachable."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The attributes of a node besides its data.

    `created_at` and `modified_at` are numbers of changes (ZooKeeper's czxid and mzxid): the numbers increase, and all
    changes in one `multi` have the same number. The times are wall-clock times. `owner` is the session of an ephemeral
    node, and 0 for other nodes.
    """

    version: int
    created_at: int
    modified_at: int
    created_ms: int
    modified_ms: int
    owner: int
    children_count: int
    data_size: int


class NodeData(NamedTuple):
    """The data and the stat of a node, read together."""

    data: bytes
    stat: Stat


class EventKind(enum.Enum):
    """The kind of change of a watched node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children changed"
    """A child was created or deleted. A change of a child's data does not cause this event."""


class WatchEvent(NamedTuple):
    """The change of a watched node."""

    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]
"""The callback of a watch.

The metadata store's thread calls each watch once, in the order of the changes. A watch must not block for long.
"""


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a `multi`: create a node, as `MetadataStore.create` does."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Part of a `multi`: replace a node's data, as `MetadataStore.set` does."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a `multi`: delete a node, as `MetadataStore.delete` does."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a `multi`: fail unless the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check
OperationResult = str | Stat | None
"""The result of an operation: the path for `Create`, the stat for `Set`, None for `Delete` and `Check`."""


OPERATION_BYTES = 128
"""The size in bytes of an operation's header, version and ACL in a request: the size without path and data."""


def size_of(operation: Operation) -> int:
    """Return a lower bound of the size in bytes of an operation in a request to ZooKeeper's servers."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return OPERATION_BYTES + len(operation.path.encode()) + len(data)


class MetadataStore(Protocol):
    """A session with a metadata store.

    All methods raise `InvalidPathError` for an invalid path, `MetadataStoreUnavailableError` if the store is
    unreachable, and `ClosedError` after `close`.
    """

    @property
    def session_id(self) -> int:
        """The id of this session; never 0. Ephemeral nodes of this session have it as their `Stat.owner`."""
        ...

    @property
    def session_timeout_s(self) -> float | None:
        """The session timeout: the session is lost after this time without a heartbeat.

        None if the session cannot be lost.
        """
        ...

    def on_session_end(self, call: Callable[[], None]) -> None:
        """Register a function that the metadata store's thread calls once when the session is lost.

        At that time, its ephemeral nodes and watches no longer exist, and each call raises
        `MetadataStoreUnavailableError`. The owner must open another session. A lost connection does not mean a lost
        session. `close` does not call the function.
        """
        ...

    def ping(self, timeout_s: float) -> None:
        """Check that the metadata store responds: return after a response to a read.

        :raises MetadataStoreUnavailableError: no answer within `timeout_s`.
        """
        ...

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path.

        :param ephemeral: True if the node is deleted when this session ends. It cannot have children.
        :param sequential: True to append a number of ten digits to the name. The number is higher than the numbers of
            all earlier sequential siblings.
        :param make_parents: True to create missing ancestors as empty, persistent nodes.
        :raises NodeExistsError: the node exists.
        :raises NoNodeError: the parent does not exist and `make_parents` is false.
        :raises NoChildrenForEphemeralsError: the parent is ephemeral.
        """
        ...

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        """Return a node's data. The watch fires when the data changes or the node is deleted.

        :raises NoNodeError: the node does not exist; no watch is set.
        """
        ...

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        """Return the existing nodes by path. As in `subtree`, the nodes may have been read at different moments."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data.

        :raises NoNodeError: the node does not exist.
        :raises BadVersionError: the node has another version than `version`.
        """
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node.

        :raises NoNodeError: the node does not exist.
        :raises BadVersionError: the node has another version than `version`.
        :raises NotEmptyError: the node has children.
        """
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a node's stat, or None. The watch fires when the node is created, changed or deleted."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names (not the paths) of a node's children, sorted.

        The watch fires when a child is created or deleted, or the node itself is deleted.

        :raises NoNodeError: the node does not exist; no watch is set.
        """
        ...

    def subtree(self, path: str) -> dict[str, NodeData]:
        """Return all nodes below `path` by path, parents before children; empty if there are none.

        The embedded store reads all nodes at one moment. ZooKeeper's nodes are read one by one, at different moments.
        """
        ...

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all operations in order, or none of them.

        If this method, `create`, `set` or `delete` raises `MetadataStoreUnavailableError`, the outcome is unknown. A
        later read in this session shows the outcome, because the operations are never applied after that read.

        :raises NodeError: the error of the first operation that cannot be applied.
        :raises TooLargeError: the `multi` is larger than the store accepts; see `subtrees.in_parts`.
        """
        ...

    def flush(self) -> None:
        """Wait until all completed operations would survive a power failure."""
        ...

    def close(self) -> None:
        """End the session: delete its ephemeral nodes and drop its watches. A second call does nothing."""
        ...


def check_path(path: str) -> str:
    """Return `path` if it is valid.

    >>> check_path("/brokers/ids")
    '/brokers/ids'

    :raises InvalidPathError: the path is not valid.
    """
    if not _PATH.fullmatch(path):
        raise InvalidPathError(path)
    return path


def parent_of(path: str) -> str:
    """Return the path of the parent node; the root is its own parent.

    >>> parent_of("/brokers/ids"), parent_of("/brokers"), parent_of("/")
    ('/brokers', '/', '/')
    """
    return path[: path.rindex("/")] or "/"


def ancestors_of(path: str) -> list[str]:
    """Return the paths of all ancestors except the root, the topmost first.

    >>> ancestors_of("/a/b/c")
    ['/a', '/a/b']
    """
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: index + 1]) for index in range(len(parts))]
