"""Three brokers and what can befall them: killed, stopped for a while, without ZooKeeper, one after the other, at once.

Whatever it is: what was acknowledged with acks=all is there once, in its order, where it was acknowledged, and all
replicas are the same byte for byte when all is over.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import threading
from collections.abc import Callable
from typing import Self

import pytest

import barnabas
from barnabas.coordination import paths
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.errors import ApiError
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP
from tests.crash.test_broker_kill import (
    PARTITIONS,
    LibrdkafkaSender,
    Load,
    OurSender,
    Sender,
    check_all_is_there,
    wait_for_progress,
)
from tests.support.direct_clients import DirectReader, Told
from tests.support.process_cluster import Cluster
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.xdist_groups import FAULTS

pytestmark = pytest.mark.xdist_group(FAULTS)

SETTINGS = {
    "zookeeper_session_timeout_ms": "4000",
    "replica_lag_time_max_ms": "3000",
    "log_segment_bytes": "100000",
    "log_retention_check_interval_ms": "300",
    # Who leads is what these tests decide.
    "auto_leader_rebalance_enable": "false",
}
_numbers = itertools.count(1)

RECORDS = 1_000
"""So many are to be acknowledged between two faults."""


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of three partitions and three replicas, of which two must be in sync."""
    name = f"numbers-{next(_numbers)}"
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, PARTITIONS, 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync(name, 3)
    return name


def check(cluster: Cluster, topic: str, load: Load) -> None:
    load.stop()
    check_all_is_there(cluster.bootstrap, load, cluster.folder, topic)
    cluster.wait_until_same(topic, PARTITIONS)


@pytest.mark.parametrize("make_sender", [LibrdkafkaSender, OurSender])
def test_writes_go_on_when_a_leader_is_killed(
    cluster: Cluster, topic: str, make_sender: Callable[[str, str], Sender]
) -> None:
    load = Load(make_sender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    leader = cluster.leader_of(topic)
    cluster.brokers[leader].kill()
    cluster.wait_for_another_leader(topic, leader)
    wait_for_progress(load, RECORDS)
    cluster.brokers[leader].restart()
    cluster.wait_until_in_sync(topic, 3)
    wait_for_progress(load, RECORDS)
    check(cluster, topic, load)


def test_what_a_leader_took_that_was_stopped_past_its_session_is_truncated(cluster: Cluster, topic: str) -> None:
    """Requests wait in its sockets for it to go on."""
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    zombie = cluster.leader_of(topic)
    with barnabas.Producer(cluster.brokers[zombie].bootstrap, acks=1, enable_idempotence=False) as producer:
        producer.send(topic, b"-1", partition=0).result()
        cluster.pause(zombie)
        lost = [producer.send(topic, b"-1", partition=0) for _ in range(10)]
        cluster.wait_for_another_leader(topic, zombie)
        with barnabas.Producer(cluster.bootstrap_of(*cluster.others(zombie)), acks="all") as meanwhile:
            meanwhile.send(topic, b"-2", partition=0).result()
        cluster.go_on(zombie)
        producer.flush()
    cluster.wait_until_in_sync(topic, 3)
    load.stop()
    cluster.wait_until_same(topic, PARTITIONS)
    with barnabas.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, each) for each in range(PARTITIONS)])
        found: list[int] = []
        wanted = set(range(load.sent))

        def has_all() -> bool:
            found.extend(int(record.value or b"") for record in consumer.poll(timeout_s=0.1))
            return wanted <= set(found)

        wait_until(has_all, "all that was acknowledged")
    assert len([each for each in found if each >= 0]) == load.sent
    assert len([each for each in found if each == -1]) <= 1 + len(lost)
    assert found.count(-2) == 1


def test_two_leaders_are_killed_one_after_the_other(cluster: Cluster, topic: str) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_config(topic=topic, to_set={"min.insync.replicas": "1"})
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    first = cluster.leader_of(topic)
    cluster.brokers[first].kill()
    second = cluster.wait_for_another_leader(topic, first)
    wait_for_progress(load, RECORDS)
    cluster.wait_until_in_sync(topic, 2)
    cluster.brokers[second].kill()
    cluster.wait_for_another_leader(topic, first, second)
    wait_for_progress(load, RECORDS)
    cluster.brokers[first].restart()
    cluster.brokers[second].restart()
    check(cluster, topic, load)


