"""One accepted connection: its requests are carried out one after the other, and answered in their order.

A request that has to wait (a long poll) makes those behind it wait, as in Kafka. Answers that are ready together
leave together. Nothing is read while more than `REQUESTS_WAITING_MAX` requests, or `WAITING_BYTES_MAX` of them,
wait for one before them or for answers to be taken, nor while requests hold too much memory in all: a client that
is too fast, or does not read, feels it in its own socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.errors import BarnabasError
from barnabas.net.framing import FrameReader
from barnabas.net.stream import Stream
from barnabas.protocol.codec import Chunk

if TYPE_CHECKING:
    from barnabas.net.listener import Listener

REQUESTS_WAITING_MAX = 64
WAITING_BYTES_MAX = 1024 * 1024
TURN_S = 0.005
"""After so much time a connection lets the others have their turn."""
UNSENT_BYTES_MAX = 1024 * 1024
SMALL_BYTES = 64 * 1024
"""Who holds no more than this goes on reading, however much the others hold."""
SLOWEST_BYTES_PER_S = 64 * 1024
"""What comes at this rate or faster may take longer."""

Frame = bytearray | memoryview
Answer: TypeAlias = "list[Chunk]"
"""The chunks of response frames; none where the protocol asks for no answer."""


class Carried(NamedTuple):
    """What a handler did with the first of the requests that wait."""

    request_count: int
    """How many it carried out; at least one."""
    answer: Answer
    later: Awaitable[Answer] | None = None
    """What follows `answer`, where something has to be waited for."""
    ends_with_client: bool = False
    """Whether that is of use to this client alone."""


Handler: TypeAlias = "Callable[[Sequence[Frame], Peer], Carried]"
"""Carries out the first of the requests that wait, and as many more as can be carried out with it.

