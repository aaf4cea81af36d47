"""Our consumer against a real broker process: positions, groups, streams, and what survives which death."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import confluent_kafka
import kafka
import pytest

import barnabas
from barnabas import OffsetAndMetadata, TopicPartition

LONGER_THAN_ANYONE_WAITS_MS = 100_000
"""A fetch that waits for nothing would take that long, and the test fails before."""
SESSION = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}


def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


def poll_until(consumer, count, timeout_s=60.0):
    records = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records"
        records += consumer.poll(timeout_s=0.2)
    return records


@pytest.fixture
def broker(make_broker):
    """A broker that takes short sessions: a member that is killed is not waited for long."""
    return make_broker(group_min_session_timeout_ms="500")


@pytest.fixture
def topic(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=4)
    return "clicks"


@pytest.fixture
def filled(broker, topic):
    """400 records, 100 in each partition, numbered through."""
    with barnabas.Producer(broker.bootstrap, batch_size=500) as producer:
        for number in range(400):
            producer.send(topic, b"%d" % number, partition=number % 4, timestamp_ms=1_000_000 + number)
    return topic


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_what_other_clients_produce_is_read(broker, compression, client):
    values = [b"value-%d" % number * 10 for number in range(500)]
    if client == "confluent":
        theirs = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": compression, "linger.ms": 20}
        )
        for value in values:
            theirs.produce("clicks", value, b"k", headers=[("h", b"1")])
        theirs.flush()
    else:
        kind = None if compression == "none" else compression
        python = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=kind, linger_ms=20)
        for value in values:
            python.send("clicks", value, b"k", headers=[("h", b"1")])
        python.close()
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("clicks")
        records = poll_until(consumer, 500)
    assert [record.value for record in records] == values
    assert {(record.key, record.headers) for record in records} == {(b"k", (("h", b"1"),))}


def test_iteration_hands_out_everything_in_order(broker, filled):
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="smallest", max_poll_records=7) as consumer:
        consumer.subscribe(filled)
        seen = {}
        for count, record in enumerate(consumer, 1):
            seen.setdefault(record.partition, []).append(record.offset)
            assert consumer.position((record.topic, record.partition)) == record.offset + 1
            if count == 400:
                break
    assert seen == {partition: list(range(100)) for partition in range(4)}


def test_an_iteration_that_was_broken_off_goes_on_where_it_was(broker, filled):
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0)])
        first = [record.offset for record, _ in zip(consumer, range(3), strict=False)]
        second = next(consumer).offset
        third = consumer.poll(max_records=2)
    # `zip` takes one more record than it gives out.
    assert first == [0, 1, 2]
    assert second == 4
    assert [record.offset for record in third] == [5, 6]


def test_closing_commits_what_was_handed_out(broker, filled):
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(filled)
        got = len(consumer.poll(max_records=150, timeout_s=60))
    with barnabas.Admin(broker.bootstrap) as admin:
        committed = admin.group_offsets("g")
    assert sum(each.offset for each in committed.values()) == got
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(filled)
        assert len(poll_until(consumer, 400 - got)) == 400 - got
        assert consumer.poll(timeout_s=0.3) == []


def test_a_record_in_hand_when_its_handler_fails_is_handed_out_again(broker, filled):
    def handle_until_it_fails():
        with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(filled)
            for record in consumer:
                if (record.partition, record.offset) == (0, 3):
                    raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        handle_until_it_fails()
    with barnabas.Admin(broker.bootstrap) as admin:
        assert admin.group_offsets("g")[TopicPartition(filled, 0)].offset == 3


def test_auto_commit_runs_in_the_background_and_leaves_the_record_in_hand_out(broker, filled):
    with barnabas.Consumer(
        broker.bootstrap, group="g", auto_offset_reset="earliest", auto_commit_interval_ms=100
    ) as consumer:
        consumer.assign([(filled, 0)])
        for record in consumer:
            if record.offset == 10:
                wait_for(lambda: (consumer.committed((filled, 0)) or (0,))[0] == 10)
                break


def test_commit_in_the_loop_includes_the_record_in_hand_and_keeps_metadata(broker, filled):
    tp = TopicPartition(filled, 1)
    with barnabas.Consumer(
        broker.bootstrap, group="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(filled)
        assert consumer.committed(tp) is None
        for record in consumer:
            if record.partition == 1 and record.offset == 4:
                consumer.commit()
                break
        assert consumer.committed(tp).offset == 5
        consumer.commit({tp: OffsetAndMetadata(7, "by hand")})
        assert consumer.committed(tp)[:2] == (7, "by hand")
        several = [TopicPartition(filled, partition) for partition in range(4)]
        assert consumer.committed(several) == {each: consumer.committed(each) for each in several}


def test_closing_while_the_broker_is_away_ends_in_time(broker, filled):
    """Without a limit, the last commit would be tried again for longer than a test may take."""
    settings = {"auto_offset_reset": "earliest", "default_api_timeout_ms": 10_000_000}
    consumer = barnabas.Consumer(broker.bootstrap, group="blocking", **settings)
    consumer.subscribe(filled)
    wait_for(lambda: consumer.poll(timeout_s=0.1))

    async def main():
        on_a_loop = barnabas.AsyncConsumer(broker.bootstrap, group="awaiting", **settings)
        on_a_loop.subscribe(filled)
        while not await on_a_loop.poll(timeout_s=0.1):
            pass
        broker.kill()
        with pytest.raises(barnabas.TimedOutError, match="before the consumer could commit its last offsets"):
            await on_a_loop.close(timeout_s=0.1)
        with pytest.raises(barnabas.ClosedError):
            await on_a_loop.poll()

    asyncio.run(main())
    with pytest.raises(barnabas.TimedOutError, match="before the consumer could commit its last offsets"):
        consumer.close(timeout_s=0.1)
    with pytest.raises(barnabas.ClosedError):
        consumer.poll()
    consumer.close()


def test_seek_rewinds_and_skips(broker, filled):
    tp = (filled, 2)
    with barnabas.Consumer(broker.bootstrap) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 50)
        assert next(consumer).offset == 50
        consumer.seek(tp, 3)  # the middle of a batch
        assert [record.offset for record in consumer.poll(max_records=2)] == [3, 4]
        consumer.seek_to_beginning(tp)
        assert next(consumer).offset == 0
        consumer.seek_to_end(tp)
        assert consumer.position(tp) == 100
        assert consumer.poll(timeout_s=0.2) == []


def test_seek_within_a_loop_takes_effect_at_once(broker, filled):
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0)])
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            if record.offset == 5 and len(offsets) < 10:
                consumer.seek((filled, 0), 90)
            if record.offset == 99:
                break
    assert offsets == [0, 1, 2, 3, 4, 5, *range(90, 100)]


def test_offsets_by_time_and_ends(broker, filled):
    tp = TopicPartition(filled, 1)
    with barnabas.Consumer(broker.bootstrap) as consumer:
        assert consumer.offsets_for_times({tp: 1_000_000 + 41})[tp] == (10, 1_000_041)
        assert consumer.offsets_for_times({tp: 1_000_000 + 42})[tp] == (11, 1_000_045)
        assert consumer.offsets_for_times({tp: 2_000_000})[tp] is None
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 100}


def test_a_paused_partition_waits_and_loses_nothing(broker, filled):
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        first = consumer.poll(max_records=10, timeout_s=60)
        paused = (filled, first[0].partition)
        consumer.pause(paused)
        others = poll_until(consumer, 100)
        assert {record.partition for record in others} == {1 - paused[1]}
        consumer.resume(paused)
        rest = poll_until(consumer, 90)
    assert [record.offset for record in first + rest] == list(range(100))


def test_an_offset_that_is_gone_is_reset_or_reported(broker, filled):
    tp = (filled, 0)
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 5_000)
        assert poll_until(consumer, 1)[0].offset == 0
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 5_000)
        with pytest.raises(barnabas.ApiError, match=r"OFFSET_OUT_OF_RANGE.*auto_offset_reset"):
            consumer.poll(timeout_s=60)
        consumer.seek(tp, 99)
        assert poll_until(consumer, 1)[0].offset == 99


def test_latest_is_where_a_new_group_starts(broker, filled):
    with barnabas.Consumer(broker.bootstrap, group="g") as consumer:
        consumer.subscribe(filled)
        wait_for(lambda: consumer.poll(timeout_s=0.1) == [] and len(consumer.assignment()) == 4)
        for partition in range(4):
            consumer.position((filled, partition))
        with barnabas.Producer(broker.bootstrap) as producer:
            producer.send(filled, b"new").result(60)
        assert [record.value for record in poll_until(consumer, 1)] == [b"new"]


def test_two_members_share_and_take_over(broker, filled):
    events = []
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest", **SESSION) as first:
        first.subscribe(
            filled,
            on_assign=lambda tps: events.append(("+", len(tps))),
            on_revoke=lambda tps: events.append(("-", len(tps))),
        )
        seen = poll_until(first, 400)
        second = barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest", **SESSION)
        second.subscribe(filled)

        def balanced():
            seen.extend(first.poll(timeout_s=0.05))
            seen.extend(second.poll(timeout_s=0.05))
            return len(first.assignment()) == len(second.assignment()) == 2

        wait_for(balanced)
        assert first.assignment().isdisjoint(second.assignment())
        second.close()
        wait_for(lambda: seen.extend(first.poll(timeout_s=0.05)) or len(first.assignment()) == 4)
    assert len(seen) == 400  # committed before each rebalance: nothing twice
    assert events == [("+", 4), ("-", 4), ("+", 2), ("-", 2), ("+", 4)]


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_group_shared_with_another_client(broker, filled, client):
    ours = barnabas.Consumer(broker.bootstrap, group="mixed", auto_offset_reset="earliest", **SESSION)
    ours.subscribe(filled)
    stop = threading.Event()
    theirs_assigned = set()

    def run_theirs():
        if client == "confluent":
            theirs = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": "mixed",
                    "partition.assignment.strategy": "range",
                    "heartbeat.interval.ms": 300,
                }
            )
            theirs.subscribe([filled])
            while not stop.is_set():
                theirs.poll(0.1)
                theirs_assigned.clear()
                theirs_assigned.update((each.topic, each.partition) for each in theirs.assignment())
            theirs.close()
        else:
            python = kafka.KafkaConsumer(
                bootstrap_servers=broker.bootstrap,
                group_id="mixed",
                heartbeat_interval_ms=300,
                session_timeout_ms=6_000,
                partition_assignment_strategy=[
                    __import__("kafka.coordinator.assignors.range", fromlist=["x"]).RangePartitionAssignor
                ],
            )
            # As the group's leader it assigns nothing, for minutes, when its first metadata come in that moment.
            wait_for(lambda: python.partitions_for_topic(filled))
            python.subscribe([filled])
            while not stop.is_set():
                python.poll(100)
                theirs_assigned.clear()
                theirs_assigned.update((each.topic, each.partition) for each in python.assignment())
            python.close()

    thread = threading.Thread(target=run_theirs)
    thread.start()
    try:
        wait_for(
            lambda: (
                ours.poll(timeout_s=0.05) is not None
                and len(ours.assignment()) == 2
                and {tuple(tp) for tp in ours.assignment()} | theirs_assigned == {(filled, p) for p in range(4)}
            )
        )
    finally:
        stop.set()
        thread.join()
        ours.close()


MEMBER = """
import barnabas, sys
with barnabas.Consumer(sys.argv[1], group="g", auto_offset_reset="earliest", session_timeout_ms=2000,
                       heartbeat_interval_ms=300, auto_commit_interval_ms=50) as consumer:
    consumer.subscribe("clicks")
    for record in consumer:
        print(record.partition, record.offset, flush=True)
