"""A tree in ZooKeeper when connections, servers and sessions go: nothing is done twice, and nothing is missed."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import MarshallingError, SessionExpiredError
from kazoo.protocol.connection import PING_XID, ConnectionHandler

from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStoreUnavailableError,
    NodeExistsError,
    Set,
    WatchEvent,
)
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.coordination.zookeeper.session import Deadline, SessionLostError, UnknownOutcomeError
from barnabas.errors import ClosedError
from tests.support.cut_link import CutLink
from tests.support.reading import wait_until
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import Sessions, new_chroot, sessions, start_servers

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)

EVENT_TIMEOUT_S = 60
SHORT_S = 3.0
"""A session that a busy machine does not lose by itself."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    servers = start_servers(tmp_path_factory.mktemp("zookeeper"))
    yield servers
    servers.stop()


@pytest.fixture
def opened(servers: ZooKeeperServers) -> Iterator[Sessions]:
    with sessions(servers.address + new_chroot()) as opened:
        yield opened


@pytest.fixture
def other(opened: Sessions) -> ZooKeeperMetadataStore:
    """A session whose connection nobody cuts."""
    return opened.open()


@pytest.fixture
def link(servers: ZooKeeperServers) -> Iterator[CutLink]:
    with CutLink(servers.ports[0]) as link:
        yield link
        link.mend()


@pytest.fixture
def tree(opened: Sessions, link: CutLink, other: ZooKeeperMetadataStore) -> ZooKeeperMetadataStore:
    """A session whose connection can be cut."""
    return open_by(link, opened)


def open_by(link: CutLink, opened: Sessions, **options: object) -> ZooKeeperMetadataStore:
    chroot = opened.connect.partition("/")[2]
    return opened.open(connect=f"127.0.0.1:{link.port}/{chroot}", **options)


class Events(queue.SimpleQueue):
    """A watch that keeps what it is told."""

    def __call__(self, event: WatchEvent) -> None:
        self.put(event)

    def next(self) -> tuple[EventKind, str]:
        kind, path = self.get(timeout=EVENT_TIMEOUT_S)
        return kind, path


WRITES = {
    "create": lambda tree: tree.create("/new", b"1"),
    "create ephemeral": lambda tree: tree.create("/new", b"1", ephemeral=True),
    "create sequential": lambda tree: tree.create("/parent/n-", b"1", sequential=True),
    "set": lambda tree: tree.set("/old", b"1").version,
    "set a version": lambda tree: tree.set("/old", b"1", 0).version,
    "delete": lambda tree: tree.delete("/old"),
    "delete a version": lambda tree: tree.delete("/old", 0),
    "check": lambda tree: tree.multi([Check("/old", 0)]),
    "multi": lambda tree: [
        getattr(each, "version", each)
        for each in tree.multi(
            [Check("/parent"), Create("/new", b"1"), Set("/old", b"1", 0), Create("/s-", b"", sequential=True)]
        )
    ],
    "multi that deletes": lambda tree: tree.multi([Delete("/old"), Delete("/parent")]),
}


def nodes(tree):
    return {path: (node.data, node.stat.version, bool(node.stat.owner)) for path, node in tree.subtree("/").items()}


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("write", WRITES)
def test_write_over_which_the_server_fails_is_done_once(tree, other, opened, monkeypatch, write, is_done):
    for each in ("/old", "/parent"):
        other.create(each)
    tree.ping(60)
    wanted = result_elsewhere(opened, WRITES[write])
    commit = TransactionRequest.commit_async

    def fails_once(transaction):
        monkeypatch.undo()
        if is_done:
            commit(transaction).get(EVENT_TIMEOUT_S)
        answer = transaction.client.handler.async_result()
        answer.set_exception(MarshallingError())
        return answer

    monkeypatch.setattr(TransactionRequest, "commit_async", fails_once)
    assert (WRITES[write](tree), nodes(tree)) == wanted


