"""The broker's limits, seen from outside: slow, silent, many and greedy clients."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import ProduceResponse
from tests.conftest import BrokerProcess
from tests.interop.test_greedy_clients import memory_mib
from tests.interop.test_raw_frames import (
    RawConnection,
    batch_of,
    connection_to,
    create_topic,
    fetch_request,
    produce_request,
)

MakeBroker = Callable[..., BrokerProcess]


def is_closed_within(sock: socket.socket, seconds: float) -> bool:
    sock.settimeout(seconds)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_a_request_that_does_not_arrive_whole_ends_its_connection(make_broker: MakeBroker) -> None:
    broker = make_broker(socket_partial_request_timeout_ms="500")
    with connection_to(broker) as slow, connection_to(broker) as good:
        slow.send(struct.pack(">i", 20) + b"half")
        assert is_closed_within(slow.sock, 10)
        assert good.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0


def test_a_silent_connection_is_closed(make_broker: MakeBroker) -> None:
    broker = make_broker(connections_max_idle_ms="500")
    with connection_to(broker) as silent:
        assert silent.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        assert is_closed_within(silent.sock, 10)


def test_too_many_connections_are_refused_and_the_others_stay(make_broker: MakeBroker) -> None:
    broker = make_broker(max_connections="5")
    with ExitStack() as stack:
        admitted = [stack.enter_context(connection_to(broker)) for _ in range(5)]
        for each in admitted:
            assert each.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        refused = stack.enter_context(connection_to(broker))
        assert is_closed_within(refused.sock, 10)
        assert admitted[0].call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        admitted[0].sock.close()
        assert becomes_admitted(broker)


def becomes_admitted(broker: BrokerProcess) -> bool:
    """Try until the broker has noticed that another connection is gone."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connection_to(broker) as again:
            again.send(again.frame(ApiVersionsRequest(), 3))
            again.sock.settimeout(10)
            try:
                if again.sock.recv(1):
                    return True
            except ConnectionResetError:
                continue
    return False


def fills_its_socket(sock: socket.socket) -> bool:
    """Send until the other end takes no more; False if it takes everything."""
    sock.settimeout(1)
    for _ in range(1000):
        try:
            sock.send(b"x" * 65536)
        except TimeoutError:
            return True
    return False


def test_announced_sizes_hold_no_memory(make_broker: MakeBroker) -> None:
    broker = make_broker(queued_max_request_bytes="100000")
    with ExitStack() as stack:
        for _ in range(20):
            liar = stack.enter_context(connection_to(broker))
            liar.send(struct.pack(">i", 100_000_000) + b"x")
        honest = stack.enter_context(connection_to(broker))
        create_topic(honest)
        for _ in range(5):
            answer = honest.call(produce_request(batch_of(b"x" * 90_000)), 7, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_requests_that_find_no_memory_wait_until_others_are_done(make_broker: MakeBroker) -> None:
    size = 10_000_000
    broker = make_broker(queued_max_request_bytes="4000000")
    with connection_to(broker) as first, connection_to(broker) as second, connection_to(broker) as small:
        first.send(struct.pack(">i", size) + b"x" * 3_900_000)
        second.send(struct.pack(">i", size) + b"x" * 200_000)
        assert fills_its_socket(second.sock), "the second one is not read"
        assert small.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0, "small requests go on"
        first.sock.close()
        second.sock.settimeout(10)
        assert second.sock.send(b"x" * 65536) > 0, "it is read again"


def test_requests_that_all_hold_too_much_end_with_the_largest(make_broker: MakeBroker) -> None:
    broker = make_broker(queued_max_request_bytes="2000000")
    with connection_to(broker) as larger, connection_to(broker) as smaller:
        smaller.send(struct.pack(">i", 50_000_000) + b"x" * 900_000)
        assert fills_its_socket_or_is_closed(larger)
        assert is_closed_within(larger.sock, 20)
        assert not is_closed_within(smaller.sock, 1)


def fills_its_socket_or_is_closed(connection: RawConnection) -> bool:
    """Send half of a large request."""
    connection.send(struct.pack(">i", 50_000_000))
    try:
        return fills_its_socket(connection.sock)
    except (BrokenPipeError, ConnectionResetError):
        return True


def test_waiting_requests_count_as_memory(make_broker: MakeBroker) -> None:
    """Large requests behind a long poll are whole, and must not be forgotten."""
    broker = make_broker(queued_max_request_bytes="4000000")
    with connection_to(broker) as first, connection_to(broker) as second:
        create_topic(first)
        poll = first.frame(fetch_request(0, max_wait_ms=3_000), 11)
        large = first.frame(produce_request(batch_of(b"x" * 900_000)), 7)
        for each in (first, second):
            each.sock.setblocking(False)
            with suppress(BlockingIOError):
                each.sock.send(poll + large * 5)
            each.sock.settimeout(20)
        assert memory_mib(broker) < 80
        assert first.receive()


def test_large_requests_of_apis_without_data_are_refused(broker: BrokerProcess) -> None:
    with connection_to(broker) as greedy:
        names = [MetadataRequestTopic(name="") for _ in range(2_000_000)]
        greedy.send(greedy.frame(MetadataRequest(topics=names), 9))
        assert is_closed_within(greedy.sock, 10)
