"""Offsets by every client: committed ones with metadata, beginning and end, by time, and where reading goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndMetadata
from tests.interop.clients.neutral import Client, Consumer, Event, Membership, Place
from tests.interop.conftest import CLIENTS
from tests.support.reading import POLL_S, read, wait_until

RECORDS = 20
BASE_TIMESTAMP_MS = 1_700_000_000_000
METADATA = "node-7: 3 of 5 files, ünï"
METADATA_BYTES_MAX = 4096


@pytest.fixture
def filled_topic(bootstrap, topic, our_admin) -> str:
    """A topic with two partitions: 20 records in the first, a second between each and the next; none in the other."""
    our_admin.create_topic(topic, partitions=2)
    producer = CLIENTS[0].producer(bootstrap)
    events = [Event(b"%d" % n, timestamp_ms=BASE_TIMESTAMP_MS + n * 1_000) for n in range(RECORDS)]
    producer.produce(topic, events[:13], partition=0)
    producer.produce(topic, events[13:], partition=0)
    producer.close()
    return topic


@contextlib.contextmanager
def member_of(client: Client, bootstrap: str, topic: str, group: str) -> Iterator[Consumer]:
    """A consumer that has its partitions and commits only when told to."""
    membership = Membership(group=group, commits_by_itself=False)
    with contextlib.closing(client.consumer(bootstrap, topic, membership)) as consumer:
        received = read(consumer, 1)
        assert received[0].place == Place(0, 0)
        yield consumer


def without_zero(committed: OffsetAndMetadata | None) -> OffsetAndMetadata:
    """Drop the zero byte that confluent-kafka sends after the metadata, as the end of a C string."""
    assert committed is not None
    return committed._replace(metadata=committed.metadata.removesuffix("\0"))


def test_beginning_and_end_offsets(bootstrap, client, filled_topic) -> None:
    with contextlib.closing(client.consumer(bootstrap, filled_topic)) as consumer:
        assert [consumer.beginning_offset(0), consumer.end_offset(0)] == [0, RECORDS]
        assert [consumer.beginning_offset(1), consumer.end_offset(1)] == [0, 0]


def test_offsets_for_times(bootstrap, client, filled_topic) -> None:
    with contextlib.closing(client.consumer(bootstrap, filled_topic)) as consumer:
        assert consumer.offset_for_time(0, 0) == 0
        assert consumer.offset_for_time(0, BASE_TIMESTAMP_MS + 7_000) == 7
        assert consumer.offset_for_time(0, BASE_TIMESTAMP_MS + 7_001) == 8
        assert consumer.offset_for_time(0, BASE_TIMESTAMP_MS + 13_000) == 13
        assert consumer.offset_for_time(0, BASE_TIMESTAMP_MS + (RECORDS - 1) * 1_000) == RECORDS - 1
        assert consumer.offset_for_time(0, BASE_TIMESTAMP_MS + RECORDS * 1_000) is None
        assert consumer.offset_for_time(1, BASE_TIMESTAMP_MS) is None


@pytest.mark.parametrize("offset", [0, 7, 13, RECORDS - 1])
def test_seek_goes_to_that_record_also_within_a_batch(bootstrap, client, filled_topic, offset) -> None:
    with contextlib.closing(client.consumer(bootstrap, filled_topic)) as consumer:
        read(consumer, RECORDS)
        consumer.seek(0, offset)
        received = read(consumer, RECORDS - offset)
    assert [event.value for _, event in received] == [b"%d" % n for n in range(offset, RECORDS)]
    assert [place for place, _ in received] == [Place(0, n) for n in range(offset, RECORDS)]


def test_seek_beyond_the_end_starts_again_where_the_reset_policy_says(bootstrap, client, filled_topic) -> None:
    with contextlib.closing(client.consumer(bootstrap, filled_topic)) as consumer:
        read(consumer, RECORDS)
        consumer.seek(0, RECORDS + 1_000)
        assert read(consumer, RECORDS)[0].place == Place(0, 0)


def test_nothing_is_committed_at_first(bootstrap, client, filled_topic, group) -> None:
    with member_of(client, bootstrap, filled_topic, group) as consumer:
        assert consumer.committed(0) is None
        assert consumer.committed(1) is None


def test_what_one_client_commits_with_metadata_every_client_sees(bootstrap, client, filled_topic, group) -> None:
    with member_of(client, bootstrap, filled_topic, group) as consumer:
        consumer.commit({0: OffsetAndMetadata(5, "first")})
        consumer.commit({0: OffsetAndMetadata(9, METADATA), 1: OffsetAndMetadata(0)})
    membership = Membership(group=group, commits_by_itself=False)
    for each in CLIENTS:
        if each is not client and not each.reads_metadata_of_others:
            continue
        with contextlib.closing(each.consumer(bootstrap, filled_topic, membership)) as other:
            read(other, 1)
            assert without_zero(other.committed(0)) == OffsetAndMetadata(9, METADATA), each.name
            assert without_zero(other.committed(1)) == OffsetAndMetadata(0), each.name


def test_metadata_that_is_too_long_is_refused(bootstrap, client, filled_topic, group) -> None:
    with member_of(client, bootstrap, filled_topic, group) as consumer:
        consumer.commit({0: OffsetAndMetadata(5, "x" * (METADATA_BYTES_MAX - 1))})
        with pytest.raises(ApiError) as refused:
            consumer.commit({0: OffsetAndMetadata(6, "x" * (METADATA_BYTES_MAX + 1))})
        assert refused.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = consumer.committed(0)
        assert committed is not None
        assert committed.offset == 5


def test_a_consumer_goes_on_where_its_group_stopped_whatever_client_it_is(
    bootstrap, client, other_client, filled_topic, group
) -> None:
    with member_of(client, bootstrap, filled_topic, group) as consumer:
        consumer.commit({0: OffsetAndMetadata(13)})
    membership = Membership(group=group)
    with contextlib.closing(other_client.consumer(bootstrap, filled_topic, membership)) as other:
        received = read(other, RECORDS - 13)
    assert [place.offset for place, _ in received] == list(range(13, RECORDS))
    with contextlib.closing(client.consumer(bootstrap, filled_topic, membership)) as third:
        wait_until(lambda: third.poll(POLL_S) or third.assigned(), "an assignment")
        assert third.poll(POLL_S) == []
        assert third.committed(0) == OffsetAndMetadata(RECORDS)


def test_commit_without_offsets_commits_what_was_handed_out(bootstrap, client, filled_topic, group) -> None:
    membership = Membership(group=group, commits_by_itself=False)
    with contextlib.closing(client.consumer(bootstrap, filled_topic, membership)) as consumer:
        received = read(consumer, RECORDS)
        assert len(received) == RECORDS
        consumer.commit()
        assert consumer.committed(0) == OffsetAndMetadata(RECORDS)
