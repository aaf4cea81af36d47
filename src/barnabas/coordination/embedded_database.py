"""The database of the embedded metadata store: its lock, transactions, sessions and watches.

Sessions of this process end with the process. *Kept* sessions belong to other processes. They and their ephemeral nodes
are stored in the file and survive a restart. The server that serves the other processes ends a kept session.

Durability: the database runs in WAL mode with `synchronous=NORMAL`. A commit writes to the WAL in the page cache, so
kill -9 loses no acknowledged change. The WAL is synced before each checkpoint and has checksums. A power failure may
revert the last changes, but cannot corrupt the store. The log gives the same guarantee by default, because Kafka's
flush settings leave fsync to the operating system. If offset commits are reverted, the group reads some records again.
Callers that need durability, for example the allocation of producer ids, call `flush`.

Exclusiveness: SQLite's exclusive locking mode locks the file, and the operating system releases the lock when the
process ends, even after a crash. So ephemeral nodes in a newly opened file belong to a dead process. They are removed,
except the ephemeral nodes of kept sessions.
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
"""The format of the database, stored as SQLite's `user_version`. A database with a later format is rejected."""

OnChange = Callable[[Sequence[WatchEvent]], None]
"""A function that is called with the changes of each transaction.

It runs under the store's lock, before any reader can see the changes.
"""

_T = TypeVar("_T")


class Transaction:
    """A transaction that applies operations and collects the watch events.

    All its operations have the same `moment`.
    """

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
        # A digit is appended for the check, because the path of a sequential node may end with `/`: its name then
        # consists of digits.
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
        """Delete all ephemeral nodes of the session."""
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
    """The open database file with its lock, sessions and watches. All methods are thread-safe."""

    def __init__(self, path: Path, clock: Clock, *, keeps_sessions: bool = False) -> None:
        self._path = path
        self._clock = clock
        self.lock = threading.RLock()
        """The lock that every method holds. While a caller holds it, the nodes do not change."""
        self._watches = WatchTable()
        self._watch_thread = WatchThread()
        self._sessions: set[int] = set()
        """The sessions of this process."""
        self._session_ids = itertools.count(1)
        self._connection = _open_database(path)
        self._nodes = NodeTable(self._connection)
        self._kept = {session.id: session for session in self._nodes.sessions()} if keeps_sessions else {}
        self.last_change = self._nodes.last_change()
        """The number of the latest change. Read it under the lock together with the nodes."""
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
        """Run the body as one transaction; fire the watches after the commit."""
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
        """Return the size of the file in bytes, without free pages."""
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
                # A checkpoint syncs first the WAL and then the database file.
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
        """Create a session of another process. It lasts until `end_kept_session` and survives a restart."""
        with self.lock:
            with self._translated_errors(), self._transaction():
                self._nodes.insert_session(session)
            self._kept[session.id] = session

    def is_kept(self, session_id: int) -> bool:
        """Return whether the session belongs to another process and has not ended."""
        return session_id in self._kept

    def end_kept_session(self, session_id: int) -> None:
        """End a session of another process and delete its ephemeral nodes in one step. A second call does nothing."""
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
            raise ClosedError(f"the session with the metadata store {self._path} is closed")

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
            # After some errors, for example a full disk, SQLite has already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise MetadataStoreUnavailableError(f"cannot use the metadata store {self._path}: {error}") from error


def _open_database(path: Path) -> sqlite3.Connection:
    """Open or create the file, lock it, and check that it is a metadata store of this format."""
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DataFolderError(
            f"cannot open the metadata store {path}: {error}; check that its directory is writable"
        ) from error
    try:
        _closing_on_error(connection, lambda: _prepare_database(connection, path))
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise DataFolderError(
                f"the metadata store {path} is in use by another process;"
                " stop that process or use another data directory"
            ) from error
        raise DataFolderError(f"cannot use the metadata store {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DataFolderError(f"{path} is not a metadata store of Barnabas: {error}") from error
    return connection


def _prepare_database(connection: sqlite3.Connection, path: Path) -> None:
    # The locking mode is set before WAL mode. So the lock also covers the WAL, and SQLite needs no shared-memory file.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in range(FORMAT_VERSION + 1):
        raise DataFolderError(
            f"the metadata store {path} has format {version}, but this version of Barnabas supports only up to"
            f" {FORMAT_VERSION}; use the Barnabas version that wrote the file, or a later one"
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
