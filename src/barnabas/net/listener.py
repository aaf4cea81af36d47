"""The broker's side of the network: accepts connections, cuts frames, answers in order.

A connection's requests are carried out one after the other, in the order in which they came, and answered in that
order; a request that has to wait (a long poll) makes those behind it wait, as in Kafka. Answers that are ready
together leave together. Nothing is read from a connection while more than `REQUESTS_WAITING_MAX` of its requests,
or `WAITING_BYTES_MAX` of them, wait for one before them or for answers to be taken: a client that is too fast, or
does not read, feels it in its own socket.

A frame that is no request ends its connection with one line in the log; the others do not notice.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from barnabas.errors import BarnabasError
from barnabas.net.framing import FrameReader
from barnabas.net.stream import Stream
from barnabas.protocol.codec import Chunk

REQUESTS_WAITING_MAX = 64
WAITING_BYTES_MAX = 1024 * 1024
REQUESTS_PER_TURN = 256
"""After so many requests a connection lets the others have their turn."""
UNSENT_BYTES_MAX = 1024 * 1024
ACCEPT_PAUSE_S = 0.5

Frame = bytes | bytearray
Answer: TypeAlias = "list[Chunk] | None"
"""The chunks of a response frame, or None where the protocol asks for no answer."""
Handler: TypeAlias = "Callable[[Frame, Peer], Answer | Awaitable[Answer]]"
"""Carries out a request: at once, or, where it has to wait, with an awaitable."""

log = logging.getLogger(__name__)


class Peer:
    """Who is at the other end of a connection, and at which of this machine's addresses it arrived."""

    __slots__ = ("address", "host", "local_host")

    def __init__(self, host: str, port: int, local_host: str) -> None:
        self.host = host
        self.address = f"{host}:{port}"
        self.local_host = local_host


class ServerConnection:
    """One accepted connection."""

    def __init__(self, listener: Listener, sock: socket.socket, peer: Peer) -> None:
        self._listener = listener
        self._peer = peer
        self._frames: deque[Frame] = deque()
        self._reader = FrameReader(listener.frame_bytes_max)
        self._answering: asyncio.Task[None] | None = None
        self._scheduled = False
        self._stream = Stream(listener.loop, sock, self._on_bytes, self._on_drained, self._on_closed)

    def close(self) -> None:
        """End the connection; a request that waits is cancelled."""
        self._stream.close()

    def _on_bytes(self, data: memoryview) -> None:
        try:
            self._frames.extend(self._reader.feed(data))
        except BarnabasError as error:
            self._fail(error)
            return
        if not self._answering and not self._scheduled:
            self._process()
        if len(self._frames) > REQUESTS_WAITING_MAX or sum(map(len, self._frames)) > WAITING_BYTES_MAX:
            self._stream.pause_reading()

    def _on_drained(self) -> None:
        if not self._answering and not self._scheduled:
            self._process()

    def _on_closed(self, error: Exception | None) -> None:
        self._frames.clear()
        if self._answering:
            self._answering.cancel()
        self._listener.forget(self)
        if error:
            log.debug("connection from %s lost: %s", self._peer.address, error)

    def _process(self) -> None:
        """Carry out the waiting requests, up to one that has to wait itself."""
        self._scheduled = False
        answers: list[Chunk] = []
        try:
            for _ in range(REQUESTS_PER_TURN):
                if not self._frames or self._stream.unsent_bytes > UNSENT_BYTES_MAX:
                    break
                answer = self._listener.handler(self._frames.popleft(), self._peer)
                if isinstance(answer, list):
                    answers += answer
                elif answer is not None:
                    self._answering = self._listener.loop.create_task(self._answer_later(answer))
                    break
        except Exception as error:  # noqa: BLE001 - one connection's failure, whatever it is, ends that one only
            # The requests before this one were carried out, and their answers are owed.
            self._stream.send(answers)
            self._fail(error)
            return
        if answers:
            self._stream.send(answers)
        self._go_on()

    def _go_on(self) -> None:
        """Decide what comes next, after some requests were carried out."""
        if not self._stream.is_open or self._answering or self._stream.unsent_bytes > UNSENT_BYTES_MAX:
            return
        if self._frames and not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self._process)
        elif not self._frames:
            self._stream.resume_reading()

    async def _answer_later(self, waiting: Awaitable[Answer]) -> None:
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - as above
            self._answering = None
            self._fail(error)
            return
        self._answering = None
        if answer:
            self._stream.send(answer)
        if self._stream.is_open:
            self._process()

    def _fail(self, error: Exception) -> None:
        """End the connection over a request that could not be answered: the peer's fault, or this program's."""
        if isinstance(error, BarnabasError):
            log.warning("closing the connection from %s: %s", self._peer.address, error)
        else:
            log.error("a request from %s failed", self._peer.address, exc_info=error)
        self._stream.close(error)


class Listener:
    """Accepts connections on one address and lets `handler` answer their requests.

    :param handler: carries out one request frame.
    :param frame_bytes_max: a larger request ends its connection (Kafka's `socket.request.max.bytes`).
    """

    def __init__(self, handler: Handler, frame_bytes_max: int) -> None:
        self.handler = handler
        self.frame_bytes_max = frame_bytes_max
        self.loop = asyncio.get_running_loop()
        self._connections: set[ServerConnection] = set()
        self._sock: socket.socket | None = None

    def listen(self, host: str, port: int, backlog: int = 1024) -> int:
        """Begin to listen; connections wait until `accept` is called.

        :param port: 0 for a free one.
        :returns: the port.
        :raises OSError: the address is in use or is not this machine's.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        self._sock = sock
        return int(sock.getsockname()[1])

    def accept(self) -> None:
        """Begin to accept connections."""
        assert self._sock, "listen comes first"
        self.loop.add_reader(self._sock.fileno(), self._acceptable)

    def close(self) -> None:
        """Stop listening and end all connections."""
        if self._sock:
            self.loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        for connection in list(self._connections):
            connection.close()

    def forget(self, connection: ServerConnection) -> None:
        """Called by a connection that ended."""
        self._connections.discard(connection)

    def _accept_again(self) -> None:
        if self._sock:
            self.accept()

    def _acceptable(self) -> None:
        assert self._sock
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Out of file descriptors, most likely: asking again at once would only spin.
            log.warning("cannot accept connections for %g s: %s", ACCEPT_PAUSE_S, error)
            self.loop.remove_reader(self._sock.fileno())
            self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
            return
        peer = Peer(str(address[0]), int(address[1]), str(sock.getsockname()[0]))
        self._connections.add(ServerConnection(self, sock, peer))