"""


def test_kill_9_of_a_member_leaves_no_gap(broker, filled):
    process = subprocess.Popen([sys.executable, "-c", MEMBER, broker.bootstrap], stdout=subprocess.PIPE, text=True)
    seen = [tuple(map(int, process.stdout.readline().split())) for _ in range(150)]
    process.kill()
    rest = process.stdout.read().splitlines()
    seen += [tuple(map(int, line.split())) for line in rest if line.count(" ") == 1]
    process.wait(60)
    process.stdout.close()
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest", **SESSION) as consumer:
        consumer.subscribe(filled)
        everything = {(partition, offset) for partition in range(4) for offset in range(100)}
        deadline = time.monotonic() + 20
        while not everything <= set(seen):
            assert time.monotonic() < deadline
            seen += [(record.partition, record.offset) for record in consumer.poll(timeout_s=0.2)]


def test_a_member_that_is_interrupted_leaves_its_group(broker, filled):
    """Nobody waits for its session to end."""
    process = subprocess.Popen([sys.executable, "-c", MEMBER, broker.bootstrap], stdout=subprocess.PIPE, text=True)
    for _ in range(400):
        process.stdout.readline()
    with barnabas.Admin(broker.bootstrap) as admin:
        assert len(admin.describe_group("g").members) == 1
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()
        assert not admin.describe_group("g").members


def test_who_does_not_poll_in_time_loses_its_partitions_and_is_told(broker, filled):
    with barnabas.Consumer(
        broker.bootstrap, group="g", auto_offset_reset="earliest", max_poll_interval_ms=500, **SESSION
    ) as consumer:
        consumer.subscribe(filled)
        consumer.poll(timeout_s=60)
        membership = consumer._core.state.membership
        wait_for(lambda: membership.lost)
        with pytest.raises(barnabas.ApiError, match="max_poll_interval_ms"):
            consumer.commit()
        assert poll_until(consumer, 400)


def test_a_static_member_comes_back_without_a_rebalance(broker, filled):
    settings = dict(group="g", auto_offset_reset="earliest", group_instance_id="one", **SESSION)
    with barnabas.Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe(filled)
        poll_until(consumer, 400)
        generation = consumer._core.state.membership.generation
    with barnabas.Consumer(broker.bootstrap, **settings) as consumer:
        consumer.subscribe(filled)
        wait_for(lambda: consumer.poll(timeout_s=0.05) == [] and len(consumer.assignment()) == 4)
        assert consumer._core.state.membership.generation == generation


def test_a_broker_killed_under_a_consumer_is_survived(broker, filled):
    with barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest", **SESSION) as consumer:
        consumer.subscribe(filled)
        poll_until(consumer, 400)
        broker.kill()
        assert consumer.poll(timeout_s=0.2) == []
        broker.restart()
        with barnabas.Producer(broker.bootstrap) as producer:
            producer.send(filled, b"after").result(60)
        wait_for(lambda: b"after" in {record.value for record in consumer.poll(timeout_s=0.2)})


def test_no_broker_is_said_with_its_address(broker):
    broker.stop()

    def poll_for_long(consumer):
        for _ in range(20):
            consumer.poll(timeout_s=0.5)

    with barnabas.Consumer(broker.bootstrap, group="g", default_api_timeout_ms=500) as consumer:
        consumer.subscribe("clicks")
        with pytest.raises(barnabas.DisconnectedError, match=f"no broker at {broker.bootstrap}.*barnabas up"):
            poll_for_long(consumer)


def test_a_pattern_takes_topics_that_come_later(broker):
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send("log-a", b"a").result(60)
        with barnabas.Consumer(
            broker.bootstrap, group="g", auto_offset_reset="earliest", metadata_max_age_ms=200, **SESSION
        ) as consumer:
            consumer.subscribe(pattern="log-.*")
            assert poll_until(consumer, 1)[0].topic == "log-a"
            producer.send("log-b", b"b").result(60)
            producer.send("other", b"c").result(60)
            assert poll_until(consumer, 1)[0].topic == "log-b"


def test_message_streams_divide_the_partitions_among_threads(broker, filled):
    consumer = barnabas.Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest")
    streams = consumer.create_message_streams({filled: 3})[filled]
    got = [[] for _ in streams]

    def follow(number):
        for record in streams[number]:
            got[number].append((record.partition, record.offset))

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: sum(map(len, got)) == 400)
    consumer.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(each for part in got for each in part) == [
        (partition, offset) for partition in range(4) for offset in range(100)
    ]
    assert [len({partition for partition, _ in part}) for part in got] == [2, 1, 1]
    with barnabas.Admin(broker.bootstrap) as admin:
        assert {each.offset for each in admin.group_offsets("g").values()} == {100}


def test_many_fetches_stay_within_the_bound_of_memory(broker):
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send_many("clicks", [bytes(10_000)] * 1000)
    with barnabas.Consumer(
        broker.bootstrap, auto_offset_reset="earliest", fetch_buffer_bytes=1_000_000, max_partition_fetch_bytes=300_000
    ) as consumer:
        consumer.subscribe("clicks")
        count = 0
        while count < 1000:
            count += len(consumer.poll(max_records=20))
            assert consumer._core.state.fetcher.buffered_bytes <= 1_000_000


def test_damage_on_the_disk_is_named_and_can_be_passed(broker, filled):
    # Under the running broker, as a disk does it: brokers send what is stored without looking at it.
    with (broker.data / f"{filled}-0" / "00000000000000000000.log").open("r+b") as segment:
        size = segment.seek(0, 2)
        segment.seek(size // 2)
        byte = segment.read(1)[0]
        segment.seek(size // 2)
        segment.write(bytes([byte ^ 1]))
    tp = (filled, 0)
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        before = consumer.poll(timeout_s=60)
        assert [record.offset for record in before] == list(range(len(before)))
        for _ in range(2):
            with pytest.raises(barnabas.CorruptBatchError, match=rf"{filled}-0 at offset {len(before)}: .*seek past"):
                consumer.poll(timeout_s=60)
        assert consumer.position(tp) == len(before)
        consumer.seek(tp, 99)
        assert poll_until(consumer, 1)[0].offset == 99


def test_a_partition_with_much_is_not_held_up_by_one_without(broker):
    """A fetch that waits for new records of one partition must not keep those of another from being asked for."""
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=2)
    with barnabas.Producer(broker.bootstrap) as producer:
        for _ in range(100):
            producer.send_many("clicks", [bytes(1_000)] * 100, partition=0)
    with barnabas.Consumer(
        broker.bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=100_000,
        fetch_max_wait_ms=LONGER_THAN_ANYONE_WAITS_MS,
    ) as consumer:
        consumer.subscribe("clicks")
        poll_until(consumer, 10_000)


def test_an_iteration_goes_on_after_an_error(broker, filled):
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(filled, 0)])
        for _ in range(2):
            with pytest.raises(barnabas.ApiError, match="OFFSET_OUT_OF_RANGE"):
                next(iter(consumer))
        consumer.seek((filled, 0), 7)
        assert next(iter(consumer)).offset == 7


def test_partitions_at_their_end_do_not_keep_others_waiting(broker):
    """More partitions than fetches: those that are read up to their end must not hold all of these."""
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("uneven", partitions=8)
    with barnabas.Producer(broker.bootstrap) as producer:
        for partition in range(8):
            producer.send_many("uneven", [bytes(1_000)] * (3_000 if partition == 7 else 20), partition=partition)
    settings = {
        "fetch_max_bytes": 30_000,
        "max_partition_fetch_bytes": 30_000,
        "fetch_max_wait_ms": LONGER_THAN_ANYONE_WAITS_MS,
    }
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("uneven")
        poll_until(consumer, 3_140)
