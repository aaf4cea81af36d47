"""Connections that stand in line for memory: each has one turn when there is some again."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from barnabas.net.listener import Listener
from barnabas.net.server_connection import SMALL_BYTES, Answer, Frame, FrameReply, Limits, OnMemory, RequestMemory

TIMEOUT_S = 60
LARGE = 2 * SMALL_BYTES
SMALL = SMALL_BYTES - 1_000
ANSWER = b"done"
ASKED_MAX = 100


class CountedMemory(RequestMemory):
    """Fails where it would be asked for ever."""

    asked = 0

    def reserve(self, size: int, go_on: OnMemory, *, held: int = 0) -> bool:
        self.asked += 1
        assert self.asked < ASKED_MAX, "those in line ask again and again"
        return super().reserve(size, go_on, held=held)


class Server:
    """Answers requests when `gates`, one for each, are opened."""

    def __init__(self, limits: Limits) -> None:
        self.gates: list[asyncio.Event] = []
        self.listener = Listener(limits)
        self.listener.memory = self.memory = CountedMemory(limits.queued_bytes_max)
        self.port = self.listener.listen("127.0.0.1", 0)
        self.listener.accept(lambda _link: self)

    def note_request_behind(self) -> None:
        pass

    def note_gone(self) -> None:
        pass

    def carry_out(self, _frames: Sequence[Frame]) -> FrameReply:
        self.gates.append(gate := asyncio.Event())

        async def later() -> Answer:
            await gate.wait()
            return [ANSWER]

        return FrameReply(1, [], later())

    async def begin(self, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request from a new client, and wait until it is carried out."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        count = len(self.gates)
        writer.write(struct.pack(">i", size) + bytes(size))
        while len(self.gates) == count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return reader, writer


def test_connections_that_hold_much_go_on_together_when_there_is_memory_again() -> None:
    async def scenario() -> None:
        server = Server(Limits(queued_bytes_max=2 * LARGE + 2 * SMALL))
        memory = server.memory
        holding = [await server.begin(LARGE) for _ in range(2)]
        passing = [await server.begin(SMALL) for _ in range(3)]
        assert memory.is_full
        for _, writer in holding:
            writer.write(struct.pack(">i", 1) + b"x")  # so that each looks whether it may read on
        while len(memory._others) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for gate in server.gates[2:]:
            gate.set()
        assert [await reader.readexactly(len(ANSWER)) for reader, _ in passing] == [ANSWER] * 3
        assert memory.asked < ASKED_MAX
        assert not memory.is_waited_for
        server.gates[0].set()
        assert await holding[0][0].readexactly(len(ANSWER)) == ANSWER
        for _, writer in holding + passing:
            writer.close()
        server.listener.close()

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(bounded())
