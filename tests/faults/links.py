"""Links between processes that are slow, lose connections, tell who comes, or lose the answers of writes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterable

from barnabas.clock import SYSTEM_CLOCK
from tests.support.links import CHUNK_BYTES_MAX, HERE, Link

FIRST_BYTES = 64
"""The beginning of a connection: of a request, its head with the client's id."""
FIRST_BYTES_S = 30.0

HEAD = struct.Struct(">ihhih")
"""Of a request to a broker: its size, API, version and number, and the length of the client's id, which follows."""


class ShakyLink(Link):
    """A link that can also be slow, or lose a share of what it is given.

    What it loses takes the connection with it, as TCP does when it gives up.
    """

    def __init__(self, server_port: int, host: str = HERE, port: int = 0) -> None:
        self._delay_s = 0.0
        self._lost_share = 0.0
        self._random = random.Random()
        super().__init__(server_port, host, port)

    def shake(self, seed: int, delay_s: float = 0.0, lost_share: float = 0.0) -> None:
        """Be slow, and lose something, until `mend`.

        :param seed: of the chance with which a chunk is lost.
        :param delay_s: for so long each chunk is held back.
        :param lost_share: how many of the chunks are lost, with their connections; 1 is all of them.
        """
        self._random.seed(seed)
        self._delay_s = delay_s
        self._lost_share = lost_share

    def mend(self) -> None:
        """Let everything through again, at once."""
        self._delay_s = self._lost_share = 0.0
        super().mend()

    def _lets_through(self, *, from_client: bool) -> bool:
        if self._delay_s:
            SYSTEM_CLOCK.sleep(self._delay_s)
        return not self._lost_share or self._random.random() >= self._lost_share


class Links:
    """Several links that are treated alike."""

    def __init__(self, links: Iterable[ShakyLink]) -> None:
        self.all = tuple(links)

    def cut(self) -> None:
        """Cut all of them."""
        for each in self.all:
            each.cut()

    def stall(self) -> None:
        """Stall all of them."""
        for each in self.all:
            each.stall()

    def shake(self, seed: int, delay_s: float = 0.0, lost_share: float = 0.0) -> None:
        """Shake all of them."""
        for number, each in enumerate(self.all):
            each.shake(seed + number, delay_s, lost_share)

    def mend(self) -> None:
        """Mend all of them."""
        for each in self.all:
            each.mend()

    def close(self) -> None:
        """Close all of them."""
        for each in self.all:
            each.close()


class Crossing(Link):
    """The way of all other brokers to one broker: each of them has a link of its own, `ways`, by its id.

    Brokers name themselves at the beginning of a connection, so a crossing knows which way to take.

    :param others: the ids of those that come.
    """

    def __init__(self, server_port: int, host: str, port: int, others: Iterable[int]) -> None:
        self.ways = {number: _Way(server_port) for number in others}
        self.all = Links(self.ways.values())
        super().__init__(server_port, host, port)

    def cut(self) -> None:
        """Cut the ways of all others."""
        self.all.cut()

    def stall(self) -> None:
        """Stall the ways of all others."""
        self.all.stall()

    def mend(self) -> None:
        """Mend the ways of all others."""
        self.all.mend()

    def close(self) -> None:
        """Close all ways, and listen no more."""
        super().close()
        self.all.close()

    def _connect(self, client: socket.socket) -> None:
        way = self.ways.get(_name_of(client))
        if way is None:
            client.close()
        else:
            way.connect(client)


class _Way(ShakyLink):
    """A link that is given its connections."""

    def connect(self, client: socket.socket) -> None:
        """Pass on what comes by a connection, until it ends."""
        self._connect(client)


def _name_of(client: socket.socket) -> int:
    """Return the id of the broker that has connected, or -1 for one that does not say."""
    client.settimeout(FIRST_BYTES_S)
    with contextlib.suppress(OSError, struct.error, ValueError):
        beginning = client.recv(FIRST_BYTES, socket.MSG_PEEK)
        length = HEAD.unpack_from(beginning)[-1]
        name = beginning[HEAD.size : HEAD.size + length].decode()
        client.settimeout(None)
        return int(name.removeprefix("broker-"))
    return -1


CONNECT, ANSWER, REQUEST = struct.Struct(">i"), struct.Struct(">i"), struct.Struct(">ii")
"""Of ZooKeeper's frames: the size; the number of the request that is answered; number and kind of a request."""
WRITES = frozenset({1, 2, 5, 13, 14, 15, 19, 20, 21})
"""Kinds of requests: create, delete, setData, check, multi, create2, createContainer, deleteContainer, createTTL."""


class AnswerLosingLink(ShakyLink):
    """A link to a ZooKeeper server that loses the answer of each write once, and the connection with it.

    The server has done it, and the client does not know. A write that is tried again with the same content is
    answered. Used where there is no other kind of loss: connections are not told apart after they have ended.
    """

    def __init__(self, server_port: int) -> None:
        self.answers_lost = 0
        self.is_losing = True
        self._known: set[bytes] = set()
        self._waiting: dict[int, set[int]] = {}
        super().__init__(server_port)

    def _pass(self, source: socket.socket, target: socket.socket, *, from_client: bool = False) -> None:
        waiting = self._waiting.setdefault(id(source if from_client else target), set())
        end = _Pieces(source)
        try:
            with contextlib.suppress(OSError):
                is_first = True  # the opening of the session, which has no number
                while frame := end.frame():
                    self._flows.wait()
                    if not is_first and self._is_lost(frame[4:], waiting, from_client=from_client):
                        break
                    is_first = False
                    target.sendall(frame)
        finally:
            self._end(source, target)

    def _end(self, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            self._connections -= {source, target}
            for each in (source, target):
                self._waiting.pop(id(each), None)
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _is_lost(self, frame: bytes, waiting: set[int], *, from_client: bool) -> bool:
        if not from_client:
            (number,) = ANSWER.unpack_from(frame)
            if number not in waiting:
                return False
            waiting.discard(number)
            self.answers_lost += 1
            return True
        if len(frame) >= REQUEST.size:
            number, kind = REQUEST.unpack_from(frame)
            if self.is_losing and kind in WRITES and frame[4:] not in self._known:
                self._known.add(frame[4:])
                waiting.add(number)
        return False


class _Pieces:
    """Whole frames of a socket."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._bytes = b""

    def frame(self) -> bytes:
        """Return the next frame with its size, or nothing at the end."""
        while len(self._bytes) < CONNECT.size or len(self._bytes) < self._size():
            data = self._source.recv(CHUNK_BYTES_MAX)
            if not data:
                return b""
            self._bytes += data
        size = self._size()
        frame, self._bytes = self._bytes[:size], self._bytes[size:]
        return frame

    def _size(self) -> int:
        return int(CONNECT.unpack_from(self._bytes)[0]) + CONNECT.size
