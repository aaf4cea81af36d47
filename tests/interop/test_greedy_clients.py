"""Clients that take more than their share: slow ones by the thousand, floods, and readers that do not read.

The broker's memory stays bounded, and a client that behaves hardly notices.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.produce import ProduceResponse
from tests.interop.test_raw_frames import (
    RawConnection,
    batch_of,
    connection_to,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.support.broker_process import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]

SLOW_CONNECTIONS = 1000
CALLS = 400
ATTEMPTS = 5


def memory_mib(broker: BrokerProcess) -> float:
    """Return the most memory that the broker has had so far."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def p99_ms(connection: RawConnection) -> float:
    """Produce one record after the other; return the latency that 99 of 100 stay below."""
    request = produce_request(batch_of(b"x" * 100))
    took = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        connection.call(request, 7, ProduceResponse)
        took.append(time.perf_counter() - begun)
    return sorted(took)[int(CALLS * 0.99)] * 1000


@contextmanager
def slow_connections(broker: BrokerProcess) -> Iterator[Callable[[], int]]:
    """Keep many connections that send a byte now and then; yields a count of those that the broker has closed."""
    with ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        stop = threading.Event()
        closed: set[int] = set()
        for _ in range(SLOW_CONNECTIONS):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            sock.setblocking(False)
            waiting.register(sock, selectors.EVENT_READ)
            sock.send(struct.pack(">i", 1_000))
        sockets = [key.fileobj for key in waiting.get_map().values()]

        def drip() -> None:
            turn = 0
            while not stop.is_set():
                for key, _ in waiting.select(timeout=0.005):
                    closed.add(key.fd)
                    waiting.unregister(key.fileobj)
                sock = sockets[turn % len(sockets)]
                turn += 1
                assert isinstance(sock, socket.socket)
                if sock.fileno() not in closed:
                    try:
                        sock.send(b"x")
                    except OSError:
                        closed.add(sock.fileno())

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield lambda: len(closed)
        finally:
            stop.set()
            thread.join()


def test_a_thousand_slow_connections_are_closed_and_hardly_noticed(make_broker: MakeBroker) -> None:
    broker = make_broker(socket_partial_request_timeout_ms="3000")
    figures = []
    for _ in range(ATTEMPTS):  # other work on the machine may spoil a figure, not all of them
        with connection_to(broker) as good:
            if not figures:
                create_topic(good)
            usual = p99_ms(good)
            with slow_connections(broker) as closed:
                among_many = p99_ms(good)
                wait_until(lambda: closed() == SLOW_CONNECTIONS, 30)
        figures.append((usual, among_many))
        if among_many <= 2 * usual:
            break
    assert min(many / usual for usual, many in figures) <= 2, figures
    assert memory_mib(broker) < 120


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.01)


def test_a_flood_of_unacknowledged_records_stays_out_of_memory(broker: BrokerProcess) -> None:
    with connection_to(broker) as flood, connection_to(broker) as good:
        create_topic(flood)
        frame = flood.frame(produce_request(batch_of(b"x" * 900_000), acks=0), 7)
        for _ in range(300):
            flood.send(frame)
        assert good.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        assert flood.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0, "all before it is stored"
    assert memory_mib(broker) < 100


def test_a_reader_that_does_not_read_holds_up_nobody_and_no_memory(broker: BrokerProcess) -> None:
    with connection_to(broker) as stuck, connection_to(broker) as good:
        create_topic(good)
        request = produce_request(batch_of(b"x" * 900_000))
        for _ in range(50):
            good.call(request, 7, ProduceResponse)
        fetch = stuck.frame(fetch_request(0, max_bytes=50_000_000, partition_max_bytes=50_000_000), 11)
        stuck.send(fetch * 50)
        for _ in range(20):
            answer = good.call(request, 7, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
    assert memory_mib(broker) < 100