def test_follower_that_has_just_come_back_leads_at_once(cluster: Cluster, topic: str) -> None:
    load = Load(LibrdkafkaSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    leader = cluster.leader_of(topic)
    follower, other = cluster.others(leader)
    cluster.brokers[follower].kill()
    cluster.brokers[follower].restart()
    cluster.wait_until_in_sync(topic, 3)
    # It may have been in sync still, by what was known of its former life.
    wait_for_progress(load, RECORDS)
    cluster.wait_until_in_sync(topic, 3)
    cluster.brokers[other].kill()
    cluster.brokers[leader].kill()
    cluster.wait_for_another_leader(topic, leader, other)
    cluster.brokers[leader].restart()
    cluster.brokers[other].restart()
    wait_for_progress(load, RECORDS)
    check(cluster, topic, load)


def test_all_are_killed_at_once_and_come_back_in_any_order(cluster: Cluster, topic: str) -> None:
    """The second time the first to come back has an older copy of its disk."""
    load = Load(OurSender(cluster.bootstrap, topic))
    data, copy = cluster.brokers[3].data, cluster.folder / f"copy for {topic}"
    for order in ((1, 2, 3), (3, 1, 2)):
        wait_for_progress(load, RECORDS)
        for broker in cluster.brokers.values():
            broker.kill()
        if copy.exists():
            shutil.rmtree(data)
            shutil.copytree(copy, data)
        else:
            shutil.copytree(data, copy)
        for number in order:
            cluster.brokers[number].restart()
    wait_for_progress(load, RECORDS)
    check(cluster, topic, load)
    assert "is an older copy of itself" in cluster.brokers[3].log.read_text()


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1)])
def test_the_room_loses_its_power(cluster: Cluster, topic: str, order: tuple[int, ...]) -> None:
    """Of each partition another replica has kept all that was acknowledged, and comes back first, second or last."""
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    for broker in cluster.brokers.values():
        broker.kill()
    for number in cluster.brokers:
        lose_memory(cluster, number, [f"{topic}-{each}" for each in range(PARTITIONS) if each + 1 != number])
    for number in order:
        cluster.brokers[number].restart()
    wait_for_progress(load, RECORDS)
    check(cluster, topic, load)
    told = "".join(broker.log.read_text() for broker in cluster.brokers.values())
    assert "replicas [1, 2, 3] lost unflushed records or have older copies of their log directories" in told


def lose_memory(cluster: Cluster, number: int, partitions: list[str]) -> None:
    """Let a broker that was killed find that its machine has started again since, and that the last third of some
    partitions was not on the disk."""
    data = cluster.brokers[number].data
    properties = data / "meta.properties"
    properties.write_text(re.sub("boot.id=.*", "boot.id=another", properties.read_text()))
    for partition in partitions:
        segments = sorted((data / partition).glob("*.log"))
        kept = sum(path.stat().st_size for path in segments) * 2 // 3
        for path in segments:
            with path.open("r+b") as segment:
                segment.truncate(min(kept, path.stat().st_size))
            kept = max(0, kept - path.stat().st_size)
            if not kept:
                path.with_suffix(".index").unlink(missing_ok=True)
                path.with_suffix(".timeindex").unlink(missing_ok=True)


def test_all_lose_their_sessions_at_once(cluster: Cluster, topic: str) -> None:
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    tree = ZooKeeperMetadataStore(ZooKeeperConfig(cluster.zookeeper, session_timeout_s=60.0))
    try:
        for number in cluster.brokers:
            cluster.pause(number)
        wait_until(lambda: not tree.children(paths.BROKER_IDS), "their sessions have ended")
    finally:
        tree.close()
        for number in cluster.brokers:
            cluster.go_on(number)
    wait_for_progress(load, RECORDS)
    wait_until(cluster.is_complete, "all brokers know all brokers")
    check(cluster, topic, load)


