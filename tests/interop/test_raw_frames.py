"""What a broker does with the bytes of a connection: whole, in pieces, in bulk, damaged, and never answered."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.protocol.codec import decode_response, read_correlation_id, request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder, read_records
from tests.support.broker_process import BrokerProcess

TELEMETRY = {71, 72}
"""The APIs that a broker without `--http` does not serve."""
TIMEOUT_S = 60


class RawConnection:
    """A blocking socket that speaks frames."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)

    def frame(self, request: object, version: int, correlation_id: int = 1) -> bytes:
        return b"".join(request_frame(request, version, correlation_id, "raw"))  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self) -> bytes:
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def call(self, request: object, version: int, response: type[Any]) -> Any:
        self.send(self.frame(request, version))
        return decode_response(response, version, self.receive())

    def is_closed_by_peer(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data


@contextmanager
def connection_to(broker: BrokerProcess) -> Iterator[RawConnection]:
    connection = RawConnection(broker.port)
    try:
        yield connection
    finally:
        connection.sock.close()


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawConnection]:
    with connection_to(broker) as connection:
        yield connection


def create_topic(raw: RawConnection, name: str = "clicks", partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    created = raw.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
    assert created.topics[0].error_code == 0


def batch_of(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    return bytes(builder.build())


def produce_request(records: bytes | None, acks: int = 1, topic: str = "clicks") -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[data])


def fetch_request(offset: int, **limits: int) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=limits.get("partition_max_bytes", 1_000_000)
    )
    return FetchRequest(
        max_wait_ms=limits.get("max_wait_ms", 0),
        min_bytes=limits.get("min_bytes", 1),
        max_bytes=limits.get("max_bytes", 10_000_000),
        topics=[FetchTopic(topic="clicks", partitions=[wanted])],
    )


def test_a_request_fed_byte_by_byte_is_answered(raw: RawConnection) -> None:
    for byte in raw.frame(ApiVersionsRequest(), 3):
        raw.send(bytes([byte]))
    response = decode_response(ApiVersionsResponse, 3, raw.receive())
    assert response.error_code == 0
    assert {each.api_key for each in response.api_keys} == SERVED.keys() - TELEMETRY


def test_pipelined_requests_are_answered_in_order(raw: RawConnection) -> None:
    create_topic(raw)
    frames = [raw.frame(produce_request(batch_of(b"%d" % i)), 7, i) for i in range(500)]
    raw.send(b"".join(frames))
    for i in range(500):
        frame = raw.receive()
        assert read_correlation_id(frame) == i
        answered = decode_response(ProduceResponse, 7, frame).responses[0].partition_responses[0]
        assert (answered.error_code, answered.base_offset) == (0, i)


def test_what_came_whole_is_stored_when_its_connection_dies_in_the_next(
    raw: RawConnection, broker: BrokerProcess
) -> None:
    create_topic(raw)
    frame = raw.frame(produce_request(batch_of(b"v" * 1_000), acks=0), 9)
    with connection_to(broker) as dying:
        dying.send(frame * 700 + frame[:-1])
        assert wait_for_end(raw, 700) == 700


def test_pipelined_requests_of_all_kinds_are_answered_in_order(raw: RawConnection) -> None:
    create_topic(raw)
    sound, damaged = produce_request(batch_of(b"v")), produce_request(batch_of(b"v")[:-1] + b"?")
    silent = produce_request(batch_of(b"v"), acks=0)
    kinds = [sound, damaged, silent, ApiVersionsRequest(), fetch_request(0), sound, sound, damaged]
    versions = [9, 9, 9, 3, 11, 9, 9, 9]
    for first in range(0, 800, len(kinds)):
        frames = [raw.frame(kind, versions[n], first + n) for n, kind in enumerate(kinds)]
        raw.send(b"".join(frames))
    answered = [number for number in range(800) if number % len(kinds) != 2]
    assert [read_correlation_id(raw.receive()) for _ in answered] == answered
    assert wait_for_end(raw, 400) == 400


