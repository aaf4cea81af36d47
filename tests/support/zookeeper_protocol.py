"""A client of ZooKeeper that hides nothing: what it sends is written by hand, what comes back is told as it is.

One request is under way at a time; events that come before its answer are kept apart.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barnabas.coordination.zookeeper.server.jute import boolean, buffer, int_, long, string, vector

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL = 1, 2, 3, 4, 5, 6
GET_CHILDREN, SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 8, 9, 11, 12, 13, 14, 15
AUTH, SET_WATCHES, CLOSE = 100, 101, -11
OPEN_ACL = vector([int_(31) + string("world") + string("anyone")])
TIMEOUT_S = 60

_STAT = struct.Struct(">qqqqiiiqiiq")


class Stat(NamedTuple):
    """A node's stat, as it is on the wire."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    children: int
    pzxid: int


class Answer(NamedTuple):
    """An answer; `body` is empty where there is an error."""

    zxid: int
    error: int
    body: bytes


class RawClient:
    """A connection, and the session that it has.

    :param session: id and password of one that is to go on; by default a new one begins.
    :param connects: whether it asks for a session at all.
    """

    def __init__(
        self,
        port: int,
        session: tuple[int, bytes] = (0, bytes(16)),
        *,
        timeout_ms: int = 20_000,
        last_zxid: int = 0,
        connects: bool = True,
    ) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._xid = 0
        self.last_zxid = 0
        self.events: list[tuple[int, int, str]] = []
        if not connects:
            return
        self._send(
            int_(0) + long(last_zxid) + int_(timeout_ms) + long(session[0]) + buffer(session[1]) + boolean(False)
        )
        answered = self._receive()
        _, self.timeout_ms, self.session_id, size = struct.unpack_from(">iiqi", answered)
        self.password = answered[20 : 20 + size]

    @property
    def session(self) -> tuple[int, bytes]:
        """What another connection needs to go on with the session."""
        return self.session_id, self.password

    def cut(self) -> None:
        """End the connection, and not the session."""
        self._sock.close()

    def ask_at_once(self, count: int, kind: int, body: bytes) -> list[Answer]:
        """Send the same request so many times, and then take the answers, which must come in order."""
        xids = range(self._xid + 1, self._xid + 1 + count)
        self._xid += count
        self.send_bytes(b"".join(buffer(int_(xid) + int_(kind) + body) for xid in xids))
        return [self._answer_to(xid) for xid in xids]

    def ask(self, kind: int, body: bytes = b"", xid: int | None = None) -> Answer:
        """Send a request, and wait for its answer."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self._send(int_(xid) + int_(kind) + body)
        return self._answer_to(xid)

    def _answer_to(self, xid: int) -> Answer:
        while True:
            frame = self._receive()
            got, zxid, error = struct.unpack_from(">iqi", frame)
            if got == xid:
                self.last_zxid = max(self.last_zxid, zxid)
                return Answer(zxid, error, frame[16:])
            assert got == -1, f"an answer to {got}, and {xid} was asked"
            kind_of_event, state = struct.unpack_from(">ii", frame, 16)
            self.events.append((kind_of_event, state, frame[28:].decode()))

    def _send(self, content: bytes) -> None:
        self.send_bytes(buffer(content))

    def send_bytes(self, content: bytes) -> None:
        """Send anything."""
        self._sock.sendall(content)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            part = self._sock.recv(size - len(read))
            if not part:
                raise ConnectionResetError("the server has ended the connection")
            read += part
        return read


def create(path: str, data: bytes = b"", flags: int = 0, acl: bytes = OPEN_ACL) -> bytes:
    return string(path) + buffer(data) + acl + int_(flags)


def versioned(path: str, version: int = -1) -> bytes:
    return string(path) + int_(version)


def set_data(path: str, data: bytes, version: int = -1) -> bytes:
    return string(path) + buffer(data) + int_(version)


def read(path: str, *, watch: bool = False) -> bytes:
    return string(path) + boolean(watch)


def multi(operations: Iterable[tuple[int, bytes]]) -> bytes:
    parts = [int_(kind) + boolean(False) + int_(-1) + body for kind, body in operations]
    return b"".join([*parts, int_(-1) + boolean(True) + int_(-1)])


def set_watches(since: int, data: Iterable[str], existence: Iterable[str], children: Iterable[str]) -> bytes:
    return long(since) + b"".join(vector(map(string, each)) for each in (data, existence, children))


def understand(kind: int, body: bytes) -> list[Any]:
    """Return what the answer to a request of a kind says."""
    return _Understanding(body).of(kind)


class _Understanding:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def of(self, kind: int) -> list[Any]:
        if not self._body:
            return []
        if kind == MULTI:
            return list(self._results())
        return [read() for read in self._parts(kind)]

    def _parts(self, kind: int) -> list[Callable[[], Any]]:
        return {
            CREATE: [self._buffer],
            CREATE2: [self._buffer, self._stat],
            SET_DATA: [self._stat],
            EXISTS: [self._stat],
            GET_DATA: [self._buffer, self._stat],
            GET_CHILDREN: [self._names],
            GET_CHILDREN2: [self._names, self._stat],
            GET_ACL: [self._acl, self._stat],
            SYNC: [self._buffer],
        }[kind]

    def _results(self) -> Iterable[Any]:
        while True:
            kind, is_end, error = struct.unpack_from(">i?i", self._body, self._at)
            self._at += 9
            if is_end:
                return
            if kind == -1:
                yield "error", error, self._int()
            elif kind in (CREATE, CREATE2, SET_DATA):
                yield kind, self.of(kind)
            else:
                yield kind, []

    def _int(self) -> int:
        (value,) = struct.unpack_from(">i", self._body, self._at)
        self._at += 4
        return int(value)

    def _buffer(self) -> bytes:
        size = max(self._int(), 0)
        self._at += size
        return self._body[self._at - size : self._at]

    def _names(self) -> list[bytes]:
        return sorted(self._buffer() for _ in range(self._int()))

    def _acl(self) -> list[Any]:
        return [(self._int(), self._buffer(), self._buffer()) for _ in range(self._int())]

    def _stat(self) -> Stat:
        self._at += _STAT.size
        return Stat(*_STAT.unpack_from(self._body, self._at - _STAT.size))
