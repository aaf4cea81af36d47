"""`barnabas cluster`: three brokers and ZooKeeper as processes, started, watched and stopped by one command."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas as client
from barnabas.net.free_port import EPHEMERAL_RANGE
from tests.support.cluster_command import TIMEOUT_S, ClusterCommand, barnabas, processes_below, runs
from tests.support.ports import free_port
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS
from tests.support.zookeeper_servers import new_chroot, start_servers

pytestmark = [
    pytest.mark.xdist_group(CLUSTERS),
    pytest.mark.skipif(sys.platform != "linux", reason="which processes there are is read from /proc"),
]

Start = Callable[..., ClusterCommand]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts clusters on free ports, all in the same folder unless `data` is another; ends them after the test."""
    started: list[ClusterCommand] = []

    def start_one(*arguments: object, data: str = "cluster") -> ClusterCommand:
        started.append(ClusterCommand(tmp_path / data, *arguments))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def healthy(addresses: list[str]) -> bool:
    return barnabas("cluster", "status", "-b", ",".join(addresses)).returncode == 0


def cluster_id(addresses: list[str]) -> str:
    with client.Admin(",".join(addresses)) as admin:
        return admin.describe_cluster().id


def test_cluster_starts_serves_stops_and_goes_on_where_it_was(start) -> None:
    cluster = start("--brokers", 3, "--port", 0)
    addresses = cluster.wait_until_ready()
    bootstrap = ",".join(addresses)
    assert len(set(addresses)) == 3
    assert barnabas("topic", "create", "clicks", "-p", 3, "-b", bootstrap).returncode == 0
    with client.Producer(bootstrap, acks="all") as producer:
        producer.send("clicks", b"x", partition=0).result(60)
    described = json.loads(barnabas("topic", "describe", "clicks", "--json", "-b", bootstrap).stdout)
    assert [sorted(each["replicas"]) for each in described["partitions"]] == [[1, 2, 3]] * 3
    status = barnabas("cluster", "status", "-b", bootstrap)
    assert (status.returncode, status.stdout.splitlines()[-1]) == (0, "all 9 replicas in sync")
    identity = cluster_id(addresses)
    below = processes_below(cluster.process.pid)
    assert len(below) >= 4
    assert cluster.stop(signal.SIGINT) == 0
    assert not [pid for pid in below if runs(pid)]

    again = start()
    assert again.wait_until_ready() == addresses
    assert cluster_id(addresses) == identity
    with client.Admin(bootstrap) as admin:
        assert admin.end_offsets([("clicks", 0)]) == {("clicks", 0): 1}
    assert again.stop() == 0


def test_killed_broker_is_told_and_started_again(start) -> None:
    cluster = start("--brokers", 3, "--port", 0, "--restart")
    addresses = cluster.wait_until_ready()
    barnabas("topic", "create", "clicks", "-p", 6, "-b", ",".join(addresses))
    os.kill(cluster.pid_of(2), signal.SIGKILL)
    again = f"barnabas: broker 2 serves again at {addresses[1]}"
    wait_until(lambda: again in cluster.said(), "restarting it")
    assert "barnabas: broker 2 was ended by SIGKILL; restarting it in 1 s" in cluster.said()
    wait_until(lambda: healthy(addresses), "every replica is in sync")
    assert cluster.stop() == 0


def test_killed_broker_is_seen_to_be_away_while_the_others_lead(start, tmp_path) -> None:
    config = tmp_path / "brokers.toml"
    config.write_text("zookeeper.session.timeout.ms = 4000\n")
    cluster = start("--brokers", 3, "--port", 0, "--config", config)
    addresses = cluster.wait_until_ready()
    barnabas("topic", "create", "clicks", "-p", 3, "-b", addresses[0])
    os.kill(cluster.pid_of(3), signal.SIGKILL)

    def others_lead() -> bool:
        status = barnabas("cluster", "status", "--json", "-b", ",".join(addresses))
        told = json.loads(status.stdout or "{}")
        if not told or told["brokers"][2]["address"]:
            return False
        assert status.returncode == 1
        return all(each["leader"] in (1, 2) for each in told["partitions"])

    wait_until(others_lead, "the others lead what it led")
    assert cluster.said("barnabas: ") == ["barnabas: broker 3 was ended by SIGKILL"]
    wait_until(lambda: cluster.file()["brokers"]["3"]["process"] is None, "the file tells that it does not run")


