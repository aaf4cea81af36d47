"""The open file of an embedded tree: its lock, its transactions, its sessions and their watches.

There are sessions of this process, which end with it, and *kept* sessions, which belong to other processes and stay in
the file with their ephemeral nodes, so that they outlive a restart; whoever serves them says when one of those ends.

Durability. The database runs in WAL mode with `synchronous=NORMAL`: a commit is a write to the WAL that is in
the page cache when the call returns, so kill -9 loses nothing that was acknowledged; the WAL is synced before
each checkpoint and its frames carry checksums, so a loss of power cannot corrupt the tree, but may take back
the last changes. That is the promise which the log itself makes by default (Kafka's flush settings leave fsync
to the system), and committed offsets that go back only make a group read again. Where going back would do
harm, as with producer ids, the registry calls `flush`.

Exclusiveness. SQLite's exclusive locking mode takes a lock that the operating system drops when the process
dies, however it dies. Ephemeral nodes found at open belong to a process that is dead, and are removed, but for those
of kept sessions.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from barnabas.clock import Clock
from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStoreUnavailableError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    Set,
    Stat,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)
from barnabas.coordination.node_table import MIGRATION, SCHEMA, KeptSession, Moment, NodeTable
from barnabas.coordination.watches import WatchTable, WatchThread
from barnabas.errors import ClosedError, DataFolderError

FORMAT_VERSION = 2
"""Kept in the database's user_version, so that a later format is refused instead of misread."""

OnChange = Callable[[Sequence[WatchEvent]], None]
"""Called with what a transaction did to nodes, under the tree's lock, before any read can see it."""

_T = TypeVar("_T")


class Transaction:
    """One transaction: applies operations, and collects the events for watches. `moment` is when it happens."""

    def __init__(self, nodes: NodeTable, session_id: int, moment: Moment) -> None:
        self.nodes = nodes
        self.events: list[WatchEvent] = []
        self.session_id = session_id
        self.moment = moment

    def apply(self, operation: Operation) -> OperationResult:
        match operation:
            case Create():
                return self.create(operation)
            case Set():
                return self.set(operation)
            case Delete():
                self.delete(operation)
            case Check():
                self._expect(operation.path, operation.version)
        return None

    def create(self, operation: Create) -> str:
        # Checked with the digits: a sequential node's name may consist of them alone.
        check_path(operation.path + "0" if operation.sequential else operation.path)
        path, parent_path = operation.path, parent_of(operation.path)
        parent = self.nodes.stat(parent_path)
        if parent is None:
            raise NoNodeError(path, f"its parent {parent_path} does not exist")
        if operation.sequential:
            path = f"{path}{self.nodes.next_sequence(parent_path):010d}"
        if self.nodes.stat(path) is not None:
            raise NodeExistsError(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path)
        owner = self.session_id if operation.ephemeral else 0
        self.nodes.insert(path, bytes(operation.data), owner, self.moment)
        self.events.append(WatchEvent(EventKind.CREATED, path))
        return path

    def set(self, operation: Set) -> Stat:
        self._expect(operation.path, operation.version)
        self.nodes.update(operation.path, bytes(operation.data), self.moment)
        self.events.append(WatchEvent(EventKind.CHANGED, operation.path))
        stat = self.nodes.stat(operation.path)
        assert stat is not None
        return stat

    def delete(self, operation: Delete) -> None:
        stat = self._expect(operation.path, operation.version)
        if stat.children_count:
            raise NotEmptyError(operation.path)
        if operation.path == "/":
            raise NotEmptyError("/", "the root cannot be deleted")
        self.nodes.delete(operation.path, self.moment)
        self.events.append(WatchEvent(EventKind.DELETED, operation.path))

    def delete_owned(self) -> None:
        """Delete the ephemeral nodes of the session."""
        for path in self.nodes.delete_owned(self.session_id, self.moment):
            self.events.append(WatchEvent(EventKind.DELETED, path))

    def _expect(self, path: str, version: int) -> Stat:
        stat = self.nodes.stat(check_path(path))
        if stat is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, stat.version):
            raise BadVersionError(path, f"expected {version}, found {stat.version}")
        return stat


