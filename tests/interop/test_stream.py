"""Streams over real sockets: what only shows with several event loops at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

from barnabas.net.stream import Stream

TIMEOUT_S = 20


def test_streams_of_two_threads_do_not_receive_into_each_others_bytes() -> None:
    """Each client has a thread of its own, and there may be many clients in a process."""
    first_is_at_work, second_has_received = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def slowly(view: memoryview) -> None:
        first_is_at_work.set()
        assert second_has_received.wait(TIMEOUT_S)
        seen.append(bytes(view))

    first = threading.Thread(target=receive, args=(b"first", slowly))
    first.start()
    assert first_is_at_work.wait(TIMEOUT_S)
    receive(b"second", lambda view: second_has_received.set())
    second_has_received.set()
    first.join(TIMEOUT_S)
    assert seen == [b"first"]


def receive(data: bytes, on_bytes) -> None:
    """Run an event loop on this thread until a stream has received `data`."""

    async def run() -> None:
        received = asyncio.Event()

        def on_view(view: memoryview) -> None:
            on_bytes(view)
            received.set()

        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
        with contextlib.closing(theirs):
            stream = Stream(asyncio.get_running_loop(), ours, on_view, lambda: None, lambda error: None)
            theirs.sendall(data)
            async with asyncio.timeout(TIMEOUT_S):
                await received.wait()
            stream.close()

    asyncio.run(run())
