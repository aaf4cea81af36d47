"""`barnabas cluster status`."""

from __future__ import annotations

import json

import pytest

from barnabas.errors import ErrorCode
from barnabas.model import Node


@pytest.fixture
def three(cluster):
    """Three brokers, one topic of two partitions with three replicas, and groups' offsets in two partitions."""
    cluster.nodes = [Node(each, "10.0.0.1", 9090 + each, f"r{each}") for each in (1, 2, 3)]
    for topic in ("clicks", "__consumer_offsets"):
        cluster.place(topic, 0, 1, [1, 2, 3], [1, 2, 3])
        cluster.place(topic, 1, 2, [2, 3, 1], [2, 3, 1])
    return cluster


def test_healthy_cluster_ends_with_one_line_and_exit_code_0(three, run) -> None:
    outcome = run("cluster", "status")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "cluster its-id, controller: broker 1",
        "",
        "broker  address        rack  leads  replicas  in sync",
        "     1  10.0.0.1:9091  r1        2         4        4",
        "     2  10.0.0.1:9092  r2        2         4        4",
        "     3  10.0.0.1:9093  r3        0         4        4",
        "",
        "coordinator  groups  partitions of __consumer_offsets",
        "          1       0  0",
        "          2       0  1",
        "          3       0  -",
        "",
        "all 12 replicas in sync",
    ]


def test_a_topic_that_cannot_be_described_is_told_beside_the_others(three, run) -> None:
    three.undescribed["odd"] = ErrorCode.LEADER_NOT_AVAILABLE
    outcome = run("cluster", "status")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == "topic odd cannot be described: LEADER_NOT_AVAILABLE"
    assert json.loads(run("cluster", "status", "--json").out)["undescribed"] == {"odd": "LEADER_NOT_AVAILABLE"}


def test_what_is_wrong_is_named_and_exit_code_is_1(three, run) -> None:
    three.nodes.pop()
    three.settings["clicks"] = {"min.insync.replicas": "2"}
    three.place("clicks", 0, 1, [1, 2, 3], [1])
    three.place("clicks", 1, -1, [3], [3])
    outcome = run("cluster", "status")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[5].split() == ["3", "-", "-", "0", "4", "3"]
    assert lines[-5:] == [
        "topic   partitions  problem",
        "clicks  1           no leader, below min.insync.replicas=2",
        "clicks  0           below min.insync.replicas=2, 2,3 not in sync",
        "",
        "2 of 10 replicas not in sync; 1 partition without a leader; 2 partitions below min.insync.replicas;"
        " broker 3 is not registered",
    ]


def test_broker_that_does_not_answer_is_told(three, run) -> None:
    three.silent = {2}
    outcome = run("cluster", "status")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == "broker 2 does not respond"


def test_partitions_of_a_topic_with_the_same_problem_share_a_line(three, run) -> None:
    for partition in range(10):
        three.place("views", partition, 1, [2, 1, 3], [1] if partition != 5 else [1, 2, 3])
    lines = run("cluster", "status").out.splitlines()
    assert lines[-3] == "views  0-4,6-9     2,3 not in sync"


def test_very_many_ailing_topics_are_not_all_shown(three, run) -> None:
    for topic in range(60):
        three.place(f"views-{topic}", 0, -1, [1], [1])
    lines = run("cluster", "status").out.splitlines()
    assert sum(line.startswith("views") for line in lines) == 50
    assert "and 10 more lines; see all with --json" in lines


def test_json_has_all_of_it(three, run) -> None:
    three.place("clicks", 1, 2, [2, 3, 1], [2])
    outcome = run("cluster", "status", "--json")
    assert outcome.code == 1
    told = json.loads(outcome.out)
    assert (told["id"], told["spokesman"], told["healthy"]) == ("its-id", 1, False)
    assert told["summary"] == "2 of 12 replicas not in sync"
    assert told["brokers"][1] == {
        "id": 2,
        "address": "10.0.0.1:9092",
        "rack": "r2",
        "leads": 2,
        "replicas": 4,
        "in_sync": 4,
        "coordinates": [1],
        "groups": 0,
        "offline_folders": [],
    }
    assert told["partitions"][3] == {
        "topic": "clicks",
        "partition": 1,
        "leader": 2,
        "replicas": [2, 3, 1],
        "isr": [2],
        "min_insync": 1,
        "problems": ["1,3 not in sync"],
    }


def test_cluster_of_one_broker_is_healthy(cluster, run) -> None:
    cluster.create("clicks", 2)
    outcome = run("cluster", "status")
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "all 2 replicas in sync")


def test_zookeeper_is_either_started_or_somebody_elses(run) -> None:
    outcome = run("cluster", "up", "--zookeeper", "127.0.0.1:1", "--zookeeper-servers", "3")
    assert outcome.code == 2
    assert "leave out --zookeeper-servers" in outcome.err


def test_data_folder_that_is_offline_is_named(three, run) -> None:
    three.offline_folders = {2: "/disk2/barnabas"}
    outcome = run("cluster", "status")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1] == "/disk2/barnabas of broker 2 is offline"
