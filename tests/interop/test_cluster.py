"""Three brokers as administrators meet them: what one is asked is so at all, and brokers go and come."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

import barnabas
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from tests.interop.conftest import CLIENTS
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import Cluster
from tests.support.reading import read_topic, wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = pytest.mark.xdist_group(CLUSTERS)

SETTINGS = {
    "zookeeper_session_timeout_ms": "4000",
    "replica_lag_time_max_ms": "3000",
    "log_cleaner_backoff_ms": "200",
}
WATCHES = 3
"""A broker sets no more, however many partitions there are."""


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


def test_what_was_made_is_known_to_every_broker_when_its_maker_is_told(cluster: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        admins = {
            number: stack.enter_context(barnabas.Admin(broker.bootstrap)) for number, broker in cluster.brokers.items()
        }

        def counts(name: str) -> dict[int, int]:
            """Return how many partitions a topic has, by the broker that was asked."""
            return {number: len(each.describe_topics([name])[0].partitions) for number, each in admins.items()}

        for admin in admins.values():
            admin.brokers()  # which connects it
        for attempt in range(5):
            for number, admin in admins.items():
                name = f"told-{number}-{attempt}"
                admin.create_topic(name, 2, 3)
                assert counts(name) == dict.fromkeys(admins, 2)
                admin.add_partitions(name, 3)
                assert counts(name) == dict.fromkeys(admins, 3)


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
    assert "belongs to broker 1, not to broker 7" in _refusal(other_id)
    other_cluster = BrokerProcess(
        cluster.brokers[1].data, {**settings, "zookeeper_connect": cluster.servers.address + "/another"}
    )
    other_cluster.log = tmp_path / "other-cluster.log"
    assert "use another data directory, or the address of its own cluster" in _refusal(other_cluster)


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
    tree = ZooKeeperMetadataStore(ZooKeeperConfig(cluster.zookeeper, session_timeout_s=30.0))
    try:
        assert topic_metadata_store.take_producer_ids(tree, 9).start >= 3 * topic_metadata_store.PRODUCER_ID_BLOCK_SIZE
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
            received += len(consumer.poll(timeout_s=1))
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
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(word.encode())
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()
