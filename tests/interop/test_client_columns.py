"""Reading columns with our consumer from a real broker: alone, in a group, mixed with the other ways, with damage."""

from __future__ import annotations

import datetime
import sys

import pytest

import barnabas
from barnabas import TopicPartition

pyarrow = pytest.importorskip("pyarrow")

COUNT = 400
PARTITIONS = 4
SETTINGS = {"auto_offset_reset": "earliest"}
NAMES = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]


def fill(bootstrap, topic):
    """A hundred records in each partition, numbered through."""
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with barnabas.Producer(bootstrap, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(
                topic,
                b"%d" % number,
                key=b"k" if number % 2 else None,
                headers=[("h", b"%d" % number)],
                partition=number % PARTITIONS,
                timestamp_ms=1_000_000 + number,
            )
    return topic


@pytest.fixture
def filled(bootstrap, topic):
    return fill(bootstrap, topic)


def read_columns(consumer, count, max_records=100_000):
    batches = []
    while sum(batch.num_rows for batch in batches) < count:
        batches.append(consumer.poll_arrow(max_records=max_records, timeout_s=60))
        assert 0 < batches[-1].num_rows <= max_records
    return pyarrow.Table.from_batches(batches)


@pytest.mark.parametrize("max_records", [1, 7, 100_000])
def test_columns_hold_what_records_hold(bootstrap, filled, max_records):
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.subscribe(filled)
        table = read_columns(consumer, COUNT, max_records)
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.subscribe(filled)
        records = [record for _, record in zip(range(COUNT), consumer, strict=False)]
    assert table.column_names == NAMES
    rows = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
    records.sort(key=lambda record: (record.partition, record.offset))
    for row, record in zip(rows, records, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (record.topic, record.partition, record.offset)
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert row["timestamp"] == datetime.datetime.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC)
        assert row["timestamp_type"] == record.timestamp_type
        assert [(each["name"], each["value"]) for each in row["headers"]] == list(record.headers)


def test_nothing_in_time_is_no_rows_with_all_columns(bootstrap, filled):
    with barnabas.Consumer(bootstrap) as consumer:
        consumer.subscribe(filled)
        columns = consumer.poll_arrow(timeout_s=0.1)
        assert (columns.num_rows, columns.schema.names) == (0, NAMES)


def test_ways_of_reading_may_be_mixed_and_read_a_chunk_once(bootstrap, filled):
    with barnabas.Consumer(bootstrap, max_poll_records=5, **SETTINGS) as consumer:
        consumer.assign([(filled, 0)])
        offsets = [next(consumer).offset for _ in range(3)]
        offsets += consumer.poll_arrow(max_records=7)["offset"].to_pylist()
        version = consumer._core.state.subscription.state(TopicPartition(filled, 0)).version
        offsets += [record.offset for record in consumer.poll(max_records=7)]
        offsets += consumer.poll_arrow(max_records=1)["offset"].to_pylist()
        offsets += [next(consumer).offset for _ in range(8)]
        offsets += consumer.poll_arrow()["offset"].to_pylist()
        assert offsets == list(range(100))
        assert consumer.position((filled, 0)) == 100
        # Whatever is fetched again gets another version.
        assert consumer._core.state.subscription.state(TopicPartition(filled, 0)).version == version


def test_an_iterator_does_not_repeat_what_another_way_of_reading_went_on_with(bootstrap, filled):
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.assign([(filled, 0)])
        iterator = iter(consumer)
        offsets = [next(iterator).offset for _ in range(3)]
        offsets += consumer.poll_arrow(max_records=4)["offset"].to_pylist()
        offsets += [next(iterator).offset for _ in range(3)]
        offsets += [record.offset for record in consumer.poll(max_records=3)]
        offsets += [next(iterator).offset for _ in range(3)]
    assert offsets == list(range(16))


def test_the_next_poll_says_that_columns_are_dealt_with(bootstrap, filled, group):
    tp = TopicPartition(filled, 0)
    settings = {**SETTINGS, "auto_commit_interval_ms": 20}
    with barnabas.Consumer(bootstrap, group=group, **settings) as consumer:
        consumer.assign([tp])
        assert consumer.poll_arrow(max_records=10, timeout_s=60).num_rows == 10
        assert consumer.position(tp) == 10
        assert (consumer.committed(tp) or (0,))[0] == 0
        assert consumer.poll_arrow(max_records=5)["offset"].to_pylist() == list(range(10, 15))
        while (consumer.committed(tp) or (0,))[0] == 0:
            assert consumer.position(tp) == 15
        assert consumer.committed(tp).offset == 10
        consumer.commit()
        assert consumer.committed(tp).offset == 15


def test_columns_not_dealt_with_when_a_handler_fails_come_again(bootstrap, filled, group):
    def handle_until_it_fails():
        with barnabas.Consumer(bootstrap, group=group, **SETTINGS) as consumer:
            consumer.subscribe(filled)
            read_columns(consumer, 150, max_records=50)
            raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        handle_until_it_fails()
    with barnabas.Admin(bootstrap) as admin:
        assert sum(each.offset for each in admin.group_offsets(group).values()) == 100


def test_two_members_share_and_read_all_once(bootstrap, filled, group):
    settings = {**SETTINGS, "session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
    with (
        barnabas.Consumer(bootstrap, group=group, **settings) as first,
        barnabas.Consumer(bootstrap, group=group, **settings) as second,
    ):
        for consumer in (first, second):
            consumer.subscribe(filled)
        seen = []
        while len(seen) < COUNT or len(first.assignment()) != 2 or len(second.assignment()) != 2:
            for consumer in (first, second):
                columns = consumer.poll_arrow(max_records=30, timeout_s=0.05)
                seen += [int(value) for value in columns["value"].to_pylist()]
    assert sorted(seen) == list(range(COUNT))


def test_a_seek_and_a_pause_take_effect_with_the_next_columns(bootstrap, filled):
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        first = consumer.poll_arrow(max_records=3, timeout_s=60)
        partition = first["partition"][0].as_py()
        consumer.seek((filled, partition), 50)
        consumer.pause((filled, 1 - partition))
        table = read_columns(consumer, 50)
        assert table["offset"].to_pylist() == list(range(50, 100))
        assert set(table["partition"].to_pylist()) == {partition}
        consumer.resume((filled, 1 - partition))
        assert sorted(read_columns(consumer, 100)["offset"].to_pylist()) == list(range(100))


def test_damage_is_named_after_what_is_whole_and_can_be_passed(broker):
    filled = fill(broker.bootstrap, "clicks")
    with (broker.data / f"{filled}-0" / "00000000000000000000.log").open("r+b") as segment:
        size = segment.seek(0, 2)
        segment.seek(size // 2)
        byte = segment.read(1)[0]
        segment.seek(size // 2)
        segment.write(bytes([byte ^ 1]))
    tp = (filled, 0)
    with barnabas.Consumer(broker.bootstrap, **SETTINGS) as consumer:
        consumer.assign([tp])
        before = consumer.poll_arrow(timeout_s=60)
        assert before["offset"].to_pylist() == list(range(before.num_rows))
        assert 0 < before.num_rows < 99
        for poll in (consumer.poll_arrow, consumer.poll, consumer.poll_arrow, lambda **_: next(consumer)):
            with pytest.raises(barnabas.CorruptBatchError, match=rf"{filled}-0 at offset {before.num_rows}: .*seek"):
                poll(timeout_s=60)
        assert consumer.position(tp) == before.num_rows
        consumer.seek(tp, 99)
        assert next(consumer).offset == 99


def test_data_frames_of_pandas(bootstrap, filled):
    pytest.importorskip("pandas")
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.assign([(filled, 0)])
        frame = consumer.poll_pandas(max_records=3, timeout_s=60)
    assert list(frame.columns) == NAMES
    assert list(frame["value"]) == [b"0", b"4", b"8"]


def test_data_frames_of_polars(bootstrap, filled):
    pytest.importorskip("polars")
    with barnabas.Consumer(bootstrap, **SETTINGS) as consumer:
        consumer.assign([(filled, 0)])
        frame = consumer.poll_polars(max_records=3, timeout_s=60)
    assert frame.columns == NAMES
    assert frame["value"].to_list() == [b"0", b"4", b"8"]


@pytest.mark.parametrize("package", ["polars", "pandas", "pyarrow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(bootstrap, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with barnabas.Consumer(bootstrap) as consumer:
        consumer.assign([])
        poll = {"polars": consumer.poll_polars, "pandas": consumer.poll_pandas, "pyarrow": consumer.poll_arrow}[package]
        with pytest.raises(barnabas.ConfigurationError, match="pip install"):
            poll(timeout_s=0)
