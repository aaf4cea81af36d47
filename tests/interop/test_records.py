"""What one client sends, every client reads: whole, unchanged, in order, with every compression."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from tests.interop.clients.neutral import Client, Event, Place, Received, Sending
from tests.interop.conftest import CLIENTS
from tests.support.reading import read_topic

BASE_TIMESTAMP_MS = 1_700_000_000_000
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


def events_of_all_kinds(client: Client) -> list[Event]:
    """Return records with and without each of their parts, and enough of them for several batches."""
    odd = [
        Event(b"value", b"key", (("one", b"1"), ("two", b"2"), ("one", b"again")), BASE_TIMESTAMP_MS),
        Event(None, b"tombstone", (), BASE_TIMESTAMP_MS + 1),
        Event(b"", b"", (("empty", b""),), BASE_TIMESTAMP_MS + 2),
        Event(b"without a key", None, (("ünï", "cödé".encode()),), BASE_TIMESTAMP_MS + 3),
        Event(b"out of order", b"late", (), BASE_TIMESTAMP_MS - 1_000_000),
        Event(bytes(range(256)) * 300, b"large", (), BASE_TIMESTAMP_MS + 4),
    ]
    if client.sends_null_headers:
        odd.append(Event(b"value", b"key", (("null", None),), BASE_TIMESTAMP_MS + 5))
    many = [
        Event(b"value %d " % n * 20, b"key %d" % (n % 7), (("n", b"%d" % n),), BASE_TIMESTAMP_MS + n)
        for n in range(1_000)
    ]
    return odd + many


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_a_client_sends_every_client_reads(bootstrap, client, topic, compression) -> None:
    events = events_of_all_kinds(client)
    producer = client.producer(bootstrap, Sending(compression=compression))
    places = producer.produce(topic, events, partition=0)
    producer.close()
    assert places == [Place(0, offset) for offset in range(len(events))]
    sent = [Received(place, event) for place, event in zip(places, events, strict=True)]
    for reader in CLIENTS:
        assert read_topic(reader, bootstrap, topic, len(events)) == sent, reader.name


def test_clients_and_compressions_mix_in_one_partition(bootstrap, topic) -> None:
    sent = []
    for client in CLIENTS:
        for compression in COMPRESSIONS:
            producer = client.producer(bootstrap, Sending(compression=compression))
            value = f"{client.name} {compression} ".encode() * 10
            events = [Event(value, b"key", (("h", b"v"),), BASE_TIMESTAMP_MS)] * 3
            places = producer.produce(topic, events, partition=0)
            producer.close()
            sent += [Received(place, event) for place, event in zip(places, events, strict=True)]
    for reader in CLIENTS:
        assert read_topic(reader, bootstrap, topic, len(sent)) == sent, reader.name


@pytest.mark.parametrize(
    "sending",
    [Sending(acks=1), Sending(acks=-1), Sending(acks=-1, idempotent=True)],
    ids=["leader", "all", "idempotent"],
)
def test_acknowledged_offsets_are_where_the_records_are(bootstrap, client, topic, our_admin, sending) -> None:
    our_admin.create_topic(topic, partitions=3)
    producer = client.producer(bootstrap, sending)
    sent = {}
    for batch in range(5):
        events = [Event(b"%d" % (batch * 100 + n), b"key %d" % n) for n in range(100)]
        sent.update(zip(producer.produce(topic, events), events, strict=True))
    producer.close()
    received = read_topic(client, bootstrap, topic, 500)
    assert {place: event.value for place, event in received} == {place: event.value for place, event in sent.items()}
    assert {place.partition for place in sent} == {0, 1, 2}


def test_without_acknowledgements_records_arrive_in_order(bootstrap, client, topic, our_admin) -> None:
    our_admin.create_topic(topic)
    events = [Event(b"%d" % n) for n in range(500)]
    producer = client.producer(bootstrap, Sending(acks=0))
    producer.produce(topic, events, partition=0)
    producer.close()
    assert [event.value for _, event in read_topic(client, bootstrap, topic, 500)] == [e.value for e in events]


def test_a_record_without_a_timestamp_gets_the_time_of_sending(bootstrap, client, topic) -> None:
    producer = client.producer(bootstrap)
    producer.produce(topic, [Event(b"now")])
    producer.close()
    ((_, event),) = read_topic(client, bootstrap, topic, 1)
    assert event.timestamp_ms > BASE_TIMESTAMP_MS


def test_records_of_a_topic_with_append_time_get_the_time_of_the_broker(bootstrap, client, topic, our_admin) -> None:
    our_admin.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    producer = client.producer(bootstrap, Sending(compression="lz4"))
    producer.produce(topic, [Event(b"%d" % n, timestamp_ms=n) for n in range(10)])
    producer.close()
    for reader in CLIENTS:
        received = read_topic(reader, bootstrap, topic, 10)
        assert min(event.timestamp_ms for _, event in received) > BASE_TIMESTAMP_MS, reader.name


def test_producing_creates_the_topic(bootstrap, client, topic, our_admin) -> None:
    producer = client.producer(bootstrap)
    assert producer.produce(topic, [Event(b"first")]) == [Place(0, 0)]
    producer.close()
    assert our_admin.partition_counts()[topic] == 1


def test_a_message_over_the_limit_is_refused_and_the_next_taken(bootstrap, client, topic, our_admin) -> None:
    our_admin.create_topic(topic, config={"max.message.bytes": "10000"})
    producer = client.producer(bootstrap)
    producer.produce(topic, [Event(bytes(9_000))])
    with pytest.raises(ApiError) as refused:
        producer.produce(topic, [Event(bytes(11_000))])
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert producer.produce(topic, [Event(b"small")]) == [Place(0, 1)]
    producer.close()


def test_large_messages_pass_where_the_limit_is_raised(bootstrap, client, topic, our_admin) -> None:
    our_admin.create_topic(topic, config={"max.message.bytes": str(4 * 1024 * 1024)})
    sizes = [1024 * 1024, 3 * 1024 * 1024, 10]
    events = [Event(bytes([n]) * size) for n, size in enumerate(sizes)]
    producer = client.producer(bootstrap)
    for event in events:
        producer.produce(topic, [event])
    producer.close()
    for reader in CLIENTS:
        received = read_topic(reader, bootstrap, topic, len(events))
        assert [event.value for _, event in received] == [event.value for event in events], reader.name
