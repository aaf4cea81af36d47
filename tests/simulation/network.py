"""A network in memory: bytes arrive late, in order within a connection and in no order between them, or not at all.

A link is one way between two hosts. While it is cut, what is sent waits, as TCP repeats it; if the cut lasts longer
than `PATIENCE_S`, the connection is lost at both ends. A host that dies resets its connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from barnabas.errors import DisconnectedError, TimedOutError
from barnabas.model import FileRegion
from barnabas.net.client_connection import DEFAULT_TIMEOUT_S, ClientConnection
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Endpoints, Limits
from barnabas.net.stream import InPlaceReceiver
from barnabas.protocol.codec import Chunk
from tests.simulation.disk import SimulatedFile
from tests.simulation.loop import HOST
from tests.simulation.world import Host, World

LEAST_S, MOST_S = 0.000_1, 0.002
SLOW_S = 0.3
"""What a message may take on a bad day."""
PATIENCE_S = 15.0
EPHEMERAL_PORT = 50_000


class Network:
    """All connections, and which links are cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cut: set[tuple[str, str]] = set()
        self.slow = 0.0
        """Which share of messages is late."""
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._port = EPHEMERAL_PORT
        self.context = contextvars.copy_context()
        self._healed: list[Callable[[], None]] = []

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self.cut) and (source, target) in self.cut

    def heal(self) -> None:
        """End all cuts, and all else that is wrong."""
        self.slow = 0.0
        self.mend(set(self.cut))

    def mend(self, links: set[tuple[str, str]]) -> None:
        """End some cuts; what waited is on its way."""
        self.cut -= links
        waiting, self._healed = self._healed, []
        for call in waiting:
            call()

    def when_healed(self, call: Callable[[], None]) -> None:
        self._healed.append(call)

    def delay_s(self) -> float:
        random = self.world.random
        if self.slow and random.random() < self.slow:
            return random.uniform(MOST_S, SLOW_S * self.world.scale)
        return LEAST_S + (MOST_S - LEAST_S) * random.random()

    def next_port(self) -> int:
        self._port += 1
        return self._port

    def listener_of(self, host: Host) -> Callable[[Limits], SimulatedListener]:
        """Return what makes listeners on a host."""
        return lambda limits, *_: SimulatedListener(self, host, limits)

    def new_stream(self, host: Host) -> SimulatedStream:
        """Return one end of a connection, for a host."""
        return SimulatedStream(self, host)

    async def dial(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "barnabas",
        connect_timeout_s: float = DEFAULT_TIMEOUT_S,
        software_version: str = "unknown",
        security: object = None,
    ) -> ClientConnection:
        """Connect as `barnabas.net.client_connection.dial` does."""
        del security  # TLS is not simulated: the identity of a host stands for its certificate
        loop = asyncio.get_running_loop()
        mine = HOST.get()
        assert mine
        connect_timeout_s *= self.world.scale
        try:
            async with asyncio.timeout(connect_timeout_s):
                await asyncio.sleep(self.delay_s())
                while self.is_cut(mine.name, host) or self.is_cut(host, mine.name):  # noqa: ASYNC110 - as SYNs go
                    await asyncio.sleep(0.1 * self.world.scale)
                listener = self.listeners.get((host, port))
                if listener is None or not listener.host.is_alive:
                    reason = os.strerror(errno.ECONNREFUSED)
                    raise DisconnectedError(f"cannot connect to {host}:{port}: {reason}", reason)
                ours = self.connect(mine, listener, host)
                connection = ClientConnection(loop, ours.open, f"{host}:{port}", client_id)
                try:
                    await connection.negotiate(software_version, connect_timeout_s)
                except BaseException:
                    connection.close()
                    raise
                return connection
        except TimeoutError:
            raise TimedOutError(f"{host}:{port} did not answer within {connect_timeout_s:g} s") from None

    def connect(self, mine: Host, listener: SimulatedListener, local_host: str) -> SimulatedStream:
        """Open a connection from a host to a listener, and return the host's end of it.

        :param local_host: the address at which the connection arrives.
        """
        ours, theirs = self.new_stream(mine), self.new_stream(listener.host)
        ours.other, theirs.other = theirs, ours
        subject = ((("commonName", mine.identity),),)
        endpoints = Endpoints(mine.name, self.next_port(), local_host, subject)
        listener.host.after(self.delay_s(), listener.arrive, theirs, endpoints)
        return ours


class SimulatedListener(Listener):
    """Accepts connections of the simulated network."""

    def __init__(self, network: Network, host: Host, limits: Limits) -> None:
        super().__init__(limits)
        self._network = network
        self.host = host
        self._address: tuple[str, int] | None = None
        self._arrived: list[tuple[SimulatedStream, Endpoints]] | None = []

    def listen(self, host: str, port: int, backlog: int = 1024) -> int:
        del backlog
        port = port or self._network.next_port()
        taken = self._network.listeners.get((host, port))
        if taken is not None and taken.host.is_alive:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._address = host, port
        self._network.listeners[self._address] = self
        return port

    def begin_accepting(self) -> None:
        arrived, self._arrived = self._arrived or [], None
        for stream, endpoints in arrived:
            self.arrive(stream, endpoints)

    def stop_accepting(self) -> None:
        if self._address and self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]
        self._address = None

    def arrive(self, stream: SimulatedStream, endpoints: Endpoints) -> None:
        """A connection has come."""
        if self._address is None:
            stream.close()
        elif self._arrived is not None:
            self._arrived.append((stream, endpoints))
        elif not self.admit(stream.open, endpoints):
            stream.close()


