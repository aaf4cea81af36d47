"""A connected socket on an event loop: what arrives goes to a callback, what is sent goes out in order.

It works on the socket itself instead of through a transport, so that a `FileRegion` goes from the page cache to
the socket with sendfile between two pieces that are in memory (uvloop's transports cannot do that), and so that
nothing is buffered that is not counted in `unsent_bytes`.

Used from the thread of its event loop only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from barnabas.model import FileRegion
from barnabas.protocol.codec import Buffer, Chunk

RECEIVE_BYTES = 256 * 1024
SEND_BYTES_PER_TURN = 4 * 1024 * 1024
"""After so many bytes a stream lets the other connections have their turn."""

CALLS_PER_TURN = 32
"""As many calls at most: an answer to a reader of many partitions is made of many small pieces."""

COPIED_BYTES_MAX = 16 * 1024
"""So much of files may be read into memory for one call, so that it leaves in one packet with what is around it. A
packet more costs both ends more than the copy, and the reader a wake-up. What is larger goes by sendfile."""

_PIECES_PER_CALL = 64
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)
"""Lets the kernel wait for what follows, instead of sending a packet of its own."""


class _ReceiveBuffer(threading.local):
    """One for all streams of a thread: bytes are taken out of it before another of them can read.

    Threads must not share one: each client has a thread and an event loop of its own, and a socket is read
    without the interpreter's lock.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(RECEIVE_BYTES)


_received = _ReceiveBuffer()


class Inlet(Protocol):
    """Takes what arrives without a copy on the way, while it has a place for it."""

    def vacancy(self) -> memoryview | None:
        """Return where to put what arrives next; None lets it go to `on_bytes` instead."""
        ...

    def filled(self, size: int) -> None:
        """So many bytes were put at the beginning of the vacancy."""
        ...


class Stream:
    """One connection's bytes.

    :param sock: a connected socket; it is made non-blocking and belongs to the stream from now on.
    :param on_bytes: called with what arrived; the view is valid during the call only.
    :param on_drained: called when everything sent has left, after some of it had to wait.
    :param on_closed: called once, with the error that ended the stream or None.
    """

    __slots__ = (
        "_fd",
        "_loop",
        "_on_bytes",
        "_on_closed",
        "_on_drained",
        "_out",
        "_reading",
        "_received",
        "_sock",
        "_writing",
        "inlet",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._received = _received.buffer
        self._on_bytes = on_bytes
        self._on_drained = on_drained
        self._on_closed = on_closed
        self._out: deque[Chunk] = deque()
        self._reading = False
        self._writing = False
        self.inlet: Inlet | None = None
        self.resume_reading()

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""
        return sum(map(len, self._out))

    def pause_reading(self) -> None:
        """Let what arrives wait in the kernel, so that the sender feels it."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Take what arrives again."""
        if not self._reading and self.is_open:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def send(self, chunks: Iterable[Chunk]) -> None:
        """Send the chunks after all that was sent before; what the socket does not take now follows later."""
        if not self.is_open:
            return
        self._out.extend(chunks)
        if not self._writing:
            self._writable()

    def close(self, error: Exception | None = None) -> None:
        """End the stream now; what is unsent is dropped."""
        if not self.is_open:
            return
        self.pause_reading()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._fd = -1
        self._out.clear()
        self._sock.close()
        on_closed = self._on_closed
        # Who uses a stream refers to it: what it holds is freed at once if that is no circle.
        self._on_bytes, self._on_drained, self._on_closed, self.inlet = _ignore, _ignore, _ignore, None
        on_closed(error)

    def _readable(self) -> None:
        vacancy = None if self.inlet is None else self.inlet.vacancy()
        if vacancy is None:
            size = self._receive(self._received)
            if size:
                with memoryview(self._received)[:size] as view:
                    self._on_bytes(view)
            return
        with vacancy:
            size = self._receive(vacancy)
        if size and self.inlet is not None:
            self.inlet.filled(size)

    def _receive(self, place: bytearray | memoryview) -> int:
        """Return how much has arrived in `place`; nothing where there was nothing, or the stream has ended now."""
        try:
            size = self._sock.recv_into(place)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(error)
            return 0
        if size == 0:
            self.close(None)
        return size

    def _writable(self) -> None:
        budget, calls = SEND_BYTES_PER_TURN, 0
        try:
            while self._out and budget > 0 and calls < CALLS_PER_TURN:
                budget -= self._send_some()
                calls += 1
        except (BlockingIOError, InterruptedError):
            budget = 0
        except OSError as error:
            self.close(error)
            return
        if self._out:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
            self._on_drained()

    def _send_some(self) -> int:
        """Send from the head of the queue as much as one system call takes; return how much that was."""
        pieces: list[Buffer] = []
        copied, flags = 0, 0
        for number in range(min(len(self._out), _PIECES_PER_CALL)):
            chunk = self._out[number]
            if isinstance(chunk, FileRegion):
                if chunk.length > COPIED_BYTES_MAX - copied:
                    if not pieces:
                        return self._send_region(chunk)
                    flags = _MORE_FOLLOWS
                    break
                copied += chunk.length
                chunk = self._out[number] = _content(chunk)
            pieces.append(cast(Buffer, chunk))
        sent = self._sock.sendmsg(pieces, (), flags)
        self._drop(sent)
        return sent

    def _send_region(self, region: FileRegion) -> int:
        sent = os.sendfile(self._fd, region.file.fileno(), region.position, region.length)
        if sent == 0:
            raise OSError(f"the file ended {region.length} bytes before the region that was to be sent")
        region.position += sent
        region.length -= sent
        if not region.length:
            self._out.popleft()
        return sent

    def _drop(self, sent: int) -> None:
        """Take `sent` bytes from the head of the queue, where chunks in memory stand."""
        while self._out:
            chunk = cast(Buffer, self._out[0])
            if isinstance(chunk, FileRegion) or len(chunk) > sent:
                break
            sent -= len(chunk)
            self._out.popleft()
        if sent:
            self._out[0] = memoryview(cast(Buffer, self._out[0]))[sent:]


def _ignore(*_: object) -> None:
    """Stands for the callbacks of a stream that has ended."""


def _content(region: FileRegion) -> bytes:
    data = os.pread(region.file.fileno(), region.length, region.position)
    if len(data) < region.length:
        raise OSError(f"the file ended {region.length - len(data)} bytes before the region that was to be sent")
    return data
