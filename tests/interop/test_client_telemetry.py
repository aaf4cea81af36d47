"""Clients that push their metrics by default (KIP-714): ours in all four forms, librdkafka's, and Java's."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest

import barnabas
from tests.interop.java import maven
from tests.interop.java.tools import OPTIONS, tools_jars
from tests.interop.test_consumer_offsets import CONSUMER
from tests.interop.test_status_pages import WatchedBroker
from tests.support.reading import POLL_S, wait_until
from tests.support.xdist_groups import JAVA

TOPIC = "clicks"
CREATIONS = "connection_creation_total"
ASSIGNED = "coordinator_assigned_partitions"


class AskingBroker(WatchedBroker):
    """A broker that asks its clients for all their metrics, often."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.settings = {"telemetry_interval_ms": "200", "telemetry_metrics": "*"}

    def pushed(self, kind: str, name: str) -> dict[str, float]:
        """Return the values of a metric by client id.

        :param kind: `producer` or `consumer`.
        """
        wanted = f"org_apache_kafka_{kind}_{name}"
        return {labels[0]: value for (metric, *labels), value in self.series().items() if metric == wanted}


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[AskingBroker]:
    broker = AskingBroker(tmp_path / "broker")
    broker.start()
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, 1)
    yield broker
    broker.close()


def test_our_clients_and_librdkafkas_appear_by_client_id(asking: AskingBroker) -> None:
    bootstrap = asking.bootstrap
    reading = {"auto.offset.reset": "earliest"}

    def seen() -> bool:
        theirs.poll(POLL_S)
        producer.send(TOPIC, b"x")
        consumer.poll(timeout_s=POLL_S)
        producers = asking.pushed("producer", "connection_creation_rate").keys()
        consumers = asking.pushed("consumer", ASSIGNED)
        return (
            producers >= {"our-producer", "rd-producer"}
            and consumers.get("our-consumer") == 1
            and "rd-consumer" in consumers
        )

    rd_producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": "rd-producer"})
    with (
        barnabas.Producer(bootstrap, client_id="silent", enable_metrics_push=False) as silent,
        barnabas.Producer(bootstrap, client_id="our-producer") as producer,
        barnabas.Consumer({"client.id": "our-consumer", **reading}, bootstrap_servers=bootstrap, group="g") as consumer,
        closing(
            confluent_kafka.Consumer(
                {"bootstrap.servers": bootstrap, "client.id": "rd-consumer", "group.id": "rd", **reading}
            )
        ) as theirs,
    ):
        for each in (silent, producer):
            each.send(TOPIC, b"x").result()
        rd_producer.produce(TOPIC, b"x")
        rd_producer.flush()
        consumer.subscribe(TOPIC)
        theirs.subscribe([TOPIC])
        wait_until(seen, "pushed metrics")
    assert asking.pushed("producer", CREATIONS)["our-producer"] == 1
    assert "silent" not in asking.pushed("producer", CREATIONS)
    assert asking.series()["barnabas_client_metrics_dropped_total",] == 0


def test_our_asynchronous_clients_appear_and_their_last_push_counts(asking: AskingBroker) -> None:
    async def run() -> None:
        settings = {"bootstrap.servers": asking.bootstrap, "auto.offset.reset": "earliest", "client.id": "async"}
        async with (
            barnabas.AsyncProducer(asking.bootstrap, client_id="async") as producer,
            barnabas.AsyncConsumer(settings, group="a") as consumer,
        ):
            await (await producer.send(TOPIC, b"x"))
            consumer.subscribe(TOPIC)
            while not await asyncio.to_thread(lambda: asking.pushed("consumer", CREATIONS)):
                await consumer.poll(timeout_s=POLL_S)
            await consumer.commit()

    asyncio.run(run())
    wait_until(lambda: asking.pushed("consumer", "coordinator_commit_latency_max").get("async", 0.0) > 0, "last push")
    assert asking.pushed("producer", CREATIONS) == {"async": 1.0}


@pytest.mark.xdist_group(JAVA)
@pytest.mark.timeout(maven.TEST_TIMEOUT_S)
def test_java_consumer_appears_by_client_id(asking: AskingBroker) -> None:
    command = [maven.java(), *OPTIONS, "-cp", f"{tools_jars('4.3.0')}/*", CONSUMER, "--topic", TOPIC]
    command += ["--bootstrap-server", asking.bootstrap, "--consumer-property", "client.id=java", "--group", "j"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as consumer:
        try:
            wait_until(lambda: asking.pushed("consumer", ASSIGNED) == {"java": 1.0}, "metrics of the Java client")
        finally:
            consumer.kill()
