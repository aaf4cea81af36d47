"""The bytes of a TLS connection on an event loop.

OpenSSL reads and writes the socket itself. Compared with a transport over memory buffers this needs as much CPU time
and one copy less (decision 035). A record of TLS has at most 16 KiB, so one read or write of this stream contains many.

OpenSSL may hold decrypted bytes while the socket is not readable, so the stream schedules the next read itself. After
an incomplete write, OpenSSL expects the same bytes again, so the stream keeps the piece that it writes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import cast

from barnabas.model import FileRegion
from barnabas.net.stream import Stream
from barnabas.portable import pread
from barnabas.protocol.codec import Buffer, Chunk

READ_BYTES_PER_TURN = 512 * 1024
"""The number of received bytes after which a stream lets other connections read."""
SEND_BYTES_PER_TURN = 1024 * 1024
"""The number of sent bytes after which a stream lets other connections send: encryption takes about 0.7 ms."""
PIECE_BYTES = 64 * 1024
"""The size up to which chunks are joined, and above which they are divided, for one write."""
GOODBYE_BYTES_MAX = 31
"""The maximum size of an encrypted close_notify. A record with a request is larger."""
_CLOSE_WAIT = 8
"""The state of a TCP connection that the peer has closed, in Linux's `TCP_INFO`."""
REGION_BYTES = 256 * 1024
"""The number of bytes of a file region that are read at once."""


class TlsStream(Stream):
    """The bytes of one connection after its handshake.

    :param sock: the secured socket. The other parameters are those of `Stream`.
    """

    __slots__ = ("_piece", "_write_waits_for_read")
    _sock: ssl.SSLSocket

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: ssl.SSLSocket,
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> None:
        self._piece: memoryview | None = None  # the bytes that OpenSSL has not accepted yet
        self._write_waits_for_read = False
        super().__init__(loop, sock, on_bytes, on_drained, on_closed)

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that OpenSSL has not accepted yet."""
        return super().unsent_bytes + (0 if self._piece is None else len(self._piece))

    @property
    def unsent_memory_bytes(self) -> int:
        """The number of unsent bytes in memory. File regions do not count, because their bytes are on disk."""
        return super().unsent_memory_bytes + (0 if self._piece is None else len(self._piece))

    def resume_reading(self) -> None:
        """Read again after `pause_reading`."""
        if not self._reading:
            super().resume_reading()
            self._read_decrypted_soon()

    def has_ended(self) -> bool:
        """Return whether the peer has closed the connection, and no bytes are left to read except its close_notify."""
        unread = self._peek()
        if not unread or len(unread) > GOODBYE_BYTES_MAX or self._sock.pending():
            return unread == b""
        information = getattr(socket, "TCP_INFO", None)
        if information is None:
            return False
        return self._sock.getsockopt(socket.IPPROTO_TCP, information, 1)[0] == _CLOSE_WAIT

    def send(self, chunks: Iterable[Chunk]) -> None:
        """Send the chunks in order; chunks that OpenSSL does not accept now are sent later."""
        if self._write_waits_for_read:
            self._out.extend(chunks)
        else:
            super().send(chunks)

    def close(self, error: Exception | None = None) -> None:
        """End the stream immediately; unsent chunks are dropped."""
        if self.is_open and self._piece is None and error is None:
            self._say_goodbye()
        self._piece = None
        self._write_waits_for_read = False
        super().close(error)

    def _say_goodbye(self) -> None:
        """Send TLS's close_notify, without waiting for the peer's."""
        try:
            self._sock.unwrap()
        except (OSError, ValueError):
            return  # The peer has not replied yet, or is gone.

    def _readable(self) -> int:
        if self._write_waits_for_read:
            self._write_waits_for_read = False
            self._writable()
        received = 0
        while received < READ_BYTES_PER_TURN and self._reading:
            size = super()._readable()
            if not size:
                return received
            received += size
        self._read_decrypted_soon()
        return received

    def _read_decrypted_soon(self) -> None:
        # The socket is not readable for bytes that OpenSSL has already decrypted.
        if self.is_open and self._reading and self._sock.pending():
            self._loop.call_soon(self._read_decrypted)

    def _read_decrypted(self) -> None:
        if self._reading:
            self._readable()

    def _receive(self, place: bytearray | memoryview) -> int:
        """Receive records until the memory is full or no more bytes are available."""
        with memoryview(place) as view:
            return self._receive_records(view)

    def _receive_records(self, view: memoryview) -> int:
        filled, size = 0, len(view)
        recv_into = self._sock.recv_into
        try:
            while filled < size:
                received = recv_into(view[filled:])
                if not received:
                    break
                filled += received
            else:
                return filled
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return filled
        except OSError as error:
            if not filled:
                self.close(error)
            return filled  # The next read reports the error again.
        if not filled:
            self.close(None)
        return filled

    def _writable(self) -> None:
        budget = SEND_BYTES_PER_TURN
        try:
            while budget > 0 and (piece := self._next_piece()) is not None:
                sent = self._sock.send(piece)
                budget -= sent
                self._piece = piece[sent:] if sent < len(piece) else None
        except ssl.SSLWantReadError:
            self._write_waits_for_read = True
        except (ssl.SSLWantWriteError, InterruptedError):
            pass
        except OSError as error:
            self.close(error)
            return
        if (self._out or self._piece is not None) and not self._write_waits_for_read:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
            if not self._write_waits_for_read:
                self._on_drained()

    def _next_piece(self) -> memoryview | None:
        """Return the bytes for the next write; None if everything is sent."""
        if self._piece is not None:
            return self._piece
        if not self._out:
            return None
        first = self._out[0]
        if isinstance(first, FileRegion):
            self._piece = memoryview(self._read_region(first))
        elif len(first) >= PIECE_BYTES or len(self._out) == 1:
            view = memoryview(cast(Buffer, first))
            if len(view) > PIECE_BYTES:
                self._out[0], view = view[PIECE_BYTES:], view[:PIECE_BYTES]
            else:
                self._out.popleft()
            self._piece = view
        else:
            self._piece = memoryview(self._joined())
        return self._piece

    def _joined(self) -> bytearray:
        """Remove small chunks from the head of the queue, and return them as one."""
        joined = bytearray()
        while self._out and len(joined) < PIECE_BYTES:
            chunk = self._out[0]
            if isinstance(chunk, FileRegion):
                if chunk.length > PIECE_BYTES - len(joined):
                    break
                joined += self._read_region(chunk)
                continue
            if len(chunk) > PIECE_BYTES - len(joined) and joined:
                break
            joined += cast(Buffer, chunk)
            self._out.popleft()
        return joined

    def _read_region(self, region: FileRegion) -> bytes:
        """Read the first bytes of the region at the head of the queue, and shorten or remove the region."""
        data = pread(region.file.fileno(), min(region.length, REGION_BYTES), region.position)
        if not data and region.length:
            raise OSError(f"the file ended {region.length} bytes before the end of the region to send")
        region.position += len(data)
        region.length -= len(data)
        if not region.length:
            self._out.popleft()
        return data
