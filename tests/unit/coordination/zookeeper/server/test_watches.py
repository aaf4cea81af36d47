"""Watches fire once, for those who left them, and are bounded."""

from __future__ import annotations

from barnabas.coordination.metadata_store import EventKind, WatchEvent
from barnabas.coordination.zookeeper.server.watches import WATCH_BYTES, ServedWatches

CREATED = WatchEvent(EventKind.CREATED, "/a/b")
CHANGED = WatchEvent(EventKind.CHANGED, "/a/b")
DELETED = WatchEvent(EventKind.DELETED, "/a/b")
ABOVE = WatchEvent(EventKind.CHILDREN_CHANGED, "/a")


def watches(**left: list[tuple[str, bool]]) -> ServedWatches[str]:
    made: ServedWatches[str] = ServedWatches(10_000, 10_000)
    for watcher, each in left.items():
        for path, on_children in each:
            assert made.add(watcher, path, on_children=on_children)
    return made


def test_data_watch_fires_once_for_each_who_left_it() -> None:
    made = watches(x=[("/a/b", False), ("/a/b", False)], y=[("/a/b", False)], z=[("/a/c", False)])
    assert made.fire(CHANGED) == [("x", CHANGED), ("y", CHANGED)]
    assert made.fire(CHANGED) == []


def test_watch_on_children_fires_when_one_comes_or_goes_and_not_when_it_changes() -> None:
    for happened in (CREATED, DELETED):
        made = watches(x=[("/a", True)])
        assert made.fire(CHANGED) == []
        assert made.fire(happened) == [("x", ABOVE)]
        assert made.fire(happened) == []


def test_deletion_is_told_once_to_who_watched_data_and_children() -> None:
    made = watches(x=[("/a/b", False), ("/a/b", True), ("/a", True)])
    assert made.fire(DELETED) == [("x", DELETED), ("x", ABOVE)]


def test_what_is_forgotten_does_not_fire() -> None:
    made = watches(x=[("/a/b", False), ("/a", True)], y=[("/a/b", False)])
    made.forget("x")
    made.forget("never there")
    assert made.fire(DELETED) == [("y", DELETED)]


def test_watches_that_fired_make_room_for_others() -> None:
    made: ServedWatches[str] = ServedWatches(2 * (WATCH_BYTES + 4), 10_000)
    assert made.add("x", "/a/b", on_children=False)
    assert made.add("x", "/a/b", on_children=True)
    assert not made.add("x", "/a/c", on_children=False)
    assert made.add("x", "/a/b", on_children=False), "it is there already"
    assert made.add("y", "/a/c", on_children=False)
    made.fire(CHANGED)
    assert made.add("x", "/a/c", on_children=False)
    made.forget("x")
    assert made.add("x", "/d/e", on_children=False)
    assert made.add("x", "/d/f", on_children=False)


def test_watches_of_all_connections_are_bounded_together() -> None:
    made: ServedWatches[str] = ServedWatches(10_000, 2 * (WATCH_BYTES + 4))
    assert made.add("x", "/a/b", on_children=False)
    assert made.add("y", "/a/b", on_children=False)
    assert not made.add("z", "/a/b", on_children=False)
    made.fire(CHANGED)
    assert made.add("z", "/a/b", on_children=False)
    assert made.add("z", "/a/c", on_children=False)
    made.forget("z")
    assert made.add("x", "/a/b", on_children=False)
