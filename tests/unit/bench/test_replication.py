"""Brokers and clients of the replicated workloads: how three nodes are set up, and what each producer is asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.drivers import DRIVERS
from bench.drivers.barnabas_perf import BarnabasPerf
from bench.drivers.driver import run_at_once, share_of
from bench.drivers.job import Job
from bench.goals import (
    BARNABAS,
    BARNABAS_CLUSTER,
    GOALS,
    KAFKA_CLUSTER,
    against_kafka,
    against_one_broker,
    latency_beside_kafka,
)
from bench.peers import SERVERS
from bench.peers import kafka as kafka_module
from bench.peers.barnabas import BarnabasCluster, TwoBarnabas, ready_addresses
from bench.peers.kafka import KafkaCluster
from bench.processes import ClientError, ServerProcess
from bench.results import Case, Row, Run
from bench.workloads import WORKLOADS, replication

REPORT = '{"records": 1000, "records_per_s": 500, "cpu_client_s": 0.25}'


def row(server: str, client: str, rate: float) -> Row:
    return Row(server, client, [Run(1000, 1000 / rate, latency={"p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": rate})])


def test_names_of_clusters_are_those_that_goals_look_for() -> None:
    assert SERVERS["barnabas-cluster"].title == BARNABAS_CLUSTER
    assert SERVERS["kafka-cluster"].title == KAFKA_CLUSTER


@pytest.mark.parametrize("name", ["W5", "W6", "W7", "W12R"])
def test_replicated_workloads_have_a_goal_and_the_case_that_it_names(name: str) -> None:
    goal = next(each for each in GOALS if each.workload == name)
    assert goal.server == BARNABAS_CLUSTER
    assert goal.case in (replication.REPLICATED, replication.LATENCY)
    assert goal.client in {driver.name for driver in DRIVERS.values()}
    assert name in WORKLOADS


def test_replicated_throughput_is_told_beside_one_brokers_and_kafkas() -> None:
    case = Case("three replicas", 100, [row(BARNABAS, "Barnabas `send`", 4000)])
    case.rows += [row(BARNABAS_CLUSTER, "Barnabas `send`", 3000), row(KAFKA_CLUSTER, "Kafka's perf tools", 1000)]
    assert against_one_broker(case, case.rows[1]) == "0.75 of one broker's: 3,000/s"
    assert against_kafka(case, case.rows[1]) == pytest.approx(3.0)
    assert against_kafka(case, case.rows[0]) is None, "one broker is not compared with three nodes"
    case.rows.pop(0)
    assert against_one_broker(case, case.rows[0]) is None


def test_replicated_latency_is_told_beside_kafkas() -> None:
    case = Case("1,000 records/s", 100, [row(BARNABAS_CLUSTER, "Barnabas", 3)])
    assert latency_beside_kafka(case, case.rows[0]) == "1.00 / 2.00 / 3.00 ms"
    case.rows.append(row(KAFKA_CLUSTER, "Kafka's Java client", 9))
    assert latency_beside_kafka(case, case.rows[0]) == "1.00 / 2.00 / 3.00 ms, Kafka 1.00 / 2.00 / 9.00 ms"


def test_flushed_workload_has_a_goal_and_the_case_that_it_names() -> None:
    goal = next(each for each in GOALS if each.workload == "W20")
    assert goal.case == replication.FLUSHED
    assert goal.client in {driver.name for driver in DRIVERS.values()}
    assert "W20" in WORKLOADS


def test_brokers_of_one_machine_have_ports_in_a_row(tmp_path: Path) -> None:
    brokers = TwoBarnabas(tmp_path)
    first, second = (int(address.rpartition(":")[2]) for address in brokers.address.split(","))
    assert second == first + 1
    assert first == brokers.port


def test_ready_brokers_are_read_once_the_line_is_whole() -> None:
    assert ready_addresses("ready 127.0.0.1:1,127.0.") == ""
    assert ready_addresses("broker-1: hello\nready 127.0.0.1:1,127.0.0.1:2\n") == "127.0.0.1:1,127.0.0.1:2"


def test_three_nodes_of_kafka_know_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_module, "java", lambda: "true")
    monkeypatch.setattr(kafka_module, "class_path", lambda: "jars/*")
    cluster = KafkaCluster(tmp_path)
    cluster.launch()
    cluster.stop()
    texts = [(tmp_path / f"node-{node}.properties").read_text() for node in (1, 2, 3)]
    voters = {line for text in texts for line in text.splitlines() if line.startswith("controller.quorum.voters=")}
    assert len(voters) == 1
    assert voters.pop().count("@127.0.0.1:") == 3
    assert [text.partition("node.id=")[2][0] for text in texts] == ["1", "2", "3"]
    assert all("\noffsets.topic.replication.factor=3\n" in text for text in texts)
    assert len(set(cluster.address.split(","))) == 3
    assert not cluster.process.is_running


def test_all_nodes_count_and_one_that_has_ended_is_told(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path)
    waiting = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    cluster._nodes += [ServerProcess(waiting, tmp_path / f"log-{number}") for number in range(3)]
    assert len(cluster.pids) == 3
    assert cluster.memory_mib_max() > 0
    assert cluster.process.is_running
    cluster._nodes[1].kill()
    assert not cluster.process.is_running
    cluster.stop()
    assert not any(each.is_running for each in cluster._nodes)


def test_producers_share_the_records() -> None:
    job = Job("produce", 9_000, producers=3, topic="t")
    assert (share_of(job).records, share_of(job).producers) == (3_000, 1)
    command = BarnabasPerf("Barnabas", "send").command(BarnabasCluster(Path()), job)
    assert command[command.index("--producers") + 1] == "3"
    one = BarnabasPerf("Barnabas", "send").command(BarnabasCluster(Path()), Job("produce", 9_000))
    assert "--producers" not in one


def test_clients_at_once_are_added_up() -> None:
    outcome = run_at_once([[sys.executable, "-c", f"print({REPORT!r})"]] * 2, 60)
    assert (outcome.records, outcome.seconds, outcome.cpu_client_s) == (2000, 2.0, 0.5)


def test_one_of_several_clients_that_fails_fails_all() -> None:
    commands = [[sys.executable, "-c", f"print({REPORT!r})"], [sys.executable, "-c", "raise ValueError('the reason')"]]
    with pytest.raises(ClientError, match="the reason"):
        run_at_once(commands, 60)
