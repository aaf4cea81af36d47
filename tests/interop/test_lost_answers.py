"""Idempotent producers over a link that loses answers: what is sent again is not stored again (KIP-98)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import barnabas
from tests.interop.clients.neutral import Event, Place, Sending
from tests.interop.conftest import CLIENTS
from tests.support.lossy_link import LossyLink
from tests.support.reading import read_topic

TOPIC = "numbers"
ANSWERS_PER_CONNECTION = 12
"""Enough to find the broker, to get a producer id and to send a few batches."""
ANSWERS_LOST_MIN = 10


@pytest.fixture
def link() -> Iterator[LossyLink]:
    with LossyLink(ANSWERS_PER_CONNECTION) as link:
        yield link


def test_no_record_is_stored_twice_when_answers_are_lost(make_broker, link, client) -> None:
    broker = make_broker(advertised_port=str(link.port))
    link.connect_to(broker.port)
    places: list[Place] = []
    with contextlib.closing(client.producer(f"127.0.0.1:{link.port}", Sending(idempotent=True))) as producer:
        while link.answers_lost < ANSWERS_LOST_MIN:
            numbers = range(len(places), len(places) + 20)
            places += producer.produce(TOPIC, [Event(b"%d" % n) for n in numbers], partition=0)
    assert places == [Place(0, offset) for offset in range(len(places))]
    assert stored(broker, len(places)) == list(range(len(places)))


def stored(broker, count: int) -> list[int]:
    """Read past the link: the broker tells the link's address, so start it again without."""
    assert broker.stop() == 0
    broker.settings.clear()
    broker.restart()
    with barnabas.Admin(broker.bootstrap) as admin:
        assert list(admin.end_offsets([(TOPIC, 0)]).values()) == [count]
    return [int(event.value) for _, event in read_topic(CLIENTS[0], broker.bootstrap, TOPIC, count)]
