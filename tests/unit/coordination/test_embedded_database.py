"""The file of an embedded store beside the interface `MetadataStore`: sessions of other processes, and ZooKeeper's
counters of children."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded_database import FORMAT_VERSION, EmbeddedDatabase
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import (
    Create,
    Delete,
    EventKind,
    MetadataStoreUnavailableError,
    NodeExistsError,
)
from barnabas.coordination.node_table import FullStat, KeptSession
from barnabas.errors import ClosedError

SESSION = KeptSession(1 << 40, b"p" * 16, 9_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


def open_metadata_store(path: Path, *, keeps_sessions: bool = True) -> EmbeddedMetadataStore:
    return EmbeddedMetadataStore(path, ManualClock(), keeps_sessions=keeps_sessions)


def full_stat(store: EmbeddedDatabase, path: str) -> FullStat:
    with store.reading(SESSION.id, path) as nodes:
        found = nodes.full_stat(path)
    assert found is not None
    return found


def test_kept_session_and_its_nodes_outlive_a_restart(path: Path) -> None:
    tree = open_metadata_store(path)
    tree.store.keep_session(SESSION)
    with tree.store.change(SESSION.id) as change:
        change.create(Create("/theirs", ephemeral=True))
    tree.create("/ours", ephemeral=True)
    tree.close()
    tree = open_metadata_store(path)
    assert tree.store.kept_sessions() == [SESSION]
    assert tree.children("/") == ["theirs"]
    assert tree.get("/theirs").stat.owner == SESSION.id
    tree.store.end_kept_session(SESSION.id)
    assert tree.children("/") == []
    tree.close()
    tree = open_metadata_store(path)
    assert tree.store.kept_sessions() == []
    tree.close()


def test_tree_that_keeps_no_sessions_ends_those_that_it_finds(path: Path) -> None:
    tree = open_metadata_store(path)
    tree.store.keep_session(SESSION)
    with tree.store.change(SESSION.id) as change:
        change.create(Create("/theirs", ephemeral=True))
    tree.close()
    open_metadata_store(path, keeps_sessions=False).close()
    tree = open_metadata_store(path)
    assert tree.store.kept_sessions() == []
    assert tree.children("/") == []
    tree.close()


class FullAtCommit:
    """A database on a disk that is full when a transaction ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str) -> sqlite3.Cursor:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement)


def test_session_that_cannot_be_kept_is_none(path: Path) -> None:
    tree = open_metadata_store(path)
    connection = tree.store._connection
    tree.store._connection = FullAtCommit(connection)  # type: ignore[assignment]
    with pytest.raises(MetadataStoreUnavailableError):
        tree.store.keep_session(SESSION)
    tree.store._connection = connection
    assert not tree.store.is_kept(SESSION.id)
    assert tree.store.kept_sessions() == []
    tree.close()


def test_ended_session_can_do_nothing_more(path: Path) -> None:
    tree = open_metadata_store(path)
    tree.store.keep_session(SESSION)
    tree.store.end_kept_session(SESSION.id)
    tree.store.end_kept_session(SESSION.id)
    with pytest.raises(ClosedError), tree.store.change(SESSION.id) as change:
        change.create(Create("/late"))
    assert tree.exists("/late") is None
    tree.close()


def test_changes_are_told_in_their_order_once_they_can_be_read(path: Path) -> None:
    tree = open_metadata_store(path)
    told = []
    tree.store.on_change = lambda events: told.append((list(events), tree.children("/")))
    tree.multi([Create("/a"), Create("/b")])
    with pytest.raises(NodeExistsError):
        tree.multi([Create("/c"), Create("/a")])
    tree.delete("/a")
    assert told == [
        ([(EventKind.CREATED, "/a"), (EventKind.CREATED, "/b")], ["a", "b"]),
        ([(EventKind.DELETED, "/a")], ["b"]),
    ]
    tree.close()


def test_children_that_come_and_go_are_counted_as_zookeeper_does(path: Path) -> None:
    tree = open_metadata_store(path)
    store = tree.store
    store.keep_session(SESSION)
    tree.create("/a")
    made = full_stat(store, "/a")
    assert (made.children_version, made.children_changed_at) == (0, made.stat.created_at)
    tree.multi([Create("/a/1"), Create("/a/2")])
    assert full_stat(store, "/a") == made._replace(
        stat=tree.get("/a").stat, children_version=2, children_changed_at=store.last_change
    )
    tree.multi([Delete("/a/1")])
    changed_at = store.last_change
    tree.set("/a", b"1")
    found = full_stat(store, "/a")
    assert (found.children_version, found.children_changed_at) == (3, changed_at)
    assert found.stat.modified_at == store.last_change > changed_at
    tree.close()


def test_file_of_the_format_before_is_taken_over(path: Path) -> None:
    tree = open_metadata_store(path)
    tree.create("/a/b", b"1", make_parents=True)
    created_at = tree.get("/a/b").stat.created_at
    tree.set("/a", b"2")
    tree.close()
    database = sqlite3.connect(path)
    database.executescript(
        "ALTER TABLE node DROP COLUMN children_changed_at; DROP TABLE session; PRAGMA user_version = 1"
    )
    database.close()
    tree = open_metadata_store(path)
    tree.store.keep_session(SESSION)
    assert tree.get("/a/b").data == b"1"
    assert full_stat(tree.store, "/a").children_changed_at == created_at
    tree.close()
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    database.close()
