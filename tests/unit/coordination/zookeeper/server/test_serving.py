"""What clients of a served tree are told, in which order, and what they may not do. (That answers are ZooKeeper's is
tried beside a real one: tests/interop/test_tree_like_zookeeper.py.)"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.node_table import KeptSession
from barnabas.coordination.subtrees import STEP_OPERATIONS_MAX
from barnabas.coordination.zookeeper.server import serving as module
from barnabas.coordination.zookeeper.server.answers import EVENT_XID, Error
from barnabas.coordination.zookeeper.server.jute import boolean, buffer, int_, long, string, vector
from barnabas.coordination.zookeeper.server.requests import Kind
from barnabas.coordination.zookeeper.server.serving import Client, Serving
from barnabas.errors import MalformedMessageError

OPEN = vector([int_(31) + string("world") + string("anyone")])
READ_ONLY = vector([int_(1) + string("world") + string("anyone")])
PROTECTED = "/brokers/ids"


class Connection(Client):
    """A client that keeps what it is sent: numbers of requests with their errors, and events."""

    def __init__(self, serving: Serving, session_id: int) -> None:
        super().__init__(session_id, self._keep)
        self.serving = serving
        self.told: list[tuple[int, int] | str] = []
        self._xids = itertools.count(1)

    def _keep(self, frame: bytes) -> None:
        size, xid, _, error = struct.unpack_from(">iiqi", frame)
        assert size == len(frame) - 4
        self.told.append(frame[32:].decode() if xid == EVENT_XID else (xid, error))

    def request(self, kind: int, body: bytes = b"") -> bytes:
        return int_(next(self._xids)) + int_(kind) + body

    def ask(self, kind: int, body: bytes = b"") -> int:
        """Send a request, and return the error in its answer."""
        self.serving.carry_out(self, [self.request(kind, body)])
        found = self.told[-1]
        assert isinstance(found, tuple)
        return found[1]

    def create(self, path: str, flags: int = 0, acl: bytes = OPEN) -> int:
        return self.ask(Kind.CREATE, string(path) + buffer(b"") + acl + int_(flags))

    def watch(self, kind: Kind, path: str) -> int:
        return self.ask(kind, string(path) + boolean(True))


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[EmbeddedMetadataStore]:
    made = EmbeddedMetadataStore(tmp_path / "tree.db", ManualClock(), keeps_sessions=True)
    yield made
    made.close()


@pytest.fixture
def serving(tree: EmbeddedMetadataStore) -> Serving:
    return Serving(tree.store, [PROTECTED])


def connect(serving: Serving, session_id: int = 1 << 40) -> Connection:
    serving.keep_session(KeptSession(session_id, b"p" * 16, 9_000))
    return Connection(serving, session_id)


def test_event_comes_behind_the_answer_that_set_the_watch_and_before_what_shows_the_change(serving: Serving) -> None:
    client = connect(serving)
    frames = [
        client.request(Kind.CREATE, string("/a") + buffer(b"") + OPEN + int_(0)),
        client.request(Kind.GET_DATA, string("/a") + boolean(True)),
        client.request(Kind.SET_DATA, string("/a") + buffer(b"1") + int_(-1)),
        client.request(Kind.GET_DATA, string("/a") + boolean(False)),
    ]
    serving.carry_out(client, frames)
    assert client.told == [(1, 0), (2, 0), "/a", (3, 0), (4, 0)]


def test_what_the_broker_itself_changes_is_told_too(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client = connect(serving)
    client.watch(Kind.EXISTS, "/mine")
    client.watch(Kind.GET_CHILDREN, "/")
    tree.create("/mine")
    assert client.told[-2:] == ["/mine", "/"]


def test_session_that_ends_takes_its_nodes_with_it_and_others_hear_of_it(
    serving: Serving, tree: EmbeddedMetadataStore
) -> None:
    client, other = connect(serving), connect(serving, 2 << 40)
    client.create("/e", module.EPHEMERAL)
    other.watch(Kind.EXISTS, "/e")
    serving.end_session(client.session_id)
    assert other.told[-1] == "/e"
    assert tree.exists("/e") is None
    assert client.create("/late") == Error.SESSION_EXPIRED
    assert client.has_left


def test_requests_behind_the_end_of_a_session_are_dropped(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client = connect(serving)
    create = client.request(Kind.CREATE, string("/a") + buffer(b"") + OPEN + int_(0))
    serving.carry_out(client, [client.request(Kind.CLOSE_SESSION), create])
    assert client.told == [(2, 0)]
    assert client.has_left
    assert tree.exists("/a") is None


def test_what_came_before_a_damaged_request_is_carried_out(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client = connect(serving)
    create = client.request(Kind.CREATE, string("/a") + buffer(b"") + OPEN + int_(0))
    with pytest.raises(MalformedMessageError):
        serving.carry_out(client, [create, create[:-1]])
    assert client.told == [(1, 0)]
    assert tree.exists("/a") is not None


def test_registration_of_the_broker_is_not_to_be_changed(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    tree.create(PROTECTED + "/0", make_parents=True)
    client = connect(serving)
    versioned = string(PROTECTED + "/0") + int_(-1)
    assert client.create(PROTECTED + "/1") == Error.NO_AUTH
    assert client.ask(Kind.DELETE, versioned) == Error.NO_AUTH
    assert client.ask(Kind.SET_DATA, string(PROTECTED + "/0") + buffer(b"") + int_(-1)) == Error.NO_AUTH
    operation = int_(Kind.DELETE) + boolean(False) + int_(-1) + versioned
    client.ask(Kind.MULTI, operation + int_(-1) + boolean(True) + int_(-1))
    assert tree.children(PROTECTED) == ["0"]
    assert client.watch(Kind.GET_DATA, PROTECTED + "/0") == Error.NONE
    assert client.create(PROTECTED + "-of-others") == Error.NONE


def test_data_of_nodes_with_secrets_is_refused_in_each_way(tree: EmbeddedMetadataStore) -> None:
    tree.create("/secret", b"planted")
    client = connect(Serving(tree.store, [], is_secret=lambda path: path == "/secret"))
    assert client.watch(Kind.GET_DATA, "/secret") == Error.NO_AUTH
    assert client.watch(Kind.EXISTS, "/secret") == Error.NONE
    assert client.watch(Kind.GET_CHILDREN, "/") == Error.NONE


def test_acl_that_keeps_others_out_is_refused_since_it_would_not(serving: Serving) -> None:
    client = connect(serving)
    assert client.create("/a", acl=READ_ONLY) == Error.INVALID_ACL
    assert client.create("/a", acl=vector([])) == Error.INVALID_ACL


def test_what_is_not_served_is_said_to_be_so(serving: Serving) -> None:
    client = connect(serving)
    assert client.ask(105) == Error.UNIMPLEMENTED
    assert client.ask(Kind.PING) == Error.NONE


def test_watches_of_a_connection_are_bounded(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(serving)
    path = "/" + "x" * 900_000
    errors = [client.watch(Kind.EXISTS, f"{path}{number}") for number in range(5)]
    assert errors == [Error.NO_NODE] * 4 + [Error.QUOTA_EXCEEDED]


def test_connection_that_has_ended_leaves_no_watch(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client = connect(serving)
    client.watch(Kind.EXISTS, "/a")
    client.is_gone = True
    serving.forget(client)
    client.watch(Kind.EXISTS, "/b")
    told = list(client.told)
    tree.create("/a")
    tree.create("/b")
    assert client.told == told


def test_full_disk_is_told_and_changes_nothing(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client = connect(serving)
    connection = tree.store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = string("/a") + buffer(bytes(500_000)) + OPEN + int_(0)
    assert client.ask(Kind.CREATE, large) == Error.SYSTEM_ERROR
    connection.execute("PRAGMA max_page_count = 1000000")
    assert client.ask(Kind.CREATE, large) == Error.NONE


class SteppingClock:
    """Goes on by a part of a slice each time that it is looked at."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def create_in_multi(count: int) -> bytes:
    operation = int_(Kind.CREATE) + boolean(False) + int_(-1)
    creates = (operation + string(f"/m{number}") + buffer(b"") + OPEN + int_(0) for number in range(count))
    return b"".join(creates) + int_(-1) + boolean(True) + int_(-1)


