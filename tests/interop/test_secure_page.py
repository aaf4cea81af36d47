"""docs/how-to/secure.md: each command runs as it stands, but for hosts, ports and folders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.cli.options import named_connection
from tests.support.ports import free_port
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.xdist_groups import CLUSTERS
from tests.support.zookeeper_servers import start_servers

pytestmark = pytest.mark.xdist_group(CLUSTERS)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "secure.md"
SECTIONS = {
    match["title"] or "": match["text"]
    for match in re.finditer(
        r"(?:^## (?P<title>.+)\n|\A)(?P<text>(?:(?!^## ).*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
}
ONE_MACHINE = (
    "One machine",
    "Allow operations",
    "Registry",
    "Status pages",
    "Renew certificates",
    "Change passwords",
    "Client certificates",
)
THREE_MACHINES = ("Three machines",)
BLOCK = re.compile(r"```(?P<kind>console|python)\n(?P<text>.*?)```", re.DOTALL)
HOSTS = {f"kafka{number}.example.com": f"127.0.0.{number}" for number in (1, 2, 3)}


class Reader:
    """A folder in which the commands of the page run, and the brokers that they start."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self.folder = folder
        self.replaced = replaced
        self.running: list[subprocess.Popen[str]] = []
        self.ready = 0
        """The number of processes that are ready."""
        programs = folder / "bin"
        programs.mkdir()
        for name, line in {
            "barnabas": f'exec "{sys.executable}" -m barnabas.cli.main "$@"',
            "python": f'exec "{sys.executable}" "$@"',
            "curl": f'exec "{sys.executable}" -m tests.programs.fetch "$@"',
            "scp": "exit 0",  # all brokers run here, from the folders that the page copies
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        self.environment = {
            **own,
            "PATH": f"{programs}:{own['PATH']}",
            "PYTHONPATH": str(PAGE.parents[2]),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def here(self, text: str) -> str:
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, command: str) -> str:
        """Run a command that fails, and return the error."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    def start(self, command: str) -> None:
        log = (self.folder / f"broker-{len(self.running)}.log").open("w")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self.running.append(process)

    def wait_until_ready(self) -> None:
        for number, process in list(enumerate(self.running))[self.ready :]:
            self.ready = number + 1
            watchdog = threading.Timer(TIMEOUT_S, process.kill)
            watchdog.start()
            assert process.stdout
            line = process.stdout.readline()
            watchdog.cancel()
            assert line.startswith("ready "), (self.folder / f"broker-{number}.log").read_text()

    def stop(self) -> None:
        """Stop all processes, in order from the last one to the first one."""
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT_S)

    def close(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, {})
    yield made
    made.close()


def blocks(*sections: str) -> Iterator[tuple[str, str]]:
    for section in sections:
        for match in BLOCK.finditer(SECTIONS[section]):
            yield match["kind"], match["text"]


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command with the output that the page shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


def test_the_tests_cover_all_commands_of_the_page() -> None:
    with_commands = {title for title, text in SECTIONS.items() if BLOCK.search(text)}
    assert with_commands == {"", *ONE_MACHINE, *THREE_MACHINES}
    assert [command for _, text in blocks("") for command, _ in commands(text)] == ["pip install 'barnabas[security]'"]


def test_one_machine_is_secured_as_the_page_says(reader: Reader) -> None:
    port = free_port()
    registry_port, status_port = free_port(), free_port()
    reader.replaced = {
        "localhost:9092": f"localhost:{port}",
        "init secured --host localhost": f"init secured --host localhost --port {port}",
        "registry registry --host localhost": f"registry registry --host localhost --port {registry_port}",
        "localhost:8081": f"localhost:{registry_port}",
        "0.0.0.0:9404": f"0.0.0.0:{status_port}",
        "localhost:9404": f"localhost:{status_port}",
    }
    fetched: list[list[str]] = []
    for kind, text in blocks(*ONE_MACHINE):
        if kind == "python":
            assert reader.run("python", "-c", reader.here(text)) == "b'hello'\n"
            continue
        for command, shown in commands(reader.here(text)):
            if command.startswith("barnabas up") and reader.running:
                reader.stop()
            if command.startswith("barnabas up") or "--http-certfile registry.pem" in command:
                reader.start(command)
                reader.wait_until_ready()
                continue
            said = reader.run("bash", "-c", f"set -o pipefail; {command}").splitlines()
            if command.startswith("curl"):
                fetched.append(said)
            assert [line for line in shown if line not in said] == []
    assert fetched[0] == ["[]"]
    assert any(line.startswith("kafka_server_brokertopicmetrics_messagesin_total") for line in fetched[1])
    assert (reader.folder / "reports.pem").is_file()
    assert "User:alice lacks DESCRIBE on cluster" in reader.refused("barnabas --profile local user list")
    unseen = reader.refused("barnabas --profile local topic describe other")
    assert "barnabas acl allow User:alice describe topic:other" in unseen
    unseen = reader.refused("barnabas --profile local group delete other -y")
    assert "barnabas acl allow User:alice describe group:other" in unseen
    unwritten = reader.refused("echo x | barnabas --profile local produce other")
    assert "barnabas acl allow User:alice write,create topic:other" in unwritten
    unread = reader.refused("barnabas --profile local consume other -e")
    assert "barnabas acl allow User:alice" in unread, unread
    other = "sasl.mechanism=SCRAM-SHA-512", "sasl.password=${file:alice.password}"
    old_password = " ".join(f"-X '{each}'" for each in other)
    assert "credentials are not valid" in reader.refused(f"barnabas --profile local {old_password} topic list")
    assert "exists already" in reader.refused(
        "barnabas --profile secured/admin.toml user create alice --password-file alice.new"
    )
    logged = "".join(each.read_text() for each in reader.folder.glob("broker-*.log"))
    for secret in ("alice.password", "alice.new", "secured/admin.password", "registry.password"):
        assert (reader.folder / secret).read_text().strip() not in logged


def test_three_machines_are_secured_as_the_page_says(reader: Reader, tmp_path: Path) -> None:
    port, broker_port = free_port(), free_port()
    servers = start_servers(tmp_path / "zookeeper")
    reader.replaced = {
        **HOSTS,
        "zk.example.com:2181": servers.address,
        "--installed-at /etc/barnabas": f"--port {port} --inter-broker-port {broker_port}",
    }
    try:
        said: list[str] = []
        for _, text in blocks(*THREE_MACHINES):
            for command, _ in commands(reader.here(text)):
                if not command.startswith("barnabas up"):
                    said = reader.run("bash", "-c", command).splitlines()
                    continue
                for host in HOSTS.values():
                    reader.start(
                        command.replace("/etc/barnabas", f"cluster/{host}").replace("/var/lib/barnabas", f"data-{host}")
                    )
                reader.wait_until_ready()
                settings = named_connection(str(tmp_path / "cluster" / "admin.toml"), None, {}).admin_settings
                with Admin(settings) as admin:
                    wait_until(lambda admin=admin: len(admin.brokers()) == len(HOSTS), "the brokers know each other")
        assert said[-1].split()[0] == "admin"
        with Admin(settings) as admin:
            topics = admin.describe_topics(["clicks"])
            assert {len(each.replicas) for each in topics[0].partitions} == {3}
            wait_until(
                lambda: all(len(each.isr) == 3 for each in admin.describe_topics(["clicks"])[0].partitions),
                "followers fetch at the listener for brokers",
            )
    finally:
        reader.close()
        servers.stop()
