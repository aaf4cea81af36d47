"""The tree of shared state: nodes with data, versions, owners and watches, as in ZooKeeper.

A node has a path (`/brokers/ids/1`), data (bytes), children, and a version that starts at 0 and grows by one
with each `set`. A write that names the version it expects is a compare-and-set: it fails with `BadVersionError`
if somebody was faster. An ephemeral node lives as long as the session that made it. A watch fires once: it
says that something changed since the read that set it, not what; to learn more, read again.

Every implementation blocks until an operation is done, may be used from several threads, and passes the suite
in `tests/support/tree_contract.py`. What an operation returned survives the death of the process;
`flush` makes it survive the loss of power. Facts: ZooKeeper programmer's guide ("The ZooKeeper data model",
"ZooKeeper watches"); the use that is made of it: the paper, 3.2.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.errors import CoordinationError

ANY_VERSION = -1
"""Given as the expected version: any version will do."""

_PATH = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


class NodeError(CoordinationError):
    """An operation on one node was refused; nothing was changed. `path` names the node."""

    reason = "refused"

    def __init__(self, path: str, detail: str = "") -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"{path}: {self.reason}{': ' if detail else ''}{detail}")

    def __reduce__(self) -> tuple[type[NodeError], tuple[str, str]]:
        return type(self), (self.path, self.detail)


class NoNodeError(NodeError):
    """The node, or the parent of one to be created, does not exist."""

    reason = "no such node"


class NodeExistsError(NodeError):
    """The node that was to be created exists."""

    reason = "node exists"


class BadVersionError(NodeError):
    """The node's version is not the one expected: somebody else has changed it since it was read."""

    reason = "version differs"


class NotEmptyError(NodeError):
    """The node has children, so it cannot be deleted."""

    reason = "node has children"


class NoChildrenForEphemeralsError(NodeError):
    """An ephemeral node cannot have children."""

    reason = "an ephemeral node has no children"


class InvalidPathError(NodeError):
    """Not a path: it must begin with `/`, must not end with it, and has no empty, `.` or `..` parts."""

    reason = "not a path of the tree"


class TooLargeError(NodeError):
    """The node's data, or a `multi` with an operation on it, is larger than the tree takes at once."""

    reason = "too large"


class MetadataStoreUnavailableError(CoordinationError):
    """The tree could not be read or written: disk full or failing, servers out of reach."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a node beside its data.

    `created_at` and `modified_at` count the tree's changes (ZooKeeper's czxid and mzxid): they grow, and all
    changes of one `multi` have the same. The times are wall time. `owner` is the session of an ephemeral
    node, 0 for any other.
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
    """A node's data, and its stat as it was then."""

    data: bytes
    stat: Stat


class EventKind(enum.Enum):
    """What happened to a watched node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children changed"
    """A child was created or deleted; a change of a child's data does not count."""


class WatchEvent(NamedTuple):
    """Something happened to the node that was watched."""

    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]
"""Called once, from the tree's own thread, in the order of the changes. It must not block for long."""


@dataclass(frozen=True, slots=True)
class Create:
    """In a `multi`: create a node, as `MetadataStore.create` does."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """In a `multi`: replace a node's data, as `MetadataStore.set` does."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """In a `multi`: delete a node, as `MetadataStore.delete` does."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """In a `multi`: go on only if the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check
OperationResult = str | Stat | None
"""The path for `Create`, the stat for `Set`, None for `Delete` and `Check`."""


OPERATION_BYTES = 128
"""What an operation takes in a request beside its path and data: its header, its version, the node's ACL."""


def size_of(operation: Operation) -> int:
    """Return at least how many bytes an operation takes in a request to ZooKeeper's servers."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return OPERATION_BYTES + len(operation.path.encode()) + len(data)


class MetadataStore(Protocol):
    """One session with a tree.

    Every method raises `InvalidPathError` for what is not a path, `MetadataStoreUnavailableError` if the tree cannot be
    reached, and `ClosedError` after `close`.
    """

    @property
    def session_id(self) -> int:
        """What `Stat.owner` of this session's ephemeral nodes says; never 0."""
        ...

    @property
    def session_timeout_s(self) -> float | None:
        """A session of which the servers have heard nothing for so long is lost; None where none can be lost."""
        ...

    def on_session_end(self, call: Callable[[], None]) -> None:
        """Have something called once, from the tree's own thread, when the session is lost.

        Its ephemeral nodes and watches are gone then, every call raises `MetadataStoreUnavailableError`, and the owner
        opens another session. A connection that is lost is no lost session. `close` calls nothing.
        """
        ...

    def ping(self, timeout_s: float) -> None:
        """Return when the tree has answered a read.

        :raises MetadataStoreUnavailableError: it did not within `timeout_s`.
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

        :param ephemeral: the node goes when this session ends, and can have no children.
        :param sequential: append ten digits that no other sequential child of this parent had, and that grow.
        :param make_parents: create what is missing on the way, as empty nodes that stay.
        :raises NodeExistsError: it exists.
        :raises NoNodeError: its parent does not, and `make_parents` is false.
        :raises NoChildrenForEphemeralsError: its parent is ephemeral.
        """
        ...

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        """Return a node's data. The watch fires when the data changes or the node is deleted.

        :raises NoNodeError: it does not exist; no watch is left then.
        """
        ...

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        """Return those of the nodes that exist, by their paths; as in `subtree`, they need not be of one moment."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data.

        :raises NoNodeError: it does not exist.
        :raises BadVersionError: its version is not `version`.
        """
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node.

        :raises NoNodeError: it does not exist.
        :raises BadVersionError: its version is not `version`.
        :raises NotEmptyError: it has children.
        """
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a node's stat, or None. The watch fires when it is created, changed or deleted."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names (not the paths) of a node's children, sorted.

        The watch fires when a child is created or deleted, or the node itself is deleted.

        :raises NoNodeError: it does not exist; no watch is left then.
        """
        ...

    def subtree(self, path: str) -> dict[str, NodeData]:
        """Return all nodes below `path` by their paths, parents before children; empty if there are none.

        An embedded tree reads them at once; another may read node by node, so that they need not be of one
        moment.
        """
        ...

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all of it, in order, or nothing.

        If this raises `MetadataStoreUnavailableError`, as `create`, `set` and `delete` may, the operations were done or
        not. A later read of this session shows which: they are never done after that read.

        :raises NodeError: the error of the first operation that cannot be done.
        :raises TooLargeError: the tree takes less at once; see `subtrees.in_parts`.
        """
        ...

    def flush(self) -> None:
        """Return when all that was done up to now survives a loss of power."""
        ...

    def close(self) -> None:
        """End the session: its ephemeral nodes go, its watches are forgotten. Closing twice does nothing."""
        ...


def check_path(path: str) -> str:
    """Return `path` if it is one.

    >>> check_path("/brokers/ids")
    '/brokers/ids'

    :raises InvalidPathError: it is not.
    """
    if not _PATH.fullmatch(path):
        raise InvalidPathError(path)
    return path


def parent_of(path: str) -> str:
    """Return the path of the node above; the root is its own parent.

    >>> parent_of("/brokers/ids"), parent_of("/brokers"), parent_of("/")
    ('/brokers', '/', '/')
    """
    return path[: path.rindex("/")] or "/"


def ancestors_of(path: str) -> list[str]:
    """Return the paths of all nodes above but the root, the highest first.

    >>> ancestors_of("/a/b/c")
    ['/a', '/a/b']
    """
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: index + 1]) for index in range(len(parts))]
