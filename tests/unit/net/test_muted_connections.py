"""A muted connection reads and executes nothing for some time, and ends with its client or its listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from barnabas.net.listener import Listener
from barnabas.net.server_connection import SMALL_BYTES, ConnectionContext, Frame, FrameReply, Limits
from tests.support.fake_stream import FakeStream, connect

IDLE_S, PARTIAL_S = 60.0, 5.0


class ManualTimer:
    def __init__(self, at_s: float, callback: Callable[[], object]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """The part of an event loop that a connection needs. Its time stands still until `advance`."""

    def __init__(self) -> None:
        self.time_s = 1_000.0
        self.timers: list[ManualTimer] = []

    def time(self) -> float:
        return self.time_s

    def call_at(self, at_s: float, callback: Callable[[], object]) -> ManualTimer:
        self.timers.append(ManualTimer(at_s, callback))
        return self.timers[-1]

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.call_at(self.time_s, callback)

    def advance(self, seconds: float) -> None:
        self.time_s += seconds
        while due := [each for each in self.timers if each.at_s <= self.time_s]:
            self.timers = [each for each in self.timers if each not in due]
            for each in due:
                if not each.is_cancelled:
                    each.callback()

    @property
    def pending(self) -> int:
        return sum(not each.is_cancelled for each in self.timers)


class Scenario:
    """A connection whose requests `mute:5` mute it for this many seconds."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.listener = Listener(Limits(idle_s_max=IDLE_S, partial_frame_s_max=PARTIAL_S))
        self.listener.loop = self.loop  # type: ignore[assignment]
        self.carried_out: list[bytes] = []
        self.listener.new_handler = self._new_handler
        self.stream: FakeStream = connect(self.listener)

    def _new_handler(self, link: ConnectionContext) -> Scenario:
        self.link = link
        return self

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:
        frame = bytes(frames[0])
        self.carried_out.append(frame)
        if frame.startswith(b"mute:"):
            self.link.mute(float(frame[5:]))
        return FrameReply(1, [frame])

    def note_request_behind(self) -> None:
        pass

    def note_gone(self) -> None:
        pass

    def send(self, *requests: bytes) -> None:
        self.stream.arrive(b"".join(len(each).to_bytes(4, "big") + each for each in requests))

    def sweep(self) -> None:
        for each in list(self.listener._connections):
            each.check_deadlines(self.loop.time_s)


def scenario(function: Callable[[Scenario], None]) -> Callable[[], None]:
    async def run() -> None:
        function(Scenario())

    def test() -> None:
        coroutine: Coroutine[Any, Any, None] = run()
        asyncio.run(coroutine)

    return test


@scenario
def test_muted_connection_responds_and_reads_again_later(case: Scenario) -> None:
    case.send(b"mute:5")
    assert bytes(case.stream.sent) == b"mute:5"
    case.send(b"next")
    assert case.stream.left
    assert case.carried_out == [b"mute:5"]
    case.loop.advance(4.9)
    assert not case.stream.is_reading
    case.loop.advance(0.2)
    assert case.stream.is_reading
    case.send()
    assert case.carried_out == [b"mute:5", b"next"]


@scenario
def test_requests_that_were_received_wait(case: Scenario) -> None:
    case.send(b"mute:5", b"second", b"third")
    case.loop.advance(4.9)
    assert case.carried_out == [b"mute:5"]
    case.loop.advance(0.2)
    assert case.carried_out == [b"mute:5", b"second", b"third"]
    assert case.listener.memory.used_bytes == 0
    assert case.stream.is_reading


@scenario
def test_request_can_mute_the_connection_again(case: Scenario) -> None:
    case.send(b"mute:5", b"mute:9", b"last")
    case.loop.advance(5.1)
    assert case.carried_out == [b"mute:5", b"mute:9"]
    case.loop.advance(8.8)
    assert not case.stream.is_reading
    case.loop.advance(0.2)
    assert case.carried_out[-1] == b"last"
    assert case.stream.is_reading


@scenario
def test_large_requests_are_executed_if_other_connections_wait_for_memory(case: Scenario) -> None:
    large = bytes(SMALL_BYTES + 1)
    case.send(b"mute:3600", large, b"last")
    case.sweep()
    assert case.carried_out == [b"mute:3600"]
    memory = case.listener.memory
    memory.change(case.listener.limits.queued_bytes_max)
    assert not memory.reserve(2 * SMALL_BYTES, lambda _size: None)
    case.sweep()
    assert case.carried_out == [b"mute:3600", large, b"last"]
    assert not case.stream.is_reading


@scenario
def test_longest_of_several_times_counts(case: Scenario) -> None:
    for seconds in (5, 9, 1):
        case.link.mute(seconds)
    case.loop.advance(8.9)
    assert not case.stream.is_reading
    case.loop.advance(0.2)
    assert case.stream.is_reading


@scenario
def test_time_limits_do_not_end_a_muted_connection(case: Scenario) -> None:
    case.stream.arrive(b"\x00\x00\x00\x06mute:5" * 1 + b"\x00\x00\x00\x08half")
    case.link.mute(10 * IDLE_S)
    for _ in range(20):
        case.loop.advance(IDLE_S / 4)
        case.sweep()
    assert case.stream.is_open
    case.loop.advance(10 * IDLE_S)
    case.stream.arrive(b"whole")
    assert case.carried_out[-1] == b"halfwhol"
    case.loop.advance(PARTIAL_S + 1)
    case.sweep()
    assert not case.stream.is_open


@scenario
def test_muted_connection_ends_with_its_client(case: Scenario) -> None:
    case.send(b"mute:3600")
    case.sweep()
    assert case.stream.is_open
    case.stream.is_abandoned = True
    case.sweep()
    assert not case.stream.is_open
    assert case.listener.connection_count == 0
    assert case.loop.pending == 0


@scenario
def test_muted_connection_ends_with_its_listener(case: Scenario) -> None:
    case.send(b"mute:3600")
    for each in list(case.listener._connections):
        each.finish()
    assert not case.stream.is_open
    assert case.loop.pending == 0


@scenario
def test_closed_connection_is_not_muted(case: Scenario) -> None:
    case.stream.close()
    case.link.mute(5)
    assert case.loop.pending == 0
