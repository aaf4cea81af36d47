"""kill -9 of the broker process under load, and restart on the same data.

What was acknowledged is there once and in the order of sending, as a fresh consumer reads it from the beginning;
what a group committed is committed; and consumers that live through it miss nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest

import barnabas
from barnabas.model import OffsetAndMetadata, TopicPartition
from tests.interop.clients.neutral import Membership, Place
from tests.interop.conftest import CLIENTS
from tests.support.broker_process import BrokerProcess
from tests.support.duplicate_values import doubled_in_logs
from tests.support.reading import Member, read, read_topic, wait_until

TOPIC = "numbers"
PARTITIONS = 3
FLUSH_S = 60.0
KILLS = int(os.environ.get("KILLS", "6"))
"""So many under one load; `make faults` has as many as it has runs of each scenario."""
RECORDS_BETWEEN_KILLS = 3_000
RECORDS_AT_ONCE = 20
RECORDS_IN_FLIGHT_MAX = 2_000

OnOutcome = Callable[[Exception | None, int], None]
"""Called with the failure, or None and the offset."""


class Sender(Protocol):
    """An idempotent producer with small batches, so that a kill meets many of them."""

    def send(self, value: bytes, partition: int, on_outcome: OnOutcome) -> None: ...
    def poll(self) -> None: ...
    def flush(self) -> None: ...


class LibrdkafkaSender:
    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, value: bytes, partition: int, on_outcome: OnOutcome) -> None:
        def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            on_outcome(error and confluent_kafka.KafkaException(error), message.offset())

        self._producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)

    def poll(self) -> None:
        self._producer.poll(0.002)

    def flush(self) -> None:
        assert self._producer.flush(FLUSH_S) == 0


class OurSender:
    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self._producer = barnabas.Producer(bootstrap, linger_ms=1, batch_size=1_000, retry_backoff_ms=20)
        self._something_is_done = threading.Event()

    def send(self, value: bytes, partition: int, on_outcome: OnOutcome) -> None:
        def on_done(delivery: barnabas.Delivery) -> None:
            error = delivery.exception()
            on_outcome(error, -1 if error else delivery.result().offset)
            self._something_is_done.set()

        self._producer.send(self._topic, value, partition=partition).add_done_callback(on_done)

    def poll(self) -> None:
        self._something_is_done.wait(0.002)
        self._something_is_done.clear()

    def flush(self) -> None:
        self._producer.close(timeout_s=FLUSH_S)


class Load:
    """Sends numbers, round the partitions, until it is stopped; remembers what was acknowledged, and where."""

    def __init__(self, sender: Sender) -> None:
        self.sent = 0
        self.acknowledged: dict[Place, int] = {}
        self.failures: list[Exception] = []
        self._sender = sender
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self._ends.set()
        self._thread.join(2 * FLUSH_S)
        assert not self._thread.is_alive()
        assert self.failures == []
        assert len(self.acknowledged) == self.sent

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                if self.sent - len(self.acknowledged) - len(self.failures) < RECORDS_IN_FLIGHT_MAX:
                    for _ in range(RECORDS_AT_ONCE):
                        self._send(self.sent)
                        self.sent += 1
                self._sender.poll()
        finally:
            self._sender.flush()

    def _send(self, number: int) -> None:
        partition = number % PARTITIONS

        def on_outcome(failure: Exception | None, offset: int) -> None:
            if failure:
                self.failures.append(failure)
            else:
                self.acknowledged[Place(partition, offset)] = number

        self._sender.send(b"%d" % number, partition, on_outcome)


@pytest.fixture
def numbers_broker(make_broker) -> BrokerProcess:
    """A broker with the topic of numbers, and segments so small that kills meet rolled ones."""
    broker: BrokerProcess = make_broker(log_segment_bytes="100000", group_min_session_timeout_ms="500")
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    return broker


def kill_and_restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.restart()


def stop_and_restart(broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    broker.restart()


def wait_for_progress(load: Load, count: int = RECORDS_BETWEEN_KILLS) -> None:
    before = len(load.acknowledged)
    wait_until(lambda: len(load.acknowledged) > before + count, "the load goes on")


def check_all_is_there(bootstrap: str, load: Load, folder: Path, topic: str = TOPIC) -> None:
    """Check that all that was sent is there once, in its order, and where it was acknowledged.

    :param folder: with the brokers' data folders, whose logs are looked at where that is not so.
    """
    try:
        found = numbers_by_partition(bootstrap, load.sent, topic)
        assert found == {partition: list(range(partition, load.sent, PARTITIONS)) for partition in range(PARTITIONS)}
        assert all(found[place.partition][place.offset] == number for place, number in load.acknowledged.items())
    except AssertionError as error:
        for partition in range(PARTITIONS):
            for line in doubled_in_logs(folder, TopicPartition(topic, partition)):
                error.add_note(line)
        raise


def numbers_by_partition(bootstrap: str, count: int, topic: str = TOPIC) -> dict[int, list[int]]:
    """Read everything with a fresh consumer; check that this is all, and that offsets have no gap."""
    with barnabas.Admin(bootstrap) as admin:
        assert sum(admin.end_offsets((topic, each) for each in range(PARTITIONS)).values()) == count
    found = defaultdict(list)
    for place, event in read_topic(CLIENTS[0], bootstrap, topic, count):
        assert place.offset == len(found[place.partition])
        found[place.partition].append(int(event.value))
    return dict(found)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("interrupt", "times"), [(kill_and_restart, KILLS), (stop_and_restart, 2)])
@pytest.mark.parametrize("make_sender", [LibrdkafkaSender, OurSender])
def test_every_acknowledged_record_is_there_once_and_in_order(numbers_broker, make_sender, interrupt, times) -> None:
    load = Load(make_sender(numbers_broker.bootstrap))
    for _ in range(times):
        wait_for_progress(load)
        interrupt(numbers_broker)
    wait_for_progress(load)
    load.stop()
    check_all_is_there(numbers_broker.bootstrap, load, numbers_broker.data.parent)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_group_lives_through_kills_and_misses_nothing(numbers_broker, client) -> None:
    membership = Membership(group="followers")
    load = Load(LibrdkafkaSender(numbers_broker.bootstrap))
    with (
        Member(client, numbers_broker.bootstrap, TOPIC, membership) as first,
        Member(client, numbers_broker.bootstrap, TOPIC, membership) as second,
    ):
        wait_until(lambda: first.assigned and second.assigned, "a partition for each member")
        for interrupt in (kill_and_restart, stop_and_restart, kill_and_restart):
            wait_for_progress(load)
            interrupt(numbers_broker)
        load.stop()
        wait_until(lambda: numbers_of(first, second) >= set(range(load.sent)), "all numbers")
    assert numbers_of(first, second) == set(range(load.sent))


def numbers_of(*members: Member) -> set[int]:
    return {int(event.value) for member in members for _, event in member.received}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_committed_offsets_survive(numbers_broker, client) -> None:
    fill(numbers_broker.bootstrap, 3_000)
    membership = Membership(group="followers", commits_by_itself=False)
    with contextlib.closing(client.consumer(numbers_broker.bootstrap, TOPIC, membership)) as consumer:
        read(consumer, 3_000)
        for offset in range(0, 1_000, 100):
            consumer.commit({partition: OffsetAndMetadata(offset) for partition in range(PARTITIONS)})
    kill_and_restart(numbers_broker)
    with contextlib.closing(client.consumer(numbers_broker.bootstrap, TOPIC, membership)) as consumer:
        received = read(consumer, 3 * 100)
    assert {place for place, _ in received} == {
        Place(partition, offset) for partition in range(PARTITIONS) for offset in range(900, 1_000)
    }


def fill(bootstrap: str, count: int) -> None:
    with barnabas.Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)


def test_topics_survive_and_deleted_ones_stay_deleted(numbers_broker) -> None:
    with barnabas.Admin(numbers_broker.bootstrap) as admin:
        admin.create_topic("kept", partitions=2)
        admin.create_topic("deleted")
        ids = {topic.name: topic.id for topic in admin.describe_topics()}
        admin.delete_topic("deleted")
    kill_and_restart(numbers_broker)
    with barnabas.Admin(numbers_broker.bootstrap) as admin:
        topics = {topic.name: topic for topic in admin.describe_topics()}
        assert topics.keys() == {"kept", TOPIC}
        assert len(topics["kept"].partitions) == 2
        assert topics["kept"].id == ids["kept"]
