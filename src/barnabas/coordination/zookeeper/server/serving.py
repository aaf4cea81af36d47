"""Carries out what clients ask for in an embedded tree, and tells them what they watch.

All of a client's answers and events leave by its `send`, under the tree's lock: so an event leaves behind the answer to
the read that set the watch, and before any answer that shows the change (ZooKeeper programmer's guide, "What ZooKeeper
Guarantees about Watches"). Every node is open to all: an ACL that says anything else is refused, and so is who
authenticates by another scheme than `digest`, for which ZooKeeper itself takes any password.

Called on threads that may wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.coordination.embedded_store import Change, Store
from barnabas.coordination.node_table import FullStat, KeptSession, NodeTable
from barnabas.coordination.tree import (
    Check,
    Create,
    Delete,
    EventKind,
    NodeError,
    Set,
    TreeUnavailableError,
    WatchEvent,
)
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

WATCH_BYTES_MAX = 4 * 1024 * 1024
"""Of one connection."""
ANSWERED_BYTES_MAX = 1024 * 1024
"""When it was answered so much at once, a client takes that before more of what it has asked is looked at."""
EPHEMERAL = 1
SEQUENTIAL = 2
"""Flags of a node that is created; others are containers and nodes with a lifetime, which are not served."""

_OPEN = Acl(31, "world", "anyone")


class Client:
    """One connection of a session.

    :param send: takes a frame that is to be sent, on any thread; it does not wait.
    """

    def __init__(self, session_id: int, send: Callable[[bytes], None]) -> None:
        self.session_id = session_id
        self.send = send
        self.is_gone = False
        """Its connection has ended, so that it is told nothing more."""
        self.has_left = False
        """Its session was closed, or it may not go on: the connection is to end."""


class _RefusedError(Exception):
    def __init__(self, error: Error) -> None:
        self.error = error


class Serving:
    """Serves a tree.

    :param protected: nodes that no client may change, nor those below them.
    """

    def __init__(self, store: Store, protected: Sequence[str] = ()) -> None:
        self._store = store
        self._protected = tuple(protected)
        self._watches: ServedWatches[Client] = ServedWatches(WATCH_BYTES_MAX)
        store.on_change = self._tell

    def carry_out(self, client: Client, frames: Sequence[bytes]) -> int:
        """Carry out requests in their order, and send the answers; those behind the end of the session are dropped.

        :returns: how many; those behind them are not begun, since so much is to be sent by now.
        :raises MalformedMessageError: a frame is no request; those before it were carried out.
        """
        answered_bytes = 0
        for number, frame in enumerate(frames, 1):
            xid, request = read_request(frame)
            with self._store.lock:
                try:
                    answered = self._answer(client, xid, request)
                except _RefusedError as refused:
                    answered = answer(xid, self._store.last_change, error=refused.error)
                except NodeError as refused:
                    answered = answer(xid, self._store.last_change, error=answers.error_of(refused))
                except TreeUnavailableError:
                    answered = answer(xid, self._store.last_change, error=Error.SYSTEM_ERROR)
                client.send(answered)
            if client.has_left:
                break
            answered_bytes += len(answered)
            if answered_bytes >= ANSWERED_BYTES_MAX:
                return number
        return len(frames)

    def keep_session(self, session: KeptSession) -> None:
        """Begin a session.

        :raises TreeUnavailableError: it cannot be kept.
        """
        self._store.keep_session(session)

    def end_session(self, session_id: int) -> None:
        """End a session, with its ephemeral nodes.

        :raises TreeUnavailableError: they cannot be removed now; the session goes on.
        """
        self._store.end_kept_session(session_id)

    def forget(self, client: Client) -> None:
        """Forget what a connection that has ended watched."""
        with self._store.lock:
            self._watches.forget(client)

    def _tell(self, events: Sequence[WatchEvent]) -> None:
        for each in events:
            for client, happened in self._watches.fire(each):
                client.send(answers.event(happened))

    # -- requests ------------------------------------------------------------------------------------------

    def _answer(self, client: Client, xid: int, request: Request) -> bytes:
        if not self._store.is_kept(client.session_id):
            client.has_left = True
            raise _RefusedError(Error.SESSION_EXPIRED)
        match request:
            case Read():
                body = self._read(client, request)
            case Write():
                with self._store.change(client.session_id) as change:
                    body = self._apply(change, request)
            case Multi():
                body = self._multi(client, request.operations)
            case SetWatches():
                self._set_watches(client, request)
                body = b""
            case Other():
                body = self._other(client, request)
        return answer(xid, self._store.last_change, body)

    def _read(self, client: Client, request: Read) -> bytes:
        # No path is checked: no node has one that is none. The empty one is the root's.
        path = request.path or "/"
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
        try:
            with self._store.change(client.session_id) as change:
                for operation in operations:
                    bodies.append((operation.kind, self._apply(change, operation)))
        except _RefusedError as refused:
            return answers.refused_results(len(operations), len(bodies), refused.error)
        except NodeError as refused:
            return answers.refused_results(len(operations), len(bodies), answers.error_of(refused))
        return answers.results(bodies)

    def _apply(self, change: Change, operation: Write) -> bytes:
        """Do one operation, and return what its answer says."""
        path, kind = operation.path, operation.kind
        if kind is Kind.CHECK:
            change.apply(Check(path, operation.version))
            return b""
        if any(path == each or path.startswith(each + "/") for each in self._protected):
            raise _RefusedError(Error.NO_AUTH)
        if kind is Kind.SET_DATA:
            change.apply(Set(path, operation.data, operation.version))
            return _stat(change.nodes, path)
        if kind is Kind.DELETE:
            if path == "/":
                raise _RefusedError(Error.BAD_ARGUMENTS)
            change.apply(Delete(path, operation.version))
            return b""
        made = self._create(change, operation)
        return string(made) + (_stat(change.nodes, made) if kind is Kind.CREATE2 else b"")

    def _create(self, change: Change, operation: Write) -> str:
        flags, path = operation.flags, operation.path
        if "/" not in path or not 0 <= flags <= EPHEMERAL | SEQUENTIAL:
            raise _RefusedError(Error.BAD_ARGUMENTS)
        if not operation.acl or any(each != _OPEN for each in operation.acl):
            raise _RefusedError(Error.INVALID_ACL)
        # Before it is looked whether this is a path at all.
        if change.nodes.stat(path[: path.rindex("/")] or "/") is None:
            raise _RefusedError(Error.NO_NODE)
        return change.create(
            Create(path, operation.data, ephemeral=bool(flags & EPHEMERAL), sequential=bool(flags & SEQUENTIAL))
        )

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
        """Set the watches of a connection that was lost; those that would have fired meanwhile fire now."""
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


# What a watch has missed since a change: as `DataTree.setWatches`.
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
