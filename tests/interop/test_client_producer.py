"""Our producer against a real broker process: what is acknowledged is there once and in order, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict

import aiokafka
import confluent_kafka
import kafka
import pytest

import barnabas


def read_all(bootstrap, topic, *, timeout_s=60.0):
    """Return the values of each partition, in order, read by a fresh consumer from beginning to end."""
    with barnabas.Consumer(bootstrap) as consumer:
        with barnabas.Admin(bootstrap) as admin:
            partitions = [(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]
            ends = admin.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        values = defaultdict(list)
        deadline = time.monotonic() + timeout_s
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline
            for record in consumer.poll(max_records=10_000):
                values[record.partition].append(record.value)
    return values


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_what_we_produce(broker, compression):
    with barnabas.Producer(broker.bootstrap, compression_type=compression) as producer:
        for number in range(100):
            producer.send(
                "mixed",
                b"value-%d" % number * 20,
                key=b"key-%d" % number if number % 2 else None,
                headers=[("n", b"%d" % number), ("null", None)],
                timestamp_ms=1_700_000_000_000 + number,
                partition=0,
            )

    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "a", "auto.offset.reset": "earliest", "check.crcs": True}
    )
    theirs.subscribe(["mixed"])
    got = theirs.consume(100, timeout=60)
    theirs.close()
    assert [message.value() for message in got] == [b"value-%d" % number * 20 for number in range(100)]
    assert [message.key() for message in got] == [b"key-%d" % n if n % 2 else None for n in range(100)]
    assert got[7].headers() == [("n", b"7"), ("null", None)]
    assert got[7].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_007)

    python = kafka.KafkaConsumer("mixed", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    records = [next(python) for _ in range(100)]
    python.close()
    assert [record.value for record in records] == [message.value() for message in got]
    assert records[7].headers == [("n", b"7"), ("null", None)]

    records = asyncio.run(read_with_aiokafka(broker.bootstrap, "mixed", 100))
    assert [record.value for record in records] == [message.value() for message in got]
    assert records[7].headers == (("n", b"7"), ("null", None))


async def read_with_aiokafka(bootstrap, topic, count):
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


def test_headers_may_be_a_dict_and_objects_may_be_sent_through_serializers(broker):
    with barnabas.Producer(
        broker.bootstrap, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()
    ) as producer:
        assert producer.partitions_for_topic("clicks") == [0]
        producer.send("clicks", {"a": 1}, "k", headers={"trace": b"7", "null": None})
        producer.send_many("clicks", [None, [2]], keys=["k", None], headers=[{}, {"n": b"2"}])
        producer.flush()
        with pytest.raises(TypeError, match="not JSON serializable") as raised:
            producer.send("clicks", {1, 2})
        assert raised.value.__notes__ == ["value_serializer raised this error for a record of topic 'clicks'"]
        assert producer.metrics()["records_total"] == 3
    with barnabas.Consumer(broker.bootstrap) as consumer:
        consumer.assign([("clicks", 0)])
        consumer.seek_to_beginning()
        records = [next(consumer) for _ in range(3)]
    assert [(each.key, each.value) for each in records] == [(b"k", b'{"a": 1}'), (b"k", None), (None, b"[2]")]
    assert [list(each.headers) for each in records] == [[("trace", b"7"), ("null", None)], [], [("n", b"2")]]


def test_a_callback_cannot_close_its_producer_which_can_be_closed_after_that(broker):
    errors: list[BaseException] = []
    called = threading.Event()
    producer = barnabas.Producer(broker.bootstrap)

    def close(delivery: barnabas.Delivery) -> None:
        try:
            producer.close()
        except barnabas.ClosedError as error:
            errors.append(error)
        called.set()

    producer.send("closing", b"x").add_done_callback(close)
    assert called.wait(60)
    assert len(errors) == 1
    producer.send("closing", b"y")
    producer.close()
    with pytest.raises(barnabas.ClosedError):
        producer.send("closing", b"z")


def test_a_subclass_may_have_a_send_of_its_own(broker):
    class Counting(barnabas.Producer):
        sent = 0

        def send(self, *args, **kwargs):
            self.sent += 1
            return super().send(*args, **kwargs)

    with Counting(broker.bootstrap) as producer:
        assert producer.send("clicks", b"a").result().offset == 0
        assert producer.sent == 1


def test_keys_go_where_librdkafka_with_murmur2_puts_them(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("ours", partitions=7)
        admin.create_topic("theirs", partitions=7)
    keys = [os.urandom(size) for size in range(1, 60)]
    theirs = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    placed = {}
    for key in keys:
        theirs.produce("theirs", b"", key, on_delivery=lambda _, message: placed.update({message.key(): message}))
    theirs.flush()
    with barnabas.Producer(broker.bootstrap) as producer:
        ours = {key: producer.send("ours", b"", key) for key in keys}
        producer.flush()
    assert {key: each.result().partition for key, each in ours.items()} == {
        key: message.partition() for key, message in placed.items()
    }


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_setting_delivers(broker, acks):
    with barnabas.Producer(broker.bootstrap, acks=acks) as producer:
        deliveries = [producer.send("clicks", b"%d" % number, partition=0) for number in range(1000)]
    assert all(delivery.exception() is None for delivery in deliveries)
    known = [delivery.result().offset for delivery in deliveries]
    assert known == ([-1] * 1000 if acks == 0 else list(range(1000)))
    assert read_all(broker.bootstrap, "clicks")[0] == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_kill_9_loses_nothing_doubles_nothing_and_keeps_the_order(broker, compression):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=3)

    def kill_now_and_then():
        for _ in range(4):
            wait_for_offset(broker.bootstrap, lambda end, start: end > start + 3_000)
            broker.kill()
            broker.restart()

    killer = threading.Thread(target=kill_now_and_then)
    with barnabas.Producer(
        broker.bootstrap, compression_type=compression, batch_size=4096, linger_ms=1, retry_backoff_max_ms=200
    ) as producer:
        producer.partitions_for("clicks")
        killer.start()
        deliveries = []
        while killer.is_alive():
            number = len(deliveries)
            deliveries.append(producer.send("clicks", b"%d" % number, partition=number % 3))
            if number >= 1_000 and number % 100 == 0:
                deliveries[number - 1_000].result(60)  # always some under way, never all at once
        killer.join()
        producer.flush(60)
    results = [delivery.result() for delivery in deliveries]
    values = read_all(broker.bootstrap, "clicks")
    for partition in range(3):
        assert values[partition] == [b"%d" % number for number in range(partition, len(deliveries), 3)]
    for number, result in enumerate(results):
        # An answer that was lost with the broker is known as a duplicate later, with its offset.
        assert result.offset == number // 3


def wait_for_offset(bootstrap, reached, timeout_s=60.0):
    """Wait until `reached(end offset of clicks-0 now, the one at the beginning)`."""
    deadline = time.monotonic() + timeout_s
    with barnabas.Admin(bootstrap) as admin:
        start = admin.end_offsets([("clicks", 0)])["clicks", 0]
        while not reached(admin.end_offsets([("clicks", 0)])["clicks", 0], start):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_broker_that_is_down_at_first_is_waited_for(broker):
    broker.stop()
    with barnabas.Producer(broker.bootstrap, max_block_ms=60_000) as producer:
        starter = threading.Timer(0.5, broker.restart)
        starter.start()
        assert producer.send("clicks", b"late").result(60).offset == 0
        starter.join()


def test_a_broker_that_is_down_is_named_in_the_error(broker):
    broker.stop()
    with (
        barnabas.Producer(broker.bootstrap, max_block_ms=300) as producer,
        pytest.raises(barnabas.TimedOutError, match=f"no broker at {broker.bootstrap}.*barnabas up"),
    ):
        producer.send("clicks", b"")


def test_records_that_nobody_takes_fail_after_the_delivery_timeout(broker):
    with barnabas.Producer(broker.bootstrap, delivery_timeout_ms=1000) as producer:
        while producer.send("clicks", b"taken").exception() is not None:
            pass  # a machine may need longer to make a topic
        broker.kill()
        delivery = producer.send("clicks", b"left")
        with pytest.raises(barnabas.TimedOutError, match="delivery_timeout_ms=1000"):
            delivery.result(60)


def test_deleted_topic_comes_back_only_when_somebody_sends_to_it(broker):
    with barnabas.Admin(broker.bootstrap) as admin, barnabas.Producer(broker.bootstrap) as producer:
        producer.send("gone", b"1").result(60)
        admin.delete_topic("gone")
        for number in range(3):  # a topic that is new to the producer has it refresh its metadata
            admin.create_topic(f"other-{number}", partitions=1)
            producer.send(f"other-{number}", b"1").result(60)
        assert "gone" not in admin.list_topics()
        producer.send("gone", b"2").result(60)
        assert "gone" in admin.list_topics()


def test_a_full_buffer_blocks_and_then_raises(broker):
    producer = barnabas.Producer(broker.bootstrap, buffer_memory=50_000, max_block_ms=2_000)
    producer.send("clicks", b"taken").result(60)
    broker.kill()
    with pytest.raises(barnabas.BufferFullError, match="50000 bytes"):
        producer.send_many("clicks", [bytes(1000)] * 100)
    with pytest.raises(barnabas.TimedOutError, match="still on their way"):
        producer.close(timeout_s=0.01)


def test_a_batch_that_the_topic_finds_too_large_is_split(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("small", config={"max.message.bytes": "5000"})
    with barnabas.Producer(broker.bootstrap) as producer:
        deliveries = [producer.send("small", b"%03d" % number * 30) for number in range(200)]
        large = producer.send("small", bytes(6000))
        after = producer.send("small", b"after")
        producer.flush(60)
    assert [delivery.result().offset for delivery in deliveries] == list(range(200))
    assert large.exception().code is barnabas.ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(large.exception())
    assert after.result().offset == 200
    assert read_all(broker.bootstrap, "small")[0][:200] == [b"%03d" % number * 30 for number in range(200)]


def test_the_end_of_the_program_delivers_what_was_sent(broker):
    program = f"""
