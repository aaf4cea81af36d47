"""The commands of docs/how-to/operations.md run unchanged on real processes, and print the quoted lines.

Addresses and folders are those of the test's cluster, and what systemd would do to the processes is done here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import BarnabasError
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import Cluster, running_cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
SETTINGS = {"min_insync_replicas": "1"}
TIMEOUT_S = 300


def procedures() -> dict[str, list[tuple[str, list[str]]]]:
    """Return the commands below each heading that has some, each with the lines that it prints among others."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
        steps = [step.splitlines() for step in re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]]
        if steps:
            found[section.splitlines()[0]] = [(command, lines) for command, *lines in steps]
    return found


def without_figures(text: str) -> list[str]:
    """Return lines as they are in every run, which has times and counts of its own."""
    return [re.sub(r"\d+(\.\d+)?", "0", line) for line in text.splitlines()]


PROCEDURES = procedures()


class Site:
    """Three machines as the page has them, in the place of which a test has processes."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.cluster = cluster
        self.second_disk = folder / "disk2"
        self.second_disk.mkdir()
        (self._zookeeper_data,) = (folder / "zookeeper").glob("*/data")
        self.backup = folder / "backup"
        self.backup.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "barnabas").write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas.cli.main "$@"\n')
        (programs / "barnabas").chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        self._environment["BARNABAS_BOOTSTRAP"] = cluster.bootstrap

    def do(self, heading: str) -> None:
        """Run all commands of a procedure, in their order, and look whether they print what the page quotes."""
        for command, lines in PROCEDURES[heading]:
            if command.startswith("systemctl "):
                self._systemctl(*command.replace("--now ", "").split()[1:])
            elif command == "mount /disk2":
                shutil.rmtree(self.second_disk)
                self.second_disk.mkdir()
            else:
                printed = without_figures(self.run(command))
                assert [line for line in without_figures("\n".join(lines)) if line not in printed] == [], printed

    def run(self, command: str) -> str:
        """Run a command that succeeds, and return what it prints. What it asks a person to restart is restarted."""
        printed = []
        with self._begin(command) as process:
            assert process.stdout
            for line in process.stdout:
                printed.append(line)
                if asked := re.search(r"\(for example: systemctl (.*)\)$", line):
                    self._systemctl(*asked[1].split())
        assert process.returncode == 0, f"{command}\n{''.join(printed)}"
        return "".join(printed)

    def is_well(self) -> bool:
        """Whether every replica is in sync."""
        with self._begin("barnabas cluster status") as process:
            process.communicate()
        return process.returncode == 0

    def _begin(self, command: str) -> subprocess.Popen[str]:
        """Start a command, which is ended if it lasts too long."""
        for there, here in (
            ("z1:2181,z2:2181,z3:2181/barnabas", self.cluster.zookeeper),
            ("/var/lib/zookeeper", self._zookeeper_data),
            ("/var/lib/barnabas/2", self.cluster.brokers[2].data),
            ("/disk2", self.second_disk),
            ("-o barnabas -g barnabas ", ""),
            ("/backup", self.backup),
        ):
            command = command.replace(there, str(here))
        assert "/var/" not in command
        return subprocess.Popen(
            ["timeout", str(TIMEOUT_S), "sh", "-ec", command],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _systemctl(self, verb: str, *units: str) -> None:
        for unit in units:
            if unit == "zookeeper":
                {"stop": self.cluster.servers.stop, "start": self.cluster.servers.start}[verb]()
                continue
            broker = self.cluster.brokers[int(unit.removeprefix("barnabas@"))]
            runs = broker.process is not None and broker.process.poll() is None
            if verb == "edit":
                broker.more_data = [self.second_disk / "barnabas"]
            if verb in {"stop", "restart", "disable"} and runs:
                broker.stop()
            if verb in {"start", "restart"} or (verb == "enable" and not runs):
                broker.start()

    def send(self, value: bytes, topic: str = "clicks", partition: int = 0) -> None:
        with barnabas.Producer(self.cluster.bootstrap, acks="all") as producer:
            producer.send(topic, value, partition=partition).result(TIMEOUT_S)

    def add_machine(self) -> BrokerProcess:
        """A fourth one, whose broker has not been started."""
        settings = {**self.cluster.brokers[1].settings, "broker_id": "4", "rack": "rack-4"}
        folder = self.cluster.brokers[1].data.parent
        self.cluster.brokers[4] = BrokerProcess(folder / "broker-4", settings)
        return self.cluster.brokers[4]

    def values(self, count: int) -> list[bytes | None]:
        """Read the topic from its beginning."""
        found: list[bytes | None] = []
        with barnabas.Consumer(self.cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("clicks")
            wait_until(
                lambda: found.extend(each.value for each in consumer.poll(timeout_s=1)) or len(found) >= count,
                "records",
            )
            found.extend(each.value for each in consumer.poll(timeout_s=0.5))
        return found


def held(broker: BrokerProcess) -> set[str]:
    """The logs that a broker has."""
    return {path.name for folder in (broker.data, *broker.more_data) for path in folder.glob("*-?")}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("machines")
    with running_cluster(folder, SETTINGS) as cluster:
        yield Site(folder, cluster)


@pytest.fixture
def site(machines: Site) -> Site:
    """All machines, at work, with the topic, which is empty."""
    machines.cluster.heal()
    with barnabas.Admin(machines.cluster.bootstrap) as admin:
        if "clicks" in admin.list_topics():
            admin.delete_topic("clicks")
        admin.create_topic("clicks", partitions=1, replication_factor=3)
    wait_until(machines.is_well, "every replica is in sync")
    return machines


TESTED = {
    "Is it well?",
    "Stopping and upgrading a broker",
    "Restarting and upgrading all",
    "Settings while brokers run",
    "Adding a broker",
    "Moving a topic",
    "Replacing a broker",
    "Removing a broker",
    "A broker that lost its disk",
    "A full or failing disk",
    "Several disks",
    "One of them fails",
    "Backups",
    "A broker's folder from a backup",
    "The tree from a backup",
}


def test_each_procedure_of_the_page_is_run_here() -> None:
    assert PROCEDURES.keys() == TESTED


def test_broker_is_restarted_and_gets_a_new_disk_and_nothing_is_lost(site: Site) -> None:
    site.do("Is it well?")
    site.send(b"before")
    before = site.cluster.brokers[2].pid
    site.do("Stopping and upgrading a broker")
    assert site.cluster.brokers[2].pid != before
    site.send(b"between")
    site.do("A broker that lost its disk")
    site.send(b"after")
    site.cluster.wait_until_same("clicks")
    assert site.values(3) == [b"before", b"between", b"after"]
    site.do("A full or failing disk")
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        assert admin.describe_config("clicks")["retention.ms"].value == "3600000"


def test_tree_from_a_backup_loses_nothing_that_was_acknowledged_since(site: Site) -> None:
    site.send(b"day 1")
    site.do("Backups")
    site.send(b"day 2")
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        admin.create_topic("views", partitions=1, replication_factor=3)
    site.send(b"view", "views")
    # At the end of the day one broker alone has what was acknowledged last, and it is not the first one to start.
    for away in (1, 2):
        site.cluster.brokers[away].kill()
    wait_until(lambda: site.cluster.in_sync("clicks", asked=3) == {3}, "broker 3 is alone")
    with barnabas.Producer(site.cluster.brokers[3].bootstrap, acks="all") as producer:
        producer.send("clicks", b"evening", partition=0).result(TIMEOUT_S)

    site.do("The tree from a backup")
    assert site.values(3) == [b"day 1", b"day 2", b"evening"]
    site.send(b"day 3")
    site.cluster.wait_until_same("clicks")
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        assert "views" not in admin.list_topics()
        with pytest.raises(BarnabasError, match="belongs to an unknown topic"):
            admin.create_topic("views", partitions=1, replication_factor=3)
    assert "belongs to no topic; keeping the directory" in site.cluster.brokers[1].log.read_text()


def test_folder_from_a_backup_loses_nothing_that_was_acknowledged_since(site: Site) -> None:
    site.send(b"day 1")
    broker = site.cluster.brokers[2]
    broker.stop()
    shutil.copytree(broker.data, site.backup / "2")
    broker.start()
    wait_until(site.is_well, "every replica is in sync")
    site.send(b"day 2")

    site.do("A broker's folder from a backup")
    assert "is an older copy of itself" in broker.log.read_text()
    site.cluster.wait_until_same("clicks")
    assert site.values(2) == [b"day 1", b"day 2"]


def test_all_brokers_are_restarted_and_their_settings_change_meanwhile(site: Site) -> None:
    site.send(b"before")
    before = [broker.pid for broker in site.cluster.brokers.values()]
    site.do("Settings while brokers run")
    site.do("Restarting and upgrading all")
    assert not set(before) & {broker.pid for broker in site.cluster.brokers.values()}
    assert site.values(1) == [b"before"]


def test_broker_gets_another_disk_which_fails_and_is_replaced(site: Site) -> None:
    site.do("Several disks")
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        admin.create_topic("orders", partitions=3, replication_factor=3)
    folder = site.second_disk / "barnabas"
    wait_until(lambda: list(folder.glob("orders-*")), "new partitions are on the new disk")
    site.cluster.wait_until_in_sync("orders", 3)
    there = min(number for number in range(3) if (folder / f"orders-{number}").is_dir())
    site.send(b"before", "orders", there)
    folder.rename(site.second_disk / "lost")
    site.send(b"after", "orders", there)
    told = f"{folder} of broker 2 is offline"
    wait_until(lambda: told in site.run("barnabas cluster status || true"), told)
    site.do("One of them fails")
    assert list(folder.glob("orders-*"))
    site.cluster.wait_until_in_sync("orders", 3)
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        assert admin.end_offsets([("orders", there)])[("orders", there)] == 2
        admin.delete_topic("orders")


def test_unit_of_several_disks_differs_from_that_of_one_by_the_second_disk() -> None:
    (section,) = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    start = section.splitlines()[-1].replace(" --data /disk2/barnabas", "")
    unit = (ROOT / "deploy" / "systemd" / "barnabas@.service").read_text(encoding="utf-8")
    assert start in unit.splitlines()


def test_broker_comes_takes_the_place_of_another_one_and_that_one_goes(site: Site) -> None:
    """The last one on these machines: they are others after it."""
    with pytest.raises(AssertionError, match="replication factor 3 is not between 1 and the number of allowed brokers"):
        site.run("barnabas cluster drain 2 -y")
    with barnabas.Admin(site.cluster.bootstrap) as admin:
        admin.create_topic("pages", partitions=4, replication_factor=3)
    fourth = site.add_machine()
    site.send(b"before")
    site.do("Adding a broker")
    assert len(held(fourth)) >= 3
    site.do("Moving a topic")
    assert "clicks-0" in held(fourth)
    site.send(b"between")
    site.cluster.brokers[2].kill()
    site.do("Replacing a broker")
    site.send(b"after")

    for folder in (site.cluster.brokers[2].data, *site.cluster.brokers[2].more_data):
        shutil.rmtree(folder)
    site.cluster.brokers[2].start()
    site.run("barnabas topic reassign clicks --brokers 1,2,4 -y")
    assert "clicks-0" in held(site.cluster.brokers[2])
    site.do("Removing a broker")
    assert site.values(3) == [b"before", b"between", b"after"]


def test_lines_that_the_page_quotes_of_the_log_are_written_by_the_broker() -> None:
    table = PAGE.partition("## What failures look like\n")[2]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "barnabas").rglob("*.py"))
    rows = [row.split("|")[3] for row in table.splitlines() if row.startswith("| ") and "| in the log |" not in row]
    quoted = [line for row in rows for line in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 9
    assert [line for line in quoted if line not in source] == []