def test_requests_are_carried_out_in_slices_in_their_order(tree: EmbeddedMetadataStore) -> None:
    serving = Serving(tree.store, [], SteppingClock(module.SLICE_S / 4))
    client = connect(serving)
    frames = [client.request(Kind.CREATE, string(f"/{number}") + buffer(b"") + OPEN + int_(0)) for number in range(20)]
    slices = 0
    while frames:
        del frames[: serving.carry_out(client, frames).answered]
        slices += 1
    assert slices >= 5
    assert client.told == [(number + 1, 0) for number in range(20)]


def test_many_watches_are_set_in_slices_and_changes_between_them_are_told(tree: EmbeddedMetadataStore) -> None:
    serving = Serving(tree.store, [], SteppingClock(module.SLICE_S))
    client = connect(serving)
    count = 4 * module.WATCHES_PER_STEP
    paths = [string(f"/w{number}") for number in range(count)]
    since = tree.store.last_change
    request = client.request(Kind.SET_WATCHES, long(since) + vector([]) + vector(paths) + vector([]))
    assert serving.carry_out(client, [request]).answered == 0
    tree.create("/w0")  # is watched already
    tree.create(f"/w{count - 1}")  # is not yet
    slices = 1
    while not serving.carry_out(client, [request]).answered:
        slices += 1
    assert slices >= 4
    assert client.told == ["/w0", f"/w{count - 1}", (1, 0)]
    tree.create("/w1")
    assert client.told[-1] == "/w1"