The frames are writable, and the handler's to change, but not to keep."""

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
        "_answered_bytes",
        "_answering",
        "_frames",
        "_held_bytes",
        "_listener",
        "_partial_since_s",
        "_peer",
        "_reader",
        "_scheduled",
        "_stream",
        "_used_at_s",
        "_waiting_bytes",
    )

    def __init__(self, listener: Listener, sock: socket.socket, peer: Peer) -> None:
        self._listener = listener
        self._peer = peer
        self._frames: deque[Frame] = deque()
        self._reader = FrameReader(listener.limits.frame_bytes_max)
        self._answering: asyncio.Task[None] | None = None
        self._scheduled = False
        self._waiting_bytes = 0  # of `_frames`
        self._answered_bytes = 0  # of the request that is carried out, while it has to wait
        self._held_bytes = 0  # of all of them and of the frame under way, as the listener counts it
        self._used_at_s = listener.loop.time()
        self._partial_since_s = 0.0
        self._stream = Stream(listener.loop, sock, self._on_bytes, self._on_drained, self._on_closed)

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def held_bytes(self) -> int:
        """The memory that this connection's requests hold."""
        return self._held_bytes

    def close(self, reason: str = "") -> None:
        """End the connection; a request that waits is cancelled.

        :param reason: why, for the log; none where it is no fault of the peer's.
        """
        if reason and self._stream.is_open:
            log.warning("closing the connection from %s: %s", self._peer.address, reason)
        self._stream.close()

    def check_deadlines(self, now_s: float) -> None:
        """End the connection if it has been silent, or busy with one request, for too long."""
        limits = self._listener.limits
        if self._reader.partial:
            allowed_s = limits.partial_frame_s_max + self._reader.held_bytes / SLOWEST_BYTES_PER_S
            if now_s - self._partial_since_s > allowed_s:
                self.close(f"a request did not arrive whole within {allowed_s:.3g} s")
        elif not self._answering and now_s - self._used_at_s > limits.idle_s_max:
            log.debug("closing the connection from %s: silent for %g s", self._peer.address, limits.idle_s_max)
            self._stream.close()

    def _on_bytes(self, data: memoryview) -> None:
        self._used_at_s = self._listener.loop.time()
        was_partial = self._reader.partial
        try:
            frames = self._reader.feed_views(memoryview(bytearray(data)))
        except BarnabasError as error:
            self._fail(error)
            return
        if frames or not was_partial:
            self._partial_since_s = self._used_at_s
        self._frames.extend(frames)
        self._waiting_bytes += sum(map(len, frames))
        if not self._answering and not self._scheduled:
            self._process()
        else:
            self._own_waiting_frames()
            self._read_on_or_wait()

    def _read_on_or_wait(self) -> None:
        """Count what is held; read on, or let the peer wait."""
        if not self._stream.is_open:
            return
        held = self._reader.held_bytes + self._waiting_bytes + self._answered_bytes
        difference, self._held_bytes = held - self._held_bytes, held
        memory = self._listener.memory
        if difference:
            memory.change(difference)
        too_many = len(self._frames) > REQUESTS_WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX
        if memory.is_full and held > SMALL_BYTES:
            self._stream.pause_reading()
            memory.wait(self._read_on_or_wait)
        elif too_many or self._stream.unsent_bytes > UNSENT_BYTES_MAX:
            self._stream.pause_reading()
        else:
            self._stream.resume_reading()

    def _on_drained(self) -> None:
        self._used_at_s = self._listener.loop.time()
        if not self._answering and not self._scheduled:
            self._process()

    def _on_closed(self, error: Exception | None) -> None:
        self._frames.clear()
        self._listener.memory.give_up(self._read_on_or_wait)
        self._listener.memory.change(-self._held_bytes)
        self._held_bytes = 0
        if self._answering:
            self._answering.cancel()
        self._listener.forget(self)
        if error:
            log.debug("connection from %s lost: %s", self._peer.address, error)

    def _process(self) -> None:
        """Carry out the waiting requests, up to one that has to wait itself, or to the end of this turn."""
        self._scheduled = False
        answers: list[Chunk] = []
        loop = self._listener.loop
        turn_ends_s = loop.time() + TURN_S
        try:
            while self._frames and self._stream.unsent_bytes <= UNSENT_BYTES_MAX:
                carried = self._listener.handler(self._frames, self._peer)
                size = self._take(carried.request_count)
                answers += carried.answer
                if carried.later is not None:
                    self._answered_bytes = size
                    self._answering = loop.create_task(self._answer_later(carried.later))
                    break
                if loop.time() > turn_ends_s:
                    break
        except Exception as error:  # noqa: BLE001 - one connection's failure, whatever it is, ends that one only
            # The requests before this one were carried out, and their answers are owed.
            self._stream.send(answers)
            self._fail(error)
            return
        if answers:
            self._stream.send(answers)
        self._go_on()

    def _take(self, count: int) -> int:
        """Forget the first requests that wait; return their size."""
        size = sum(len(self._frames.popleft()) for _ in range(count))
        self._waiting_bytes -= size
        return size

    def _own_waiting_frames(self) -> None:
        """Let requests that have to wait hold no more memory than their own."""
        if self._frames and isinstance(self._frames[-1], memoryview):
            self._frames = deque(bytearray(f) if isinstance(f, memoryview) else f for f in self._frames)

    def _go_on(self) -> None:
        """Decide what comes next, after some requests were carried out."""
        can_go_on = self._stream.is_open and not self._answering and self._stream.unsent_bytes <= UNSENT_BYTES_MAX
        if can_go_on and self._frames and not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self._process)
        self._own_waiting_frames()
        self._read_on_or_wait()

    async def _answer_later(self, waiting: Awaitable[Answer]) -> None:
        try:
            answer = await waiting
        except Exception as error:  # noqa: BLE001 - as above
            self._answering = None
            self._fail(error)
            return
        self._answering = None
        self._answered_bytes = 0
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
