"""Three brokers as clients and administrators meet them: leaders that move, brokers that go and come."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import confluent_kafka
import pytest

import barnabas
from barnabas.coordination import registry
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.coordination.zookeeper.tree import ZooKeeperTree
from tests.cluster import Cluster, running_cluster
from tests.conftest import BrokerProcess
from tests.interop.clients.neutral import Client, Event, Membership, Place, Sending
from tests.interop.conftest import CLIENTS
from tests.interop.reading import Member, read_topic, wait_until
from tests.interop.zookeeper import GROUP

pytestmark = [pytest.mark.xdist_group(GROUP), pytest.mark.timeout(300)]

SETTINGS = {
    "zookeeper_session_timeout_ms": "4000",
    "replica_lag_time_max_ms": "3000",
    "log_cleaner_backoff_ms": "200",
}
WATCHES = 3
"""A broker sets no more, however many partitions there are."""
AT_ONCE = 20
BETWEEN_FAULTS = 200
"""So many records of each producer are to be acknowledged between two faults."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), SETTINGS) as made:
        yield made


@pytest.fixture
def cluster(brokers: Cluster) -> Cluster:
    """All three brokers, at work."""
    brokers.heal()
    return brokers


# --- clients ---


def test_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("near", 1, 3)
    cluster.wait_until_in_sync("near", 3)
    follower = next(each for each in cluster.brokers if each != cluster.leader_of("near"))
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(100):
            producer.send("near", b"%d" % number)
    read_from: set[int] = set()

    def note(statistics: str) -> None:
        topics = json.loads(statistics)["topics"]
        read_from.update(each["broker"] for each in topics.get("near", {}).get("partitions", {}).values())

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": f"rack-{follower}",
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("near", 0, 0)])
        values: list[bytes | None] = []

        def has_read_all_from_the_follower() -> bool:
            values.extend(each.value() for each in consumer.consume(100, 0.5) if not each.error())
            return len(values) >= 100 and follower in read_from

        wait_until(has_read_all_from_the_follower, f"all is read, from broker {follower}")
    finally:
        consumer.close()
    assert values == [b"%d" % number for number in range(100)]


class Sender:
    """Sends numbers to a partition of its own until it is stopped, a few at a time; remembers where they are."""

    def __init__(self, client: Client, bootstrap: str, topic: str, partition: int) -> None:
        self.places: list[Place] = []
        self._failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(client, bootstrap, topic, partition), name=client.name, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def stop(self) -> int:
        """Stop; return how many were acknowledged."""
        self._ends.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), self._thread.name
        if self._failure:
            raise self._failure
        return len(self.places)

    def _run(self, client: Client, bootstrap: str, topic: str, partition: int) -> None:
        try:
            with contextlib.closing(client.producer(bootstrap, Sending(idempotent=True))) as producer:
                while not self._ends.is_set():
                    sent = len(self.places)
                    events = [Event(b"%d" % number) for number in range(sent, sent + AT_ONCE)]
                    self.places += producer.produce(topic, events, partition)
        except BaseException as failure:  # noqa: BLE001 - it is raised where the test sees it
            self._failure = failure


