"""What holds for the embedded tree alone: one file, one process, kept over a restart."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded_database import FORMAT_VERSION
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import Create, MetadataStoreUnavailableError
from barnabas.errors import ClosedError, DataFolderError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.db"


def test_nodes_are_kept_over_a_restart(path):
    tree = EmbeddedMetadataStore(path)
    tree.create("/a/b", b"1", make_parents=True)
    stat = tree.set("/a/b", b"2")
    tree.close()
    tree = EmbeddedMetadataStore(path)
    assert tree.get("/a/b") == (b"2", stat)
    tree.close()


def test_changes_and_sequences_are_counted_on_after_a_restart(path):
    tree = EmbeddedMetadataStore(path)
    first = tree.create("/n-", sequential=True)
    deleted = tree.exists(tree.create("/deleted"))
    tree.delete("/deleted")
    tree.close()
    tree = EmbeddedMetadataStore(path)
    assert tree.create("/n-", sequential=True) > first
    assert tree.exists(tree.create("/later")).created_at > deleted.created_at
    tree.close()


def test_ephemeral_nodes_of_a_dead_process_are_gone_at_open(path):
    code = (
        "import os, sys; from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore;"
        "tree = EmbeddedMetadataStore(sys.argv[1]);"
        "tree.create('/ids/1', ephemeral=True, make_parents=True);"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)
    tree = EmbeddedMetadataStore(path)
    assert tree.children("/ids") == []
    assert tree.exists("/ids").children_count == 0
    tree.close()


def test_tree_used_by_another_process_is_refused(path):
    code = (
        "import sys; from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore;"
        "tree = EmbeddedMetadataStore(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DataFolderError, match=r"tree\.db is in use by another process"):
            EmbeddedMetadataStore(path)
        other.stdin.close()
    EmbeddedMetadataStore(path).close()


def test_tree_opened_twice_in_one_process_is_refused(path):
    tree = EmbeddedMetadataStore(path)
    with pytest.raises(DataFolderError, match="in use by another process"):
        EmbeddedMetadataStore(path)
    tree.create("/still-works")
    tree.close()


def test_file_that_is_no_tree_is_refused_and_left_alone(path):
    path.write_bytes(b"something that somebody wrote\n" * 100)
    with pytest.raises(DataFolderError, match="not a metadata store of Barnabas"):
        EmbeddedMetadataStore(path)
    assert path.read_bytes().startswith(b"something that somebody wrote")


def test_database_of_a_later_format_is_refused(path):
    EmbeddedMetadataStore(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    database.close()
    with pytest.raises(DataFolderError, match=f"has format {FORMAT_VERSION + 1}"):
        EmbeddedMetadataStore(path)


def test_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataFolderError, match="missing"):
        EmbeddedMetadataStore(tmp_path / "missing" / "tree.db")


def test_closing_the_tree_closes_its_other_sessions(path):
    tree = EmbeddedMetadataStore(path)
    session = tree.new_session()
    tree.close()
    with pytest.raises(ClosedError):
        session.get("/")


def test_times_come_from_the_clock(path):
    clock = ManualClock(start_ms=1_000)
    tree = EmbeddedMetadataStore(path, clock)
    tree.create("/a")
    clock.advance(2)
    stat = tree.set("/a", b"1")
    assert (stat.created_ms, stat.modified_ms) == (1_000, 3_000)
    tree.close()


def test_full_disk_is_an_error_that_changes_nothing(path):
    tree = EmbeddedMetadataStore(path)
    tree.create("/a", b"before")
    connection = tree._store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(MetadataStoreUnavailableError, match=r"cannot use the metadata store .*tree\.db: .*full"):
        tree.multi([Create("/b"), Create("/c", b"x" * 1_000_000)])
    assert tree.exists("/b") is None
    connection.execute("PRAGMA max_page_count = 1000000")
    tree.create("/b")
    assert tree.get("/a").data == b"before"
    tree.close()


def test_watch_may_close_the_tree(path):
    tree = EmbeddedMetadataStore(path)
    tree.create("/a")
    tree.get("/a", lambda _: tree.close())
    tree.set("/a", b"1")
    tree._store._watch_thread._thread.join(timeout=60)
    with pytest.raises(ClosedError):
        tree.get("/a")