def test_nothing_outlives_a_command_that_is_killed(start) -> None:
    cluster = start("--brokers", 2, "--port", 0)
    cluster.wait_until_ready()
    below = processes_below(cluster.process.pid)
    cluster.close()
    wait_until(lambda: not [pid for pid in below if runs(pid)], "all that it started is gone")


def test_broker_that_cannot_start_ends_all_with_its_own_words(start) -> None:
    first, port = free_port(), free_port()
    while port != first + 1:
        first, port = port, free_port()
    with socket.create_server(("127.0.0.1", port)):
        cluster = start("--brokers", 2, "--port", first)
        assert cluster.process.wait(TIMEOUT_S) == 1
    assert cluster.said("barnabas: ") == [
        f"barnabas: broker 2 did not start: cannot listen on 127.0.0.1:{port}: Address already in use; choose another"
        " with --port, or --port 0 for a free one"
    ]
    assert not processes_below(cluster.process.pid)


def test_what_cannot_be_had_in_a_folder_is_refused_with_the_reason(start) -> None:
    cluster = start("--brokers", 1, "--port", 0)
    cluster.wait_until_ready()
    second = barnabas("cluster", "up", "--data", cluster.data)
    assert second.returncode == 1
    assert second.stderr == (
        f"barnabas: another cluster runs in {cluster.data}; stop it, or choose another with --data\n"
    )
    assert cluster.stop() == 0
    refused = barnabas("cluster", "up", "--data", cluster.data, "--zookeeper-servers", 3)
    assert refused.returncode == 2
    assert "has 1 ZooKeeper server, and the number cannot change" in refused.stderr


def test_wrong_setting_is_told_before_anything_is_started(tmp_path) -> None:
    config = tmp_path / "brokers.toml"
    config.write_text("num.partition = 3\n")
    refused = barnabas("cluster", "up", "--data", tmp_path / "data", "--config", config)
    assert (refused.returncode, refused.stderr) == (
        2,
        "barnabas: unknown setting num.partition; did you mean num.partitions?\n",
    )
    assert not (tmp_path / "data").exists()


def test_open_listeners_without_permission_are_refused_before_a_process_starts(tmp_path) -> None:
    refused = barnabas("cluster", "up", "--host", "0.0.0.0", "--data", tmp_path / "data")
    assert refused.returncode == 2
    assert "--allow-anonymous" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_brokers_join_a_zookeeper_that_runs_already(start, tmp_path) -> None:
    with start_servers(tmp_path / "zookeeper") as servers:
        cluster = start("--brokers", 2, "--port", 0, "--zookeeper", f"{servers.address}{new_chroot()}")
        addresses = cluster.wait_until_ready()
        with client.Admin(",".join(addresses)) as admin:
            assert [node.id for node in admin.brokers()] == [1, 2]
        assert cluster.stop() == 0
        assert not (cluster.data / "zookeeper").exists()


def test_three_zookeeper_servers_of_which_one_dies(start) -> None:
    cluster = start("--brokers", 1, "--port", 0, "--zookeeper-servers", 3, "--restart")
    addresses = cluster.wait_until_ready()
    brokers = {cluster.pid_of(1)}
    zookeeper = processes_below(cluster.process.pid) - brokers - processes_below(cluster.pid_of(1))
    assert len(zookeeper) == 3
    # None that a connection may get while its server is down.
    first, last = map(int, EPHEMERAL_RANGE.read_text().split())
    ports = cluster.zookeeper_ports()
    assert len(ports) == 9
    assert not ports & set(range(first, last + 1))
    os.kill(zookeeper.pop(), signal.SIGKILL)
    wait_until(lambda: any("serves again" in line for line in cluster.said("barnabas: ")), "restarting it")
    died, again = cluster.said("barnabas: ")
    assert died.endswith("was ended by SIGKILL; restarting it in 1 s")
    assert again.startswith("barnabas: ZooKeeper server ")
    wait_until(lambda: healthy(addresses), "every replica is in sync")
    assert cluster.stop() == 0
