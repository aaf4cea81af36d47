"""Consumers with `client.rack` read from the replica in their rack, and from the leader when that goes (KIP-392)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

import barnabas
from tests.interop.java import maven
from tests.interop.java.program import Run
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

SETTINGS = {
    "zookeeper_session_timeout_ms": "4000",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""Of the brokers, each of which stands in a rack of its own."""
RECORDS = 100
FETCHING = "org.apache.kafka.clients.consumer.internals"
"""Where Kafka's consumer logs what it asks whom for."""


class Reader:
    """What the tests need to know of a consumer of partition 0: what it has read, and from which brokers.

    :param read: returns the values that have come since the last call, in order, within a moment.
    """

    def __init__(self, read: Callable[[], list[bytes]], sources: Callable[[], set[int]]) -> None:
        self._read = read
        self.sources = sources
        """Returns the brokers that were read from since the last call, as far as is known."""
        self.values: list[bytes] = []

    def read_up_to(self, count: int, source: int | None = None) -> None:
        """Read so many records in all; then wait until all comes from a broker, if one is named."""

        def has_read() -> bool:
            self.values += self._read()
            return len(self.values) >= count and (source is None or source in self.sources())

        wait_until(has_read, f"{count} records were read, from broker {source}")
        assert self.values == values(count)


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@contextmanager
def ours(bootstrap: str, topic: str, rack: str) -> Iterator[Reader]:
    with barnabas.Consumer(bootstrap, client_rack=rack, auto_offset_reset="earliest") as consumer:
        partition = barnabas.TopicPartition(topic, 0)
        consumer.assign([partition])

        def sources() -> set[int]:
            core = consumer._core
            with core.state.guard.lock:
                source = core.state.fetcher.source(partition, core.state.view)
            return set() if source is None else {source}

        yield Reader(lambda: [each.value or b"" for each in consumer.poll(timeout_s=0.2)], sources)


@contextmanager
def librdkafka(bootstrap: str, topic: str, rack: str) -> Iterator[Reader]:
    read_from: set[int] = set()

    def note(statistics: str) -> None:
        topics = json.loads(statistics)["topics"]
        read_from.update(each["broker"] for each in topics.get(topic, {}).get("partitions", {}).values())

    def sources() -> set[int]:
        told = set(read_from)
        read_from.clear()
        return told

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        yield Reader(lambda: [each.value() for each in consumer.consume(100, 0.2) if not each.error()], sources)
    finally:
        consumer.close()


def produce(cluster: Cluster, topic: str, first: int, count: int) -> None:
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number)


def make_topic(cluster: Cluster, name: str) -> tuple[int, int]:
    """Make a topic with some records; return its leader, and another broker."""
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, 1, 3)
    cluster.wait_until_in_sync(name, 3)
    produce(cluster, name, 0, RECORDS)
    leader = cluster.leader_of(name)
    return leader, cluster.others(leader)[0]


@pytest.mark.parametrize("client", [ours, librdkafka])
def test_a_consumer_reads_near_and_from_the_leader_when_the_replica_dies(
    cluster: Cluster, client: Callable[..., contextmanager[Reader]]
) -> None:
    topic = f"near-{client.__name__}"
    leader, follower = make_topic(cluster, topic)
    with client(cluster.bootstrap, topic, f"rack-{follower}") as reader:
        reader.read_up_to(RECORDS, source=follower)
        produce(cluster, topic, RECORDS, RECORDS)
        reader.read_up_to(2 * RECORDS, source=follower)
        cluster.brokers[follower].kill()
        produce(cluster, topic, 2 * RECORDS, RECORDS)
        reader.read_up_to(3 * RECORDS, source=leader)


def test_our_consumer_goes_on_when_the_leader_moves_away(cluster: Cluster) -> None:
    leader, follower = make_topic(cluster, "leader-moves")
    with ours(cluster.bootstrap, "leader-moves", f"rack-{follower}") as reader:
        reader.read_up_to(RECORDS, source=follower)
        assert cluster.brokers[leader].stop() == 0
        produce(cluster, "leader-moves", RECORDS, RECORDS)
        reader.read_up_to(2 * RECORDS, source=follower)


def test_kafkas_consumer_reads_near_and_from_the_leader_when_the_replica_dies(cluster: Cluster, run_java: Run) -> None:
    leader, follower = make_topic(cluster, "near-java")
    artifacts = [f"org.apache.kafka:{name}:4.3.0" for name in ("kafka-tools", "kafka_2.13")]
    jars = maven.jars("kafka-tools-4.3.0-logging-jars", *artifacts, "org.slf4j:slf4j-simple:1.7.36")
    consumer = run_java([
        f"-Dorg.slf4j.simpleLogger.log.{FETCHING}=debug", "-cp", f"{jars}/*",
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap,
        "--topic", "near-java", "--from-beginning", "--max-messages", str(3 * RECORDS),
        "--command-property", f"client.rack=rack-{follower}",
        # Where the racks of a topic's replicas change, as when one dies, it joins its group anew (KIP-881), and would
        # begin at the start again if it had committed nothing.
        "--command-property", "enable.auto.commit=true",
    ])  # fmt: skip

    def read() -> list[bytes]:
        return [line.encode() for line in consumer.said().splitlines() if line.isdigit()]

    consumer.wait_until(lambda: len(read()) >= RECORDS, "it has read what was there")
    produce(cluster, "near-java", RECORDS, RECORDS)
    consumer.wait_until(lambda: len(read()) >= 2 * RECORDS, "it has read what came")
    # Its log says whom it asks: "fetch request for partition near-java-0 at position ... to node ... (id: 2 ...)".
    asked = re.findall(r"fetch request for partition near-java-0 .* to node .*\(id: (\d+)", consumer.said())
    assert (asked[0], asked[-1]) == (str(leader), str(follower)), "the leader's first answer names the replica"
    cluster.brokers[follower].kill()
    produce(cluster, "near-java", 2 * RECORDS, RECORDS)
    assert consumer.wait() == 0
    assert read() == values(3 * RECORDS)
