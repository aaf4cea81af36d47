"""A connection whose request waits: what counts meanwhile, what is read, and which connections have to end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence

import pytest

from barnabas.net.listener import Listener
from barnabas.net.server_connection import (
    SMALL_BYTES,
    UNSENT_BYTES_MAX,
    Answer,
    ConnectionContext,
    Frame,
    FrameReply,
    Limits,
)
from barnabas.net.stream import RECEIVE_BYTES
from tests.support.fake_stream import FakeStream, connect

QUEUED = 64 * SMALL_BYTES
LARGE = QUEUED // 16
KEPT = 1_000
LONG_POLL, PRODUCE, QUESTION = b"long poll", b"produce", b"question"
TIMEOUT_S = 60


class Client:
    """A connection's requests, as the world carries them out."""

    def __init__(self, world: Server, link: ConnectionContext) -> None:
        self._world = world
        self._link = link

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:
        return self._world.carry_out(frames, self._link)

    def note_request_behind(self) -> None:
        pass

    def note_gone(self) -> None:
        pass


class Server:
    """Long polls and produce requests wait until the gate is opened, and keep `KEPT` bytes; questions have large
    answers."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.fits: list[bool] = []
        self.now_s = 0.0
        self.listener = Listener(Limits(queued_bytes_max=QUEUED, frame_bytes_max=QUEUED))
        self.listener.new_handler = lambda link: Client(self, link)

    def carry_out(self, frames: Sequence[Frame], link: ConnectionContext) -> FrameReply:
        asked = bytes(frames[0]).rstrip(b"\0")
        if asked == QUESTION:
            return FrameReply(1, [bytes(2 * UNSENT_BYTES_MAX)])
        if asked not in (LONG_POLL, PRODUCE):
            return FrameReply(1, [b"done"])

        async def later() -> Answer:
            self.fits.append(link.release_frame(KEPT))
            await self.gate.wait()
            return [b"over"]

        return FrameReply(1, [], later(), ends_with_client=asked == LONG_POLL)

    def sweep(self) -> None:
        """Look at all connections, a second after the last look."""
        self.now_s += 1
        for connection in list(self.listener._connections):
            connection.check_deadlines(self.now_s)
        self.listener._check_unread_answers()


def frame(content: bytes, size: int = 0) -> bytes:
    return struct.pack(">i", max(size, len(content))) + content.ljust(size, b"\0")


def play(scenario: Callable[[Server], Coroutine[None, None, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario(Server())

    asyncio.run(bounded())


async def wait_until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def begin(server: Server, asked: bytes, size: int = 0) -> FakeStream:
    """Send a request that waits from a new client, and return when it does."""
    stream, count = connect(server.listener), len(server.fits)
    stream.arrive(frame(asked, size))
    await wait_until(lambda: len(server.fits) > count)
    return stream


def test_waiting_request_counts_with_what_it_keeps_and_not_with_its_frame() -> None:
    async def scenario(server: Server) -> None:
        streams = [await begin(server, LONG_POLL, LARGE) for _ in range(40)]
        listener = server.listener
        assert (listener.memory.used_bytes, listener.waiting_memory.used_bytes) == (0, 40 * KEPT)
        streams[0].close()
        await wait_until(lambda: listener.waiting_memory.used_bytes == 39 * KEPT)
        server.gate.set()
        await wait_until(lambda: all(stream.sent == b"over" for stream in streams[1:]))
        assert (listener.memory.used_bytes, listener.waiting_memory.used_bytes) == (0, 0)

    play(scenario)


def test_waiting_request_that_does_not_fit_is_told_and_counts_as_before() -> None:
    async def scenario(server: Server) -> None:
        listener = server.listener
        listener.waiting_memory.bytes_max = KEPT
        for _ in range(2):
            await begin(server, LONG_POLL, LARGE)
        assert server.fits == [True, False]
        assert (listener.memory.used_bytes, listener.waiting_memory.used_bytes) == (KEPT, KEPT)
        server.gate.set()
        await wait_until(lambda: not listener.memory.used_bytes)
        assert listener.waiting_memory.used_bytes == 0

    play(scenario)


def test_large_request_behind_a_waiting_one_takes_no_memory_and_is_read_after_it() -> None:
    async def scenario(server: Server) -> None:
        stream = await begin(server, PRODUCE)
        stream.arrive(frame(b"large", QUEUED // 2))
        assert stream.left
        assert server.listener.memory.used_bytes < RECEIVE_BYTES  # what came with its size
        server.now_s += 1_000  # nobody is blamed for what the broker does not read
        server.sweep()
        assert stream.is_open
        server.gate.set()
        await wait_until(lambda: stream.sent.startswith(b"over"))
        stream.arrive(b"")
        await wait_until(lambda: stream.sent == b"overdone")

    play(scenario)


@pytest.mark.parametrize("holds", [LONG_POLL, QUESTION])
def test_connection_that_holds_requests_only_its_client_can_free_ends_when_others_need_memory(holds: bytes) -> None:
    async def scenario(server: Server) -> None:
        listener = server.listener
        holder = connect(listener)
        holder.is_slow = True
        # Two frames of a size that is not large, so that they are read behind the first request.
        holder.arrive(frame(holds))
        holder.is_reading = True  # as where all of it came at once
        holder.arrive(frame(b"behind", SMALL_BYTES) + frame(b"behind", SMALL_BYTES))
        waits = await begin(server, PRODUCE)
        await wait_until(lambda: listener.memory.used_bytes > SMALL_BYTES)
        for _ in range(3):
            server.sweep()
        assert holder.is_open  # nobody needs the memory
        other = connect(listener)
        other.arrive(frame(b"all", QUEUED)[:-1])
        listener.memory.change(QUEUED)
        another = connect(listener)
        another.arrive(frame(b"also", QUEUED // 2)[:100])
        assert listener.memory.is_waited_for
        for _ in range(3):
            server.sweep()
        assert (holder.is_open, waits.is_open) == (False, True)

    play(scenario)


def test_unread_answers_of_all_connections_are_bounded() -> None:
    async def scenario(server: Server) -> None:
        listener = server.listener
        count = QUEUED // (2 * UNSENT_BYTES_MAX) + 3
        streams = [connect(listener) for _ in range(count)]
        for stream in streams:
            stream.is_slow = True
            stream.arrive(frame(QUESTION))
        server.sweep()
        assert sum(stream.unsent_bytes for stream in streams if stream.is_open) <= QUEUED
        assert any(stream.is_open for stream in streams)

    play(scenario)


def test_client_that_reads_on_outlives_those_that_do_not() -> None:
    async def scenario(server: Server) -> None:
        listener = server.listener
        reader = connect(listener)
        reader.is_slow = True
        reader.arrive(frame(QUESTION))
        server.sweep()
        reader.unsent_bytes -= 1
        count = QUEUED // (2 * UNSENT_BYTES_MAX)
        others = [connect(listener) for _ in range(count)]
        for stream in others:
            stream.is_slow = True
            stream.arrive(frame(QUESTION))
            stream.unsent_bytes += 1
        for connection in list(listener._connections):
            connection.look_at_unread()
        reader.unsent_bytes -= 1
        server.sweep()
        assert reader.is_open
        assert not all(stream.is_open for stream in others)

    play(scenario)
