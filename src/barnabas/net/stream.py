"""A connected socket on an event loop, and the frames in its stream of bytes.

`Stream` uses the socket itself instead of a transport. So it can send a `FileRegion` from the page cache with sendfile
between two chunks in memory, which uvloop's transports cannot do, and `unsent_bytes` includes everything that is
buffered. Only the thread of its event loop may use a stream.

`FrameReader` splits the bytes into frames: an int32 size, then as many bytes. The frames do not depend on the chunks in
which the bytes arrive. A reader allocates memory only for the arriving frame. The memory grows with the received bytes,
not with the announced size. A caller that trusts its peer calls `get_buffer`, which allocates the memory of the whole
frame. The memory of two such frames is kept for reuse.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol, cast

from barnabas.errors import MalformedMessageError
from barnabas.model import FileRegion
from barnabas.portable import pread
from barnabas.protocol.codec import Buffer, Chunk

SIZE_BYTES = 4

OWN_MEMORY_BYTES_MIN = 64 * 1024
"""The minimum size of a frame that gets its own memory. Smaller frames are copied, which is cheaper."""

OWN_MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""The maximum size of a frame whose whole memory is allocated before it arrives. For larger frames, memory grows as the
bytes arrive.
"""

KEPT_MAX = 2
"""The maximum number of kept memory blocks for large frames: one frame is used while the next one arrives."""

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of a kept memory block."""

_PLACE_UNIT_BYTES = 1024 * 1024
"""Block sizes are multiples of this number of bytes. A block is a little larger than its first frame, because
consecutive frames have nearly the same size.
"""

_SIZE = struct.Struct(">i")


class _Places:
    """Memory for large frames, reused when nothing refers to the frame any longer.

    Allocating new memory takes as long as receiving into it, because the kernel has to find and clear each page.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return memory of this size, with arbitrary content."""
        if size > KEPT_BYTES_MAX:
            return memoryview(bytearray(size))
        for number in range(len(self._kept)):
            # If only the list and this call refer to the memory, its reference count is two, and nothing else uses it.
            if sys.getrefcount(self._kept[number]) == 2 and len(self._kept[number]) >= size:
                return memoryview(self._kept[number])[:size]
        place = bytearray(-(-size // _PLACE_UNIT_BYTES) * _PLACE_UNIT_BYTES)
        self._kept = [*self._kept[1 - KEPT_MAX :], place]
        return memoryview(place)[:size]


class FrameReader:
    """Collects the frames of one connection.

    :param frame_bytes_max: the maximum size of a frame.
    :param allowed: returns the maximum size of the frame that `feed` completes after the given number of other frames.
        It is called only for a frame that does not arrive in one piece.

    >>> reader = FrameReader(100)
    >>> reader.feed(b"\\0\\0\\0\\2ok\\0\\0")
    [b'ok']
    >>> reader.feed(b"\\0\\1!")
    [bytearray(b'!')]
    """

    __slots__ = ("_allowed", "_filled", "_frame", "_place", "_places", "_size", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int, allowed: Callable[[int], int] | None = None) -> None:
        self._allowed = allowed
        self.frame_bytes_max = frame_bytes_max
        self._size = -1  # the size of the incomplete frame; -1 while the size is incomplete
        self._frame = bytearray()  # the incomplete frame, or the first bytes of its size
        self._places = _Places()
        self._place: memoryview | None = None  # the memory of the whole incomplete frame, after `get_buffer`
        self._filled = 0  # the number of bytes received into `_place`

    @property
    def partial(self) -> bool:
        """True if a frame is incomplete."""
        return self._size >= 0 or bool(self._frame)

    @property
    def held_bytes(self) -> int:
        """The number of received bytes of the incomplete frame."""
        return len(self._frame) if self._place is None else self._filled

    @property
    def announced_bytes(self) -> int:
        """The size of the incomplete frame; 0 while it is unknown."""
        return max(self._size, 0)

    def get_buffer(self, bytes_max: int = OWN_MEMORY_BYTES_MAX) -> memoryview | None:
        """Return the memory for the next bytes of a large incomplete frame, to receive them without a copy.

        Call `buffer_updated` with the number of bytes that arrived.

        :param bytes_max: the maximum frame size for memory in advance; for a larger frame, memory grows as the bytes
            arrive.
        :returns: None if no large frame is incomplete.
        """
        if self._place is None:
            bytes_max = min(bytes_max, OWN_MEMORY_BYTES_MAX)
            if self._size - len(self._frame) < OWN_MEMORY_BYTES_MIN or self._size > bytes_max:
                return None
            self._place = self._places.take(self._size)
            self._filled = len(self._frame)
            self._place[: self._filled] = self._frame
            self._frame = bytearray()
        return self._place[self._filled :]

    def buffer_updated(self, size: int) -> memoryview | None:
        """Record `size` bytes received into the buffer; return the frame if it is complete."""
        self._filled += size
        if self._filled < self._size:
            return None
        frame, self._place = self._place, None
        self._size, self._filled = -1, 0
        return frame

    def feed(self, data: bytes | memoryview) -> list[bytes | bytearray]:
        """Process the next bytes of the stream; return the frames that they complete.

        :raises MalformedMessageError: a size is negative or above the limit. The reader cannot be used afterwards.
        """
        if self._size < 0 and not self._frame and len(data) >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data)
            if SIZE_BYTES + size == len(data) and size <= self.frame_bytes_max:  # the usual case
                return [bytes(data[SIZE_BYTES:])]
        return [bytes(frame) if isinstance(frame, memoryview) else frame for frame in self.feed_views(data)]

    def feed_views(self, data: bytes | memoryview) -> list[bytearray | memoryview]:
        """Process bytes as `feed` does, but return frames that are whole in `data` as views of it.

        :raises MalformedMessageError: as `feed` does.
        """
        frames: list[bytearray | memoryview] = []
        position = self._finish_frame_under_way(data, frames) if self.partial else 0
        view, end = memoryview(data), len(data)
        while (begin := position + SIZE_BYTES) <= end:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self.frame_bytes_max:
                self._refuse(size)
            position = begin + size
            if position > end:
                self._check_allowed(size, len(frames))
                self._size = size
                self._frame = bytearray(view[begin:])
                return frames
            frames.append(view[begin:position])
        if position < end:
            self._frame += view[position:]
        return frames

    def _finish_frame_under_way(self, data: bytes | memoryview, frames: list[bytearray | memoryview]) -> int:
        """Continue the incomplete frame; return the number of bytes used."""
        position = 0
        if self._size < 0:
            position = min(SIZE_BYTES - len(self._frame), len(data))
            self._frame += data[:position]
            if len(self._frame) < SIZE_BYTES:
                return position
            (size,) = _SIZE.unpack_from(self._frame)
            if not 0 <= size <= self.frame_bytes_max:
                self._refuse(size)
            self._check_allowed(size, 0)
            self._size = size
            self._frame = bytearray()
        if self._place is not None:
            taken = min(self._size - self._filled, len(data) - position)
            self._place[self._filled : self._filled + taken] = data[position : position + taken]
            frame = self.buffer_updated(taken)
            frames += [] if frame is None else [frame]
            return position + taken
        taken = min(self._size - len(self._frame), len(data) - position)
        self._frame += data[position : position + taken]
        if len(self._frame) == self._size:
            frames.append(self._frame)
            self._size, self._frame = -1, bytearray()
        return position + taken

    def _check_allowed(self, size: int, number: int) -> None:
        if self._allowed is not None and size > (allowed := self._allowed(number)):
            asked = "no request is pending" if allowed < 0 else f"the maximum is {allowed}"
            raise MalformedMessageError(f"a frame of {size} bytes ({asked})")

    def _refuse(self, size: int) -> NoReturn:
        raise MalformedMessageError(f"a frame of {size} bytes (the maximum is {self.frame_bytes_max})")


RECEIVE_BYTES = 256 * 1024
PEEKED_BYTES = 64
SEND_BYTES_PER_TURN = 4 * 1024 * 1024
"""The number of sent bytes after which a stream yields to other connections."""

CALLS_PER_TURN = 32
"""The number of system calls after which a stream yields to other connections. A response for many partitions has many
small chunks.
"""

COPIED_BYTES_MAX = 16 * 1024
"""The maximum size of file regions that are read into memory, so that they share a packet with adjacent chunks. An
additional packet would cost both ends more than the copy. Larger regions are sent with sendfile.
"""

_PIECES_PER_CALL = 64
_PIECE_BYTES = 256 * 1024
"""The number of bytes of a file region that are read at once on systems without sendfile."""
_HAS_SENDFILE, _HAS_SENDMSG = hasattr(os, "sendfile"), hasattr(socket.socket, "sendmsg")
"""Windows has neither."""
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)
"""The socket flag for more data to follow, so that the kernel does not send a separate packet for this chunk."""


class ReceivePlace:
    """A receive buffer that many streams use in turn."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray(RECEIVE_BYTES)

    def leave_if_kept(self) -> None:
        """Allocate a new buffer if a stream still refers to this one."""
        # Two references are normal: this object holds one, and the call of `getrefcount` another.
        if sys.getrefcount(self.buffer) > 2:
            self.buffer = bytearray(RECEIVE_BYTES)