def wait_for_end(raw: RawConnection, offset: int) -> int:
    """Wait until the topic has so many records; return how many it has then."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        partition = raw.call(fetch_request(0, max_bytes=0), 11, FetchResponse).responses[0].partitions[0]
        if partition.high_watermark >= offset or time.monotonic() > deadline:
            return int(partition.high_watermark)


def test_a_long_poll_ends_when_something_is_appended(raw: RawConnection, broker: BrokerProcess) -> None:
    create_topic(raw)
    raw.send(raw.frame(fetch_request(0, max_wait_ms=8_000), 11))
    with connection_to(broker) as other:
        other.call(produce_request(batch_of(b"a")), 7, ProduceResponse)
        fetched = decode_response(FetchResponse, 11, raw.receive()).responses[0].partitions[0]
    assert [record.value for record in read_records(fetched.records, "clicks", 0)] == [b"a"]


def test_requests_behind_a_long_poll_wait_for_it(raw: RawConnection) -> None:
    create_topic(raw)
    raw.send(raw.frame(fetch_request(0, max_wait_ms=300), 11, 1) + raw.frame(ApiVersionsRequest(), 3, 2))
    assert [read_correlation_id(raw.receive()) for _ in range(2)] == [1, 2]


def test_a_fetch_from_the_middle_of_a_batch_returns_the_whole_batch(raw: RawConnection) -> None:
    create_topic(raw)
    raw.call(produce_request(batch_of(b"a", b"b", b"c")), 7, ProduceResponse)
    records = raw.call(fetch_request(2), 11, FetchResponse).responses[0].partitions[0].records
    assert [record.offset for record in read_records(records, "clicks", 0)] == [0, 1, 2]


def test_the_first_batch_comes_back_even_if_it_is_over_the_limits(raw: RawConnection) -> None:
    create_topic(raw)
    raw.call(produce_request(batch_of(b"x" * 5_000)), 7, ProduceResponse)
    raw.call(produce_request(batch_of(b"y" * 5_000)), 7, ProduceResponse)
    for limits in ({"max_bytes": 100}, {"partition_max_bytes": 100}, {"max_bytes": 9_000}):
        fetched = raw.call(fetch_request(0, **limits), 11, FetchResponse).responses[0].partitions[0]
        assert len(read_records(fetched.records, "clicks", 0)) == 1


def test_small_and_large_pieces_of_files_come_whole_and_in_order(raw: RawConnection) -> None:
    sizes = [10, 40_000, 200, 9_000, 9_000, 300_000, 5, 0, 70_000]
    create_topic(raw, partitions=len(sizes))
    for number, size in enumerate(sizes):
        if size:
            request = produce_request(batch_of(b"%d" % number * size))
            request.topic_data[0].partition_data[0].index = number
            raw.call(request, 9, ProduceResponse)
    request = fetch_request(0)
    request.topics[0].partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000_000) for number in range(len(sizes))
    ]
    for version in (4, 11, 12):
        fetched = raw.call(request, version, FetchResponse).responses[0].partitions
        values = [[record.value for record in read_records(each.records, "clicks", 0)] for each in fetched]
        assert values == [[b"%d" % number * size] if size else [] for number, size in enumerate(sizes)]


def test_topics_are_fetched_by_their_id(raw: RawConnection) -> None:
    create_topic(raw)
    raw.call(produce_request(batch_of(b"a")), 7, ProduceResponse)
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="clicks")])
    topic_id = raw.call(wanted, 12, MetadataResponse).topics[0].topic_id
    for version in range(13, 17):
        request = fetch_request(0)
        request.topics[0].topic, request.topics[0].topic_id = "", topic_id
        topic = raw.call(request, version, FetchResponse).responses[0]
        assert (topic.topic_id, topic.partitions[0].error_code) == (topic_id, 0)
        assert len(read_records(topic.partitions[0].records, "clicks", 0)) == 1
        request.topics[0].topic_id = b"\1" * 16
        assert raw.call(request, version, FetchResponse).responses[0].partitions[0].error_code == 100


def test_an_offset_out_of_range_is_told_at_once(raw: RawConnection) -> None:
    create_topic(raw)
    fetched = raw.call(fetch_request(5, max_wait_ms=30_000), 11, FetchResponse).responses[0].partitions[0]
    assert fetched.error_code == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_message_formats_are_answered_with_unsupported_version(raw: RawConnection, version: int) -> None:
    create_topic(raw)
    answer = raw.call(produce_request(b"old format"), version, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 35


def test_a_newer_api_versions_is_answered_in_version_0_with_the_list(raw: RawConnection) -> None:
    frame = bytearray(raw.frame(ApiVersionsRequest(), 4))
    struct.pack_into(">h", frame, 6, 99)
    raw.send(bytes(frame))
    response = decode_response(ApiVersionsResponse, 0, raw.receive())
    assert response.error_code == 35
    assert {each.api_key for each in response.api_keys} == SERVED.keys() - TELEMETRY


def test_acks_0_is_not_answered(raw: RawConnection) -> None:
    create_topic(raw)
    raw.send(raw.frame(produce_request(batch_of(b"a"), acks=0), 7, 5))
    raw.send(raw.frame(ApiVersionsRequest(), 3, 6))
    assert read_correlation_id(raw.receive()) == 6


def test_acks_0_that_fails_ends_the_connection(raw: RawConnection) -> None:
    raw.send(raw.frame(produce_request(batch_of(b"a"), acks=0, topic="nowhere"), 7))
    assert raw.is_closed_by_peer()


def test_acks_2_is_refused(raw: RawConnection) -> None:
    create_topic(raw)
    answer = raw.call(produce_request(batch_of(b"a"), acks=2), 7, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 21


@pytest.mark.parametrize("records", [None, b"", b"no batch at all", batch_of(b"a")[:-1], batch_of(b"a")[:-1] + b"?"])
def test_damaged_batches_are_refused_and_nothing_is_stored(raw: RawConnection, records: bytes | None) -> None:
    create_topic(raw)
    answer = raw.call(produce_request(records), 7, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code in {2, 87}
    fetched = raw.call(fetch_request(0), 11, FetchResponse).responses[0].partitions[0]
    assert fetched.high_watermark == 0


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(struct.pack(">i", -5), id="negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="two billion bytes"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter than a header"),
        pytest.param(struct.pack(">ihhih", 10, 77, 0, 1, -1), id="unknown API"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2_000_000_000), id="two billion topics"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
    ],
)
def test_a_bad_frame_closes_its_connection_and_nobody_else_notices(broker: BrokerProcess, damaged: bytes) -> None:
    with connection_to(broker) as good, connection_to(broker) as bad:
        bad.send(damaged)
        assert bad.is_closed_by_peer()
        assert good.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0


def test_a_bad_frame_costs_one_line_in_the_log(broker: BrokerProcess) -> None:
    with connection_to(broker) as bad:
        bad.send(struct.pack(">i", -5))
        assert bad.is_closed_by_peer()
    assert broker.log.read_text().count("a frame of -5 bytes") == 1
    assert "Traceback" not in broker.log.read_text()


def test_metadata_creates_a_topic_only_when_it_may(raw: RawConnection) -> None:
    wanted = [MetadataRequestTopic(name="new")]
    refused = raw.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert refused.topics[0].error_code == 3
    made = raw.call(MetadataRequest(topics=wanted), 12, MetadataResponse)
    assert (made.topics[0].error_code, len(made.topics[0].partitions)) == (0, 1)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topics[0].topic_id)])
    assert raw.call(by_id, 12, MetadataResponse).topics[0].name == "new"


def test_metadata_of_all_topics_and_of_none(raw: RawConnection) -> None:
    create_topic(raw)
    assert [t.name for t in raw.call(MetadataRequest(topics=[]), 0, MetadataResponse).topics] == ["clicks"]
    assert raw.call(MetadataRequest(topics=[]), 1, MetadataResponse).topics == []
    assert [t.name for t in raw.call(MetadataRequest(topics=None), 1, MetadataResponse).topics] == ["clicks"]
