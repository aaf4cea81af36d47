"""The nodes of the embedded metadata store as rows of one SQLite table.

This module reads and changes single nodes; it starts no transactions.

A row contains the same data as ZooKeeper's node. `path` is the primary key, and the table is stored in the order of
paths. So all nodes below a node form a contiguous range. `children_created` is the number of children that a node has
ever had. It is also the number of the next sequential child. `children_changed_at` is the number of the last change
that created or deleted a child or the node itself (ZooKeeper's pzxid). Callers must hold the store's lock, and must
start a transaction before each change.

Another table contains the live sessions of other processes.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordination.metadata_store import NodeData, Stat, parent_of

SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    parent TEXT,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    modified_at INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    children_count INTEGER NOT NULL,
    children_created INTEGER NOT NULL,
    children_changed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_parent ON node (parent);
CREATE INDEX node_owner ON node (owner) WHERE owner != 0;
INSERT INTO node VALUES ('/', NULL, x'', 0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE tree (last_change INTEGER NOT NULL);
INSERT INTO tree VALUES (0);
CREATE TABLE session (id INTEGER PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL);
"""

MIGRATION = """
ALTER TABLE node ADD COLUMN children_changed_at INTEGER NOT NULL DEFAULT 0;
UPDATE node SET children_changed_at =
    max(created_at, ifnull((SELECT max(child.created_at) FROM node AS child WHERE child.parent = node.path), 0));
CREATE TABLE session (id INTEGER PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL);
"""
"""The SQL statements that convert a database of format 1 to the current format."""

_STAT = "version, created_at, modified_at, created_ms, modified_ms, owner, children_count, length(data)"


@dataclass(frozen=True, slots=True)
class Moment:
    """The change number of a transaction, and its wall-clock time in milliseconds."""

    change: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session of another process. A client that knows the password can resume the session before its timeout."""

    id: int
    password: bytes
    timeout_ms: int


class FullStat(NamedTuple):
    """All attributes that ZooKeeper returns for a node.

    `children_version` increases when a child is created or deleted.
    """

    stat: Stat
    children_version: int
    children_changed_at: int


class NodeTable:
    """The tables of the store.

    `connection.isolation_level` must be None, so that sqlite3 starts no transactions itself.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def next_change(self) -> int:
        """Increase the change number of the store and return it."""
        self._execute("UPDATE tree SET last_change = last_change + 1")
        return self.last_change()

    def last_change(self) -> int:
        (change,) = self._execute("SELECT last_change FROM tree").fetchone()
        return int(change)

    def stat(self, path: str) -> Stat | None:
        row = self._execute(f"SELECT {_STAT} FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else Stat(*row)

    def full_stat(self, path: str) -> FullStat | None:
        columns = f"{_STAT}, children_created, children_changed_at"
        row = self._execute(f"SELECT {columns} FROM node WHERE path = ?", (path,)).fetchone()
        if row is None:
            return None
        stat = Stat(*row[:-2])
        # As in ZooKeeper (`DataNode.copyStat`), `children_version` is the number of created children plus the number of
        # deleted children.
        return FullStat(stat, 2 * row[-2] - stat.children_count, row[-1])

    def read(self, path: str) -> NodeData | None:
        row = self._execute(f"SELECT data, {_STAT} FROM node WHERE path = ?", (path,)).fetchone()
        return None if row is None else NodeData(row[0], Stat(*row[1:]))

    def children(self, path: str) -> list[str]:
        start = len(path) + (path != "/")
        rows = self._execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [child[start:] for (child,) in rows]

    def below(self, path: str) -> dict[str, NodeData]:
        prefix = "" if path == "/" else path
        rows = self._execute(
            # The upper bound ends with '0', the character after '/'. The root is excluded, because it has no parent.
            f"SELECT path, data, {_STAT} FROM node WHERE path > ? AND path < ? AND parent IS NOT NULL ORDER BY path",
            (prefix + "/", prefix + "0"),
        )
        return {row[0]: NodeData(row[1], Stat(*row[2:])) for row in rows}

    def owned_by(self, session_id: int) -> list[str]:
        rows = self._execute("SELECT path FROM node WHERE owner = ? AND owner != 0", (session_id,))
        return [path for (path,) in rows]

    def owns(self, session_id: int, count: int) -> bool:
        """Return whether a session has at least `count` ephemeral nodes."""
        rows = self._execute(
            "SELECT 1 FROM node WHERE owner = ? AND owner != 0 LIMIT 1 OFFSET ?", (session_id, count - 1)
        )
        return rows.fetchone() is not None

    def delete_owned(self, session_id: int, moment: Moment) -> list[str]:
        """Delete all ephemeral nodes of a session; return their paths. Ephemeral nodes have no children."""
        found = list(self._execute("SELECT path, parent FROM node WHERE owner = ? AND owner != 0", (session_id,)))
        self._execute("DELETE FROM node WHERE owner = ? AND owner != 0", (session_id,))
        for parent, count in Counter(parent for _, parent in found).items():
            self._execute(
                "UPDATE node SET children_count = children_count - ?, children_changed_at = ? WHERE path = ?",
                (count, moment.change, parent),
            )
        return [path for path, _ in found]

    def owned(self) -> list[tuple[str, int]]:
        """Return the paths and session ids of all ephemeral nodes."""
        return list(self._execute("SELECT path, owner FROM node WHERE owner != 0"))

    def next_sequence(self, path: str) -> int:
        """Return the number for the next sequential child of an existing node."""
        (number,) = self._execute("SELECT children_created FROM node WHERE path = ?", (path,)).fetchone()
        return int(number)

    def insert(self, path: str, data: bytes, owner: int, moment: Moment) -> None:
        parent = parent_of(path)
        self._execute(
            "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, 0, 0, ?)",
            (path, parent, data, moment.change, moment.change, moment.time_ms, moment.time_ms, owner, moment.change),
        )
        self._execute(
            "UPDATE node SET children_count = children_count + 1, children_created = children_created + 1,"
            " children_changed_at = ? WHERE path = ?",
            (moment.change, parent),
        )

    def update(self, path: str, data: bytes, moment: Moment) -> None:
        self._execute(
            "UPDATE node SET data = ?, version = version + 1, modified_at = ?, modified_ms = ? WHERE path = ?",
            (data, moment.change, moment.time_ms, path),
        )

    def delete(self, path: str, moment: Moment) -> None:
        self._execute("DELETE FROM node WHERE path = ?", (path,))
        self._execute(
            "UPDATE node SET children_count = children_count - 1, children_changed_at = ? WHERE path = ?",
            (moment.change, parent_of(path)),
        )

    def sessions(self) -> list[KeptSession]:
        return [KeptSession(*row) for row in self._execute("SELECT id, password, timeout_ms FROM session ORDER BY id")]

    def insert_session(self, session: KeptSession) -> None:
        self._execute("INSERT INTO session VALUES (?, ?, ?)", (session.id, session.password, session.timeout_ms))

    def delete_session(self, session_id: int) -> None:
        self._execute("DELETE FROM session WHERE id = ?", (session_id,))
