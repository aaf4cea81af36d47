"""Run sarama's published functional tests against five Barnabas brokers behind toxiproxy.

    .venv/bin/python tools/sarama_tests.py [pattern for the names of tests]

The tests start and stop brokers with `docker compose`. This program puts a replacement for `docker` on the path, which
sends the commands back to it. Go downloads sarama and toxiproxy as modules into the cache folder, and compiles them
unchanged, once. The program fails if a test fails. docs/reference/compatibility.md lists the omitted tests with
reasons.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from published_tests import CACHE_FOLDER

ROOT = Path(__file__).parents[1]
VERSION, TOXIPROXY_VERSION = "v1.61.1", "v2.5.0"
MODULE, TOXIPROXY = "github.com/IBM/sarama", "github.com/Shopify/toxiproxy/v2"
CACHE = CACHE_FOLDER / f"sarama-{VERSION}"
TESTS, PROXY = CACHE / "sarama.test", CACHE / "toxiproxy"
CONTROL_PORT, FIRST_PORT = 8474, 29091
"""The ports of toxiproxy and of the proxy of broker 1, as in sarama's tests."""
BROKERS = 5
RUN = (
    "^(TestFunc|TestConsumerFetchFollower|TestConsumerHighWaterMark|TestConsumerPartialBatch|TestVersionMatrix"
    "|TestConsumerGroupDeadlock|TestInterceptors|TestAsyncProducerRemoteBrokerClosed)"
)
"""A pattern that selects the tests in sarama's files `functional_*_test.go`."""
NOT_RUN = (
    "^(TestFuncTxn.*|TestFuncDescribeTransactions|TestFuncListTransactions|TestFuncInitProducerId3"
    "|.*Java.*|TestFuncIdempotentBufferedSequence)$"
)
"""Tests of transactions, and tests that run Kafka's programs in its container or read its log."""
SETTINGS = {
    "auto_create_topics_enable": "false",
    "default_replication_factor": "2",
    "offsets_topic_replication_factor": "2",
    "group_initial_rebalance_delay_ms": "0",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""The broker settings in sarama's docker-compose.yml."""
TIMEOUT_S = 1200
STARTING_S = 60
DOCKER = """#!{python}
import socket, sys
words = [word for word in sys.argv[1:] if word != "compose"]
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(" ".join(words).encode() + b"\\n")
    said = asked.makefile().readline()
sys.exit(0 if said == "done\\n" else "not served here: " + " ".join(words))
"""


def main() -> int:
    """Run the tests. Return the exit code."""
    if not (TESTS.exists() and PROXY.exists()):
        compile_tests()
    sys.path.insert(0, str(ROOT))
    # these are test helpers, which mypy does not check
    cluster_kind = importlib.import_module("tests.support.process_cluster").Cluster
    zookeeper = importlib.import_module("tests.support.zookeeper_servers")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = zookeeper.start_servers(folder / "zookeeper")
        try:
            cluster = cluster_kind(folder, servers, zookeeper.new_chroot(), BROKERS, SETTINGS)
            for number, broker in cluster.brokers.items():
                advertised = {"advertised_host": "127.0.0.1", "advertised_port": str(FIRST_PORT + number - 1)}
                broker.settings |= {**advertised, "rack": str(number)}
            try:
                with toxiproxy(folder), docker(folder, cluster.brokers):
                    for number, broker in cluster.brokers.items():
                        forward(f"kafka{number}", FIRST_PORT + number - 1, broker.port)
                    return run(folder, sys.argv[1:])
            finally:
                cluster.close()
        finally:
            servers.stop()


def run(folder: Path, patterns: list[str]) -> int:
    """Run the tests with the replacement for docker on the path."""
    sources = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=CACHE, env=go(), check=True, capture_output=True, text=True
    ).stdout.strip()
    command = [str(TESTS), "-test.v", f"-test.skip={NOT_RUN}", f"-test.timeout={TIMEOUT_S}s"]
    command += [f"-test.run={pattern}" for pattern in patterns or [RUN]]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "KAFKA_VERSION": "4.0.0"}
    return subprocess.run(command, cwd=sources, env=environment, check=False).returncode


@contextmanager
def docker(folder: Path, brokers: Mapping[int, Any]) -> Iterator[None]:
    """Handle the `docker compose` commands of the tests: start and stop brokers."""
    address = str(folder / "docker.socket")
    program = folder / "docker"
    program.write_text(DOCKER.format(python=sys.executable, address=address), encoding="utf-8")
    program.chmod(0o755)

    class Asked(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline().decode().split()
            chosen = [each for number, each in brokers.items() if f"kafka-{number}" in words] or brokers.values()
            is_to_start = bool({"up", "start"}.intersection(words))
            is_known = is_to_start or bool({"stop", "down", "rm"}.intersection(words))
            for broker in chosen if is_known else ():
                is_running = broker.process is not None and broker.process.poll() is None
                if is_to_start and not is_running:
                    broker.start()
                elif is_running and not is_to_start:
                    broker.stop()
            self.wfile.write(b"done\n" if is_known else b"unknown\n")

    with socketserver.UnixStreamServer(address, Asked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@contextmanager
def toxiproxy(folder: Path) -> Iterator[None]:
    with (folder / "toxiproxy.log").open("wb") as log, subprocess.Popen([PROXY], stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


def forward(name: str, port: int, upstream: int) -> None:
    """Let toxiproxy forward a local port."""
    wanted = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}", "enabled": True}
    request = urllib.request.Request(f"http://127.0.0.1:{CONTROL_PORT}/proxies", json.dumps(wanted).encode())
    deadline = time.monotonic() + STARTING_S
    while True:
        try:
            urllib.request.urlopen(request, timeout=STARTING_S).close()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"toxiproxy does not forward port {port}: {error.read().decode()}") from error
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def go() -> dict[str, str]:
    """Return the environment of Go."""
    return os.environ | {"GOPATH": str(CACHE / "go"), "GOBIN": str(CACHE), "GOFLAGS": "-modcacherw -mod=mod"}


def compile_tests() -> None:
    """Download and compile sarama's tests and toxiproxy."""
    if shutil.which("go") is None:
        raise SystemExit("Go is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "go.mod").write_text("module barnabas\n", encoding="utf-8")
    for arguments in (
        ["get", "-t", f"{MODULE}@{VERSION}", f"{TOXIPROXY}/cmd/server@{TOXIPROXY_VERSION}"],
        ["test", "-c", "-tags", "functional", "-o", str(TESTS), MODULE],
        ["build", "-o", str(PROXY), f"{TOXIPROXY}/cmd/server"],
    ):
        subprocess.run(["go", *arguments], cwd=CACHE, env=go(), check=True)


if __name__ == "__main__":
    sys.exit(main())
