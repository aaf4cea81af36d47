"""Watches after a reconnection: told of what was missed, once, and set again until the servers have answered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from barnabas.coordination.metadata_store import EventKind, MetadataStoreUnavailableError, WatchEvent
from barnabas.coordination.zookeeper.session import Deadline
from barnabas.coordination.zookeeper.watches import Reading, Watches

CUT_OFF = WatchedEvent(EventType.NONE, "CONNECTING", None)


class Answered:
    """What kazoo returns for a request that has its answer."""

    def __init__(self, answer):
        self.answer = answer

    def get(self, **_):
        return self.answer


class Server:
    """A session and its client, with one node; keeps what was left as watches."""

    def __init__(self):
        self.node = SimpleNamespace(czxid=1, mzxid=1, pzxid=1)
        self.error = None
        self.left = []
        self.is_over = False
        self.later = []
        self.silent_times = 0

    def get_async(self, _path, watch):
        return self._answer((b"", self.node), watch)

    def exists_async(self, _path, watch):
        return self._answer(self.node, watch)

    def get_children_async(self, _path, watch, include_data):
        assert include_data
        return self._answer(NoNodeError() if self.node is None else ([], self.node), watch)

    def _answer(self, answer, watch):
        self.left.append(watch)
        return Answered(self.error or answer)

    def read(self, send, _deadline):
        return send(self).get()

    def read_all(self, sends, _deadline):
        if self.silent_times:
            self.silent_times -= 1
            raise MetadataStoreUnavailableError("no answer")
        return [send(self).get() for send in sends]

    def call_later(self, call):
        self.later.append(call)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def told():
    return []


@pytest.fixture
def watches(server):
    return Watches(server, call_timeout_s=1.0)


def watch(watches, reading, told):
    watches.read("/a", reading, told.append, Deadline(1.0))


def reconnect(server, watches):
    left, server.left = server.left, []
    for armed in left:
        watches.on_event(armed, CUT_OFF)
    server.on_connected()


@pytest.mark.parametrize("reading", Reading)
def test_node_as_it_was_is_watched_on(server, watches, told, reading):
    watch(watches, reading, told)
    for _ in range(3):
        reconnect(server, watches)
    assert told == []
    (armed,) = server.left
    armed(WatchedEvent(EventType.DELETED, "CONNECTED", "/a"))
    assert told == [WatchEvent(EventKind.DELETED, "/a")]


@pytest.mark.parametrize(
    ("reading", "now", "kind"),
    [
        (Reading.DATA, {"mzxid": 2}, EventKind.CHANGED),
        (Reading.DATA, {"pzxid": 2}, None),
        (Reading.DATA, {"czxid": 2, "mzxid": 2}, EventKind.DELETED),
        (Reading.EXISTENCE, {"mzxid": 2}, EventKind.CHANGED),
        (Reading.CHILDREN, {"pzxid": 2}, EventKind.CHILDREN_CHANGED),
        (Reading.CHILDREN, {"mzxid": 2}, None),
        (Reading.CHILDREN, {"czxid": 2, "pzxid": 2}, EventKind.DELETED),
    ],
)
def test_difference_is_told_once(server, watches, told, reading, now, kind):
    watch(watches, reading, told)
    server.node = SimpleNamespace(**{**vars(server.node), **now})
    reconnect(server, watches)
    assert told == ([] if kind is None else [WatchEvent(kind, "/a")])
    told.clear()
    (armed,) = server.left
    armed(WatchedEvent(EventType.CHANGED, "CONNECTED", "/a"))
    assert len(told) == (kind is None)


@pytest.mark.parametrize("reading", Reading)
def test_node_that_has_gone_is_told_as_deleted(server, watches, told, reading):
    watch(watches, reading, told)
    server.node = None
    reconnect(server, watches)
    assert told == [WatchEvent(EventKind.DELETED, "/a")]


def test_node_that_has_come_is_told_as_created(server, watches, told):
    server.node = None
    watch(watches, Reading.EXISTENCE, told)
    server.node = SimpleNamespace(czxid=2, mzxid=2, pzxid=2)
    reconnect(server, watches)
    assert told == [WatchEvent(EventKind.CREATED, "/a")]


def test_node_that_must_not_be_read_any_more_is_told(server, watches, told):
    watch(watches, Reading.DATA, told)
    server.error = NoAuthError()
    reconnect(server, watches)
    assert told == [WatchEvent(EventKind.CHANGED, "/a")]


def test_servers_that_do_not_answer_are_asked_again(server, watches, told):
    watch(watches, Reading.DATA, told)
    server.node = SimpleNamespace(czxid=1, mzxid=2, pzxid=1)
    server.silent_times = 2
    reconnect(server, watches)
    while server.later:
        assert told == []
        server.later.pop()()
    assert told == [WatchEvent(EventKind.CHANGED, "/a")]


def test_session_that_is_over_is_told_nothing(server, watches, told):
    watch(watches, Reading.DATA, told)
    (armed,) = server.left
    server.is_over = True
    armed(WatchedEvent(EventType.CHANGED, "CONNECTED", "/a"))
    server.silent_times = 1
    reconnect(server, watches)
    assert told == []
    assert server.later == []


def test_watch_on_data_and_on_children_is_told_once_of_the_deletion_of_both(server, watches, told):
    def tell(event):
        told.append(event)

    watches.read("/a", Reading.DATA, tell, Deadline(1.0))
    watches.read("/a", Reading.CHILDREN, tell, Deadline(1.0))
    event = WatchedEvent(EventType.DELETED, "CONNECTED", "/a")
    for armed in server.left:
        armed(event)
    assert told == [WatchEvent(EventKind.DELETED, "/a")]
