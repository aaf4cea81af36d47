"""`barnabas up --brokers-here 2` beside a broker of another machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import ApiError, ErrorCode
from tests.support.cluster_command import BARNABAS, TIMEOUT_S, processes_below, runs
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS
from tests.support.zookeeper_servers import new_chroot, start_servers

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]


class Up:
    """One run of `barnabas up`."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log = log
        with log.open("ab") as output:
            command = [*BARNABAS, "up", *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)

    def wait_until_ready(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), self.log.read_text()
        return line.removeprefix("ready ").strip().split(",")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = start_servers(tmp_path_factory.mktemp("brokers-here") / "zookeeper")
    try:
        yield servers.address + new_chroot()
    finally:
        servers.stop()


def test_two_brokers_of_a_machine_share_no_partition_and_end_together(zookeeper: str, tmp_path: Path) -> None:
    common = ["--zookeeper", zookeeper, "--port", 0, "-X", "offsets.topic.replication.factor=2"]
    here = ["--brokers-here", 2, "--id", 1, "--data", tmp_path / "here", "-X", "machine=here"]
    there = ["--id", 3, "--data", tmp_path / "there", "-X", "machine=there"]
    with ExitStack() as ending:
        both = Up(tmp_path / "here.log", *common, *here)
        ending.callback(both.close)
        addresses = both.wait_until_ready()
        assert len(set(addresses)) == 2
        with barnabas.Admin(",".join(addresses)) as admin:
            with pytest.raises(ApiError, match="available machines: 1") as caught:
                admin.create_topic("clicks", 2, 2)
            assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR

        other = Up(tmp_path / "there.log", *common, *there)
        ending.callback(other.close)
        (third,) = other.wait_until_ready()
        with barnabas.Admin(third) as admin:
            wait_until(lambda: len(admin.brokers()) == 3, "three brokers")
            admin.create_topic("clicks", 8, 2)
            replicas = [each.replicas for each in admin.describe_topics(["clicks"])[0].partitions]
            assert all(3 in each for each in replicas)
            assert {broker for each in replicas for broker in each} == {1, 2, 3}
            with pytest.raises(ApiError, match="brokers 1 and 2 are on the same machine, here"):
                admin.alter_partition_reassignments({barnabas.TopicPartition("clicks", 0): (1, 2)})

            first = _process_of(both, 1)
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: _process_of(both, 1) not in {0, first}, "broker 1 is started again")
            wait_until(lambda: len(admin.brokers()) == 3, "three brokers again")
        assert "broker 1 was ended by SIGKILL; restarting it in 1 s" in both.log.read_text()
        wait_until(lambda: "broker 1 serves again" in both.log.read_text(), "broker 1 serves again")

        children = processes_below(both.process.pid)
        both.process.send_signal(signal.SIGTERM)
        assert both.process.wait(TIMEOUT_S) == 0
        assert not [each for each in children if runs(each)]
        assert "was killed\n" not in both.log.read_text().partition("restarting it")[2]


def test_brokers_that_refuse_their_settings_end_the_command_with_exit_code_2(zookeeper: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            *(*BARNABAS, "up", "--brokers-here", "2", "--zookeeper", zookeeper, "--port", "0"),
            *("--data", str(tmp_path / "data"), "-X", "num.partitions=none"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 2
    assert "num.partitions" in run.stderr


def _process_of(command: Up, broker: int) -> int:
    """Return the process id of a broker; 0 while it does not run."""
    for each in processes_below(command.process.pid):
        try:
            parts = (Path("/proc") / str(each) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"broker.id={broker}".encode() in parts:
            return each
    return 0