@pytest.mark.parametrize("number", [1, 1_000])
@pytest.mark.parametrize("write", WRITES)
def test_session_goes_on_where_the_answers_of_a_connection_are_mixed_up(
    tree, other, opened, monkeypatch, write, number
):
    for each in ("/old", "/parent"):
        other.create(each)
    tree.ping(60)
    wanted = result_elsewhere(opened, WRITES[write])
    before = tree._session.session_id
    read_socket, mixed_up = ConnectionHandler._read_header, []

    def mix_up(handler, timeout_s):
        header, *rest = read_socket(handler, timeout_s)
        if handler.client is tree._session._client and header.xid > 0 and not mixed_up:
            mixed_up.append(header.xid)
            header = header._replace(xid=header.xid + number)
        return header, *rest

    monkeypatch.setattr(ConnectionHandler, "_read_header", mix_up)
    assert (WRITES[write](tree), nodes(tree)) == wanted
    assert len(mixed_up) == 1
    assert tree._session.session_id == before


def test_an_answer_that_nobody_waits_for_ends_no_session(tree, monkeypatch):
    read_header, unasked = ConnectionHandler._read_header, []

    def tell_more(handler, timeout_s):
        header, *rest = read_header(handler, timeout_s)
        if handler.client is tree._session._client and header.xid == PING_XID and not unasked:
            unasked.append(header)
            header = header._replace(xid=7)
        return header, *rest

    monkeypatch.setattr(ConnectionHandler, "_read_header", tell_more)
    wait_until(lambda: unasked, "an answer that nobody waits for")
    assert tree.get("/").data is not None


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("write", WRITES)
def test_write_on_a_connection_that_is_lost_is_done_once(tree, other, link, opened, write, lost):
    for each in ("/old", "/parent"):
        other.create(each)
    tree.ping(60)
    wanted = result_elsewhere(opened, WRITES[write])
    sent = tree.writes
    link.lose_next_request() if lost == "request" else link.lose_next_answer()
    assert WRITES[write](tree) == wanted[0]
    assert link.cuts == 1
    assert nodes(tree) == wanted[1]
    is_repeated = lost == "request" or write == "check"
    assert tree.writes == sent + (2 if is_repeated else 1)


def result_elsewhere(opened, write):
    """Return what a write returns and leaves in a tree whose connection nobody cuts."""
    elsewhere = opened.open(connect=opened.connect.partition("/")[0] + new_chroot())
    for each in ("/old", "/parent"):
        elsewhere.create(each)
    return write(elsewhere), nodes(elsewhere)


def test_compare_and_set_that_somebody_else_has_won_is_refused_though_the_connection_was_lost(tree, other, link):
    other.create("/a", b"0")
    tree.ping(60)
    link.lose_next_request()
    other.set("/a", b"theirs", 0)
    with pytest.raises(BadVersionError):
        tree.set("/a", b"mine", 0)
    other.create("/b", b"theirs")
    link.lose_next_request()
    with pytest.raises(NodeExistsError):
        tree.create("/b", b"mine")


def test_outcome_that_others_have_covered_is_told_as_unknown(tree, other, link):
    other.create("/a", b"0")
    tree.ping(60)
    link.lose_next_answer(stays_cut=True)
    raised = raised_by(lambda: tree.set("/a", b"mine", 0))
    wait_until(lambda: link.cuts, "the answer was lost")
    assert other.get("/a").data == b"mine"
    other.set("/a", b"theirs", 1)
    link.mend()
    assert isinstance(raised.get(timeout=EVENT_TIMEOUT_S), UnknownOutcomeError)


def raised_by(call):
    """Call it on a thread, and return a queue for the error that it raises."""
    raised = queue.SimpleQueue()

    def run():
        try:
            raised.put(call())
        except MetadataStoreUnavailableError as error:
            raised.put(error)

    threading.Thread(target=run).start()
    return raised


