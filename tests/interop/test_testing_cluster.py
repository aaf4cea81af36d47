"""`barnabas.testing.BrokerCluster`: three brokers with ZooKeeper, and their faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.testing import BrokerCluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = pytest.mark.xdist_group(CLUSTERS)


@pytest.fixture(scope="module")
def made() -> Iterator[BrokerCluster]:
    with BrokerCluster() as cluster:
        yield cluster


@pytest.fixture
def tested(made: BrokerCluster) -> Iterator[BrokerCluster]:
    yield made
    made.heal()


def send(cluster: BrokerCluster, topic: str, *values: bytes, acks: int | str = "all") -> None:
    with barnabas.Producer(cluster.bootstrap, acks=acks) as producer:
        for each in values:
            producer.send(topic, each).result()


def test_isolated_leader_loses_its_followers_until_mend(tested: BrokerCluster) -> None:
    topic = tested.create_topic()
    leader = tested.leader(topic)
    assert tested.in_sync(topic) == {1, 2, 3}
    tested.isolate(leader)
    assert tested.is_disturbed
    send(tested, topic, b"x", acks=1)
    tested.wait_until(lambda: tested.in_sync(topic) == {leader}, "the followers leave the ISR")
    tested.mend()
    tested.wait_until_in_sync(topic)
    send(tested, topic, b"y")


def test_cut_between_two_brokers_leaves_the_third_in_sync(tested: BrokerCluster) -> None:
    topic = tested.create_topic()
    leader = tested.leader(topic)
    cut, other = sorted({1, 2, 3} - {leader})
    tested.cut(cut, leader)
    send(tested, topic, b"x", acks=1)
    tested.wait_until(lambda: tested.in_sync(topic) == {leader, other}, "one follower leaves the ISR")
    tested.broker(cut).restart()  # the cut outlives a restart
    assert tested.in_sync(topic) == {leader, other}
    tested.mend()
    tested.wait_until_in_sync(topic)


def test_killed_leader_is_replaced_and_no_acknowledged_record_is_lost(tested: BrokerCluster) -> None:
    topic = tested.create_topic(settings={"min.insync.replicas": 2})
    send(tested, topic, b"1", b"2")
    leader = tested.leader(topic)
    tested.broker(leader).kill()
    assert tested.wait_for_leader(topic, other_than=leader) != leader
    send(tested, topic, b"3")
    tested.heal()
    tested.wait_until_in_sync(topic)
    with barnabas.Consumer(tested.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        wait_until(lambda: len(found) >= 3 or found.extend(each.value for each in consumer.poll()), "three records")
    assert found == [b"1", b"2", b"3"]


def test_broker_registers_again_after_its_session_has_expired(tested: BrokerCluster) -> None:
    topic = tested.create_topic()
    leader = tested.leader(topic)
    before = len(tested.broker(leader).log)
    tested.broker(leader).expire_session()
    wait_until(lambda: "session" in tested.broker(leader).log[before:], "the broker logs the loss of its session")
    tested.wait_until_in_sync(topic)
    send(tested, topic, b"x")


def test_wrong_names_are_refused(tested: BrokerCluster) -> None:
    with pytest.raises(ValueError, match=r"no broker 4; the brokers are \[1, 2, 3\]"):
        tested.cut(1, 4)
    with pytest.raises(ValueError, match="from itself"):
        tested.cut(2, 2)
    with pytest.raises(ValueError, match="at least one broker"):
        BrokerCluster(0)


def test_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(barnabas.BarnabasError, match="did you mean"):
        BrokerCluster(1, {"num.partition": 1}).start()
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from barnabas.testing import BrokerCluster

cluster = BrokerCluster(1).start()
print(cluster.broker(1).pid, *cluster.zookeeper.pids, flush=True)
sys.stdin.read()
"""


def test_cluster_ends_with_a_killed_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        pids = process.stdout.readline().split()
        assert len(pids) == 2
        process.kill()
    # A zombie has no command line.
    wait_until(lambda: not any(command_line(pid.decode()) for pid in pids), "broker and ZooKeeper end")
    wait_until(lambda: list(tmp_path.glob("barnabas-test-*")) == [], "all folders are removed")


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