def test_all_clients_live_through_leaders_that_go(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("numbers", len(CLIENTS), 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync("numbers", 3)
    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(Sender(client, cluster.bootstrap, "numbers", number))
            for number, client in enumerate(CLIENTS)
        ]
        members = [
            stack.enter_context(Member(client, cluster.bootstrap, "numbers", Membership(group=f"of {client.name}")))
            for client in CLIENTS
        ]
        stopped, killed = cluster.leader_of("numbers", 0), cluster.leader_of("numbers", 1)
        _wait_for_progress(senders)
        assert cluster.brokers[stopped].stop() == 0
        _wait_for_progress(senders)
        cluster.brokers[stopped].restart()
        cluster.wait_until_in_sync("numbers", 3)
        cluster.brokers[killed].kill()
        _wait_for_progress(senders)
        cluster.brokers[killed].restart()
        _wait_for_progress(senders)
        counts = [sender.stop() for sender in senders]
        wanted = {(partition, number) for partition, count in enumerate(counts) for number in range(count)}
        for member in members:
            wait_until(functools.partial(_has_all, member, wanted), f"all numbers, {member._thread.name}")
    found: dict[int, list[int]] = {number: [] for number in range(len(CLIENTS))}
    for place, event in read_topic(CLIENTS[0], cluster.bootstrap, "numbers", sum(counts)):
        assert place.offset == len(found[place.partition])
        found[place.partition].append(int(event.value or b""))
    assert found == {number: list(range(count)) for number, count in enumerate(counts)}


def _has_all(member: Member, wanted: set[tuple[int, int]]) -> bool:
    return {(place.partition, int(event.value or b"")) for place, event in member.received} >= wanted


def _wait_for_progress(senders: list[Sender]) -> None:
    before = [len(sender.places) for sender in senders]

    def go_on() -> bool:
        for sender in senders:
            if sender._failure:
                raise sender._failure
        return all(len(sender.places) >= count + BETWEEN_FAULTS for sender, count in zip(senders, before, strict=True))

    wait_until(go_on, "all producers go on")


def test_group_goes_on_elsewhere_with_its_offsets(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("letters", 1, 3)
    with barnabas.Producer(cluster.bootstrap) as producer:
        for number in range(10):
            producer.send("letters", b"%d" % number)
    with barnabas.Consumer(cluster.bootstrap, group="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("letters")
        read: set[int] = set()
        wait_until(lambda: _read_on(consumer, read) == set(range(10)), "all letters")
        consumer.commit()
        cluster.wait_until_in_sync("__consumer_offsets", 3)
        with barnabas.Admin(cluster.bootstrap) as admin:
            coordinator = _coordinator(admin, "readers")
        cluster.brokers[coordinator].kill()
        others = cluster.bootstrap_of(*cluster.others(coordinator))
        with barnabas.Producer(others) as producer:
            producer.send("letters", b"10").result()
        wait_until(lambda: _read_on(consumer, read) == set(range(11)), "the next letter")
        consumer.commit()
        with barnabas.Admin(others) as admin:
            assert _coordinator(admin, "readers") != coordinator
            (committed,) = admin.group_offsets("readers").values()
    assert committed.offset == 11


def _read_on(consumer: barnabas.Consumer, read: set[int]) -> set[int]:
    read.update(record.offset for record in consumer.poll(timeout_s=0.1))
    return read


def _coordinator(admin: barnabas.Admin, group: str) -> int:
    found = admin.describe_group(group).coordinator
    assert found
    return found.id


# --- administration ---


def test_what_one_broker_is_asked_to_change_is_so_at_all(cluster: Cluster) -> None:
    for number, broker in cluster.brokers.items():
        name = f"made-at-{number}"
        with barnabas.Admin(broker.bootstrap) as admin:
            admin.create_topic(name, 2, 3)
            admin.add_partitions(name, 4)
            admin.alter_config(topic=name, to_set={"retention.ms": f"{number}00000"})
        for other in cluster.brokers.values():
            with barnabas.Producer(other.bootstrap, acks="all") as producer:
                for partition in range(4):
                    producer.send(name, b"%d" % other.port, partition=partition).result()
            with barnabas.Admin(other.bootstrap) as admin:
                assert admin.describe_config(topic=name)["retention.ms"].value == f"{number}00000"
        with barnabas.Admin(broker.bootstrap) as admin:
            assert sum(admin.end_offsets((name, each) for each in range(4)).values()) == 12


def test_broker_that_was_away_forgets_what_was_deleted_and_keeps_what_was_made_anew(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        for name in ("goes", "again"):
            admin.create_topic(name, 1, 3)
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        for name in ("goes", "again"):
            producer.send(name, b"old").result()
    cluster.brokers[2].stop()
    with barnabas.Admin(cluster.bootstrap_of(1, 3)) as admin:
        for name in ("goes", "again"):
            admin.delete_topic(name)
        admin.create_topic("again", 1, 2)
    with barnabas.Producer(cluster.bootstrap_of(1, 3), acks="all") as producer:
        producer.send("again", b"new").result()
    cluster.brokers[2].restart()
    folder = cluster.brokers[2].data
    wait_until(lambda: not (folder / "goes-0").exists() and not (folder / "again-0").exists(), "its folders are gone")
    assert [event.value for _, event in read_topic(CLIENTS[0], cluster.bootstrap, "again", 1)] == [b"new"]


def test_broker_with_an_empty_disk_fills_it_again(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("kept", 3, 3)
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(300):
            producer.send("kept", b"%d" % number, partition=number % 3)
    cluster.wait_until_in_sync("kept", 3)
    broker = cluster.brokers[1]
    broker.kill()
    broker.data.rename(broker.data.with_name("lost"))
    broker.restart()
    cluster.wait_until_same("kept", 3)
    assert len(read_topic(CLIENTS[0], cluster.bootstrap, "kept", 300)) == 300


def test_broker_that_is_not_who_it_says_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    settings = cluster.brokers[1].settings
    second = BrokerProcess(tmp_path / "second", settings)
    line = _refusal(second)
    assert "a broker with this id is alive" in line
    cluster.brokers[1].stop()
    other_id = BrokerProcess(cluster.brokers[1].data, {**settings, "broker_id": "7"})
    other_id.log = tmp_path / "other-id.log"
    assert "says broker 1; this is broker 7" in _refusal(other_id)
    other_cluster = BrokerProcess(
        cluster.brokers[1].data, {**settings, "zookeeper_connect": cluster.servers.address + "/another"}
    )
    other_cluster.log = tmp_path / "other-cluster.log"
    assert "give it its own data folder, or the address of its own cluster" in _refusal(other_cluster)


def _refusal(broker: BrokerProcess) -> str:
    """Return the one line with which a broker refuses to start."""
    with pytest.raises(AssertionError, match="did not start"):
        broker.start()
    assert broker.process
    assert broker.process.returncode == 1
    assert "Traceback" not in broker.log.read_text()
    return broker.log.read_text().splitlines()[-1]


def test_producer_ids_of_all_brokers_are_distinct(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("ids", 1, 3)
    for broker in cluster.brokers.values():
        for _ in range(3):
            with barnabas.Producer(broker.bootstrap, acks="all") as producer:
                producer.send("ids", b"value").result()
    with barnabas.Admin(cluster.bootstrap) as admin:
        assert list(admin.end_offsets([("ids", 0)]).values()) == [9]
    tree = ZooKeeperTree(ZooKeeperConfig(cluster.zookeeper, session_timeout_s=30.0))
    try:
        assert registry.take_producer_ids(tree, 9).start >= 3 * registry.PRODUCER_ID_BLOCK_SIZE
    finally:
        tree.close()


def test_compacted_topics_are_compacted_on_leaders_and_followers(cluster: Cluster) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"}
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("compacted", 1, 3, settings)
    with barnabas.Producer(cluster.bootstrap, acks="all", batch_size=2_000) as producer:
        for number in range(1_000):
            producer.send("compacted", b"%d" % number * 50, b"%d" % (number % 5))
    wait_until(
        lambda: all(len(cluster.content(number, "compacted")) < 20_000 for number in cluster.brokers),
        "every replica is compacted",
    )
    leader = cluster.leader_of("compacted")
    cluster.brokers[leader].stop()
    cluster.wait_for_another_leader("compacted", leader)
    last = {}
    with barnabas.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([("compacted", 0)])
        while consumer.position(("compacted", 0)) < 1_000:
            last.update({record.key: record.value for record in consumer.poll(timeout_s=1)})
    assert last == {b"%d" % (number % 5): b"%d" % number * 50 for number in range(995, 1_000)}


# --- ZooKeeper ---


def test_zookeeper_is_not_written_to_by_records_and_commits_and_watches_do_not_grow_with_partitions(
    cluster: Cluster,
) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("steady", 1, 3)
        admin.add_partitions("steady", 60)
    cluster.wait_until_in_sync("steady", 3)
    few = WATCHES * len(cluster.brokers)
    wait_until(lambda: _zookeeper_says(cluster.servers, "zk_watch_count") <= few, f"at most {few} watches")
    with (
        barnabas.Producer(cluster.bootstrap, acks="all") as producer,
        barnabas.Consumer(cluster.bootstrap, group="steady", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe("steady")
        producer.send("steady", b"first").result()
        wait_until(lambda: consumer.poll(timeout_s=0.1), "the group is there")
        consumer.commit()
        before = _last_write(cluster.servers)
        received = 0
        for _ in range(20):
            for number in range(60):
                producer.send("steady", b"value", partition=number)
            producer.flush()
            received += len(consumer.poll(timeout_s=0.1))
            consumer.commit()
        assert received > 0
        assert _last_write(cluster.servers) == before


def _last_write(zookeeper: ZooKeeperServers) -> str:
    (line,) = [each for each in _four_letters(zookeeper, "srvr").splitlines() if each.startswith("Zxid")]
    return line


def _zookeeper_says(zookeeper: ZooKeeperServers, what: str) -> int:
    lines = dict(line.split("\t") for line in _four_letters(zookeeper, "mntr").splitlines() if "\t" in line)
    return int(lines[what])


def _four_letters(zookeeper: ZooKeeperServers, word: str) -> str:
    host, _, port = zookeeper.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(word.encode())
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()
