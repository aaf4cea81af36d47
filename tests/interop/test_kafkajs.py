"""kafkajs, the client for Node.js: records, groups, offsets, topics and settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndMetadata
from tests.interop.clients.kafkajs import KafkaJs, KafkaJsAdmin, install
from tests.interop.clients.neutral import Event, Membership, Place, Received, Sending
from tests.interop.conftest import CLIENTS
from tests.support.group_flow import PARTITIONS, Flow, numbers_seen, shares_all
from tests.support.reading import POLL_S, Member, read, read_topic, wait_until

BASE_TIMESTAMP_MS = 1_700_000_000_000
RECORDS = 20
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if reason := install():
        pytest.skip(reason)


@pytest.fixture
def kafkajs() -> KafkaJs:
    return KafkaJs()


@pytest.fixture
def admin(bootstrap, kafkajs) -> Iterator[KafkaJsAdmin]:
    with contextlib.closing(kafkajs.admin(bootstrap)) as admin:
        yield admin


@pytest.fixture
def filled_topic(bootstrap, topic, our_admin) -> str:
    """A topic with two partitions: 20 records in the first, a second between each and the next; none in the other."""
    our_admin.create_topic(topic, partitions=2)
    events = [Event(b"%d" % n, timestamp_ms=BASE_TIMESTAMP_MS + n * 1_000) for n in range(RECORDS)]
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:
        producer.produce(topic, events[:13], partition=0)
        producer.produce(topic, events[13:], partition=0)
    return topic


def events_of_all_kinds() -> list[Event]:
    odd = [
        Event(b"value", b"key", (("one", b"1"), ("one", b"again"), ("two", b"2")), BASE_TIMESTAMP_MS),
        Event(None, b"tombstone", (), BASE_TIMESTAMP_MS + 1),
        Event(b"", b"", (("empty", b""),), BASE_TIMESTAMP_MS + 2),
        Event(b"no key", None, (("ünï", "cödé".encode()),), BASE_TIMESTAMP_MS + 3),
        Event(bytes(range(256)) * 300, b"large", (), BASE_TIMESTAMP_MS + 4),
    ]
    return odd + [Event(b"value %d " % n * 20, b"%d" % n, (), BASE_TIMESTAMP_MS + n) for n in range(500)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_sends_all_read_and_what_all_send_it_reads(bootstrap, kafkajs, topic, compression) -> None:
    events, sent = events_of_all_kinds(), []
    for client in [kafkajs, *CLIENTS]:
        with contextlib.closing(client.producer(bootstrap, Sending(compression=compression))) as producer:
            places = producer.produce(topic, events, partition=0)
        sent += [Received(place, event) for place, event in zip(places, events, strict=True)]
    assert [place.offset for place, _ in sent] == list(range(len(events) * (1 + len(CLIENTS))))
    for reader in [kafkajs, *CLIENTS]:
        assert read_topic(reader, bootstrap, topic, len(sent)) == sent, reader.name


@pytest.mark.parametrize("sending", [Sending(acks=0), Sending(acks=1), Sending(acks=-1, idempotent=True)], ids=str)
def test_acknowledgements(bootstrap, kafkajs, topic, admin, sending) -> None:
    admin.create_topic(topic, partitions=3)
    with contextlib.closing(kafkajs.producer(bootstrap, sending)) as producer:
        for batch in range(5):
            producer.produce(topic, [Event(b"%d" % (batch * 100 + n), b"key %d" % n) for n in range(100)])
    received = read_topic(kafkajs, bootstrap, topic, 500)
    assert sorted(int(event.value) for _, event in received) == list(range(500))
    assert {place.partition for place, _ in received} == {0, 1, 2}


def test_large_messages_and_too_large_ones(bootstrap, kafkajs, topic, admin) -> None:
    admin.create_topic(topic, config={"max.message.bytes": str(2 * 1024 * 1024)})
    with contextlib.closing(kafkajs.producer(bootstrap)) as producer:
        assert producer.produce(topic, [Event(b"x" * 1024 * 1024)], 0) == [Place(0, 0)]
        with pytest.raises(ApiError) as refused:
            producer.produce(topic, [Event(bytes(3 * 1024 * 1024))], 0)
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert producer.produce(topic, [Event(b"small")], 0) == [Place(0, 1)]
    assert [len(event.value) for _, event in read_topic(kafkajs, bootstrap, topic, 2)] == [1024 * 1024, 5]


def test_reading_goes_on_where_it_is_told_to(bootstrap, kafkajs, filled_topic) -> None:
    with contextlib.closing(kafkajs.consumer(bootstrap, filled_topic)) as consumer:
        read(consumer, RECORDS)
        offset = consumer.offset_for_time(0, BASE_TIMESTAMP_MS + 6_500)
        assert offset == 7
        consumer.seek(0, offset)
        assert [place for place, _ in read(consumer, RECORDS - 7)] == [Place(0, n) for n in range(7, RECORDS)]
        consumer.seek(0, RECORDS + 1_000)
        assert read(consumer, RECORDS)[0].place == Place(0, 0)


def test_offsets_of_topics(filled_topic, admin) -> None:
    assert admin.topic_offsets(filled_topic) == {0: (0, RECORDS), 1: (0, 0)}
    assert admin.offsets_for_time(filled_topic, BASE_TIMESTAMP_MS + 3_000) == {0: 3, 1: 0}
    assert admin.offsets_for_time(filled_topic, BASE_TIMESTAMP_MS + 10**9) == {0: RECORDS, 1: 0}


def test_commits_and_where_the_group_goes_on(bootstrap, kafkajs, filled_topic, group, admin) -> None:
    with contextlib.closing(
        kafkajs.consumer(bootstrap, filled_topic, Membership(group=group, commits_by_itself=False))
    ) as consumer:
        read(consumer, RECORDS)
        consumer.commit({0: OffsetAndMetadata(13, "ünï")})
        assert consumer.committed(0) == OffsetAndMetadata(13, "ünï")
        assert consumer.committed(1) is None
    with contextlib.closing(kafkajs.consumer(bootstrap, filled_topic, Membership(group=group))) as consumer:
        assert [place.offset for place, _ in read(consumer, RECORDS - 13)] == list(range(13, RECORDS))
    assert admin.committed(group, filled_topic, 0) == OffsetAndMetadata(RECORDS)
    admin.call("setOffsets", groupId=group, topic=filled_topic, partitions=[{"partition": 0, "offset": "5"}])
    with contextlib.closing(kafkajs.consumer(bootstrap, filled_topic, Membership(group=group))) as consumer:
        assert read(consumer, RECORDS - 5)[0].place == Place(0, 5)


class KafkaJsFlow(Flow):
    """Sends numbers to all partitions of a topic, one by one and without duplicates."""

    def _run(self, bootstrap: str, topic: str) -> None:
        with contextlib.closing(KafkaJs().producer(bootstrap, Sending(idempotent=True))) as producer:
            while not self._ends.wait(0.01):
                for partition in range(PARTITIONS):
                    producer.produce(topic, [Event(b"%d" % self.sent)], partition)
                    self.sent += 1


def test_two_members_share_the_work_while_records_flow(bootstrap, kafkajs, topic, group, admin) -> None:
    """Nothing is lost. A rebalance may show a record twice: kafkajs goes on with a batch that it has in hand."""
    admin.create_topic(topic, partitions=PARTITIONS)
    flow = KafkaJsFlow(bootstrap, topic)
    membership = Membership(group=group)
    with Member(kafkajs, bootstrap, topic, membership) as first:
        wait_until(lambda: shares_all(first) and len(first.received) > 50, "records for the first member")
        with Member(kafkajs, bootstrap, topic, membership) as second:
            wait_until(lambda: shares_all(first, second), "a partition for each member")
            wait_until(lambda: len(second.received) > 50, "records for the second member")
            (described,) = admin.call("describeGroups", groups=[group])["groups"]
            assert described["state"] == "Stable"
            assert len(described["members"]) == 2
            first.close()
            wait_until(lambda: shares_all(second), "all partitions for the member that is left")
            sent = flow.stop()
            wait_until(lambda: len(numbers_seen(first, second)) >= sent, "all records")
    assert numbers_seen(first, second).keys() == set(range(sent))


def test_it_cannot_join_members_that_share_in_another_way(bootstrap, kafkajs, filled_topic, group) -> None:
    membership = Membership(group=group)
    with Member(CLIENTS[0], bootstrap, filled_topic, membership) as member:
        wait_until(lambda: member.assigned, "an assignment")
        stranger = kafkajs.consumer(bootstrap, filled_topic, membership)
        assert stranger.poll(POLL_S) == []
        assert stranger.assigned() == set()
        assert member.assigned == {0, 1}
        stranger.close()


def test_groups_are_listed_and_deleted(bootstrap, kafkajs, filled_topic, group, admin) -> None:
    with contextlib.closing(kafkajs.consumer(bootstrap, filled_topic, Membership(group=group))) as consumer:
        read(consumer, RECORDS)
        assert {"groupId": group, "protocolType": "consumer"} in admin.call("listGroups")["groups"]
        with pytest.raises(ApiError) as refused:
            admin.call("deleteGroups", groups=[group])
        assert refused.value.code == ErrorCode.NON_EMPTY_GROUP
    (deleted,) = admin.call("deleteGroups", groups=[group])
    assert deleted["groupId"] == group
    assert deleted["errorCode"] == 0
    assert group not in {each["groupId"] for each in admin.call("listGroups")["groups"]}


def test_topics_are_created_grown_and_deleted(bootstrap, topic, admin) -> None:
    admin.create_topic(topic, partitions=2, config={"retention.ms": "60000"})
    assert admin.partition_counts()[topic] == 2
    assert admin.brokers() == {0: bootstrap}
    admin.call("createPartitions", topicPartitions=[{"topic": topic, "count": 3}])
    assert admin.partition_counts()[topic] == 3
    with pytest.raises(ApiError) as refused:
        admin.create_topic("with space")
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    admin.delete_topic(topic)
    assert topic not in admin.partition_counts()


def test_settings_are_shown_and_changed(topic, admin) -> None:
    admin.create_topic(topic, config={"retention.ms": "60000"})
    wanted = {"type": TOPIC_RESOURCE, "name": topic, "configNames": ["retention.ms", "max.message.bytes"]}
    assert settings(admin, wanted) == {"retention.ms": "60000", "max.message.bytes": "1048588"}
    entries = [{"name": "max.message.bytes", "value": "5000"}]
    admin.call(
        "alterConfigs",
        resources=[{"type": TOPIC_RESOURCE, "name": topic, "configEntries": entries}],
        validateOnly=False,
    )
    assert settings(admin, wanted) == {"retention.ms": "604800000", "max.message.bytes": "5000"}
    assert settings(admin, {"type": BROKER_RESOURCE, "name": "0", "configNames": ["port"]}).keys() == {"port"}


def settings(admin: KafkaJsAdmin, resource: dict[str, object]) -> dict[str, str]:
    (described,) = admin.call("describeConfigs", resources=[resource], includeSynonyms=False)["resources"]
    return {each["configName"]: each["configValue"] for each in described["configEntries"]}


def test_records_are_deleted(bootstrap, kafkajs, filled_topic, admin) -> None:
    assert admin.topic_offsets(filled_topic)[0] == (0, RECORDS)
    admin.call("deleteTopicRecords", topic=filled_topic, partitions=[{"partition": 0, "offset": "15"}])
    assert admin.topic_offsets(filled_topic)[0] == (15, RECORDS)
    assert read_topic(kafkajs, bootstrap, filled_topic, 5)[0].place == Place(0, 15)


def test_it_goes_on_when_the_broker_was_started_again(make_broker, kafkajs, topic, group) -> None:
    broker = make_broker()
    with contextlib.closing(kafkajs.admin(broker.bootstrap)) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    flow = KafkaJsFlow(broker.bootstrap, topic)
    with Member(kafkajs, broker.bootstrap, topic, Membership(group=group)) as member:
        for end in (broker.stop, broker.kill):
            seen = len(member.received)
            wait_until(lambda seen=seen: len(member.received) > seen + 50, "records")  # type: ignore[misc]
            end()
            broker.restart()
        seen = len(member.received)
        wait_until(lambda: len(member.received) > seen + 50, "records after it is back")
        sent = flow.stop()
        wait_until(lambda: len(numbers_seen(member)) >= sent, "all records")


def test_a_topic_can_be_deleted_under_a_running_consumer(bootstrap, kafkajs, filled_topic, group, admin) -> None:
    with contextlib.closing(kafkajs.consumer(bootstrap, filled_topic, Membership(group=group))) as consumer:
        read(consumer, RECORDS)
        admin.delete_topic(filled_topic)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert consumer.poll(POLL_S) == []
    assert filled_topic not in admin.partition_counts()
