"""A connection for many small frames: one write for many of them, answers read as they come, in bulk.

`barnabas.net.client_connection` takes requests one by one, and keeps account of each. Here the account is kept by who
sends: nothing happens per frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from barnabas.addresses import host_port
from barnabas.errors import BarnabasError, DisconnectedError, Failure, TimedOutError

UNSENT_BYTES_MAX = 1024 * 1024
"""Above this the pipe is not writable until it has got rid of most of it."""


class FramePipe(asyncio.Protocol):
    """One connection. Used from the thread of its event loop only.

    :param on_bytes: takes what arrives; an error that it raises ends the pipe.
    """

    def __init__(self, address: str, on_bytes: Callable[[bytes], None]) -> None:
        self.address = address
        self.writable = True
        self._on_bytes = on_bytes
        self._transport: asyncio.Transport | None = None
        self._failure: Failure | None = None
        self._news: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, host: str, port: int, on_bytes: Callable[[bytes], None]) -> FramePipe:
        """Connect.

        :raises DisconnectedError: nobody listens there.
        """
        loop = asyncio.get_running_loop()
        pipe = cls(host_port(host, port), on_bytes)
        try:
            await loop.create_connection(lambda: pipe, host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DisconnectedError(f"cannot connect to {host_port(host, port)}: {reason}", reason) from None
        return pipe

    def write(self, frames: bytes) -> None:
        """Send frames behind those sent before.

        :raises BarnabasError: why the pipe has ended.
        """
        self.check()
        assert self._transport is not None
        self._transport.write(frames)

    def check(self) -> None:
        """:raises BarnabasError: why the pipe has ended, if it has."""
        if self._failure is not None:
            raise self._failure.error()

    async def news(self, timeout_s: float) -> None:
        """Wait until something has arrived, or the pipe is writable again.

        :raises TimedOutError: nothing happened for so long.
        :raises BarnabasError: why the pipe has ended.
        """
        self.check()
        self._news = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._news
        except TimeoutError:
            raise TimedOutError(f"{self.address} did not answer within {timeout_s:g} s") from None
        finally:
            self._news = None
        self.check()

    def close(self) -> None:
        """End the connection; what is unsent is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: BarnabasError) -> None:
        if self._failure is None:
            self._failure = Failure.of(error)
        self._tell()

    # --- called by the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bound what the transport may hold."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Pass on what arrived."""
        try:
            self._on_bytes(data)
        except BarnabasError as error:
            self._fail(error)
            self.close()
        self._tell()

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self.writable = False

    def resume_writing(self) -> None:
        """The transport holds little again."""
        self.writable = True
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits."""
        reason = f": {error}" if error else ""
        self._fail(DisconnectedError(f"the connection to {self.address} was closed{reason}"))