class _ReceivePlaces(threading.local):
    """One receive buffer per thread, for all of its streams. A stream uses or copies its bytes before another stream
    reads.

    Threads must not share a buffer: each client has its own thread and event loop, and a socket read releases the
    interpreter lock.
    """

    def __init__(self) -> None:
        self.place = ReceivePlace()


_places = _ReceivePlaces()


def receive_place() -> ReceivePlace:
    """Return the receive buffer of the current thread."""
    return _places.place


class InPlaceReceiver(Protocol):
    """Receives bytes into its own memory, without a copy. The names of the methods are those of
    `asyncio.BufferedProtocol`."""

    def get_buffer(self) -> memoryview | None:
        """Return the memory for the next bytes, or None if `on_bytes` must receive them."""
        ...

    def buffer_updated(self, size: int) -> None:
        """Handle `size` bytes that were received into the buffer."""
        ...


class ByteStream(Protocol):
    """The interface of a stream for its connection. The simulation has its own implementation."""

    in_place_receiver: InPlaceReceiver | None

    @property
    def is_open(self) -> bool: ...
    @property
    def unsent_bytes(self) -> int: ...
    @property
    def unsent_memory_bytes(self) -> int: ...
    @property
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def has_ended(self) -> bool: ...
    def send(self, chunks: Iterable[Chunk]) -> None: ...
    def close(self, error: Exception | None = None) -> None: ...


