"""Files that are deleted while a fetch of them is on its way: the reader gets all that was promised to it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.records import read_records
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until

RECORDS = 300
VALUE = b"v" * 100_000
BYTES_MAX = 50_000_000


@pytest.fixture
def filled(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """30 MB in one segment: more than the sockets of a connection hold."""
    broker = make_broker(log_retention_check_interval_ms="100", file_delete_delay_ms="100", log_retention_ms="-1")
    with barnabas.Producer(broker.bootstrap) as producer:
        for _ in range(RECORDS):
            producer.send("clicks", VALUE, partition=0)
    return broker


@pytest.fixture
def fetching(filled: BrokerProcess) -> Iterator[socket.socket]:
    """A connection that asked for everything and has read nothing but the size of the answer."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=BYTES_MAX)
    topic = FetchTopic(topic="clicks", partitions=[wanted])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=BYTES_MAX, topics=[topic])
    with socket.create_connection(("127.0.0.1", filled.port), timeout=60) as connection:
        connection.sendall(b"".join(request_frame(request, 4, 1, "slow")))
        yield connection


def receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(1_000_000, size - len(received)))
        assert piece, "the broker closed the connection"
        received += piece
    return bytes(received)


def delete_by_request(admin: barnabas.Admin) -> None:
    admin.delete_records({barnabas.TopicPartition("clicks", 0): RECORDS})


def delete_by_retention(admin: barnabas.Admin) -> None:
    admin.alter_config("clicks", to_set={"retention.ms": "1"})


def delete_topic(admin: barnabas.Admin) -> None:
    admin.delete_topic("clicks")


def is_gone(data: Path, pattern: str) -> bool:
    try:
        return not list(data.glob(pattern))
    except FileNotFoundError:
        return False  # a folder went while it was looked through: look again


@pytest.mark.parametrize("delete", [delete_by_request, delete_by_retention, delete_topic])
def test_running_read_ends_well(
    filled: BrokerProcess, fetching: socket.socket, delete: Callable[[barnabas.Admin], None]
) -> None:
    size = struct.unpack(">i", receive(fetching, 4))[0]
    assert size > RECORDS * len(VALUE)
    with barnabas.Admin(filled.bootstrap) as admin:
        delete(admin)
        wait_until(lambda: is_gone(filled.data, f"clicks*/{0:020}.log*"), "the file is gone")
    response = decode_response(FetchResponse, 4, receive(fetching, size))
    records = read_records(response.responses[0].partitions[0].records, "clicks", 0)
    assert [record.offset for record in records] == list(range(RECORDS))
    assert all(record.value == VALUE for record in records)