def test_reads_wait_for_the_next_connection(tree, other, link):
    other.create("/a", b"1")
    for _ in range(3):
        tree.ping(60)
        link.lose_next_answer()
        assert tree.get("/a").data == b"1"
    link.lose_next_answer()
    assert set(tree.subtree("/")) == {"/a"}


def test_call_ends_at_its_deadline_while_no_server_answers(opened, link, other):
    tree = open_by(link, opened, call_timeout_s=0.3)
    link.cut()
    for call in (lambda: tree.get("/"), lambda: tree.create("/a"), lambda: tree.subtree("/"), lambda: tree.ping(0.1)):
        with pytest.raises(MetadataStoreUnavailableError) as raised:
            call()
        assert not isinstance(raised.value, SessionLostError)
    link.mend()
    tree.ping(60)


def test_write_without_an_answer_in_time_has_an_unknown_outcome(opened, servers, other):
    tree = opened.open(call_timeout_s=0.3)
    servers.suspend(0)
    try:
        with pytest.raises(UnknownOutcomeError):
            tree.create("/a")
        with pytest.raises(MetadataStoreUnavailableError):
            tree.ping(0.1)
    finally:
        servers.resume(0)
    other.ping(60)


def test_tree_is_closed_though_its_server_stands_still(opened, servers, other):
    tree, gone = opened.open(), Events()
    tree.create("/mine", ephemeral=True)
    other.exists("/mine", gone)
    servers.suspend(0)
    try:
        tree.close()
        with pytest.raises(ClosedError):
            tree.get("/")
    finally:
        servers.resume(0)
    assert gone.next() == (EventKind.DELETED, "/mine")


def test_first_connection_that_nobody_answers_is_told(link, opened):
    link.cut()
    with pytest.raises(
        MetadataStoreUnavailableError, match=r"granted no session within 0.3 s; check that it is running"
    ):
        open_by(link, opened, connection_timeout_s=0.3)


# -- watches -----------------------------------------------------------------------------------------------


def test_changes_while_there_is_no_connection_fire_the_watches(tree, other, link):
    for each in ("/changed", "/deleted", "/renewed", "/parent", "/emptied/child", "/gone"):
        other.create(each, make_parents=True)
    tree.ping(60)
    events = Events()
    for each in ("/changed", "/deleted", "/renewed"):
        tree.get(each, events)
    tree.exists("/created", events)
    for each in ("/parent", "/emptied", "/gone"):
        tree.children(each, events)
    link.cut()
    other.set("/changed", b"1")
    for each in ("/deleted", "/renewed", "/emptied/child", "/gone"):
        other.delete(each)
    for each in ("/created", "/renewed", "/parent/child"):
        other.create(each)
    link.mend()
    found = {events.next() for _ in range(7)}
    assert found == {
        (EventKind.CHANGED, "/changed"),
        (EventKind.DELETED, "/deleted"),
        (EventKind.DELETED, "/renewed"),
        (EventKind.CREATED, "/created"),
        (EventKind.CHILDREN_CHANGED, "/parent"),
        (EventKind.CHILDREN_CHANGED, "/emptied"),
        (EventKind.DELETED, "/gone"),
    }
    for each in ("/changed", "/created", "/parent", "/renewed"):
        other.set(each, b"2")
    other.create("/parent/other")
    assert_no_more(tree, other, events)


def assert_no_more(tree, other, events):
    """See that watches that have fired do not fire again: what is watched last is told next."""
    fence = other.create("/fence-", sequential=True)
    tree.ping(60)
    tree.get(fence, events)
    other.delete(fence)
    assert events.next() == (EventKind.DELETED, fence)


