"""The connections of browsers: uvicorn parses HTTP, and this module enforces limits.

A request arrives within a deadline, or the connection ends. At the maximum number of connections, a new one takes the
place of the one that has waited longest for a request. A connection ends if its other end does not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from barnabas.net.open_connections import Deadline, OpenConnections

CONNECTIONS_MAX = 300
HEAD_BYTES_MAX = 32 * 1024
RECEIVE_S = 20.0
SEND_S = 30.0


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # the checks see no packages of extras
    """A connection of a browser.

    :param open_connections: all connections of the server.
    """

    def __init__(self, open_connections: OpenConnections[Connection], *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._open = open_connections
        self._receiving = Deadline(self.loop, self.abort)
        self._sending = Deadline(self.loop, self.abort)
        self._head_bytes = 0
        self.is_waiting = True

    def abort(self) -> None:
        """Close the connection without waiting for pending data."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:
        # Users behind a proxy share an address, so only the number of all connections is limited.
        if not self._open.admit(id(self), "", self):
            transport.abort()
        super().connection_made(transport)
        self._receiving.start(RECEIVE_S)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.is_waiting:
            self._head_bytes += len(data)
            if not self._receiving.is_set:  # these are the first bytes of a further request
                self._begin_to_wait()
                self._receiving.start(RECEIVE_S)
        super().data_received(data)
        if self.is_waiting and self._head_bytes > HEAD_BYTES_MAX:
            self.abort()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.is_waiting = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._receiving.stop()

    def on_response_complete(self) -> None:
        self._head_bytes = 0
        self._begin_to_wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.start(SEND_S)

    def resume_writing(self) -> None:
        self._sending.stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiving.stop()
        self._sending.stop()
        self._open.forget(id(self), self)
        super().connection_lost(exc)

    def _begin_to_wait(self) -> None:
        self.is_waiting = True
        self._open.begin_to_wait(id(self))
