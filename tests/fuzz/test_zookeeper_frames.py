"""Wild and damaged requests of ZooKeeper's protocol, in sessions with a broker's own tree.

Whatever comes, it is answered or refused with an error of Barnabas's own; the tree's counts stay right, and watches and
what is sent stay bounded.
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.node_table import KeptSession
from barnabas.coordination.zookeeper.server.jute import boolean, buffer, int_, long, string, vector
from barnabas.coordination.zookeeper.server.requests import Kind, read_connect
from barnabas.coordination.zookeeper.server.serving import Client, Serving
from barnabas.errors import MalformedMessageError

FRAMES = int(os.environ.get("FUZZ_FRAMES", "100000")) // 20
SEED = int(os.environ.get("FUZZ_SEED", "20110612"))
NAMES = ("a", "b", "..", "", "\x00", "ü", "x" * 300)
NUMBERS = (0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31))


class Fuzzer:
    """Makes frames: whole ones, and from them damaged ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def path(self) -> bytes:
        return string("/" + "/".join(self.random.choices(NAMES[:2], k=self.random.randint(0, 3))))

    def strange_path(self) -> bytes:
        return string("/".join(self.random.choices(NAMES, k=self.random.randint(0, 4))))

    def any_path(self) -> bytes:
        return self.strange_path() if self.random.random() < 0.2 else self.path()

    def number(self) -> bytes:
        return int_(self.random.choice(NUMBERS))

    def write(self) -> tuple[int, bytes]:
        kind = self.random.choice((Kind.CREATE, Kind.CREATE, Kind.CREATE2, Kind.SET_DATA, Kind.DELETE, Kind.CHECK))
        if kind in (Kind.CREATE, Kind.CREATE2):
            acl = vector([int_(31) + string("world") + string("anyone")] * self.random.choice((1, 1, 1, 0, 2)))
            return kind, self.any_path() + buffer(b"1") + acl + int_(self.random.choice((0, 1, 2, 3, 9)))
        data = buffer(self.random.randbytes(3)) if kind is Kind.SET_DATA else b""
        return kind, self.any_path() + data + self.number()

    def request(self) -> bytes:
        kind: int = self.random.choice((*Kind, *Kind, 0, 99, 105, -12, 2**31 - 1))
        if kind in (Kind.CREATE, Kind.CREATE2, Kind.SET_DATA, Kind.DELETE, Kind.CHECK):
            kind, body = self.write()
        elif kind == Kind.MULTI:
            parts = [self.write() for _ in range(self.random.randint(0, 5))]
            inner = b"".join(int_(each) + boolean(False) + int_(-1) + part for each, part in parts)
            body = inner + int_(-1) + boolean(True) + int_(-1)
        elif kind == Kind.SET_WATCHES:
            paths = [vector(self.any_path() for _ in range(self.random.randint(0, 3))) for _ in range(3)]
            body = long(self.random.randint(-1, 1_000)) + b"".join(paths)
        elif kind == Kind.AUTH:
            body = self.number() + string("digest") + string("a:b")
        else:
            body = self.any_path() + boolean(True)
        return int_(self.random.randint(-10, 10)) + int_(kind) + body

    def damaged(self, frame: bytes) -> bytes:
        way = self.random.random()
        if way < 0.5:
            return frame
        place = self.random.randrange(len(frame))
        if way < 0.65:
            return frame[:place]
        if way < 0.8:
            return frame[:place] + self.random.randbytes(self.random.randint(1, 4)) + frame[place + 1 :]
        if way < 0.9:
            return frame[:place] + self.number() + frame[place + 4 :]
        return self.random.randbytes(self.random.randint(0, 40))


def test_whatever_comes_is_answered_or_refused(tmp_path: Path) -> None:
    fuzzer = Fuzzer(SEED)
    tree = EmbeddedMetadataStore(tmp_path / "tree.db", keeps_sessions=True)
    serving = Serving(tree.store, ["/brokers/ids"])
    numbers = itertools.count(1 << 40)
    sent: list[bytes] = []
    outcomes = {"answered": 0, "refused": 0}

    def connect() -> Client:
        session = KeptSession(next(numbers), b"p" * 16, 9_000)
        serving.keep_session(session)
        return Client(session.id, sent.append)

    clients = [connect() for _ in range(3)]
    for _ in range(FRAMES):
        place = fuzzer.random.randrange(len(clients))
        client = clients[place]
        frame = fuzzer.damaged(fuzzer.request())
        try:
            serving.carry_out(client, [frame])
        except MalformedMessageError:
            outcomes["refused"] += 1
        else:
            outcomes["answered"] += 1
            assert sent
        sent.clear()
        if client.has_left:
            serving.forget(client)
            serving.end_session(client.session_id)
            clients[place] = connect()
    assert min(outcomes.values()) > FRAMES / 20, f"most came to the same: {outcomes}"
    for client in clients:
        serving.forget(client)
        serving.end_session(client.session_id)
    nodes = tree.subtree("/")
    assert not any(node.stat.owner for node in nodes.values())
    for path, node in nodes.items():
        assert node.stat.children_count == len(tree.children(path))
    assert not serving._watches._of
    assert not serving._watches._on_data
    assert not serving._watches._on_children
    tree.close()


def test_whatever_comes_first_is_understood_or_refused() -> None:
    fuzzer = Fuzzer(SEED)
    whole = int_(0) + long(0) + int_(9_000) + long(0) + buffer(bytes(16)) + boolean(False)
    for _ in range(FRAMES):
        try:
            read_connect(fuzzer.damaged(whole))
        except MalformedMessageError:
            continue