import barnabas
producer = barnabas.Producer({broker.bootstrap!r}, linger_ms=5000)
for number in range(1000):
    producer.send("clicks", b"%d" % number, partition=0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert len(read_all(broker.bootstrap, "clicks")[0]) == 1000


def test_the_end_of_the_program_says_what_could_not_be_delivered(broker):
    program = f"""
import barnabas, os, signal
producer = barnabas.Producer({broker.bootstrap!r}, delivery_timeout_ms=1000)
while producer.send("clicks", b"").exception() is not None:
    pass  # a machine may need longer to make a topic
os.kill({broker.pid}, signal.SIGKILL)
producer.send("clicks", b"left")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert b"the producer lost 1 record for clicks-0" in run.stderr


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(broker):
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send("clicks", b"before").result(60)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send("clicks", b"child")
            except barnabas.ClosedError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send("clicks", b"after").result(60).offset == 1


def test_ctrl_c_interrupts_a_wait(broker):
    program = f"""
import barnabas, threading, time
consumer = barnabas.Consumer({broker.bootstrap!r}, group="g")
consumer.subscribe("clicks")

def tell_when_it_waits():
    while not consumer._core.state.waiting:
        time.sleep(0.01)
    print("reading", flush=True)

threading.Thread(target=tell_when_it_waits).start()
try:
    for record in consumer:
        pass
except KeyboardInterrupt:
    consumer.close()
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"reading\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"interrupted\n"
    assert process.wait(60) == 0
    process.stdout.close()
