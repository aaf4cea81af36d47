"""The connections of browsers: uvicorn parses HTTP, and this module enforces limits.

A request arrives within a deadline, or the connection ends. At the maximum number of connections, a new one takes the
place of the one that has waited longest for a request. A connection ends if its other end does not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS_MAX = 300
HEAD_BYTES_MAX = 32 * 1024
RECEIVE_S = 20.0
SEND_S = 30.0


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # the checks see no packages of extras
    """A connection of a browser."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._waits = True
        self._since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        if len(self.connections) >= CONNECTIONS_MAX:
            waiting = [each for each in self.connections if isinstance(each, Connection) and each._waits]
            if not waiting:
                transport.abort()
            else:
                oldest = min(waiting, key=lambda each: each._since_s)
                oldest.transport.abort()
                self.connections.discard(oldest)
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._waits:
            self._head_bytes += len(data)
            if self._receiving is None:  # these are the first bytes of a further request
                self._wait()
        super().data_received(data)
        if self._waits and self._head_bytes > HEAD_BYTES_MAX:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._waits = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_waiting()

    def on_response_complete(self) -> None:
        self._waits, self._head_bytes, self._since_s = True, 0, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending = self.loop.call_later(SEND_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_sending()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_sending()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._since_s = self.loop.time()
        self._receiving = self.loop.call_later(RECEIVE_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