def test_broker_whose_registration_somebody_deletes_comes_back(cluster: Cluster, topic: str) -> None:
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    leader = cluster.leader_of(topic)
    tree = ZooKeeperMetadataStore(ZooKeeperConfig(cluster.zookeeper, session_timeout_s=60.0))
    try:
        epoch = tree.get(paths.broker(leader)).stat.created_at
        tree.delete(paths.broker(leader))

        def is_registered_anew() -> bool:
            stat = tree.exists(paths.broker(leader))
            return stat is not None and stat.created_at > epoch

        wait_until(is_registered_anew, "it is registered again")
    finally:
        tree.close()
    wait_for_progress(load, RECORDS)
    wait_until(cluster.is_complete, "all brokers know all brokers")
    check(cluster, topic, load)


def test_zookeeper_is_away_for_longer_than_a_session(cluster: Cluster, topic: str) -> None:
    load = Load(OurSender(cluster.bootstrap, topic))
    wait_for_progress(load, RECORDS)
    seen = {
        number: broker.log.read_text().count("stopping leadership of all partitions")
        for number, broker in cluster.brokers.items()
    }
    cluster.servers.kill(0)
    wait_until(
        lambda: all(
            broker.log.read_text().count("stopping leadership of all partitions") > seen[number]
            for number, broker in cluster.brokers.items()
        ),
        "no broker leads",
    )
    cluster.servers.restart(0)
    wait_for_progress(load, RECORDS)
    wait_until(cluster.is_complete, "all brokers know all brokers")
    check(cluster, topic, load)


