"""All of it through Spark Connect: a server in one process, a client without a JVM in another."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.reading import wait_until
from tests.support.spark_processes import HOST, ROOT, Process, connect_server, environment
from tests.support.table_contents import TOPIC, numbers_in, produce
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

PATIENCE_S = 400


def is_listening(server: Process, port: int) -> bool:
    server.check()
    with socket.socket() as sock:
        return sock.connect_ex((HOST, port)) == 0


@pytest.mark.timeout(900)
def test_a_client_of_spark_connect_reads_streams_writes_and_loads(broker: BrokerProcess, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'barnabas[connect]'")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, config={"retention.ms": "-1"})
        admin.create_topic("copies", partitions=2)
        in_one = produce_and_count(broker, admin)
    port = free_port()
    with connect_server(tmp_path, port) as server:
        wait_until(lambda: is_listening(server, port), "the server listens", PATIENCE_S)
        command = [
            sys.executable,
            "-m",
            "tests.programs.connect_job",
            f"sc://{HOST}:{port}",
            broker.bootstrap,
            tmp_path,
        ]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    refused = [step["refused"] for step in steps if "refused" in step]
    assert steps[: -len(refused)] == [
        {"read": [300, in_one]},
        {"written": 300},
        {"streamed": 300},
        {"loaded": [300, 300, 0]},
        {"table": 300},
    ]
    assert "set exactly one of the options 'subscribe'" in " ".join(refused[0])
    assert "did you mean 'startingOffsets'" in " ".join(refused[1])
    assert numbers_in(tmp_path / "warehouse") == list(range(300))


def produce_and_count(broker: BrokerProcess, admin: Admin) -> int:
    """Fill the topic, and return how many records partition 1 has."""
    produce(broker.bootstrap, 0, 300)
    return sum(admin.end_offsets([(TOPIC, 1)]).values())
