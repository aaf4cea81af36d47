"""Sending in bulk and from many threads at once, against a real broker: all records arrive once, where they should."""

from __future__ import annotations

import datetime
import threading
import time
from collections import defaultdict

import pandas
import polars
import pyarrow as pa
import pytest

import barnabas
from barnabas.client.producer.record_appender import partition_for_key

DAY = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


@pytest.fixture
def topic(broker, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:60]
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=3)
    return name


def wait_for_all(bootstrap, topic, timeout_s=60.0):
    """Return all records of a topic by partition, in order."""
    with barnabas.Admin(bootstrap) as admin:
        ends = admin.end_offsets([(topic, partition) for partition in range(3)])
    records = defaultdict(list)
    with barnabas.Consumer(bootstrap) as consumer:
        consumer.assign(ends)
        consumer.seek_to_beginning()
        deadline_s = time.monotonic() + timeout_s
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline_s
            for record in consumer.poll(max_records=50_000):
                records[record.partition].append(record)
    return records


@pytest.mark.parametrize("acks", ["all", "1"])
def test_many_threads_send_past_the_lock_and_nothing_is_lost_or_out_of_order(broker, topic, acks):
    threads_count, each_count = 4, 30_000
    failures = []

    def run(number):
        try:
            key = b"thread-%d" % number
            for place in range(each_count):
                if place % 3:
                    producer.send(topic, b"%d %d" % (number, place), key)
                elif place % 1000:
                    producer.send(topic, b"%d %d" % (number, place), partition=number % 3)
                else:
                    producer.send_many(topic, [b"%d %d" % (number, place)], keys=[key])
        except BaseException as error:
            failures.append(error)
            raise

    with barnabas.Producer(broker.bootstrap, acks=acks, batch_size=4_000, buffer_memory=100_000) as producer:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert not failures
    seen = defaultdict(list)
    for records in wait_for_all(broker.bootstrap, topic).values():
        for record in records:
            number, place = map(int, record.value.split())
            seen[number, record.key, record.partition].append(place)
    for places in seen.values():
        assert places == sorted(places)
    for number in range(threads_count):
        places = [place for (owner, _, _), some in seen.items() if owner == number for place in some]
        assert sorted(places) == list(range(each_count))


def test_memory_stays_within_its_bound_while_sending(broker, topic):
    with barnabas.Producer(broker.bootstrap, buffer_memory=200_000, batch_size=16_384, acks=1) as producer:
        most = 0
        for _ in range(50_000):
            producer.send(topic, b"x" * 100)
            most = max(most, producer.metrics()["buffered_bytes"])
        producer.flush()
        assert most <= 200_000
        assert producer.metrics()["buffered_bytes"] == 0


def test_every_delivery_knows_the_offset_of_its_record(broker, topic):
    with barnabas.Producer(broker.bootstrap) as producer:
        deliveries = [producer.send(topic, b"%d" % number, b"key-%d" % (number % 50)) for number in range(20_000)]
        places = [delivery.result() for delivery in deliveries]
    stored = wait_for_all(broker.bootstrap, topic)
    for number, place in enumerate(places):
        record = stored[place.partition][place.offset]
        assert (record.value, record.timestamp_ms) == (b"%d" % number, place.timestamp_ms)
        assert place.partition == partition_for_key(b"key-%d" % (number % 50), 3)


def test_send_many_with_keys_puts_each_where_send_would(broker, topic):
    keys = [b"k%d" % (number % 17) if number % 5 else None for number in range(9_000)]
    values = [b"%d" % number for number in range(9_000)]
    with barnabas.Producer(broker.bootstrap) as producer:
        places = producer.send_many(topic, values, keys=keys, timestamps_ms=7).result()
    stored = wait_for_all(broker.bootstrap, topic)
    for number, place in enumerate(places):
        record = stored[place.partition][place.offset]
        assert (record.key, record.value, record.timestamp_ms) == (keys[number], values[number], 7)
        if keys[number] is not None:
            assert place.partition == partition_for_key(keys[number], 3)


