"""The same random requests to a real ZooKeeper and to a broker that serves its own tree: answers, stats, errors and
events are the same. Times differ, and so do the numbers of changes; but of any two of these the same one is greater."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.coordination.zookeeper.server.jute import int_, string, vector
from tests.support import zookeeper_protocol as zk
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import new_chroot, start_servers

pytestmark = [pytest.mark.xdist_group(ZOOKEEPER), pytest.mark.timeout(300)]

STEPS = int(os.environ.get("ZOOKEEPER_STEPS", "200"))
"""More of them find more."""
SESSIONS = 3
NAMES = ("a", "b", "b.x", "ü")
READS = (zk.EXISTS, zk.GET_DATA, zk.GET_CHILDREN, zk.GET_CHILDREN2)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real server."""
    servers = start_servers(tmp_path_factory.mktemp("zookeeper"))
    yield int(servers.address.rpartition(":")[2])
    servers.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port at which a broker serves its tree."""
    port = free_port()
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"zookeeper_listener": str(port)})
    broker.start()
    yield port
    broker.close()


class Server:
    """One of the two, with its sessions, and all that it has said."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients = [zk.RawClient(port) for _ in range(SESSIONS)]
        self.owners = {each.session_id: f"session {number}" for number, each in enumerate(self.clients)}
        self.said: list[Any] = []
        self.changes: list[int] = []

    def ask(self, number: int, kind: int, body: bytes) -> None:
        answer = self.clients[number].ask(kind, body, xid=-2 if kind == zk.PING else None)
        self.said.append((kind, answer.error, self._comparable(zk.understand(kind, answer.body))))
        self.hear(in_order=kind != zk.CLOSE)

    def hear(self, *, in_order: bool = True) -> None:
        """Note what events have come to whom: a `sync` comes behind all that were sent."""
        for number, client in enumerate(self.clients):
            try:
                client.ask(zk.SYNC, string("/"))
            except ConnectionError:
                continue  # it was closed
            # The nodes of a session go together, in any order.
            self.said.append((number, list(client.events) if in_order else sorted(client.events)))
            client.events.clear()

    def renew(self, number: int, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        """Another connection, with a new session or this one."""
        self.clients[number].cut()
        self.clients[number] = client = zk.RawClient(self.port, session)
        self.owners[client.session_id] = self.owners.get(client.session_id, f"session {len(self.owners)}")

    def _comparable(self, found: Any) -> Any:
        if isinstance(found, zk.Stat):
            self.changes += [found.czxid, found.mzxid, found.pzxid]
            return found._replace(czxid=0, mzxid=0, pzxid=0, ctime=0, mtime=0, owner=self.owners.get(found.owner, 0))
        if isinstance(found, list | tuple):
            return [self._comparable(each) for each in found]
        return found

    def ranks(self) -> list[int]:
        """Return how the numbers of changes that it has told are ordered."""
        places = {change: place for place, change in enumerate(sorted(set(self.changes)))}
        return [places[change] for change in self.changes]


class Steps:
    """Random requests, the same for both."""

    def __init__(self, seed: int, root: str, servers: list[Server]) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.servers = servers

    def path(self) -> str:
        return self.root + "".join("/" + self.random.choice(NAMES) for _ in range(self.random.randint(1, 3)))

    def version(self) -> int:
        return self.random.choice((-1, -1, 0, 1, 2, -7))

    def data(self) -> bytes:
        return self.random.randbytes(self.random.randint(0, 4))

    def write(self) -> tuple[int, bytes]:
        chosen = self.random.choice(("create", "create", "create", "set", "delete", "check"))
        if chosen == "create":
            kind = self.random.choice((zk.CREATE, zk.CREATE2))
            return kind, zk.create(self.path(), self.data(), self.random.choice((0, 0, 0, 1, 2, 3)))
        if chosen == "set":
            return zk.SET_DATA, zk.set_data(self.path(), self.data(), self.version())
        return (zk.CHECK if chosen == "check" else zk.DELETE), zk.versioned(self.path(), self.version())

    def request(self) -> tuple[int, bytes]:
        chance = self.random.random()
        if chance < 0.35:
            return self.random.choice(READS), zk.read(self.path(), watch=self.random.random() < 0.7)
        if chance < 0.75:
            while (written := self.write())[0] == zk.CHECK:
                pass
            return written
        if chance < 0.95:
            return zk.MULTI, zk.multi(self.write() for _ in range(self.random.randint(0, 4)))
        return self.random.choice(((zk.GET_ACL, string(self.path())), (zk.SYNC, string("/")), (zk.PING, b"")))

    def step(self) -> None:
        number = self.random.randrange(SESSIONS)
        chance = self.random.random()
        if chance < 0.03:
            for server in self.servers:
                server.ask(number, zk.CLOSE, b"")
                server.renew(number)
        elif chance < 0.06:
            paths = [[self.path() for _ in range(2)] for _ in range(3)]
            for server in self.servers:
                client = server.clients[number]
                server.renew(number, client.session)
                assert server.clients[number].session_id == client.session_id
                server.ask(number, zk.SET_WATCHES, zk.set_watches(client.last_zxid, *paths))
        else:
            kind, body = self.request()
            for server in self.servers:
                server.ask(number, kind, body)


@pytest.mark.parametrize("seed", range(int(os.environ.get("ZOOKEEPER_SEEDS", "2"))))
def test_random_requests_have_the_same_answers(real: int, ours: int, seed: int) -> None:
    servers = [Server(real), Server(ours)]
    root = new_chroot()
    for server in servers:
        server.ask(0, zk.CREATE, zk.create(root))
    steps = Steps(seed, root, servers)
    for step in range(STEPS):
        before = len(servers[0].said)
        steps.step()
        theirs, found = (server.said[before:] for server in servers)
        assert found == theirs, f"step {step}"
    assert servers[1].ranks() == servers[0].ranks()
    for server in servers:
        for client in server.clients:
            client.cut()


REFUSED = {
    "unknown flags": (zk.CREATE, zk.create("/x", flags=9)),
    "no ACL": (zk.CREATE, zk.create("/x", acl=vector([]))),
    "no slash": (zk.CREATE, zk.create("no-slash")),
    "slash at the end": (zk.CREATE, zk.create("/ends/")),
    "empty name": (zk.CREATE, zk.create("/a//b")),
    "name of dots": (zk.CREATE, zk.create("/a/../b")),
    "name of dots below the root": (zk.CREATE, zk.create("/..")),
    "control character": (zk.CREATE, zk.create("/\x01")),
    "root": (zk.CREATE, zk.create("/")),
    "empty path": (zk.CREATE, zk.create("")),
    "delete root": (zk.DELETE, zk.versioned("/")),
    "delete no slash": (zk.DELETE, zk.versioned("no-slash")),
    "set empty name": (zk.SET_DATA, zk.set_data("/a//b", b"")),
    "get empty name": (zk.GET_DATA, zk.read("/a//b")),
    "exists no slash": (zk.EXISTS, zk.read("no-slash")),
    "ACL of nothing": (zk.GET_ACL, string("/nowhere")),
    "two checks": (zk.MULTI, zk.multi([(zk.CHECK, zk.versioned("/", 7))] * 2)),
}


@pytest.mark.parametrize(("kind", "body"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_has_the_same_errors(real: int, ours: int, kind: int, body: bytes) -> None:
    said = []
    for port in (real, ours):
        client = zk.RawClient(port)
        answer = client.ask(kind, body)
        said.append((answer.error, zk.understand(kind, answer.body)))
        client.ask(zk.CLOSE)
        client.cut()
    assert said[1] == said[0]


def test_session_that_is_over_or_has_another_password_is_refused_alike(real: int, ours: int) -> None:
    for port in (real, ours):
        client = zk.RawClient(port)
        other_password = zk.RawClient(port, (client.session_id, b"x" * 16))
        assert (other_password.timeout_ms, other_password.session) == (0, (0, bytes(16)))
        client.cut()  # ZooKeeper has already done so
        client = zk.RawClient(port, client.session)
        client.ask(zk.CLOSE)
        over = zk.RawClient(port, client.session)
        assert (over.timeout_ms, over.session) == (0, (0, bytes(16)))
        for each in (client, other_password, over):
            with pytest.raises(ConnectionError):
                each.ask(zk.PING)


def test_anybody_may_authenticate_as_somebody(real: int, ours: int) -> None:
    for port in (real, ours):
        client = zk.RawClient(port)
        assert client.ask(zk.AUTH, int_(0) + string("digest") + string("me:secret"), xid=-4).error == 0
        assert client.ask(zk.AUTH, int_(0) + string("nobody-knows") + string(""), xid=-4).error == -115
        with pytest.raises(ConnectionError):
            client.ask(zk.PING)