def test_multi_of_too_many_operations_is_refused(
    serving: Serving, tree: EmbeddedMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGES_MAX", 3)
    client = connect(serving)
    assert client.ask(Kind.MULTI, create_in_multi(4)) == Error.BAD_ARGUMENTS
    assert tree.exists("/m0") is None
    assert client.ask(Kind.MULTI, create_in_multi(3)) == Error.NONE


def test_largest_multi_of_our_own_clients_is_served() -> None:
    assert STEP_OPERATIONS_MAX < module.CHANGES_MAX


def test_children_of_a_node_and_ephemeral_nodes_of_a_session_are_bounded(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHILDREN_MAX", 3)
    monkeypatch.setattr(module, "EPHEMERALS_MAX", 2)
    client, other = connect(serving), connect(serving, 2 << 40)
    client.create("/p")
    client.create("/q")
    assert [client.create(f"/p/{number}") for number in range(4)] == [Error.NONE] * 3 + [Error.QUOTA_EXCEEDED]
    errors = [client.create(f"/q/{number}", module.EPHEMERAL) for number in range(3)]
    assert errors == [Error.NONE] * 2 + [Error.QUOTA_EXCEEDED]
    assert other.create("/q/other", module.EPHEMERAL) == Error.NONE


def test_bytes_of_the_tree_are_bounded_and_large_nodes_leave_a_part_to_small_ones(
    serving: Serving, tree: EmbeddedMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TREE_BYTES_MAX", 4_000_000)
    client = connect(serving)

    def create(name: str, size: int) -> int:
        return client.ask(Kind.CREATE, string(name) + buffer(bytes(size)) + OPEN + int_(0))

    errors = [create(f"/large{number}", 500_000) for number in range(10)]
    made = errors.count(Error.NONE)
    assert errors == [Error.NONE] * made + [Error.QUOTA_EXCEEDED] * (10 - made)
    assert 4 <= made <= 6
    assert create("/small", 1_000) == Error.NONE
    assert client.ask(Kind.SET_DATA, string("/small") + buffer(bytes(2_000_000)) + int_(-1)) == Error.QUOTA_EXCEEDED
    assert client.ask(Kind.SET_DATA, string("/large0") + buffer(bytes(500_000)) + int_(-1)) == Error.NONE
    monkeypatch.setattr(module, "TREE_BYTES_MAX", tree.store.file_bytes())
    assert create("/one-more", 1_000) == Error.QUOTA_EXCEEDED
    tree.create("/of-the-broker", bytes(1_000))
    assert client.ask(Kind.DELETE, string("/large1") + int_(-1)) == Error.NONE
    assert create("/one-more", 1_000) == Error.NONE


def test_session_with_many_nodes_ends_in_one_step(serving: Serving, tree: EmbeddedMetadataStore) -> None:
    client, other = connect(serving), connect(serving, 2 << 40)
    client.create("/p")
    for number in range(20):
        client.create(f"/p/{number}", module.EPHEMERAL)
    other.watch(Kind.EXISTS, "/p/7")
    other.watch(Kind.GET_CHILDREN, "/p")
    before = tree.store.last_change
    serving.end_session(client.session_id)
    assert tree.store.last_change == before + 1
    assert tree.children("/p") == []
    stat = tree.exists("/p")
    assert stat is not None
    assert stat.children_count == 0
    assert sorted(each for each in other.told if isinstance(each, str)) == ["/p", "/p/7"]
