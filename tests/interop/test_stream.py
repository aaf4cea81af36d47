"""Streams over real sockets: what only shows with several event loops at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import barnabas
from barnabas.net.stream import Stream

TIMEOUT_S = 60


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


def test_what_is_kept_of_the_bytes_that_arrived_stays_what_it_is() -> None:
    kept: list[memoryview] = []
    for data in (b"first", b"second", b"third"):
        receive(data, kept.append)
    assert kept == [b"first", b"second", b"third"]


def test_the_place_for_what_arrives_is_used_again_when_nobody_looks_at_it() -> None:
    places: list[int] = []
    for data in (b"first", b"second", b"third"):
        receive(data, lambda view: places.append(id(view.obj)))
    assert len(set(places)) == 1


def test_large_answers_arrive_whole_and_in_order(bootstrap, topic) -> None:
    """Over a real connection, where they come in pieces of any size, with small ones between them."""
    values = [bytes([number]) * (1 if number % 3 else 700_000) for number in range(30)]
    with barnabas.Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value)
            producer.flush()
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=2_000_000) as consumer:
        consumer.subscribe(topic)
        got = [record.value for _, record in zip(values, consumer, strict=False)]
    assert got == values


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