def test_a_table_is_sent_row_by_row_with_keys_and_times(broker, topic):
    count = 30_000
    members = [f"m{n % 100}" for n in range(count)]
    table = pa.table(
        {
            "member": pa.chunked_array([members[:10_000], members[10_000:]]),
            "page": pa.array([b"/%d" % n if n % 7 else None for n in range(count)], pa.large_binary()),
            "at": pa.array([DAY + datetime.timedelta(milliseconds=n) for n in range(count)]),
            "other": list(range(count)),
        }
    )
    with barnabas.Producer(broker.bootstrap) as producer:
        deliveries = producer.send_arrow(topic, table, value="page", key="member", timestamp="at")
        assert len(deliveries) == count
        places = deliveries.result()
    stored = wait_for_all(broker.bootstrap, topic)
    start_ms = int(DAY.timestamp() * 1000)
    pages = table["page"].to_pylist()
    for row, place in enumerate(places):
        record = stored[place.partition][place.offset]
        assert (record.key, record.value) == (members[row].encode(), pages[row])
        assert record.timestamp_ms == place.timestamp_ms == start_ms + row
        assert place.partition == partition_for_key(record.key, 3)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", None, b"", b"ddd"]),
        pa.array(["a", None, "", "ddd"]),
        pa.array(["a", None, "", "ddd"], pa.large_string()),
        pa.array([b"a", None, b"", b"ddd"], pa.binary_view()),
        pa.array(["a", None, "", "ddd"]).dictionary_encode(),
        pa.array([b"no", b"a", None, b"", b"ddd"]).slice(1),
        pa.chunked_array([[b"a", None], [], [b"", b"ddd"]]),
        pa.record_batch({"value": [b"a", None, b"", b"ddd"]}),
        pa.table({"whatever": ["a", None, "", "ddd"]}),
        pandas.DataFrame({"value": ["a", None, "", "ddd"]}),
        polars.DataFrame({"value": [b"a", None, b"", b"ddd"]}),
        polars.Series(["a", None, "", "ddd"]),
    ],
    ids=lambda column: type(column).__name__ + str(getattr(column, "type", ""))[:12],
)
def test_columns_of_every_binary_kind_are_sent(broker, topic, column):
    with barnabas.Producer(broker.bootstrap, partitioner=lambda topic, key, count: 1) as producer:
        assert [place.offset for place in producer.send_arrow(topic, column).result()] == [0, 1, 2, 3]
    assert [record.value for record in wait_for_all(broker.bootstrap, topic)[1]] == [b"a", None, b"", b"ddd"]


def test_what_is_no_column_of_bytes_is_refused_by_name(broker, topic):
    table = pa.table({"n": [1, 2], "value": ["a", "b"], "at": [None, 1]})
    with barnabas.Producer(broker.bootstrap) as producer:
        with pytest.raises(TypeError, match="n has values of type int64; they must be binary or string"):
            producer.send_arrow(topic, table, value="n")
        with pytest.raises(barnabas.ConfigurationError, match="there is no column 'k'; there are n, value, at"):
            producer.send_arrow(topic, table, key="k")
        with pytest.raises(ValueError, match="at has 1 nulls"):
            producer.send_arrow(topic, table, timestamp="at")
        with pytest.raises(TypeError, match="timestamps, or int64"):
            producer.send_arrow(topic, table, timestamp="value")
        with pytest.raises(TypeError, match=r"takes Arrow data .* not list"):
            producer.send_arrow(topic, [b"a"])
        with pytest.raises(barnabas.ApiError, match="MESSAGE_TOO_LARGE"):
            producer.send_arrow(topic, pa.array([b"x" * 2_000_000]))
        with pytest.raises(barnabas.ConfigurationError, match="partitions 0 to 2"):
            producer.send_arrow(topic, table, partition=3)
        producer.send_arrow(topic, table.slice(0, 0))
        producer.flush()
    assert wait_for_all(broker.bootstrap, topic) == {}


def test_arrow_and_single_records_share_batches_without_harm(broker, topic):
    """One thread sends tables, outside of the interpreter lock; another sends records to the same batches."""
    values = pa.array([b"arrow"] * 50_000)
    singles = 50_000

    def send_singles():
        for _ in range(singles):
            producer.send(topic, b"single")

    with barnabas.Producer(broker.bootstrap, acks=1) as producer:
        thread = threading.Thread(target=send_singles)
        thread.start()
        for _ in range(4):
            producer.send_arrow(topic, values)
        thread.join()
        producer.flush()
    counts = defaultdict(int)
    for records in wait_for_all(broker.bootstrap, topic).values():
        for record in records:
            counts[record.value] += 1
    assert counts == {b"arrow": 4 * len(values), b"single": singles}