OpenStream = Callable[
    [Callable[[memoryview], None], Callable[[], None], Callable[[Exception | None], None]], ByteStream
]
"""A function that creates a stream. Its arguments are `on_bytes`, `on_drained` and `on_closed` of `Stream`."""


class Stream:
    """The bytes of one connection.

    :param sock: a connected socket. The stream makes it non-blocking and owns it.
    :param on_bytes: called with the received bytes, in a writable view. If the callee keeps the view or a part of it,
        `RECEIVE_BYTES` of memory remain allocated.
    :param on_drained: called when all chunks have been sent, after some of them had to wait.
    :param on_closed: called once, with the error that ended the stream or None.
    """

    __slots__ = (
        "_fd",
        "_loop",
        "_on_bytes",
        "_on_closed",
        "_on_drained",
        "_out",
        "_place",
        "_reading",
        "_sock",
        "_writing",
        "in_place_receiver",
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
        self._place = receive_place()
        self._on_bytes = on_bytes
        self._on_drained = on_drained
        self._on_closed = on_closed
        self._out: deque[Chunk] = deque()
        self._reading = False
        self._writing = False
        self.in_place_receiver: InPlaceReceiver | None = None
        self.resume_reading()

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that the socket has not accepted yet."""
        return sum(map(len, self._out)) if self._out else 0

    @property
    def unsent_memory_bytes(self) -> int:
        """The number of unsent bytes in memory. File regions do not count, because their bytes are on disk."""
        return sum(len(chunk) for chunk in self._out if not isinstance(chunk, FileRegion)) if self._out else 0

    @property
    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        """Stop reading. The kernel buffers further bytes until TCP makes the sender wait."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Read again after `pause_reading`."""
        if not self._reading and self.is_open:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def has_ended(self) -> bool:
        """Return whether the peer has closed the connection, and no bytes are left to read. For a paused stream."""
        unread = self._peek()
        return unread is not None and not unread

    def _peek(self) -> bytes | None:
        """Return the next bytes of the socket without reading them; None if there are none yet."""
        try:
            return socket.socket.recv(self._sock, PEEKED_BYTES, socket.MSG_PEEK)  # not the method of `SSLSocket`
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def send(self, chunks: Iterable[Chunk]) -> None:
        """Send the chunks in order; chunks that the socket does not accept now are sent later."""
        if not self.is_open:
            return
        self._out.extend(chunks)
        if not self._writing:
            self._writable()

    def close(self, error: Exception | None = None) -> None:
        """End the stream immediately; unsent chunks are dropped."""
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
        # Drop the references to the owner, which refers to the stream: without this cycle, both are freed immediately.
        self._on_bytes, self._on_drained, self._on_closed = ignore_callback, ignore_callback, ignore_callback
        self.in_place_receiver = None
        on_closed(error)

    def _readable(self) -> int:
        """Receive bytes and pass them on; return their number, or 0 if there were none or the stream has ended."""
        vacancy = None if self.in_place_receiver is None else self.in_place_receiver.get_buffer()
        if vacancy is None:
            place = self._place
            size = self._receive(place.buffer)
            if size:
                self._on_bytes(memoryview(place.buffer)[:size])
                place.leave_if_kept()
            return size
        with vacancy:
            size = self._receive(vacancy)
        if size and self.in_place_receiver is not None:
            self.in_place_receiver.buffer_updated(size)
        return size

    def _receive(self, place: bytearray | memoryview) -> int:
        """Receive into `place`; return the number of bytes, or 0 if there were none or the stream has ended."""
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
        """Send as many bytes from the head of the queue as one system call accepts; return their number."""
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
        if len(pieces) > 1 and not _HAS_SENDMSG:
            sent = self._sock.send(b"".join(pieces))
        elif flags or len(pieces) > 1:
            sent = self._sock.sendmsg(pieces, (), flags)
        else:
            sent = self._sock.send(pieces[0])
        if sent == sum(map(len, pieces)):
            for _ in pieces:
                self._out.popleft()
        else:
            self._drop(sent)
        return sent

    def _send_region(self, region: FileRegion) -> int:
        if _HAS_SENDFILE:
            sent = os.sendfile(self._fd, region.file.fileno(), region.position, region.length)
        else:
            sent = self._sock.send(_first_bytes(region))
        if sent == 0:
            raise OSError(f"the file ended {region.length} bytes before the end of the region to send")
        region.position += sent
        region.length -= sent
        if not region.length:
            self._out.popleft()
        return sent

    def _drop(self, sent: int) -> None:
        """Remove `sent` bytes of chunks in memory from the head of the queue."""
        while self._out:
            chunk = cast(Buffer, self._out[0])
            if isinstance(chunk, FileRegion) or len(chunk) > sent:
                break
            sent -= len(chunk)
            self._out.popleft()
        if sent:
            self._out[0] = memoryview(cast(Buffer, self._out[0]))[sent:]


def ignore_callback(*_: object) -> None:
    """Do nothing. Replaces the callbacks of a stream that has ended."""


def _first_bytes(region: FileRegion) -> bytes:
    return pread(region.file.fileno(), min(region.length, _PIECE_BYTES), region.position)


def _content(region: FileRegion) -> bytes:
    data = pread(region.file.fileno(), region.length, region.position)
    if len(data) < region.length:
        raise OSError(f"the file ended {region.length - len(data)} bytes before the end of the region to send")
    return data
