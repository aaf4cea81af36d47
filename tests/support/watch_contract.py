"""The part of a tree's contract that is about watches: one-shot, in order, from one thread. See `tree_contract.py`."""

from __future__ import annotations

import queue
import threading

import pytest

from barnabas.coordination.metadata_store import (
    Create,
    Delete,
    EventKind,
    NodeExistsError,
    NoNodeError,
    Set,
    WatchEvent,
)

CREATED, CHANGED, DELETED = EventKind.CREATED, EventKind.CHANGED, EventKind.DELETED
CHILDREN = EventKind.CHILDREN_CHANGED


class Recorder:
    """A watch that keeps what it is told. `all()` returns it, having seen that nothing more is on its way."""

    def __init__(self, tree):
        self._tree = tree
        self._events = queue.SimpleQueue()
        self.threads = set()

    def __call__(self, event):
        self.threads.add(threading.current_thread())
        self._events.put(event)

    def all(self):
        # Events come in order: what was to come before that of the last node has come when it comes.
        fence = self._tree.create("/fence")
        self._tree.exists(fence, self.__call__)
        self._tree.delete(fence)
        events = []
        while (event := self._events.get(timeout=60)) != WatchEvent(DELETED, fence):
            events.append((event.kind, event.path))
        return events


@pytest.fixture
def recorder(tree):
    return Recorder(tree)


def test_get_watch_fires_once_on_change(tree, recorder):
    tree.create("/a")
    tree.get("/a", recorder)
    tree.set("/a", b"1")
    tree.set("/a", b"2")
    assert recorder.all() == [(CHANGED, "/a")]


def test_get_watch_fires_on_deletion(tree, recorder):
    tree.create("/a")
    tree.get("/a", recorder)
    tree.delete("/a")
    assert recorder.all() == [(DELETED, "/a")]


def test_get_of_a_missing_node_leaves_no_watch(tree, recorder):
    with pytest.raises(NoNodeError):
        tree.get("/a", recorder)
    with pytest.raises(NoNodeError):
        tree.children("/a", recorder)
    tree.create("/a")
    tree.create("/a/b")
    assert recorder.all() == []


def test_exists_watch_fires_on_creation(tree, recorder):
    assert tree.exists("/a", recorder) is None
    tree.create("/a")
    tree.set("/a", b"1")
    assert recorder.all() == [(CREATED, "/a")]


def test_exists_watch_fires_on_change_and_deletion(tree, recorder):
    tree.create("/a")
    tree.exists("/a", recorder)
    tree.set("/a", b"1")
    tree.exists("/a", recorder)
    tree.delete("/a")
    assert recorder.all() == [(CHANGED, "/a"), (DELETED, "/a")]


def test_children_watch_fires_on_creation_and_deletion_of_a_child(tree, recorder):
    tree.create("/a")
    tree.children("/a", recorder)
    tree.create("/a/b")
    tree.create("/a/c")
    tree.children("/a", recorder)
    tree.delete("/a/c")
    assert recorder.all() == [(CHILDREN, "/a"), (CHILDREN, "/a")]


def test_children_watch_ignores_data_and_grandchildren(tree, recorder):
    tree.create("/a/b", make_parents=True)
    tree.children("/a", recorder)
    tree.set("/a", b"1")
    tree.set("/a/b", b"1")
    tree.create("/a/b/c")
    assert recorder.all() == []


def test_children_watch_fires_when_the_node_itself_is_deleted(tree, recorder):
    tree.create("/a")
    tree.children("/a", recorder)
    tree.delete("/a")
    assert recorder.all() == [(DELETED, "/a")]


def test_watches_of_both_kinds_on_a_node_fire_apart(tree, recorder):
    tree.create("/a")
    tree.get("/a", recorder)
    tree.children("/a", recorder)
    tree.create("/a/b")
    tree.set("/a", b"1")
    assert recorder.all() == [(CHILDREN, "/a"), (CHANGED, "/a")]


def test_same_watch_left_twice_fires_once(tree, recorder):
    tree.create("/a")
    tree.get("/a", recorder)
    tree.exists("/a", recorder)
    tree.set("/a", b"1")
    assert recorder.all() == [(CHANGED, "/a")]


def test_other_sessions_changes_fire_watches(tree, new_session, recorder):
    other = new_session()
    tree.create("/ids")
    tree.children("/ids", recorder)
    other.create("/ids/1", ephemeral=True)
    tree.children("/ids", recorder)
    tree.exists("/ids/1", recorder)
    other.close()
    events = recorder.all()
    assert events[0] == (CHILDREN, "/ids")
    assert sorted(events[1:], key=str) == [(CHILDREN, "/ids"), (DELETED, "/ids/1")]


def test_watches_of_a_closed_session_are_forgotten(tree, new_session, recorder):
    other = new_session()
    tree.create("/a")
    other.get("/a", recorder)
    other.close()
    tree.set("/a", b"1")
    assert recorder.all() == []


def test_events_come_in_the_order_of_the_changes_from_one_thread(tree, recorder):
    paths = [f"/n{number}" for number in range(50)]
    for path in paths:
        tree.exists(path, recorder)
    for path in reversed(paths):
        tree.create(path)
    assert recorder.all() == [(CREATED, path) for path in reversed(paths)]
    assert len(recorder.threads) == 1
    assert threading.current_thread() not in recorder.threads


def test_multi_fires_the_watches_of_all_that_it_did(tree, recorder):
    tree.create("/a")
    tree.create("/b")
    for path in ("/a", "/b", "/c"):
        tree.exists(path, recorder)
    tree.multi([Set("/a", b"1"), Delete("/b"), Create("/c")])
    assert recorder.all() == [(CHANGED, "/a"), (DELETED, "/b"), (CREATED, "/c")]


def test_multi_that_fails_fires_nothing(tree, recorder):
    tree.create("/a")
    tree.get("/a", recorder)
    with pytest.raises(NodeExistsError):
        tree.multi([Set("/a", b"1"), Create("/a")])
    assert recorder.all() == []


def test_watch_may_read_and_watch_again(tree, recorder):
    tree.create("/a")
    seen = queue.SimpleQueue()

    def follow(event):
        seen.put(tree.get("/a", follow).data)

    tree.get("/a", follow)
    for data in (b"1", b"2", b"3"):
        tree.set("/a", data)
        assert seen.get(timeout=60) == data


def test_watch_that_fails_does_not_silence_the_others(tree, recorder):
    def fail(event):
        raise RuntimeError("a bug in a watch")

    tree.create("/a")
    tree.get("/a", fail)
    tree.get("/a", recorder)
    tree.set("/a", b"1")
    assert recorder.all() == [(CHANGED, "/a")]