class EmbeddedDatabase:
    """The open file, its lock, its sessions and their watches. All methods may be called from any thread."""

    def __init__(self, path: Path, clock: Clock, *, keeps_sessions: bool = False) -> None:
        self._path = path
        self._clock = clock
        self.lock = threading.RLock()
        """Held by every method; who holds it knows that nothing changes meanwhile."""
        self._watches = WatchTable()
        self._watch_thread = WatchThread()
        self._sessions: set[int] = set()
        """Of this process."""
        self._session_ids = itertools.count(1)
        self._connection = _open_database(path)
        self._nodes = NodeTable(self._connection)
        self._kept = {session.id: session for session in self._nodes.sessions()} if keeps_sessions else {}
        self.last_change = self._nodes.last_change()
        """The number of the last change; read under the lock it goes with what else is read."""
        self._remove_nodes_of_the_dead()
        self.on_change: OnChange = lambda _events: None

    def new_session(self) -> int:
        with self.lock:
            session_id = next(self._session_ids)
            self._sessions.add(session_id)
            return session_id

    @contextmanager
    def reading(self, session_id: int, path: str) -> Iterator[NodeTable]:
        check_path(path)
        with self.lock:
            self._check_open(session_id)
            with self._translated_errors():
                yield self._nodes

    @contextmanager
    def change(self, session_id: int) -> Iterator[Transaction]:
        """Run the body as one transaction; tell the watches after it is committed."""
        with self.lock:
            self._check_open(session_id)
            with self._translated_errors(), self._transaction() as moment:
                change = Transaction(self._nodes, session_id, moment)
                yield change
            self.on_change(change.events)
            for event in change.events:
                for item in self._watches.collect(event):
                    self._watch_thread.put(*item)

    def watch_data(self, session_id: int, path: str, watch: Watch) -> None:
        self._watch_thread.start()
        self._watches.watch_data(session_id, path, watch)

    def watch_children(self, session_id: int, path: str, watch: Watch) -> None:
        self._watch_thread.start()
        self._watches.watch_children(session_id, path, watch)

    def file_bytes(self) -> int:
        """Return how large the file is, without the pages that are free."""
        with self.lock, self._translated_errors():
            pages, free, size = (
                int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
            return (pages - free) * size

    def flush(self, session_id: int) -> None:
        with self.lock:
            self._check_open(session_id)
            with self._translated_errors():
                # A checkpoint syncs the WAL before it copies from it, and the database after.
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def end_session(self, session_id: int) -> None:
        with self.lock:
            if session_id not in self._sessions:
                return
            self._watches.forget_session(session_id)
            self._watch_thread.forget_session(session_id)
            with self.change(session_id) as change:
                for path in self._nodes.owned_by(session_id):
                    change.delete(Delete(path))
            self._sessions.discard(session_id)

    # -- sessions of other processes -----------------------------------------------------------------------

    def kept_sessions(self) -> list[KeptSession]:
        """Return the sessions of other processes."""
        with self.lock:
            return list(self._kept.values())

    def keep_session(self, session: KeptSession) -> None:
        """Begin a session of another process, which lasts until `end_kept_session`, also over a restart."""
        with self.lock:
            with self._translated_errors(), self._transaction():
                self._nodes.insert_session(session)
            self._kept[session.id] = session

    def is_kept(self, session_id: int) -> bool:
        """Whether it is a session of another process that has not ended."""
        return session_id in self._kept

    def end_kept_session(self, session_id: int) -> None:
        """End such a session: its ephemeral nodes go with it, in one step. Does nothing where it has ended."""
        with self.lock:
            if session_id not in self._kept:
                return
            with self.change(session_id) as change:
                change.delete_owned()
                self._nodes.delete_session(session_id)
            del self._kept[session_id]

    def close(self) -> None:
        with self.lock:
            try:
                for session_id in sorted(self._sessions, reverse=True):
                    self.end_session(session_id)
            finally:
                self._sessions.clear()
                self._kept.clear()
                self._connection.close()
        self._watch_thread.stop()

    def _check_open(self, session_id: int) -> None:
        if session_id not in self._sessions and session_id not in self._kept:
            raise ClosedError(f"the session with the tree {self._path} is closed")

    def _remove_nodes_of_the_dead(self) -> None:
        dead = [path for path, owner in self._nodes.owned() if owner not in self._kept]
        over = [session.id for session in self._nodes.sessions() if session.id not in self._kept]
        if dead or over:
            with self._translated_errors(), self._transaction() as moment:
                for path in dead:
                    self._nodes.delete(path, moment)
                for session_id in over:
                    self._nodes.delete_session(session_id)

    @contextmanager
    def _transaction(self) -> Iterator[Moment]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            moment = Moment(self._nodes.next_change(), self._clock.time_ms())
            yield moment
            self._connection.execute("COMMIT")
            self.last_change = moment.change
        except BaseException:
            # After some errors, a full disk for one, SQLite has already rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise MetadataStoreUnavailableError(f"the tree in {self._path} cannot be used: {error}") from error


def _open_database(path: Path) -> sqlite3.Connection:
    """Open or create the file, take its lock, and see that it is a tree of this format."""
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DataFolderError(f"cannot open the tree {path}: {error}; is its folder writable?") from error
    try:
        _closing_on_error(connection, lambda: _prepare_database(connection, path))
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise DataFolderError(
                f"the tree {path} is used by another process; stop that one, or use another data folder"
            ) from error
        raise DataFolderError(f"cannot use the tree {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DataFolderError(f"{path} is not a tree of Barnabas: {error}") from error
    return connection


def _prepare_database(connection: sqlite3.Connection, path: Path) -> None:
    # Before WAL mode is entered: the lock then also covers the WAL, and no shared-memory file is needed.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in range(FORMAT_VERSION + 1):
        raise DataFolderError(
            f"the tree {path} has format {version}, this version of Barnabas knows {FORMAT_VERSION};"
            " use the version that wrote it, or a later one"
        )
    if version < FORMAT_VERSION:
        for statement in (MIGRATION if version else SCHEMA).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def _closing_on_error(connection: sqlite3.Connection, action: Callable[[], _T]) -> _T:
    try:
        return action()
    except BaseException:
        connection.close()
        raise
