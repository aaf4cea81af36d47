"""Partitions that move between three brokers while they are written and read, and while brokers die."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import barnabas
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]

SETTINGS = {"zookeeper_session_timeout_ms": "4000", "replica_lag_time_max_ms": "3000"}


def move(cluster: Cluster, topic: str, *replicas: int) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_partition_reassignments({(topic, 0): replicas})


def replicas_of(cluster: Cluster, topic: str, *asked: int) -> tuple[Sequence[int], set[int], int]:
    with barnabas.Admin(cluster.bootstrap_of(*(asked or cluster.brokers))) as admin:
        found = admin.describe_topics([topic])[0].partitions[0]
        return found.replicas, set(found.isr), found.leader


def wait_until_moved(cluster: Cluster, topic: str, *replicas: int, asked: Sequence[int] = ()) -> None:
    def has_moved() -> bool:
        found, isr, leader = replicas_of(cluster, topic, *asked)
        return tuple(found) == replicas and isr == set(replicas) and leader in replicas

    wait_until(has_moved, lambda: f"{topic} is on {replicas}, not {replicas_of(cluster, topic, *asked)}")


def folder(cluster: Cluster, number: int, topic: str) -> Path:
    return cluster.brokers[number].data / f"{topic}-0"


def make(cluster: Cluster, topic: str, *replicas: int) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, len(replicas))
        admin.alter_partition_reassignments({(topic, 0): replicas})
    wait_until_moved(cluster, topic, *replicas)


@contextmanager
def writing(cluster: Cluster, topic: str) -> Iterator[list[bytes]]:
    """Write until the end; what is acknowledged at acks=all stands in the list."""
    acknowledged: list[bytes] = []
    ended = threading.Event()

    def write() -> None:
        with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
            while not ended.is_set():
                value = b"%d" % len(acknowledged)
                producer.send(topic, value, partition=0).result()
                acknowledged.append(value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        writer.join()


def values(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with barnabas.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([barnabas.TopicPartition(topic, 0)])

        def have_come() -> bool:
            found.extend(record.value or b"" for record in consumer.poll(timeout_s=0.5))
            return len(found) >= count

        wait_until(have_come, lambda: f"{count} records have come, not {len(found)}")
    return found


def test_partition_moves_round_while_it_is_written_and_loses_nothing(cluster: Cluster) -> None:
    make(cluster, "round", 1, 2)
    with writing(cluster, "round") as acknowledged:
        wait_until(lambda: len(acknowledged) > 20, "records are written")
        for replicas in [(3, 2), (3, 1), (1,), (2,), (1, 2, 3)]:
            before = len(acknowledged)
            move(cluster, "round", *replicas)
            wait_until_moved(cluster, "round", *replicas)
            wait_until(lambda before=before: len(acknowledged) > before, "records are written still")
            for other in cluster.others(*replicas):
                wait_until(lambda other=other: not folder(cluster, other, "round").exists(), f"{other} has deleted it")
    assert values(cluster, "round", len(acknowledged)) == acknowledged
    assert len({cluster.content(number, "round") for number in cluster.brokers}) == 1
    with barnabas.Admin(cluster.bootstrap) as admin:
        wait_until(lambda: admin.list_partition_reassignments() == {}, "nothing moves any more")


def begin_what_waits_for_broker_2(cluster: Cluster, topic: str) -> None:
    """Move a partition from brokers 1 and 2 to 3 and 2, of which 2 is away."""
    make(cluster, topic, 1, 2)
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        producer.send(topic, b"kept", partition=0).result()
    cluster.brokers[2].stop()
    with barnabas.Admin(cluster.bootstrap_of(1, 3)) as admin:
        admin.alter_partition_reassignments({(topic, 0): [3, 2]})
        found = admin.list_partition_reassignments()[topic, 0]
        assert found.target == (3, 2)
        assert (found.adding, found.removing) == ((3,), (1,))
    wait_until(lambda: replicas_of(cluster, topic, 1, 3)[1] == {1, 3}, "broker 3 is in sync")


def test_move_goes_on_when_the_leader_dies_and_it_deletes_its_replica_when_it_is_back(cluster: Cluster) -> None:
    begin_what_waits_for_broker_2(cluster, "leaderless")
    cluster.brokers[1].kill()
    cluster.brokers[2].start()
    wait_until_moved(cluster, "leaderless", 3, 2, asked=[2, 3])
    assert folder(cluster, 1, "leaderless").exists()
    cluster.brokers[1].start()
    wait_until(lambda: not folder(cluster, 1, "leaderless").exists(), "broker 1 has deleted what it had")
    assert values(cluster, "leaderless", 1) == [b"kept"]


def test_move_that_is_taken_back_leaves_nothing_behind(cluster: Cluster) -> None:
    begin_what_waits_for_broker_2(cluster, "back")
    with barnabas.Admin(cluster.bootstrap_of(1, 3)) as admin:
        admin.alter_partition_reassignments({("back", 0): None})
    wait_until(lambda: not folder(cluster, 3, "back").exists(), "broker 3 has nothing of it")
    cluster.brokers[2].start()
    wait_until(lambda: replicas_of(cluster, "back")[1] == {1, 2}, "it is where it was")
    assert set(replicas_of(cluster, "back")[0]) == {1, 2}
    assert values(cluster, "back", 1) == [b"kept"]


def test_what_cannot_be_is_refused(cluster: Cluster) -> None:
    make(cluster, "refused", 1, 2)
    with barnabas.Admin(cluster.bootstrap) as admin:
        for target, code in [
            ([1, 9], "INVALID_REPLICA_ASSIGNMENT"),
            ([], "INVALID_REPLICA_ASSIGNMENT"),
            (None, "NO_REASSIGNMENT_IN_PROGRESS"),
        ]:
            with pytest.raises(barnabas.ApiError) as caught:
                admin.alter_partition_reassignments({("refused", 0): target})
            assert caught.value.code.name == code
        with pytest.raises(barnabas.ApiError) as caught:
            admin.alter_partition_reassignments({("refused", 7): [1]})
        assert caught.value.code is barnabas.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