def test_watches_whose_nodes_did_not_change_go_on(tree, other, link):
    for each in ("/a", "/b"):
        other.create(each)
    tree.ping(60)
    events = Events()
    tree.get("/a", events)
    tree.children("/b", events)
    tree.exists("/c", events)
    for _ in range(3):
        link.cut()
        link.mend()
        tree.ping(60)
    assert_no_more(tree, other, events)
    tree.get("/a", events)  # once more, as whoever reads again after a while does: it is still one watch
    other.set("/a", b"1")
    assert events.next() == (EventKind.CHANGED, "/a")
    other.create("/b/child")
    assert events.next() == (EventKind.CHILDREN_CHANGED, "/b")
    other.create("/c")
    assert events.next() == (EventKind.CREATED, "/c")
    for each in ("/a", "/c"):
        other.set(each, b"2")
    assert_no_more(tree, other, events)


def test_nothing_is_missed_while_connections_come_and_go(tree, other, link):
    """A follower of a counter that reads and watches again at each event ends at the last value."""
    other.create("/counter", b"0")
    tree.ping(60)
    seen = queue.SimpleQueue()

    def follow(_event=None):
        seen.put(int(tree.get("/counter", follow).data))

    follow()
    for number in range(1, 201):
        other.set("/counter", b"%d" % number)
        if number % 20 == 0:
            link.lose_next_answer()
    values = [seen.get(timeout=EVENT_TIMEOUT_S)]
    while values[-1] != 200:
        values.append(seen.get(timeout=EVENT_TIMEOUT_S))
    assert values == sorted(values)


def test_session_and_its_watches_survive_a_restart_of_the_server(tmp_path: Path):
    servers = start_servers(tmp_path)
    with servers, sessions(servers.address) as opened:
        tree = opened.open()
        tree.create("/mine", ephemeral=True)
        tree.create("/a")
        events = Events()
        tree.get("/a", events)
        servers.kill(0)
        servers.restart(0)
        assert tree.exists("/mine").owner == tree.session_id
        opened.open().set("/a", b"1")
        assert events.next() == (EventKind.CHANGED, "/a")


def test_session_outlives_a_connection_on_which_nothing_is_answered(link, opened):
    """Half of its time is left then, where there is one server."""
    tree = open_by(link, opened, session_timeout_s=10.0)
    tree.create("/mine", ephemeral=True)
    link.silence_next_connection()
    link.cut()
    link.mend()
    assert tree.exists("/mine").owner == tree.session_id
    assert link.silenced == 1


# -- the end of sessions -----------------------------------------------------------------------------------


class End:
    """Notes how often, and on which thread, the end of a session was told."""

    def __init__(self, tree):
        self.threads = queue.SimpleQueue()
        tree.on_session_end(self)

    def __call__(self):
        self.threads.put(threading.current_thread())

    def wait(self):
        return self.threads.get(timeout=EVENT_TIMEOUT_S)


def end_session(servers, tree):
    """Close a session as a client does that connects with its id."""
    thief = KazooClient(servers.address, client_id=tree._session._client.client_id)
    thief.start(EVENT_TIMEOUT_S)
    thief.stop()
    thief.close()


def test_session_that_is_lost_is_told_once_and_of_no_use_any_more(servers, opened, other):
    tree = opened.open()
    end, events = End(tree), Events()
    tree.create("/mine", ephemeral=True)
    tree.exists("/a", events)
    end_session(servers, tree)
    thread = end.wait()
    assert thread is not threading.current_thread()
    for call in (
        lambda: tree.get("/"),
        lambda: tree.create("/mine", ephemeral=True),
        lambda: tree.exists("/a", events),
        lambda: tree.ping(60),
        tree.flush,
    ):
        with pytest.raises(SessionLostError):
            call()
    other.create("/a")
    assert other.exists("/mine") is None
    assert tree._session._client.client_id is None, "kazoo has begun another session"
    late = End(tree)
    late.wait()
    assert end.threads.empty()
    assert events.empty()
    tree.close()
    assert opened.open().exists("/mine") is None


class Expired:
    """A request, or a transaction, that a server answers on a connection that it keeps: the session is over."""

    def __init__(self):
        self.operations = []

    def commit_async(self):
        return self

    def get(self, timeout):
        if self.operations:
            return [SessionExpiredError()]
        raise SessionExpiredError


