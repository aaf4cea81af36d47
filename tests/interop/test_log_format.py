"""What `--log-format json` writes, from real processes: nothing but JSON, and each line about a partition says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_command import BARNABAS, ClusterCommand
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS


class JsonBroker(BrokerProcess):
    """A broker that logs JSON."""

    @property
    def arguments(self) -> Sequence[str]:
        return ("--log-format", "json")

    def lines(self) -> list[dict[str, Any]]:
        return lines_of(self.log)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Read them; whatever is no JSON is an error."""
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def json_broker(tmp_path: Path) -> Iterator[JsonBroker]:
    broker = JsonBroker(tmp_path / "broker", {"broker_id": "5"})
    yield broker
    broker.close()


def test_what_a_start_finds_in_a_log_is_told_of_its_partition(json_broker: JsonBroker) -> None:
    json_broker.start()
    with barnabas.Producer(json_broker.bootstrap) as producer:
        producer.send("clicks", b"x").result(60)
    json_broker.kill()
    with (json_broker.data / "clicks-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"torn" * 20)
    json_broker.start()
    found = json_broker.lines()
    assert {line["broker"] for line in found} == {5}
    (made,) = (line for line in found if line["message"].startswith("created topic clicks "))
    assert made["topic"] == "clicks"
    (cut,) = (line for line in found if "truncated the log at offset 1" in line["message"])
    assert (cut["level"], cut["topic"], cut["partition"]) == ("WARNING", "clicks", 0)


def test_start_that_fails_says_so_in_json(json_broker: JsonBroker) -> None:
    json_broker.start()
    command = [*BARNABAS, "up", "--data", str(json_broker.data), "--port", "0", "--log-format", "json"]
    environment = {**os.environ, "BARNABAS_COLOUR": "blue"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert ended.returncode == 1
    warning, failure = map(json.loads, ended.stderr.splitlines())
    assert (warning["level"], "BARNABAS_COLOUR" in warning["message"]) == ("WARNING", True)
    assert (failure["level"], str(json_broker.data) in failure["message"]) == ("CRITICAL", True)


@pytest.mark.xdist_group(CLUSTERS)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are killed by what /proc says")
def test_cluster_passes_on_json_and_adds_its_own(cluster_in: Callable[..., ClusterCommand]) -> None:
    cluster = cluster_in("--brokers", 2, "--port", 0, "--restart", "--log-format", "json")
    cluster.wait_until_ready()
    os.kill(cluster.pid_of(2), signal.SIGKILL)
    wait_until(lambda: any("broker 2 serves again" in line for line in cluster.said()), "restarting it")
    assert cluster.stop() == 0
    lines = lines_of(cluster.log)
    assert {line.get("broker") for line in lines} == {None, 1, 2}
    own = [line["message"] for line in lines if "broker" not in line]
    assert own[0] == "broker 2 was ended by SIGKILL; restarting it in 1 s"


@pytest.fixture
def cluster_in(tmp_path: Path) -> Iterator[Callable[..., ClusterCommand]]:
    started: list[ClusterCommand] = []

    def start(*arguments: object) -> ClusterCommand:
        started.append(ClusterCommand(tmp_path / "cluster", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()
