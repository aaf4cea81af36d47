"""One accepted connection: its requests are carried out one after the other, and answered in their order.

A request that has to wait (a long poll) makes those behind it wait, as in Kafka. Answers that are ready together
leave together. Nothing is read while more than `REQUESTS_WAITING_MAX` requests, or `WAITING_BYTES_MAX` of them,
wait for one before them or for answers to be taken, nor while there is no memory for a large request: a client
that is too fast, or does not read, feels it in its own socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from barnabas.errors import BarnabasError
from barnabas.net.framing import FrameReader
from barnabas.net.stream import Stream
from barnabas.protocol.codec import Chunk

if TYPE_CHECKING:
    from barnabas.net.listener import Listener

REQUESTS_WAITING_MAX = 64
WAITING_BYTES_MAX = 1024 * 1024
REQUESTS_PER_TURN = 256
"""After so many requests a connection lets the others have their turn."""
UNSENT_BYTES_MAX = 1024 * 1024
LARGE_FRAME_BYTES = 64 * 1024
"""A request of this size or more takes its memory from what all connections share."""
SLOWEST_BYTES_PER_S = 64 * 1024
"""A large request may take longer to arrive, at this rate."""

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
    """A connection of a listener's. Used from the thread of the event loop only."""

    __slots__ = (
        "_answering",
        "_frames",
        "_listener",
        "_partial_since_s",
        "_peer",
        "_reader",
        "_reserved_bytes",
        "_scheduled",
        "_stream",
        "_used_at_s",
    )

    def __init__(self, listener: Listener, sock: socket.socket, peer: Peer) -> None:
        self._listener = listener
        self._peer = peer
        self._frames: deque[Frame] = deque()
        self._reader = FrameReader(listener.limits.frame_bytes_max)
        self._answering: asyncio.Task[None] | None = None
        self._scheduled = False
        self._reserved_bytes = 0
        self._used_at_s = listener.loop.time()
        self._partial_since_s = 0.0
        self._stream = Stream(listener.loop, sock, self._on_bytes, self._on_drained, self._on_closed)

    @property
    def peer(self) -> Peer:
        return self._peer

    def close(self) -> None:
        """End the connection; a request that waits is cancelled."""
        self._stream.close()

    def check_deadlines(self, now_s: float) -> None:
        """End the connection if it has been silent, or busy with one request, for too long."""
        limits = self._listener.limits
        if self._reader.partial and not self._waits_for_memory:
            allowed_s = limits.partial_frame_s_max + max(0, self._reader.size) / SLOWEST_BYTES_PER_S
            if now_s - self._partial_since_s > allowed_s:
                late = f"a request did not arrive whole within {allowed_s:g} s"
                log.warning("closing the connection from %s: %s", self._peer.address, late)
                self._stream.close()
        elif not self._answering and now_s - self._used_at_s > limits.idle_s_max:
            log.debug("closing the connection from %s: silent for %g s", self._peer.address, limits.idle_s_max)
            self._stream.close()

    def _on_bytes(self, data: memoryview) -> None:
        self._used_at_s = self._listener.loop.time()
        was_partial = self._reader.partial
        try:
            frames = self._reader.feed(data)
        except BarnabasError as error:
            self._fail(error)
            return
        if frames or not was_partial:
            self._partial_since_s = self._used_at_s
            self._release()
        self._frames.extend(frames)
        if not self._answering and not self._scheduled:
            self._process()
        if len(self._frames) > REQUESTS_WAITING_MAX or sum(map(len, self._frames)) > WAITING_BYTES_MAX:
            self._stream.pause_reading()
        self._reserve()

    def _reserve(self) -> None:
        """Take memory for the frame under way if it is large; while there is none, read nothing."""
        size = self._reader.size
        if size < LARGE_FRAME_BYTES or self._reserved_bytes or not self._stream.is_open:
            return
        if self._listener.memory.reserve(size):
            self._reserved_bytes = size
            self._partial_since_s = self._listener.loop.time()
            if not self._is_blocked:
                self._stream.resume_reading()
        else:
            self._stream.pause_reading()
            self._listener.memory.wait(self._reserve)

    def _release(self) -> None:
        if self._reserved_bytes:
            size, self._reserved_bytes = self._reserved_bytes, 0
            self._listener.memory.release(size)

    @property
    def _is_blocked(self) -> bool:
        """Whether reading has to wait for requests to be carried out, or for answers to be taken."""
        return bool(self._frames) or self._stream.unsent_bytes > UNSENT_BYTES_MAX

    @property
    def _waits_for_memory(self) -> bool:
        return self._reader.size >= LARGE_FRAME_BYTES and not self._reserved_bytes

    def _on_drained(self) -> None:
        self._used_at_s = self._listener.loop.time()
        if not self._answering and not self._scheduled:
            self._process()

    def _on_closed(self, error: Exception | None) -> None:
        self._frames.clear()
        self._listener.memory.give_up(self._reserve)
        self._release()
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
        elif not self._frames and not self._waits_for_memory:
            self._stream.resume_reading()

    async def _answer_later(self, waiting: Awaitable[Answer]) -> None:
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - as above
            self._answering = None
            self._fail(error)
            return
        self._answering = None
        self._used_at_s = self._listener.loop.time()
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
