"""`barnabas cluster restart --rolling` under load: no client meets an error, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

import barnabas as client
from barnabas.laboratory.history import History, Outcome, RecordedConsumer, RecordedProducer, check, read_to_the_end
from tests.support.cluster_command import ClusterCommand, barnabas
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [
    pytest.mark.xdist_group(CLUSTERS),
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="barnabas cluster up ends its processes with it on Linux"),
]

TOPIC, PARTITIONS = "clicks", 6
PAUSE_S = 0.005
"""Between two sends of a producer, so that there is not more than can be read again."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterCommand]:
    made = ClusterCommand(tmp_path / "cluster", "--brokers", 3, "--port", 0)
    yield made
    made.close()


class Load:
    """Threads that each do something again and again until all are stopped; an error ends the thread, and is told."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def begin(self, step: Callable[[], object]) -> None:
        def run() -> None:
            try:
                while not self._stopped.wait(PAUSE_S):
                    step()
            except BaseException as error:  # noqa: BLE001 - the test tells of it
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert self._errors == []


class Librdkafka:
    """A producer and a consumer of librdkafka, and what they saw; the producer sends numbers with a key each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[object] = []
        self.read: list[bytes] = []
        self._sent = 0
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1}
        )
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "rdkafka", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])

    def send(self) -> None:
        value = b"%d" % self._sent
        self._sent += 1
        self._producer.produce(self._topic, value, key=value, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(error)

    def poll(self) -> None:
        for message in self._consumer.consume(1_000, 0.2):
            if message.error() is None:
                self.read.append(message.value())
            else:
                self.failed.append(message.error())

    def finish(self) -> None:
        """Let everything be delivered and read."""
        assert self._producer.flush(TIMEOUT_S) == 0

        def has_read_all() -> bool:
            self.poll()
            return len(self.read) >= self._sent

        wait_until(has_read_all, "librdkafka reads all that it sent")
        self._consumer.close()


def test_clients_of_a_cluster_that_is_restarted_meet_no_error(cluster: ClusterCommand, tmp_path: Path) -> None:
    bootstrap = ",".join(cluster.wait_until_ready())
    for topic in (TOPIC, "rdkafka"):
        assert barnabas("topic", "create", topic, "-p", PARTITIONS, "-b", bootstrap).returncode == 0
    wait_until(lambda: barnabas("cluster", "status", "-b", bootstrap).returncode == 0, "all is in sync")
    before = [cluster.pid_of(each) for each in (1, 2, 3)]
    path = tmp_path / "run.history"
    load, others = Load(), Librdkafka(bootstrap, "rdkafka")
    with (
        History(path) as history,
        RecordedProducer(history, client.Producer(bootstrap, acks="all"), "producer") as producer,
        RecordedConsumer(
            history, client.Consumer(bootstrap, group="ours", auto_offset_reset="earliest"), "consumer"
        ) as consumer,
    ):
        consumer.subscribe([TOPIC])
        numbers = iter(range(10**9))

        def send() -> None:
            number = next(numbers)
            producer.send((TOPIC, number % PARTITIONS), b"%d" % number)

        load.begin(send)
        load.begin(consumer.poll)
        load.begin(others.send)
        load.begin(others.poll)
        wait_until(lambda: len(others.read) > 0, "the load has begun")
        restarted = barnabas("cluster", "restart", "--rolling", "--data", cluster.data)
        load.stop()
        producer.flush(TIMEOUT_S)
        others.finish()
        read_to_the_end(history, bootstrap, [TOPIC])

    assert restarted.returncode == 0, restarted.stderr
    lines = restarted.stdout.splitlines()
    assert [line for line in lines if line.endswith(": restarting")] == [
        f"broker {each}, {each} of 3: restarting" for each in (1, 2, 3)
    ]
    assert lines[-1] == "restarted all 3 brokers"
    after = [cluster.pid_of(each) for each in (1, 2, 3)]
    assert not set(before) & set(after)
    report = check(path)
    assert report.ok, report
    assert not report.sends[Outcome.FAIL]
    assert not report.sends[Outcome.INFO]
    assert others.failed == []
    assert sorted(others.read) == sorted(others.acknowledged)
    assert barnabas("cluster", "status", "-b", bootstrap).returncode == 0
    assert cluster.stop() == 0


def test_nothing_is_restarted_while_a_broker_is_away(cluster: ClusterCommand) -> None:
    cluster.wait_until_ready()
    bootstrap = ",".join(f"127.0.0.1:{each['port']}" for each in cluster.file()["brokers"].values())
    assert barnabas("topic", "create", TOPIC, "-p", 3, "-b", bootstrap).returncode == 0
    before = [cluster.pid_of(each) for each in (1, 2)]
    os.kill(cluster.pid_of(3), signal.SIGKILL)
    wait_until(lambda: barnabas("cluster", "status", "-b", bootstrap).returncode == 1, "the broker is away")
    refused = barnabas("cluster", "restart", "--rolling", "--data", cluster.data)
    assert refused.returncode == 1
    assert refused.stderr.startswith("barnabas: no broker was restarted, because the cluster is unhealthy: ")
    assert "broker 3" in refused.stderr
    assert [cluster.pid_of(each) for each in (1, 2)] == before
    cluster.stop()
    ended = barnabas("cluster", "restart", "--rolling", "--data", cluster.data)
    assert (ended.returncode, f"no cluster runs in {cluster.data}" in ended.stderr) == (1, True)
