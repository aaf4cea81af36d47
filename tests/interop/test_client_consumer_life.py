"""A consumer's beginning and end: what is refused at once, and what becomes of one that nobody has any more."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

import barnabas
from tests.support.reading import wait_until

SESSION = {"auto_offset_reset": "earliest", "session_timeout_ms": 30_000}


def members(bootstrap, group):
    with barnabas.Admin(bootstrap) as admin:
        return [each.member_id for each in admin.describe_group(group).members]


def read_until(consumer, count):
    records = []
    wait_until(lambda: records.extend(consumer.poll(timeout_s=0.2)) or len(records) >= count, "records")
    return records


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


@pytest.fixture
def filled(bootstrap, topic):
    with barnabas.Producer(bootstrap) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(10)]).check()
    return topic


def use_one(bootstrap, topic, group, *, listens):
    """Read with a consumer, and return what tells whether it is still there."""
    consumer = barnabas.Consumer(bootstrap, group=group, **SESSION)
    # A listener that knows its consumer, as many do, must not keep it.
    consumer.subscribe(topic, on_assign=(lambda tps: consumer.pause() or None) if listens else None)
    assert len(read_until(consumer, 10)) == 10
    for _ in range(2):
        consumer.poll(timeout_s=0)  # what was handed out has been dealt with
    return weakref.ref(consumer)


def drop_one(bootstrap, topic, group, *, listens):
    """Let go of a consumer; return what tells whether it is still there."""
    dropped = use_one(bootstrap, topic, group, listens=listens)
    gc.collect()
    return dropped


@pytest.mark.parametrize("listens", [False, True])
def test_a_consumer_that_is_dropped_leaves_its_group_and_says_so(bootstrap, filled, group, listens):
    before = len(threads("barnabas-consumer"))
    with pytest.warns(ResourceWarning, match="dropped without close"):
        dropped = drop_one(bootstrap, filled, group, listens=listens)
    assert dropped() is None
    wait_until(lambda: not members(bootstrap, group), "the group is left")
    wait_until(lambda: len(threads("barnabas-consumer")) == before, "its thread has ended")
    with barnabas.Consumer(bootstrap, group=group, **SESSION) as consumer:
        consumer.subscribe(filled)
        wait_until(lambda: consumer.poll(timeout_s=0.2) or consumer.assignment(), "the next one has the partitions")
        committed = sum(at.offset for tp in consumer.assignment() if (at := consumer.committed(tp)))
        assert committed == 10


def test_an_iteration_keeps_its_consumer(bootstrap, filled, group):
    def records():
        consumer = barnabas.Consumer(bootstrap, group=group, **SESSION)
        consumer.subscribe(filled)
        return consumer, iter(consumer)

    consumer, iterator = records()
    alive = weakref.ref(consumer)
    del consumer
    assert sorted(int(next(iterator).value) for _ in range(10)) == list(range(10))
    gc.collect()
    alive().close()
    assert next(iterator, None) is None


async def drop_one_on_a_loop(bootstrap, topic, group):
    consumer = barnabas.AsyncConsumer(bootstrap, group=group, **SESSION)
    consumer.subscribe(topic)
    while not await consumer.poll(timeout_s=0.2):
        pass
    del consumer
    gc.collect()


def test_an_asynchronous_consumer_that_is_dropped_leaves_its_group_and_says_so(bootstrap, filled, group):
    async def main():
        with pytest.warns(ResourceWarning, match="dropped without close"):
            await drop_one_on_a_loop(bootstrap, filled, group)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(members, bootstrap, group):  # noqa: ASYNC110  others do it
                await asyncio.sleep(0.01)
            while asyncio.all_tasks() != {asyncio.current_task()}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_program_that_forgets_to_close_leaves_the_group_at_its_end(bootstrap, filled, group):
    program = f"""
import barnabas

def main():
    consumer = barnabas.Consumer({bootstrap!r}, group={group!r}, auto_offset_reset="earliest")
    consumer.subscribe({filled!r})
    for record in consumer:
        break

main()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ})
    assert members(bootstrap, group) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_closing_does_nothing_in_a_forked_child(bootstrap, filled, group):
    with barnabas.Consumer(bootstrap, group=group, **SESSION) as consumer:
        consumer.subscribe(filled)
        read_until(consumer, 10)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                consumer.close()
                with pytest.raises(barnabas.ClosedError):
                    consumer.poll()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(members(bootstrap, group)) == 1


@pytest.mark.parametrize("read", [lambda consumer: consumer.poll(), iter, next, lambda consumer: consumer.poll_arrow()])
def test_reading_without_a_subscription_is_refused(bootstrap, read):
    with barnabas.Consumer(bootstrap) as consumer, pytest.raises(barnabas.ConfigurationError, match="subscribe"):
        read(consumer)


def test_topics_where_the_address_belongs_are_refused():
    for make in (barnabas.Consumer, barnabas.AsyncConsumer):
        with pytest.raises(barnabas.ConfigurationError, match="subscribe"):
            make("clicks", bootstrap_servers="localhost:1")


def test_a_topic_that_is_no_name_does_no_harm(bootstrap, filled):
    with barnabas.Consumer(bootstrap, **SESSION) as consumer:
        with pytest.raises(TypeError, match="5"):
            consumer.subscribe([5])
        consumer.subscribe(filled)
        assert len(read_until(consumer, 10)) == 10


def test_reading_creates_no_topics(bootstrap, topic, group):
    missing = [f"{topic}-{number}" for number in range(3)]
    with barnabas.Consumer(bootstrap) as alone, barnabas.Consumer(bootstrap, group=group) as member:
        alone.subscribe(missing[0])
        member.subscribe(missing[1])
        alone.poll(timeout_s=0.5)
        member.poll(timeout_s=0.5)
        alone.unsubscribe()
        alone.assign([(missing[2], 0)])
        alone.poll(timeout_s=0.5)
    with barnabas.Admin(bootstrap) as admin:
        assert not set(missing) & set(admin.list_topics())


def test_topics_and_partitions_are_listed(bootstrap, filled):
    with barnabas.Consumer(bootstrap) as consumer:
        assert filled in consumer.topics()
        partitions = consumer.partitions_for_topic(filled)
        assert partitions == set(range(len(partitions)))
        assert consumer.partitions_for_topic(f"{filled}-missing") is None
        assert f"{filled}-missing" not in consumer.topics()

    async def main():
        async with barnabas.AsyncConsumer(bootstrap) as consumer:
            assert filled in await consumer.topics()
            assert await consumer.partitions_for_topic(filled) == partitions

    asyncio.run(main())


def test_values_come_as_objects_and_are_counted(bootstrap, filled):
    with barnabas.Consumer(bootstrap, value_deserializer=int, **SESSION) as consumer:
        consumer.subscribe(filled)
        assert sorted(record.value for record in read_until(consumer, 10)) == list(range(10))
        figures = consumer.metrics()
        assert (figures["records_total"], figures["lag_max"], figures["buffered_bytes"]) == (10, 0, 0)
        assert figures["fetches_total"] > 0
        assert figures["records_per_s"] > 0


def test_poll_says_in_time_that_no_broker_can_be_reached():
    with barnabas.Consumer("localhost:1", default_api_timeout_ms=300) as consumer:
        consumer.subscribe("clicks")
        with pytest.raises(barnabas.DisconnectedError, match="localhost:1"):
            consumer.poll(timeout_s=10_000)
