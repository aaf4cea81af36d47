"""A client that goes at any moment: what it asked for is done whole, or not at all."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.test_raw_frames import (
    RawConnection,
    batch_of,
    connection_to,
    create_topic,
    fetch_request,
    produce_request,
    wait_for_end,
)
from tests.support.broker_process import BrokerProcess

TOPICS = 40
TIMEOUT_S = 60


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawConnection]:
    with connection_to(broker) as connection:
        yield connection


def topics_of(raw: RawConnection) -> int:
    response = raw.call(MetadataRequest(topics=None), 9, MetadataResponse)
    return len(response.topics)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def creation(count: int) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=f"t{number}", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for number in range(count)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


def hang_up(raw: RawConnection, *, hard: bool) -> None:
    """Close the connection, with what it has not read, or as a process that dies does."""
    if hard:
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.sock.close()


@pytest.mark.parametrize("hard", [False, True])
def test_topics_are_all_made_and_all_deleted_when_the_client_is_gone(
    raw: RawConnection, broker: BrokerProcess, hard: bool
) -> None:
    with connection_to(broker) as gone:
        gone.send(gone.frame(creation(TOPICS), 5))
        wait_until(lambda: topics_of(raw) > 0)
        hang_up(gone, hard=hard)
    wait_until(lambda: topics_of(raw) == TOPICS)
    with connection_to(broker) as gone:
        names = [f"t{number}" for number in range(TOPICS)]
        gone.send(gone.frame(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5))
        wait_until(lambda: topics_of(raw) < TOPICS)
        hang_up(gone, hard=hard)
    wait_until(lambda: topics_of(raw) == 0)
    assert "never awaited" not in broker.log.read_text()


def test_requests_that_wait_behind_others_are_carried_out_when_the_client_is_gone(
    raw: RawConnection, broker: BrokerProcess
) -> None:
    create_topic(raw)
    with connection_to(broker) as gone:
        frame = gone.frame(produce_request(batch_of(b"v"), acks=0), 9)
        gone.send(gone.frame(creation(5), 5) + frame * 10)
    assert wait_for_end(raw, 10) == 10
    assert topics_of(raw) == 6


def test_who_waits_for_records_waits_no_longer_when_he_is_gone(raw: RawConnection, broker: BrokerProcess) -> None:
    """And what he asked for behind that is carried out at once."""
    create_topic(raw)
    with connection_to(broker) as gone:
        poll = gone.frame(fetch_request(0, max_wait_ms=600_000), 11)
        gone.send(poll + gone.frame(produce_request(batch_of(b"v"), acks=0), 9) + poll)
    assert wait_for_end(raw, 1) == 1
    assert raw.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
    assert broker.stop() == 0
    assert "never awaited" not in broker.log.read_text()


def test_what_has_begun_is_finished_when_the_broker_stops(raw: RawConnection, broker: BrokerProcess) -> None:
    with connection_to(broker) as waiting:
        waiting.send(waiting.frame(creation(TOPICS), 5))
        wait_until(lambda: topics_of(raw) > 0)
        assert broker.stop() == 0
    broker.restart()
    with connection_to(broker) as again:
        assert topics_of(again) == TOPICS
    assert "Traceback" not in broker.log.read_text()
