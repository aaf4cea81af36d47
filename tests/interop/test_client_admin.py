"""Admin and RangeReader against a real broker process."""

from __future__ import annotations

import asyncio
import threading

import pytest

import barnabas
from barnabas import OffsetAndMetadata, TopicPartition
from barnabas.client.range_reader import RangeReader
from barnabas.records import iter_headers, read_records


@pytest.fixture
def admin(broker):
    with barnabas.Admin(broker.bootstrap) as made:
        yield made


def test_offsets_of_many_groups_are_read_together(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("of-groups", 2)
        groups = [f"of-groups-{number}" for number in range(150)]
        for number, group in enumerate(groups):
            admin.set_group_offsets(group, {("of-groups", number % 2): 0})
        found = admin.offsets_of_groups([*groups, "absent"])
        assert found.pop("absent", {}) == {}
        assert found == {group: admin.group_offsets(group) for group in groups}


def test_topics_are_created_described_and_deleted(broker, admin):
    admin.create_topic("b", partitions=2)
    admin.create_topic("a", config={"retention.ms": "1000"})
    assert admin.list_topics() == ["a", "b"]
    [topic] = admin.describe_topics(["b"])
    assert topic.name == "b"
    assert len(topic.id) == 32
    assert [(each.partition, each.replicas, each.isr) for each in topic.partitions] == [
        (0, (0,), (0,)),
        (1, (0,), (0,)),
    ]
    admin.delete_topic("b")
    assert [topic.name for topic in admin.describe_topics()] == ["a"]


def test_an_asynchronous_administrator_does_the_same(broker):
    async def main():
        async with barnabas.AsyncAdmin(broker.bootstrap) as admin:
            await admin.create_topic("a", partitions=2)
            with pytest.raises(barnabas.ApiError, match="TOPIC_ALREADY_EXISTS"):
                await admin.create_topic("a")
            await asyncio.gather(*(admin.set_group_offsets(f"g{number}", {("a", 1): number}) for number in range(4)))
            assert (await admin.group_offsets("g3"))["a", 1].offset == 3
            assert await admin.end_offsets([("a", 0)]) == {("a", 0): 0}
            return await admin.list_topics()

    assert asyncio.run(main()) == ["a"]


def test_refusals_are_one_line_that_says_why(admin):
    admin.create_topic("a")
    with pytest.raises(barnabas.ApiError, match="TOPIC_ALREADY_EXISTS: topic a already exists"):
        admin.create_topic("a")
    with pytest.raises(barnabas.ApiError, match="INVALID_TOPIC_EXCEPTION"):
        admin.create_topic("not a topic")
    with pytest.raises(barnabas.ApiError, match="INVALID_PARTITIONS"):
        admin.create_topic("b", partitions=0)
    with pytest.raises(barnabas.ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*'c' does not exist"):
        admin.delete_topic("c")
    with pytest.raises(barnabas.ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*'c' does not exist"):
        admin.describe_topics(["c"])
    assert admin.list_topics() == ["a"]


def test_offsets_of_what_does_not_exist_fail_at_once_and_create_nothing(broker):
    """Tried again until its time is over, a call would take longer than a test may."""
    with barnabas.Admin(broker.bootstrap, default_api_timeout_ms=1_000_000) as admin:
        admin.create_topic("a", partitions=2)
        with pytest.raises(barnabas.ApiError, match="'c' does not exist"):
            admin.end_offsets([("c", 0)])
        with pytest.raises(barnabas.ApiError, match="a-2: the topic has partitions 0 to 1"):
            admin.end_offsets([("a", 2)])
        assert admin.list_topics() == ["a"]


def test_brokers_and_offsets(broker, admin):
    [node] = admin.brokers()
    assert f"{node.host}:{node.port}" == broker.bootstrap
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("t", b"", timestamp_ms=1000 + number)
    tp = TopicPartition("t", 0)
    assert admin.beginning_offsets([tp]) == {tp: 0}
    assert admin.end_offsets([tp]) == {tp: 10}
    assert admin.offsets_for_times({tp: 1005})[tp] == (5, 1005)


def test_group_offsets_can_be_set_and_come_back(broker, admin):
    admin.create_topic("t", partitions=3)
    assert admin.group_offsets("g") == {}
    admin.set_group_offsets("g", {("t", 0): 5, ("t", 2): OffsetAndMetadata(7, "why")})
    found = admin.group_offsets("g")
    assert {tp: each[:2] for tp, each in found.items()} == {("t", 0): (5, ""), ("t", 2): (7, "why")}


def test_no_broker_is_said_with_its_address(broker):
    broker.stop()
    with (
        barnabas.Admin(broker.bootstrap, default_api_timeout_ms=300) as admin,
        pytest.raises(barnabas.TimedOutError, match=rf"no broker at {broker.bootstrap}.*barnabas up"),
    ):
        admin.list_topics()


@pytest.mark.parametrize("fetch_max_bytes", [1, 5_000, 10_000_000])
def test_a_range_is_read_whole_and_only_once(broker, fetch_max_bytes):
    with barnabas.Producer(broker.bootstrap, batch_size=2_000) as producer:
        producer.send_many("t", [b"%d" % number for number in range(2_000)])
    values = []
    last_end = 0
    with RangeReader(broker.bootstrap, "t", 0, 333, 1_777, fetch_max_bytes=fetch_max_bytes) as reader:
        for data in reader:
            first = next(iter_headers(data, partial_ok=True))[1]
            assert first.base_offset == last_end or not last_end
            last_end = max(header.next_offset for _, header in iter_headers(data, partial_ok=True))
            values += [record.value for record in read_records(data, "t", 0) if 333 <= record.offset < 1_777]
    assert values == [b"%d" % number for number in range(333, 1_777)]


def test_an_empty_range_reads_nothing(broker, admin):
    admin.create_topic("t")
    with RangeReader(broker.bootstrap, "t", 0, 0, 0) as reader:
        assert list(reader) == []


def test_a_range_that_does_not_exist_is_an_error(broker, admin):
    admin.create_topic("t")
    with (
        RangeReader(broker.bootstrap, "t", 0, 10, 20) as reader,
        pytest.raises(barnabas.ApiError, match="OFFSET_OUT_OF_RANGE: t-0 at offset 10"),
    ):
        next(reader)
    with (
        RangeReader(broker.bootstrap, "u", 0, 0, 20) as reader,
        pytest.raises(barnabas.ApiError, match="u-0 does not exist"),
    ):
        next(reader)
    assert admin.list_topics() == ["t"]


def test_many_threads_share_a_producer(broker, admin):
    admin.create_topic("t", partitions=3)
    with barnabas.Producer(broker.bootstrap, batch_size=1_000, buffer_memory=20_000) as producer:

        def send(thread):
            for number in range(2_000):
                producer.send("t", b"%d" % number, key=b"%d" % thread)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        seen = {}
        for count, record in enumerate(consumer, 1):
            seen.setdefault(record.key, []).append(int(record.value))
            if count == 8_000:
                break
    assert seen == {b"%d" % thread: list(range(2_000)) for thread in range(4)}


def test_send_many_with_keys_timestamps_and_headers(broker, admin):
    admin.create_topic("t", partitions=3)
    with barnabas.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": "1"}) as producer:
        deliveries = producer.send_many(
            "t",
            [b"%d" % number for number in range(30)],
            keys=[b"%d" % (number % 7) for number in range(30)],
            timestamps_ms=range(1_000, 1_030),
            headers=[[("n", b"%d" % number)] for number in range(30)],
        )
        places = deliveries.result(60)
        with pytest.raises(ValueError, match="29 keys for 30 values"):
            producer.send_many("t", [b""] * 30, keys=[b""] * 29)
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        records = {}
        while len(records) < 30:
            records.update({(record.partition, record.offset): record for record in consumer.poll()})
    for number, place in enumerate(places):
        record = records[place.partition, place.offset]
        assert (record.value, record.key) == (b"%d" % number, b"%d" % (number % 7))
        assert (record.timestamp_ms, record.headers) == (1_000 + number, (("n", b"%d" % number),))


def test_a_partition_function_of_ones_own(broker, admin):
    admin.create_topic("t", partitions=5)
    with barnabas.Producer(broker.bootstrap, partitioner=lambda topic, key, count: count - 1) as producer:
        assert producer.send("t", b"", key=b"k").result(60).partition == 4
        assert producer.send("t", b"", partition=2).result(60).partition == 2
        assert {each.partition for each in producer.send_many("t", [b""] * 3).result(60)} == {4}
        with pytest.raises(barnabas.ConfigurationError, match="partitions 0 to 4, but no partition 5"):
            producer.send("t", b"", partition=5)


def test_callbacks_tell_of_every_delivery(broker):
    got = []
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("t", b"%d" % number).add_done_callback(lambda delivery: got.append(delivery.result().offset))
        producer.flush()
    assert got == list(range(100))