@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.read(lambda _: Expired(), Deadline(SHORT_S)),
        lambda session: session.write([Set("/old", b"1")], Deadline(SHORT_S)),
    ],
    ids=["read", "write"],
)
def test_session_that_a_server_says_is_over_is_lost_though_the_connection_stays(opened, monkeypatch, ask):
    """One of several servers may do so, where the session was closed by another connection."""
    tree = opened.open()
    end = End(tree)
    monkeypatch.setattr(tree._session._client, "transaction", Expired)
    with pytest.raises(SessionLostError):
        ask(tree._session)
    assert end.wait()


def test_session_that_is_silent_for_too_long_is_lost(opened, other, link):
    tree = open_by(link, opened, session_timeout_s=SHORT_S)
    end, gone = End(tree), Events()
    tree.create("/mine", ephemeral=True)
    other.exists("/mine", gone)
    link.cut()
    assert gone.next() == (EventKind.DELETED, "/mine")
    assert end.threads.empty()
    link.mend()
    end.wait()
    with pytest.raises(SessionLostError):
        tree.get("/")


def test_timeout_that_the_servers_grant_is_told(opened):
    assert opened.open(session_timeout_s=0.5).session_timeout_s == 1.0


def test_write_that_waits_while_the_session_is_lost_ends_with_it(servers, opened, other, link):
    tree = open_by(link, opened, session_timeout_s=SHORT_S, call_timeout_s=60.0)
    gone = Events()
    tree.create("/mine", ephemeral=True)
    other.exists("/mine", gone)
    link.cut()
    raised = raised_by(lambda: tree.create("/more"))
    gone.next()
    link.mend()
    assert isinstance(raised.get(timeout=EVENT_TIMEOUT_S), SessionLostError)
    assert other.exists("/more") is None


def test_tree_may_be_closed_by_whoever_is_told_that_its_session_is_lost(servers, opened):
    tree = opened.open()
    closed = threading.Event()

    def close():
        tree.close()
        closed.set()

    tree.on_session_end(close)
    end_session(servers, tree)
    assert closed.wait(EVENT_TIMEOUT_S)


def test_tree_may_be_closed_by_a_watch(opened, other):
    tree = opened.open()
    tree.create("/mine", ephemeral=True)
    gone = Events()
    other.exists("/mine", gone)
    tree.exists("/a", lambda _event: tree.close())
    other.create("/a")
    assert gone.next() == (EventKind.DELETED, "/mine")


# -- several servers ---------------------------------------------------------------------------------------


def leader_of(servers: ZooKeeperServers) -> int:
    for number, port in enumerate(servers.ports):
        with socket.create_connection(("127.0.0.1", port), timeout=EVENT_TIMEOUT_S) as connection:
            connection.sendall(b"srvr")
            if b"Mode: leader" in connection.makefile("rb").read():
                return number
    raise AssertionError("none leads")


def test_servers_come_and_go_one_at_a_time(tmp_path: Path):
    servers = start_servers(tmp_path, 3)
    with servers, sessions(servers.address) as opened:
        tree, other = opened.open(), opened.open()
        end = End(tree)
        events = Events()
        tree.create("/mine", ephemeral=True)
        tree.create("/counter", b"0")
        for number in range(3):
            tree.exists(f"/step-{number}", events)
            leader = leader_of(servers)
            servers.kill(leader)
            stat = tree.get("/counter").stat
            tree.set("/counter", b"%d" % number, stat.version)
            other.create(f"/step-{number}")
            assert events.next() == (EventKind.CREATED, f"/step-{number}")
            servers.restart(leader)
        assert tree.exists("/mine").owner == tree.session_id
        assert tree.get("/counter").stat.version == 3
        assert end.threads.empty()
        servers.kill(0)
        servers.kill(1)
        with pytest.raises(MetadataStoreUnavailableError):
            opened_without_quorum(opened)


def opened_without_quorum(opened):
    opened.open(connection_timeout_s=1.0).get("/")