def test_without_its_in_sync_replicas_a_partition_is_offline_unless_loss_is_allowed(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("unclean", 1, config={"min.insync.replicas": "2"}, replication_factor=2)
    cluster.wait_until_in_sync("unclean", 2)
    leader = cluster.leader_of("unclean")
    (follower,) = cluster.in_sync("unclean") - {leader}
    cluster.brokers[follower].kill()
    wait_until(lambda: cluster.in_sync("unclean") == {leader}, "the leader is alone in sync")
    with barnabas.Producer(cluster.brokers[leader].bootstrap, acks="all", delivery_timeout_ms=1_000) as producer:
        error = producer.send("unclean", b"too few").exception()
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    with barnabas.Producer(cluster.brokers[leader].bootstrap, acks=1, enable_idempotence=False) as producer:
        producer.send("unclean", b"of the leader alone").result()
    cluster.brokers[leader].kill()
    cluster.brokers[follower].restart()
    log = cluster.brokers[follower].log
    wait_until(lambda: "unclean-0: no leader" in log.read_text(), "it is told that nobody may lead")
    assert cluster.leader_of("unclean", asked=follower) == -1
    with barnabas.Admin(cluster.brokers[follower].bootstrap) as admin:
        admin.alter_config(topic="unclean", to_set={"unclean.leader.election.enable": "true"})
    wait_until(lambda: cluster.leader_of("unclean", asked=follower) == follower, "the other replica leads")
    assert "unclean-0: this broker leads and was not in sync" in log.read_text()
    cluster.brokers[leader].restart()
    cluster.wait_until_in_sync("unclean", 2)
    wait_until(lambda: cluster.content(leader, "unclean") == cluster.content(follower, "unclean"), "they are the same")


def test_follower_starts_again_where_the_leader_begins(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("short", 1, 3, {"segment.bytes": "20000"})
        cluster.wait_until_in_sync("short", 3)
        leader = cluster.leader_of("short")
        slow, other = cluster.others(leader)
        fill(cluster, "short", 100)
        cluster.pause(slow)
        wait_until(lambda: slow not in cluster.in_sync("short", asked=leader), "it is out of sync")
        fill(cluster, "short", 400)
    with barnabas.Admin(cluster.bootstrap_of(leader, other)) as admin:
        admin.delete_records({("short", 0): 450})
    cluster.go_on(slow)
    wait_until(lambda: slow in cluster.in_sync("short", asked=leader), "it is in sync again")
    cluster.brokers[leader].stop()
    cluster.brokers[other].stop()
    cluster.wait_for_another_leader("short", leader, other)
    with barnabas.Admin(cluster.brokers[slow].bootstrap) as admin:
        assert list(admin.beginning_offsets([("short", 0)]).values()) == [450]
        assert list(admin.end_offsets([("short", 0)]).values()) == [500]


def test_retention_goes_past_a_follower_that_is_away_and_under_readers(cluster: Cluster) -> None:
    topic = f"old-{next(_numbers)}"
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, 3, {"segment.bytes": "10000"})
    cluster.wait_until_in_sync(topic, 3)
    leader = cluster.leader_of(topic)
    away, other = cluster.others(leader)
    fill(cluster, topic, 100)
    cluster.pause(away)
    wait_until(lambda: away not in cluster.in_sync(topic, asked=leader), "it is out of sync")
    fill(cluster, topic, 100)
    # One that begins to lead may know an earlier start for a moment: only what is deleted on request waits for all.
    told = {number: Told() for number in cluster.brokers}
    with contextlib.ExitStack() as stack:
        for number, broker in cluster.brokers.items():
            stack.enter_context(DirectReader(broker, topic, EARLIEST_TIMESTAMP, told[number]))
        reader = stack.enter_context(Follow(cluster.bootstrap_of(leader, other), topic))
        late = stack.enter_context(barnabas.Consumer(cluster.bootstrap_of(leader, other), auto_offset_reset="none"))
        wait_until(lambda: reader.offsets, "somebody reads")
        with barnabas.Admin(cluster.bootstrap_of(leader, other)) as admin:
            admin.alter_config(topic=topic, to_set={"retention.bytes": "10000"})
        wait_until(lambda: told[leader].greatest > 130, "too many records are gone, also some that the follower lacks")
        late.assign([(topic, 0)])
        late.seek((topic, 0), 120)
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
            wait_until(lambda: late.poll(timeout_s=0.1), "what is gone is refused")
        cluster.go_on(away)
        fill(cluster, topic, 100)
        wait_until(lambda: reader.position == 300, "the reader has come to the end")
        cluster.wait_until_in_sync(topic, 3)
        with barnabas.Admin(cluster.bootstrap) as admin:
            admin.alter_config(topic=topic, to_set={"retention.ms": "1"})
        wait_until(lambda: told[leader].greatest == 300, "records that are too old are gone")
        wait_until(
            lambda: [first_segment(cluster, each, topic) for each in (away, other)] == [300, 300],
            "they are gone there as well",
        )
        cluster.brokers[leader].stop()
        cluster.brokers[other].stop()
        cluster.wait_for_another_leader(topic, leader, other)
        with barnabas.Admin(cluster.brokers[away].bootstrap) as admin:
            assert list(admin.beginning_offsets([(topic, 0)]).values()) == [300]
            assert list(admin.end_offsets([(topic, 0)]).values()) == [300]
        for number in (leader, other):
            cluster.brokers[number].restart()
        cluster.wait_until_in_sync(topic, 3)
    assert [each.steps_back for each in told.values()] == [[], [], []]
    assert reader.offsets == sorted(set(reader.offsets))


def first_segment(cluster: Cluster, number: int, topic: str) -> int:
    """Return with which offset a broker's first segment of a topic begins."""
    return min(int(path.stem) for path in (cluster.brokers[number].data / f"{topic}-0").glob("*.log"))


class Follow:
    """Reads a topic from its beginning on a thread, and goes on where there is something when records are gone."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.offsets: list[int] = []
        self.position = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self, bootstrap: str, topic: str) -> None:
        with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while not self._ends.is_set():
                self.offsets += [record.offset for record in consumer.poll(timeout_s=0.1)]
                self.position = consumer.position((topic, 0))


def fill(cluster: Cluster, topic: str, count: int) -> None:
    with barnabas.Producer(cluster.bootstrap, acks="all", batch_size=2_000) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number * 100)
