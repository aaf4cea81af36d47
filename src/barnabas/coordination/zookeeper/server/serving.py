"""Executes requests of ZooKeeper clients on an embedded metadata store, and notifies the clients of watch events.

All responses and events of a client are passed to its `send` under the store's lock. So a client receives the event of
a watch after the response to the read that set the watch, and before any response that shows the change (ZooKeeper
programmer's guide, "What ZooKeeper Guarantees about Watches").

All clients have all permissions on all nodes. The server rejects other ACLs. It accepts authentication only with the
scheme `digest`, because ZooKeeper itself accepts any password with this scheme.

No client can block the store for long: requests are executed in slices of `SLICE_S`, and the size of a request is
limited. The size of the store is also limited, and so are the watches and ephemeral nodes of each client.

The methods may block on disk I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from barnabas.coordination.embedded_database import EmbeddedDatabase, Transaction
from barnabas.coordination.metadata_store import (
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStoreUnavailableError,
    NodeError,
    Set,
    WatchEvent,
)
from barnabas.coordination.node_table import FullStat, KeptSession, NodeTable
from barnabas.coordination.zookeeper.server import answers
from barnabas.coordination.zookeeper.server.answers import Error, answer
from barnabas.coordination.zookeeper.server.jute import buffer, string, vector
from barnabas.coordination.zookeeper.server.requests import (
    Acl,
    Kind,
    Multi,
    Other,
    Read,
    Request,
    SetWatches,
    Write,
    read_request,
)
from barnabas.coordination.zookeeper.server.watches import ServedWatches

SLICE_S = 0.01
"""The maximum duration of a time slice. After a slice, the server executes requests of other clients."""
WATCHES_PER_STEP = 256
"""The number of paths in each part of a setWatches request. The end of the time slice is checked after each part."""
WATCH_BYTES_MAX = 4 * 1024 * 1024
"""The maximum memory for the watches of one connection, in bytes."""
ALL_WATCH_BYTES_MAX = 64 * 1024 * 1024
CHANGES_MAX = 2_500
CHECKS_MAX = 10_000
"""The maximum numbers of changes and of checks in a multi. A multi is one transaction and blocks the store.

Barnabas's own clients stay below these limits (`subtrees.in_parts`).
"""
TREE_BYTES_MAX = 128 * 1024 * 1024
"""The maximum size of the store's file in bytes. Writes of clients that would exceed it are rejected."""
SMALL_NODE_BYTES = 4 * 1024
KEPT_PARTS = 4
"""The last 1/`KEPT_PARTS` of `TREE_BYTES_MAX` is reserved for nodes of at most `SMALL_NODE_BYTES`."""
CHILDREN_MAX = 20_000
"""The maximum number of children of a node. It is limited because one response lists all children."""
EPHEMERALS_MAX = 10_000
"""The maximum number of ephemeral nodes of a session.

It is limited because the end of the session deletes all of them in one step.
"""
ANSWERED_BYTES_MAX = 1024 * 1024
"""The maximum size of a client's unsent responses.

Above it, the server executes no further requests until the client has received the responses.
"""
EPHEMERAL = 1
SEQUENTIAL = 2
"""The supported flags of a node to create. Containers and nodes with a time to live are not supported."""

_OPEN = Acl(31, "world", "anyone")


class Client:
    """A connection of a session.

    :param send: queues a frame for sending. It may be called from any thread and does not block.
    """

    def __init__(self, session_id: int, send: Callable[[bytes], None]) -> None:
        self.session_id = session_id
        self.send = send
        self.is_gone = False
        """True if the connection has ended. No watches are set for it then."""
        self.has_left = False
        """True if the connection must be closed: the session has ended or the authentication failed."""
        self.owns_nodes = False
        """True if the session has created ephemeral nodes."""
        self.under_way: Steps | None = None
        """The remaining steps of a request that did not complete in its time slice."""


Steps = Generator[None, None, int]
"""A generator that executes a request.

It yields when the server may switch to another client, and returns the size of the response.
"""


class Progress(NamedTuple):
    """The progress of a client's requests in one slice."""

    answered: int
    """The number of requests that have a response."""
    is_full: bool = False
    """True if the client must receive the responses before further requests are executed."""


