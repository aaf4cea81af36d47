"""A connection without a socket: the test hands in what arrives, and takes what is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.net.listener import Listener
from barnabas.net.server_connection import Endpoints
from barnabas.net.stream import RECEIVE_BYTES, InPlaceReceiver
from barnabas.protocol.codec import Chunk


class FakeStream:
    """What a connection needs of its stream. Everything sent has left at once, unless `is_slow`."""

    def __init__(
        self,
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> None:
        self._on_bytes = on_bytes
        self._on_drained = on_drained
        self._on_closed = on_closed
        self._arrived = bytearray()
        self.in_place_receiver: InPlaceReceiver | None = None
        self.is_open = True
        self.is_reading = True
        self.is_slow = False
        self.is_abandoned = False
        self.sent = bytearray()
        self.unsent_bytes = 0

    @property
    def unsent_memory_bytes(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def has_ended(self) -> bool:
        return self.is_abandoned

    def send(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            self.sent += bytes(chunk)  # type: ignore[call-overload]
            self.unsent_bytes += len(chunk) if self.is_slow else 0

    def take(self) -> None:
        """Let the client take all that was sent."""
        self.unsent_bytes = 0
        self._on_drained()

    def close(self, error: Exception | None = None) -> None:
        if self.is_open:
            self.is_open = self.is_reading = False
            self._on_closed(error)

    def arrive(self, data: bytes) -> None:
        """Hand in bytes, piece by piece, as long as the connection reads."""
        self._arrived += data
        while self._arrived and self.is_reading:
            piece = bytearray(self._arrived[:RECEIVE_BYTES])
            del self._arrived[:RECEIVE_BYTES]
            self._on_bytes(memoryview(piece))

    @property
    def left(self) -> int:
        """How many bytes the connection has not read."""
        return len(self._arrived)


def connect(listener: Listener, host: str = "127.0.0.1") -> FakeStream:
    """Open a connection at a listener that has a handler."""
    streams: list[FakeStream] = []

    def open_stream(
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> FakeStream:
        streams.append(FakeStream(on_bytes, on_drained, on_closed))
        return streams[0]

    assert listener.admit(open_stream, Endpoints(host, 1, "127.0.0.1"))
    return streams[0]
