"""The broker's limits, seen from outside: slow, silent, many and greedy clients."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import ProduceResponse
from tests.interop.test_greedy_clients import memory_mib
from tests.interop.test_raw_frames import (
    batch_of,
    connection_to,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.support.broker_process import BrokerProcess

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
        assert is_closed_within(slow.sock, 60)
        assert good.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0


def test_a_silent_connection_is_closed(make_broker: MakeBroker) -> None:
    broker = make_broker(connections_max_idle_ms="500")
    with connection_to(broker) as silent:
        assert silent.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        assert is_closed_within(silent.sock, 60)


def test_too_many_connections_are_refused_and_the_others_stay(make_broker: MakeBroker) -> None:
    broker = make_broker(max_connections="5")
    with ExitStack() as stack:
        admitted = [stack.enter_context(connection_to(broker)) for _ in range(5)]
        for each in admitted:
            assert each.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        refused = stack.enter_context(connection_to(broker))
        assert is_closed_within(refused.sock, 60)
        assert admitted[0].call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        admitted[0].sock.close()
        assert becomes_admitted(broker)


def becomes_admitted(broker: BrokerProcess) -> bool:
    """Try until the broker has noticed that another connection is gone."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connection_to(broker) as again:
            again.send(again.frame(ApiVersionsRequest(), 3))
            again.sock.settimeout(60)
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


def test_who_announces_much_and_sends_little_is_in_nobodys_way(make_broker: MakeBroker) -> None:
    broker = make_broker(queued_max_request_bytes="8000000")
    with ExitStack() as stack:
        for _ in range(20):
            liar = stack.enter_context(connection_to(broker))
            liar.send(struct.pack(">i", 1_000_000) + b"x")
        honest = stack.enter_context(connection_to(broker))
        create_topic(honest)
        for _ in range(5):
            answer = honest.call(produce_request(batch_of(b"x" * 90_000)), 7, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_large_requests_pass_those_that_do_not_come(make_broker: MakeBroker) -> None:
    """Memory that was reserved for them goes to those that do."""
    broker = make_broker(queued_max_request_bytes="4000000", message_max_bytes="5000000")
    with ExitStack() as stack:
        liars = [stack.enter_context(connection_to(broker)) for _ in range(4)]
        for liar in liars:
            liar.send(struct.pack(">i", 3_000_000) + b"x")
        honest = stack.enter_context(connection_to(broker))
        honest.sock.settimeout(60)
        create_topic(honest)
        request = produce_request(batch_of(*[b"x" * 1_000_000] * 3))
        assert honest.call(request, 7, ProduceResponse).responses[0].partition_responses[0].error_code == 0
        assert not any(is_closed_within(liar.sock, 0.1) for liar in liars), "they wait, and may go on"


def test_large_requests_at_once_wait_for_each_other_and_all_succeed(make_broker: MakeBroker) -> None:
    total, count = 12_000_000, 20
    broker = make_broker(queued_max_request_bytes=str(total), message_max_bytes="5000000")
    before_mib = memory_mib(broker)
    with ExitStack() as stack:
        connections = [stack.enter_context(connection_to(broker)) for _ in range(count)]
        create_topic(connections[0])
        frame = connections[0].frame(produce_request(batch_of(*[b"x" * 1_000_000] * 4)), 7)
        assert len(frame) * count > 6 * total
        senders = [threading.Thread(target=each.send, args=(frame,)) for each in connections]
        for connection, sender in zip(connections, senders, strict=True):
            connection.sock.settimeout(60)
            sender.start()
        offsets = []
        for connection, sender in zip(connections, senders, strict=True):
            answer = decode_response(ProduceResponse, 7, connection.receive())
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
            sender.join()
        assert sorted(offsets) == [4 * number for number in range(count)]
    assert memory_mib(broker) - before_mib < 2.5 * total / 2**20 + 20


def test_a_request_that_is_larger_than_all_memory_for_requests_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(queued_max_request_bytes="1000000")
    with connection_to(broker) as greedy:
        greedy.send(struct.pack(">i", 1_000_001))
        assert is_closed_within(greedy.sock, 60)


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
            each.sock.settimeout(60)
        assert memory_mib(broker) < 80
        assert first.receive()


def test_large_requests_of_apis_without_data_are_refused(broker: BrokerProcess) -> None:
    with connection_to(broker) as greedy:
        names = [MetadataRequestTopic(name="") for _ in range(2_000_000)]
        greedy.send(greedy.frame(MetadataRequest(topics=names), 9))
        assert is_closed_within(greedy.sock, 60)