class _RefusedError(Exception):
    def __init__(self, error: Error) -> None:
        self.error = error


class Serving:
    """A server of an embedded metadata store.

    :param protected: nodes that clients must not change, including the nodes below them.
    :param is_secret: returns whether clients must not read the data of a node.
    :param now_s: returns monotonic seconds. By default, the time never passes, so time slices do not end.
    """

    def __init__(
        self,
        store: EmbeddedDatabase,
        protected: Sequence[str] = (),
        now_s: Callable[[], float] = lambda: 0.0,
        is_secret: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        self._store = store
        self._is_secret = is_secret
        self._protected = tuple(protected)
        self._now_s = now_s
        self._room_bytes = 0
        """The number of bytes by which the current request may still enlarge the store."""
        self._watches: ServedWatches[Client] = ServedWatches(WATCH_BYTES_MAX, ALL_WATCH_BYTES_MAX)
        store.on_change = self._notify

    def carry_out(self, client: Client, frames: Sequence[bytes]) -> Progress:
        """Execute requests in order and send the responses. Requests that follow the end of the session are dropped.

        The method returns after one time slice. The caller must pass the frames without a response again.

        :raises MalformedMessageError: a frame is not a request. The requests before it have been executed.
        """
        answered_bytes = 0
        ends_s = self._now_s() + SLICE_S
        for number, frame in enumerate(frames, 1):
            steps = client.under_way or self._steps(client, frame)
            client.under_way = None
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    answered_bytes += end.value
                    break
                if self._now_s() >= ends_s:
                    client.under_way = steps
                    return Progress(number - 1)
            if client.has_left:
                break
            if answered_bytes >= ANSWERED_BYTES_MAX:
                return Progress(number, is_full=True)
            if self._now_s() >= ends_s:
                return Progress(number)
        return Progress(len(frames))

    def _steps(self, client: Client, frame: bytes) -> Steps:
        xid, request = read_request(frame)
        *parts, last = _parts(request)
        for part in parts:
            with self._store.lock:
                error, _ = self._attempt(client, part)
                if error:
                    return self._send(client, answer(xid, self._store.last_change, error=error))
            yield
        with self._store.lock:
            error, body = self._attempt(client, last)
            return self._send(client, answer(xid, self._store.last_change, body, error))

    def _send(self, client: Client, answered: bytes) -> int:
        client.send(answered)
        return len(answered)

    def _attempt(self, client: Client, request: Request) -> tuple[Error, bytes]:
        """Execute a request; return the error code and the body of the response."""
        try:
            return Error.NONE, self._answer(client, request)
        except _RefusedError as refused:
            return refused.error, b""
        except NodeError as refused:
            return answers.error_of(refused), b""
        except MetadataStoreUnavailableError:
            return Error.SYSTEM_ERROR, b""

    def keep_session(self, session: KeptSession) -> None:
        """Start a session of a client.

        :raises MetadataStoreUnavailableError: the session cannot be stored.
        """
        self._store.keep_session(session)

    def end_session(self, session_id: int) -> None:
        """End a session and delete its ephemeral nodes.

        :raises MetadataStoreUnavailableError: the nodes cannot be deleted now; the session continues.
        """
        self._store.end_kept_session(session_id)

    def forget(self, client: Client) -> None:
        """Drop the watches of a connection that has ended."""
        with self._store.lock:
            self._watches.forget(client)

    def _notify(self, events: Sequence[WatchEvent]) -> None:
        for each in events:
            for client, happened in self._watches.fire(each):
                client.send(answers.event(happened))

    # -- requests ------------------------------------------------------------------------------------------

    def _answer(self, client: Client, request: Request) -> bytes:
        if not self._store.is_kept(client.session_id):
            client.has_left = True
            raise _RefusedError(Error.SESSION_EXPIRED)
        if isinstance(request, Write | Multi):
            self._room_bytes = TREE_BYTES_MAX - self._store.file_bytes()
        match request:
            case Read():
                body = self._read(client, request)
            case Write():
                with self._store.change(client.session_id) as change:
                    body = self._apply(change, request)
                client.owns_nodes = client.owns_nodes or bool(request.flags & EPHEMERAL)
            case Multi():
                body = self._multi(client, request.operations)
                client.owns_nodes = client.owns_nodes or any(each.flags & EPHEMERAL for each in request.operations)
            case SetWatches():
                self._set_watches(client, request)
                body = b""
            case Other():
                body = self._other(client, request)
        return body

    def _read(self, client: Client, request: Read) -> bytes:
        # The path needs no check, because a node with an invalid path cannot exist. An empty path means the root.
        path = request.path or "/"
        if request.kind is Kind.GET_DATA and self._is_secret(path):
            raise _RefusedError(Error.NO_AUTH)
        with self._store.reading(client.session_id, "/") as nodes:
            found = nodes.full_stat(path)
            if found is None and request.kind is not Kind.EXISTS:
                raise _RefusedError(Error.NO_NODE)
            if request.watch:
                on_children = request.kind in (Kind.GET_CHILDREN, Kind.GET_CHILDREN2)
                self._watch(client, path, on_children=on_children)
            if found is None:
                raise _RefusedError(Error.NO_NODE)
            return _READERS[request.kind](nodes, path, found)

    def _watch(self, client: Client, path: str, *, on_children: bool) -> None:
        if not client.is_gone and not self._watches.add(client, path, on_children=on_children):
            raise _RefusedError(Error.QUOTA_EXCEEDED)

    def _multi(self, client: Client, operations: Sequence[Write]) -> bytes:
        bodies: list[tuple[Kind, bytes]] = []
        checks = sum(each.kind is Kind.CHECK for each in operations)
        if checks > CHECKS_MAX or len(operations) - checks > CHANGES_MAX:
            raise _RefusedError(Error.BAD_ARGUMENTS)
        try:
            with self._store.change(client.session_id) as change:
                for operation in operations:
                    bodies.append((operation.kind, self._apply(change, operation)))
        except _RefusedError as refused:
            return answers.refused_results(len(operations), len(bodies), refused.error)
        except NodeError as refused:
            return answers.refused_results(len(operations), len(bodies), answers.error_of(refused))
        return answers.results(bodies)

    def _apply(self, change: Transaction, operation: Write) -> bytes:
        """Apply one operation and return the body of its response."""
        path, kind = operation.path, operation.kind
        if kind is Kind.CHECK:
            change.apply(Check(path, operation.version))
            return b""
        if any(path == each or path.startswith(each + "/") for each in self._protected):
            is_there = kind in (Kind.CREATE, Kind.CREATE2) and change.nodes.stat(path) is not None
            raise _RefusedError(Error.NODE_EXISTS if is_there else Error.NO_AUTH)
        if kind is Kind.SET_DATA:
            stat = change.nodes.stat(path)
            self._check_room(len(operation.data), len(operation.data) - (stat.data_size if stat else 0))
            change.apply(Set(path, operation.data, operation.version))
            return _stat(change.nodes, path)
        if kind is Kind.DELETE:
            if path == "/":
                raise _RefusedError(Error.BAD_ARGUMENTS)
            change.apply(Delete(path, operation.version))
            return b""
        made = self._create(change, operation)
        return string(made) + (_stat(change.nodes, made) if kind is Kind.CREATE2 else b"")

    def _create(self, change: Transaction, operation: Write) -> str:
        flags, path = operation.flags, operation.path
        if "/" not in path or not 0 <= flags <= EPHEMERAL | SEQUENTIAL:
            raise _RefusedError(Error.BAD_ARGUMENTS)
        if not operation.acl or any(each != _OPEN for each in operation.acl):
            raise _RefusedError(Error.INVALID_ACL)
        # As in ZooKeeper, the existence of the parent is checked before the validity of the path.
        parent = change.nodes.stat(path[: path.rindex("/")] or "/")
        if parent is None:
            raise _RefusedError(Error.NO_NODE)
        if parent.children_count >= CHILDREN_MAX:
            raise _RefusedError(Error.QUOTA_EXCEEDED)
        if flags & EPHEMERAL and change.nodes.owns(change.session_id, EPHEMERALS_MAX):
            raise _RefusedError(Error.QUOTA_EXCEEDED)
        size = len(path) + len(operation.data)
        self._check_room(size, size)
        return change.create(
            Create(path, operation.data, ephemeral=bool(flags & EPHEMERAL), sequential=bool(flags & SEQUENTIAL))
        )

    def _check_room(self, size: int, growth: int) -> None:
        """Check that the store has enough space for a change, and reserve the space."""
        kept = TREE_BYTES_MAX // KEPT_PARTS if size > SMALL_NODE_BYTES else 0
        if growth > 0 and growth > self._room_bytes - kept:
            raise _RefusedError(Error.QUOTA_EXCEEDED)
        self._room_bytes -= growth

    def _other(self, client: Client, request: Other) -> bytes:
        match request.kind:
            case Kind.PING:
                return b""
            case Kind.SYNC:
                return string(request.text)
            case Kind.GET_ACL:
                with self._store.reading(client.session_id, "/") as nodes:
                    return answers.open_acl() + _stat(nodes, request.text)
            case Kind.AUTH:
                if request.text == "digest":
                    return b""
                client.has_left = True
                raise _RefusedError(Error.AUTH_FAILED)
            case Kind.CLOSE_SESSION:
                self._store.end_kept_session(client.session_id)
                client.has_left = True
                return b""
        raise _RefusedError(Error.UNIMPLEMENTED)

    def _set_watches(self, client: Client, request: SetWatches) -> None:
        """Set the watches of a lost connection again. A watch fires immediately if its node has changed since."""
        with self._store.reading(client.session_id, "/") as nodes:
            missed: list[WatchEvent] = []
            for paths, judge, on_children in (
                (request.data, _missed_by_data, False),
                (request.existence, _missed_by_existence, False),
                (request.children, _missed_by_children, True),
            ):
                for path in paths:
                    if kind := judge(nodes.full_stat(path), request.since):
                        missed.append(WatchEvent(kind, path))
                    else:
                        self._watch(client, path, on_children=on_children)
            for each in missed:
                client.send(answers.event(each))


def _parts(request: Request) -> Iterator[Request]:
    """Yield the parts of a request.

    A setWatches request is divided into parts with at most `WATCHES_PER_STEP` paths.
    """
    if not isinstance(request, SetWatches):
        yield request
        return
    since, *kinds = request.since, request.data, request.existence, request.children
    for place, paths in enumerate(kinds):
        for first in range(0, len(paths), WATCHES_PER_STEP):
            some: list[tuple[str, ...]] = [(), (), ()]
            some[place] = paths[first : first + WATCHES_PER_STEP]
            yield SetWatches(since, *some)
    yield SetWatches(since, (), (), ())


def _stat(nodes: NodeTable, path: str) -> bytes:
    found = nodes.full_stat(path)
    if found is None:
        raise _RefusedError(Error.NO_NODE)
    return answers.stat(found)


def _read_existence(_nodes: NodeTable, _path: str, found: FullStat) -> bytes:
    return answers.stat(found)


def _read_data(nodes: NodeTable, path: str, found: FullStat) -> bytes:
    node = nodes.read(path)
    assert node is not None
    return buffer(node.data) + answers.stat(found)


def _read_children(nodes: NodeTable, path: str, _found: FullStat) -> bytes:
    return vector(map(string, nodes.children(path)))


def _read_children2(nodes: NodeTable, path: str, found: FullStat) -> bytes:
    return _read_children(nodes, path, found) + answers.stat(found)


_READERS: dict[Kind, Callable[[NodeTable, str, FullStat], bytes]] = {
    Kind.EXISTS: _read_existence,
    Kind.GET_DATA: _read_data,
    Kind.GET_CHILDREN: _read_children,
    Kind.GET_CHILDREN2: _read_children2,
}


# These functions return the event that a watch has missed since the change `since`, as in ZooKeeper's
# `DataTree.setWatches`.
def _missed_by_data(found: FullStat | None, since: int) -> EventKind | None:
    if found is None:
        return EventKind.DELETED
    return EventKind.CHANGED if found.stat.modified_at > since else None


def _missed_by_existence(found: FullStat | None, _since: int) -> EventKind | None:
    return None if found is None else EventKind.CREATED


def _missed_by_children(found: FullStat | None, since: int) -> EventKind | None:
    if found is None:
        return EventKind.DELETED
    return EventKind.CHILDREN_CHANGED if found.children_changed_at > since else None
