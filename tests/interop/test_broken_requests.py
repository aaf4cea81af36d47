"""Connections that break in the middle of a request: half a request is no request, and everything is sent again."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

import barnabas
from tests.interop.clients.neutral import Event, Membership, Place, Sending
from tests.support.lossy_link import CHUNK_BYTES_MAX, LossyLink
from tests.support.reading import Member, wait_until

TOPIC = "numbers"
CHUNKS_PER_CONNECTION = 12
"""Enough to find the broker, to get a producer id or to join a group, and to do some work."""
CUTS_MIN = 10
API_KEY = slice(4, 6)
"""Where it stands in a request, after the size."""
HEARTBEAT = (12).to_bytes(2)


class CuttingLink(LossyLink):
    """Each connection ends within a request: the broker gets the first half of it, and the end of the stream."""

    def __init__(self, chunks_per_connection: int) -> None:
        super().__init__(answers_per_connection=1_000_000)
        self.cuts = 0
        self.heartbeats_since_mended = 0
        self._is_mended = False
        self._chunks_per_connection = chunks_per_connection

    def mend(self) -> None:
        """Cut no more."""
        self._is_mended = True

    def _pass_chunks(self, client: socket.socket, broker: socket.socket) -> None:
        chunks = 0
        while data := client.recv(CHUNK_BYTES_MAX):
            chunks += 1
            if self._is_mended:
                self.heartbeats_since_mended += data[API_KEY] == HEARTBEAT
            elif chunks >= self._chunks_per_connection:
                broker.sendall(data[: len(data) // 2])
                self.cuts += 1
                return
            broker.sendall(data)


@pytest.fixture
def link() -> Iterator[CuttingLink]:
    with CuttingLink(CHUNKS_PER_CONNECTION) as link:
        yield link


def test_no_record_is_lost_or_stored_twice_when_requests_are_cut(make_broker, link, client) -> None:
    broker = make_broker(advertised_port=str(link.port))
    link.connect_to(broker.port)
    places: list[Place] = []
    with contextlib.closing(client.producer(f"127.0.0.1:{link.port}", Sending(idempotent=True))) as producer:
        while link.cuts < CUTS_MIN:
            numbers = range(len(places), len(places) + 20)
            places += producer.produce(TOPIC, [Event(b"%d" % n) for n in numbers], partition=0)
    assert places == [Place(0, offset) for offset in range(len(places))]
    with barnabas.Admin(broker.bootstrap) as admin:
        assert list(admin.end_offsets([(TOPIC, 0)]).values()) == [len(places)]


def test_a_member_of_a_group_sees_everything_when_its_requests_are_cut(make_broker, link, client, group) -> None:
    broker = make_broker(advertised_port=str(link.port))
    link.connect_to(broker.port)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC)  # librdkafka's consumer reports an error for a topic that is created too late
    sent = 0
    with (
        contextlib.closing(client.producer(f"127.0.0.1:{link.port}", Sending(idempotent=True))) as producer,
        Member(client, f"127.0.0.1:{link.port}", TOPIC, Membership(group=group)) as member,
    ):
        while link.cuts < CUTS_MIN:
            producer.produce(TOPIC, [Event(b"%d" % n) for n in range(sent, sent + 20)], partition=0)
            sent += 20
        wait_until(lambda: len({place for place, _ in member.received}) >= sent, "all records")
        if not client.closes_without_coordinator:
            link.mend()
            wait_until(lambda: link.heartbeats_since_mended, "it has found its coordinator again")
    assert {int(event.value): place.offset for place, event in member.received} == {n: n for n in range(sent)}
