"""Show in the console what only Apache Kafka has, open transactions and share groups, and elections of leaders.

Three nodes of Apache Kafka run. librdkafka holds a transaction open, and Kafka's own share consumer holds records. Then
a broker hangs, and the leader of a partition dies whose other replica is out of sync. On a secured cluster, a user
sees a transaction and a share group without the permissions for all of their parts.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
from console_checks import Suite, running_console, wait_until
from console_clusters import signed_in
from playwright.sync_api import expect

import barnabas

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.downloads import java
from bench.peers.kafka import KafkaCluster, class_path

ID = "orders-<b>1</b>"
PASSWORD = "alice-secret"
PRODUCERS = "/producers?topic=clicks&partition=0"
GROUP = "workers/<1>"
CONSUMER_GROUP = "readers/<1>"
RECORD_BYTES = 100_000
"""More than a pipe holds: a share consumer whose output nobody reads blocks with the records of its poll."""
SLOW_S = 180
SLOW_MS = SLOW_S * 1000
PAGES = (
    "/",
    "/transactions",
    "/transaction?" + urlencode({"id": ID}),
    PRODUCERS,
    "/topic?name=clicks",
    "/groups",
    "/share-group?" + urlencode({"name": GROUP}),
)
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
JVM_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def kafka(suite: Suite) -> None:
    """Show the pages that need brokers of Apache Kafka, and the elections of a cluster that loses brokers."""
    folder = suite.folder / "features"
    folder.mkdir()
    with ExitStack() as stack:
        server = KafkaCluster(folder)
        stack.callback(server.stop)
        server.start()
        of_java = {"bootstrap.servers": server.address}
        with barnabas.Admin(server.address) as admin:
            create_topics(admin)
            admin.create_topic("weak", 1, 2, {"unclean.leader.election.enable": "true"})
            producer = open_transaction(of_java, {"bootstrap": server.address})
            settings = settings_file(folder, of_java)
            release_records(settings, {"bootstrap": server.address})
            stack.enter_context(holding_consumer(settings))
            stack.enter_context(consumer_of_group(server.address))
            console = stack.enter_context(running_console(server.address))
            suite.show_all("kafka", console.url, PAGES)
            with suite.tab(console.url) as tab:
                check_transactions(tab)
                check_share_group(tab)
                check_consumer_group(tab)
                producer.commit_transaction(SLOW_S)
                check_committed(tab)
            check_elections(suite, console.url, server, admin)
    suite.say("the console shows transactions, share groups and elections of Apache Kafka")


def create_topics(admin: barnabas.Admin) -> None:
    admin.create_topic("clicks", 3, 3)
    admin.create_topic("jobs", 2, 3)
    admin.alter_config(group=GROUP, to_set={"share.auto.offset.reset": "earliest"})


def settings_file(folder: Path, settings: Mapping[str, str]) -> Path:
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def open_transaction(librdkafka: Mapping[str, str], ours: Any) -> confluent_kafka.Producer:
    """Return a producer that holds a transaction open, with records of others behind its first record."""
    producer = confluent_kafka.Producer({**librdkafka, "transactional.id": ID, "transaction.timeout.ms": 900_000})
    producer.init_transactions(SLOW_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("clicks", b"in the transaction", partition=partition)
    producer.flush(SLOW_S)
    with barnabas.Producer(**ours) as other:
        for _ in range(4):
            other.send("clicks", b"behind it", partition=0).result()
    return producer


def share_consumer(settings: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start Kafka's share consumer.

    :param settings: a file with the settings of its connections.
    """
    (bootstrap,) = re.findall(r"^bootstrap.servers=(.*)$", settings.read_text(), re.MULTILINE)
    command = [java(), *JVM_OPTIONS, "-cp", class_path(), SHARE_CONSUMER]
    command += [
        "--bootstrap-server",
        bootstrap,
        "--command-config",
        str(settings),
        "--topic",
        "jobs",
        "--group",
        GROUP,
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def release_records(settings: Path, ours: Any) -> None:
    """Produce records, and let a share consumer release one of them, so that brokers store its state."""
    with barnabas.Producer(**ours) as producer:
        for partition in (0, 1):
            producer.send("jobs", b"x" * RECORD_BYTES, partition=partition).result()
    with share_consumer(settings, "--release", "--max-messages", "1") as consumer:
        try:
            output, _ = consumer.communicate(timeout=SLOW_S)
        finally:
            consumer.kill()
    assert output.count(b"x") >= RECORD_BYTES, "the share consumer got no record"


@contextlib.contextmanager
def holding_consumer(settings: Path) -> Iterator[None]:
    """Run a share consumer that has acquired records, until the block ends."""
    with share_consumer(settings) as consumer:
        try:
            assert consumer.stdout
            assert consumer.stdout.read(1), "the share consumer got no record"
            yield
        finally:
            consumer.kill()


@contextlib.contextmanager
def consumer_of_group(address: str) -> Iterator[None]:
    """Run a member of a group of the type `consumer` that has partitions, until the block ends.

    librdkafka sends the heartbeats in a thread of its own, also without further polls.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": CONSUMER_GROUP,
            "group.protocol": "consumer",
            "client.id": "reader",
            "max.poll.interval.ms": 10 * SLOW_MS,
        }
    )
    try:
        consumer.subscribe(["clicks"])

        def has_partitions() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_until(has_partitions, "the consumer has partitions", SLOW_S)
        yield
    finally:
        consumer.close()


def check_transactions(tab: Any) -> None:
    """Click from the topic to the producers of a partition, and to their transaction."""
    page = tab.open("/topic?name=clicks")
    held_back = page.get_by_role("region", name="Partitions").get_by_role("link")
    expect(held_back).to_have_text(["5", "1"])
    held_back.first.click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name=ID).click()
    expect(page.get_by_role("heading", name=ID)).to_be_visible()
    expect(page.locator("dl")).to_contain_text("Ongoing")
    expect(page.locator("tbody tr").first).to_contain_text("5")
    page.get_by_role("link", name="Transactions", exact=True).click()
    row = page.locator("tbody tr").first
    expect(row).to_contain_text(ID)
    expect(row).to_contain_text("Ongoing")
    assert page.evaluate("() => document.querySelectorAll('main b').length") == 0, "a transactional id is markup"


def check_share_group(tab: Any) -> None:
    """Click from the groups to the share group, its members and the states of its records."""
    page = tab.open("/groups")
    expect(page.locator("tbody tr").filter(has_text=GROUP)).to_contain_text("share")
    page.get_by_role("link", name=GROUP).click()
    expect(page.get_by_role("region", name="Members")).to_contain_text("console-share-consumer")
    expect(page.get_by_role("region", name="Partitions")).to_contain_text("console-share-consumer")
    deliveries = page.get_by_role("region", name="Deliveries").locator("tbody tr")
    expect(deliveries.first).to_contain_text("available or acquired")
    expect(page.locator("[data-chart] canvas")).to_be_visible()


def check_consumer_group(tab: Any) -> None:
    """Click from the groups to the group of the type `consumer`, and its member."""
    page = tab.open("/groups")
    page.get_by_role("link", name=CONSUMER_GROUP).click()
    expect(page.locator("dl")).to_contain_text("uniform")
    expect(page.get_by_role("region", name="Members").locator("tbody tr")).to_contain_text(["reader"])
    expect(page.get_by_role("region", name="Offsets").locator("tbody tr")).to_have_count(3)


def check_committed(tab: Any) -> None:
    """Wait until the page shows the end of the transaction."""

    def is_committed() -> bool:
        text: str = tab.open("/transaction?" + urlencode({"id": ID})).locator("main").inner_text()
        return "CompleteCommit" in text and "There is no open transaction." in text

    wait_until(is_committed, "the page shows that the transaction is committed", SLOW_S)


def check_elections(suite: Suite, url: str, server: KafkaCluster, admin: barnabas.Admin) -> None:
    """Stop a follower, then kill the leader of a topic that prefers unclean elections to waiting."""
    (weak,) = admin.describe_topics(["weak"])
    leader = weak.partitions[0].leader
    (follower,) = set(weak.partitions[0].replicas) - {leader}
    pids = dict(zip((1, 2, 3), server.pids, strict=True))
    with suite.tab(url) as tab:
        tab.expects_failures = True
        page = tab.open("/")
        elections = page.get_by_role("region", name="Newest leader elections")
        os.kill(pids[follower], signal.SIGSTOP)
        try:
            expect(elections).to_contain_text("clicks", timeout=SLOW_MS)
            under_replicated = page.locator("dl div").filter(has_text="Under-replicated").locator("dd")
            expect(under_replicated).not_to_have_text("0", timeout=SLOW_MS)
            expect(elections).not_to_contain_text("unclean")
            os.kill(pids[leader], signal.SIGKILL)
        finally:
            os.kill(pids[follower], signal.SIGCONT)
        row = elections.locator("tr").filter(has_text="weak")
        expect(row).to_contain_text("unclean", timeout=SLOW_MS)
        suite.picture(tab, "kafka-elections")
        suite.say(f"an unclean election from broker {leader} to {follower}: {row.first.inner_text()!r}")


def kafka_secured(suite: Suite) -> None:
    """Show a transaction and a share group to a user who may describe them, but not read topics or act as a broker."""
    secured_clusters: Any = importlib.import_module("tests.support.secured_clusters")
    with ExitStack() as stack:
        folder = suite.folder / "features-secured"
        access = stack.enter_context(secured_clusters.secured_kafka(folder))
        admin = stack.enter_context(barnabas.Admin(**access.ours()))
        create_topics(admin)
        producer = open_transaction(access.librdkafka(), access.ours())
        release_records(settings_file(folder, access.java()), access.ours())
        admin.set_user_password("alice", PASSWORD, mechanisms=["SCRAM-SHA-512"])
        admin.create_acls(
            barnabas.AclBinding(
                barnabas.ResourcePattern(kind, name),
                barnabas.AclEntry("User:alice", "*", barnabas.Operation.DESCRIBE, barnabas.Permission.ALLOW),
            )
            for kind, name in (
                (barnabas.ResourceType.TRANSACTIONAL_ID, ID),
                (barnabas.ResourceType.GROUP, GROUP),
                (barnabas.ResourceType.TOPIC, "clicks"),
                (barnabas.ResourceType.TOPIC, "jobs"),
            )
        )
        certificates: Any = importlib.import_module("tests.support.certificates").Certificates
        options = [
            "-X", "security.protocol=SASL_SSL", "-X", f"ssl.ca.location={access.ca}",
            "-X", "sasl.mechanism=SCRAM-SHA-512",
            "--http-certfile", str(certificates(folder / "console").server("console")),
        ]  # fmt: skip
        console = stack.enter_context(running_console(access.bootstrap, *options))
        state = signed_in(suite, console, "alice", PASSWORD)
        suite.show_all("kafka-secured", console.url, PAGES, {PRODUCERS: (403,)}, **state)
        with suite.tab(console.url, **state) as tab:
            page = tab.open("/share-group?" + urlencode({"name": GROUP}))
            expect(page.locator("p.problem:not(#trouble)")).to_contain_text("lacks CLUSTER_ACTION")
            expect(page.get_by_role("region", name="Partitions")).to_contain_text("jobs")
            page = tab.open("/transaction?" + urlencode({"id": ID}))
            expect(page.locator("p.problem:not(#trouble)")).to_contain_text("lacks READ on topic:clicks")
            expect(page.locator("tbody tr").first).to_contain_text("unknown")
            expect(page.locator("tbody tr").first).to_contain_text("5")
        producer.abort_transaction(SLOW_S)
    suite.say("users without permissions see the rest of transactions and share groups, and the missing permission")
