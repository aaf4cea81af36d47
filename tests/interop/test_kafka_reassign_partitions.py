"""Kafka's own `kafka-reassign-partitions`, `kafka-leader-election` and `kafka-topics` against three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from tests.interop.java import maven
from tests.interop.java.tools import Tools, kafka_tools
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

SETTINGS = {
    "zookeeper_session_timeout_ms": "4000",
    "replica_lag_time_max_ms": "3000",
    "auto_leader_rebalance_enable": "false",
}
VERSIONS = ["3.9.1", "4.3.0"]
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module", params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, brokers: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    """The tools of each version in turn."""
    with kafka_tools(request.param, tmp_path_factory.mktemp("kafka-tools") / "java.log") as tools:
        tools.run(TOPICS, "--bootstrap-server", brokers.bootstrap, "--list")  # says that there is no logger
        yield tools


@pytest.fixture
def topic(tools: Tools, cluster: Cluster) -> str:
    """A topic with a partition on brokers 1 and 2."""
    name = f"moved-by-{tools.version}"
    with barnabas.Admin(cluster.bootstrap) as admin:
        if name not in admin.list_topics():
            admin.create_topic(name, 1, 2)
    move(cluster, name, 1, 2)
    return name


def move(cluster: Cluster, topic: str, *replicas: int) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_partition_reassignments({(topic, 0): replicas})
    wait_until_moved(cluster, topic, *replicas)


def wait_until_moved(cluster: Cluster, topic: str, *replicas: int) -> None:
    """Wait until all brokers know it: the tools ask the one that calls itself the controller."""
    is_there = (replicas, set(replicas))
    wait_until(
        lambda: all(described_by(cluster, topic, each) == is_there for each in cluster.brokers),
        f"{topic} is on {replicas}",
    )


def described(cluster: Cluster, topic: str) -> tuple[tuple[int, ...], set[int]]:
    return described_by(cluster, topic, *cluster.brokers)


def described_by(cluster: Cluster, topic: str, *asked: int) -> tuple[tuple[int, ...], set[int]]:
    with barnabas.Admin(cluster.bootstrap_of(*asked)) as admin:
        found = admin.describe_topics([topic])[0].partitions[0]
    return tuple(found.replicas), set(found.isr)


def plan(folder: Path, topic: str, *replicas: int) -> Path:
    path = folder / "plan.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def test_plan_is_proposed_carried_out_and_found_done(
    tools: Tools, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    chosen = tmp_path / "topics.json"
    chosen.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    at = ("--bootstrap-server", cluster.bootstrap)
    said = tools.run(REASSIGN, *at, "--generate", "--topics-to-move-json-file", chosen, "--broker-list", "1,2,3")
    assert said.code == 0, said.text
    assert "Proposed partition reassignment configuration" in said.text
    path = plan(tmp_path, topic, 3, 2)
    said = tools.run(REASSIGN, *at, "--execute", "--reassignment-json-file", path, "--throttle", "100000000")
    assert said.code == 0, said.text
    assert "Successfully started partition reassignment" in said.text
    wait_until_moved(cluster, topic, 3, 2)
    said = tools.run(REASSIGN, *at, "--verify", "--reassignment-json-file", path)
    assert f"Reassignment of partition {topic}-0 is completed" in said.text, said.text
    with barnabas.Admin(cluster.bootstrap) as admin:

        def is_throttled() -> bool:
            return bool(admin.describe_config(topic)["leader.replication.throttled.replicas"].value)

        # The tool sets throttles, and takes them back; another broker hears of it a moment later.
        wait_until(lambda: not is_throttled(), "the throttle is taken back")
    assert "No partition reassignments found" in tools.run(REASSIGN, *at, "--list").text


def test_move_is_listed_and_taken_back(tools: Tools, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    cluster.brokers[2].stop()
    try:
        at = ("--bootstrap-server", cluster.bootstrap_of(1, 3))
        path = plan(tmp_path, topic, 3, 2)
        with barnabas.Admin(cluster.bootstrap_of(1, 3)) as admin:
            # It waits for broker 2. Kafka's tool would not begin it.
            admin.alter_partition_reassignments({(topic, 0): [3, 2]})
        said = tools.run(REASSIGN, *at, "--verify", "--preserve-throttles", "--reassignment-json-file", path)
        assert f"Reassignment of partition {topic}-0 is still in progress" in said.text, said.text
        said = tools.run(REASSIGN, *at, "--list")
        assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in said.text, said.text
        # It would ask all brokers of the plan to forget throttles, and wait for the one that is away.
        said = tools.run(REASSIGN, *at, "--cancel", "--preserve-throttles", "--reassignment-json-file", path)
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in said.text, said.text
        assert "No partition reassignments found" in tools.run(REASSIGN, *at, "--list").text
        said = tools.run(TOPICS, *at, "--describe", "--under-replicated-partitions")
        assert topic in said.text, said.text
    finally:
        cluster.brokers[2].start()
    wait_until(lambda: described(cluster, topic)[1] == {1, 2}, "it is where it was")


def wait_until_led_by(cluster: Cluster, topic: str, leader: int, *asked: int) -> None:
    """Wait until all brokers that are asked, or all, say so."""
    wait_until(
        lambda: all(cluster.leader_of(topic, asked=each) == leader for each in asked or cluster.brokers),
        f"broker {leader} leads {topic}",
    )


def test_preferred_replica_is_elected(tools: Tools, cluster: Cluster, topic: str) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    move(cluster, topic, 2, 1)
    elect = (ELECT, *at, "--topic", topic, "--partition", "0", "--election-type")
    tools.run(*elect, "preferred")
    wait_until_led_by(cluster, topic, 2)
    move(cluster, topic, 1, 2)
    assert cluster.leader_of(topic) == 2
    said = tools.run(*elect, "preferred")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said.text, said.text
    wait_until_led_by(cluster, topic, 1)
    said = tools.run(*elect, "preferred")
    assert f"Valid replica already elected for partitions {topic}-0" in said.text, said.text


def test_any_replica_is_elected_where_no_in_sync_one_lives(tools: Tools, cluster: Cluster, topic: str) -> None:
    move(cluster, topic, 1, 2)
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_config(topic, to_set={"unclean.leader.election.enable": "false"})
    cluster.brokers[2].stop()
    wait_until(lambda: described_by(cluster, topic, 1, 3)[1] == {1}, "broker 1 is in sync alone")
    cluster.brokers[1].stop()
    cluster.brokers[2].start()
    try:
        wait_until_led_by(cluster, topic, -1, 2, 3)
        at = ("--bootstrap-server", cluster.bootstrap_of(2, 3))
        elect = (ELECT, *at, "--topic", topic, "--partition", "0", "--election-type")
        said = tools.run(*elect, "preferred")
        assert "PreferredLeaderNotAvailableException" in said.text, said.text
        said = tools.run(*elect, "unclean")
        assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in said.text, said.text
        wait_until_led_by(cluster, topic, 2, 2, 3)
    finally:
        cluster.brokers[1].start()
    wait_until(lambda: described(cluster, topic)[1] == {1, 2}, "both are in sync")