class SimulatedStream:
    """One end of a connection; the other end is `other`. It is what `barnabas.net.stream.Stream` is for a socket."""

    other: SimulatedStream

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self._host = host
        self._is_open = True
        self._is_reading = True
        self._arrived: deque[bytes | None] = deque()
        self._under_way: deque[bytes | None] = deque()
        self._is_moving = False
        self._on_bytes: Callable[[memoryview], None] | None = None
        self._on_closed: Callable[[Exception | None], None] = _ignore
        self.in_place_receiver: InPlaceReceiver | None = None
        host.on_death.append(self._die)

    def open(
        self,
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> SimulatedStream:
        """Tell what to call; what has arrived before follows."""
        del on_drained  # whatever is sent is taken at once
        self._on_bytes, self._on_closed = on_bytes, on_closed
        self._host.soon(self._hand_out)
        return self

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def unsent_bytes(self) -> int:
        return 0

    @property
    def unsent_memory_bytes(self) -> int:
        return 0

    @property
    def is_reading(self) -> bool:
        return self._is_reading

    def has_ended(self) -> bool:
        return bool(self._arrived) and self._arrived[0] is None

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._host.soon(self._hand_out)

    def send(self, chunks: Iterable[Chunk]) -> None:
        if self._is_open:
            self._send(b"".join([content_of(chunk) for chunk in chunks]))

    def close(self, error: Exception | None = None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._send(None)
        on_closed, self._on_closed, self._on_bytes = self._on_closed, _ignore, None
        self.in_place_receiver = None
        on_closed(error)

    def _die(self) -> None:
        if self._is_open:
            self._is_open = False
            self._send(None)

    def _send(self, data: bytes | None) -> None:
        self._under_way.append(data)
        if not self._is_moving:
            self._is_moving = True
            self._move_on()

    def _move_on(self) -> None:
        """Let what is next set out; it arrives after what set out before."""
        if not self._under_way:
            self._is_moving = False
            return
        # The network is nobody's: it goes on when the sender is dead.
        loop, nobody = self._network.world.loop, self._network.context
        if self._network.is_cut(self._host.name, self.other._host.name):
            waiting = _Waiting(self)
            self._network.when_healed(waiting.go_on)
            loop.call_later(PATIENCE_S * self._network.world.scale, waiting.give_up, context=nobody)
            return
        loop.call_later(self._network.delay_s(), self._arrive, context=nobody)

    def _arrive(self) -> None:
        if self._network.is_cut(self._host.name, self.other._host.name):
            self._move_on()
            return
        other = self.other
        while self._under_way:
            other._arrived.append(self._under_way.popleft())
        self._is_moving = False
        host = other._host
        if host.is_running:
            host.context.run(other._hand_out)
        elif host.is_alive:
            host.soon(other._hand_out)

    def _hand_out(self) -> None:
        """Give what has arrived to whoever reads here."""
        while self._arrived and self._is_open and self._is_reading and self._on_bytes is not None:
            data = self._arrived.popleft()
            if data is None:
                self.close()
                return
            self._give(memoryview(bytearray(data)))

    def _give(self, data: memoryview) -> None:
        while data and self._is_open and self._on_bytes is not None:
            vacancy = self.in_place_receiver.get_buffer() if self.in_place_receiver is not None else None
            if vacancy is None:
                self._on_bytes(data)
                return
            size = min(len(vacancy), len(data))
            with vacancy:
                vacancy[:size] = data[:size]
            data = data[size:]
            assert self.in_place_receiver is not None
            self.in_place_receiver.buffer_updated(size)


class _Waiting:
    """What a cut link holds up: it goes on when the link is healed, or the connection is lost before."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream: SimulatedStream | None = stream

    def go_on(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream._move_on()

    def give_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        lost = ConnectionResetError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        stream._under_way.clear()
        stream._is_moving = False
        for end in (stream, stream.other):
            end._host.soon(end.close, lost)


def content_of(chunk: Any) -> Any:
    """Return what a chunk holds, as bytes or a part of memory."""
    if not isinstance(chunk, FileRegion):
        return chunk
    file = chunk.file
    assert isinstance(file, SimulatedFile)
    data = file.read(chunk.length, chunk.position)
    if len(data) < chunk.length:
        raise OSError(f"the file ended {chunk.length - len(data)} bytes before the region that was to be sent")
    return data


def _ignore(*_: object) -> None:
    """Stands for the callbacks of a stream that has ended."""
