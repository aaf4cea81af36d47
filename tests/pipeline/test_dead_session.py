"""Spark's JVM dies under a load, or never starts: one line tells. In processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from tests.support.broker_process import BrokerProcess
from tests.support.quick_java import java_home_or_skip
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "load", "t", "--every", "1s", "--json", "--master", "local[1]"]

SPARK_WAITS_S = 60
"""How long Spark waits for a master, on fast and on slow machines."""


def java_children(process: int) -> list[int]:
    """Return the JVMs that a process has started, by Linux's own list."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread or a process that has just ended
            for child in map(int, (task / "children").read_text().split()):
                if b"java" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    found.append(child)
    return found


@pytest.fixture
def _java() -> None:
    java_home_or_skip()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_java")
def test_a_jvm_that_is_killed_between_rounds_costs_no_round(broker: BrokerProcess, tmp_path: Path) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", 1)
    command = [*COMMAND, "--warehouse", str(tmp_path / "warehouse"), "--bootstrap", broker.bootstrap]
    # Who chooses the workers' Python wants them to do the work, however little that is.
    chosen = tmp_path / "python"
    chosen.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    environment = {**os.environ, "PYSPARK_PYTHON": str(chosen)}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service,
        Producer(broker.bootstrap) as producer,
    ):
        assert service.stdout is not None
        events = (json.loads(line) for line in service.stdout)
        assert next(events)["records"] == 0
        assert java_children(service.pid) == []  # nothing to load needs no Spark
        producer.send("t", b"1").result(30)
        assert next(event for event in events if event.get("records") != 0)["records"] == 1
        (jvm,) = java_children(service.pid)
        os.kill(jvm, signal.SIGKILL)
        producer.send("t", b"2").result(30)
        assert next(event for event in events if event.get("records") != 0)["records"] == 1
        assert java_children(service.pid) not in ([], [jvm])
        service.send_signal(signal.SIGTERM)
        service.stdout.read()
        assert service.wait(60) == 143


def load(broker: BrokerProcess, tmp_path: Path, *options: str) -> list[str]:
    """Return a command that loads what there is with Spark's workers."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic("t", 1)
        producer.send("t", b"1").result(30)
    place = ["--warehouse", str(tmp_path / "warehouse"), "--bootstrap", broker.bootstrap]
    return [sys.executable, "-m", "barnabas.cli.main", "load", "t", *place, *options]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("master", "why"),
    [("nonsense", "Master must either be yarn or start with spark, k8s, or local"), ("local[x]", "Could not parse")],
)
@pytest.mark.usefixtures("_java")
def test_a_master_that_there_is_not_is_told_in_a_line(
    broker: BrokerProcess, tmp_path: Path, master: str, why: str
) -> None:
    command = load(broker, tmp_path, "--master", master)
    # Who chooses the workers' Python wants them to do the work, however little that is.
    environment = {**os.environ, "PYSPARK_PYTHON": "python3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"barnabas: Spark did not start with the master {master}: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_java")
def test_a_jvm_that_is_killed_at_work_is_told_in_a_line(broker: BrokerProcess, tmp_path: Path) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    # In place of the workers' Python: it tells that it was asked for, and ends with the JVM, which has its input.
    waiting = tmp_path / "python"
    waiting.write_text(f"#!/bin/sh\n: > {began}\nexec cat > {os.devnull}\n")
    waiting.chmod(0o755)
    command = load(broker, tmp_path, "--master", "local[1]")
    environment = {**os.environ, "PYSPARK_PYTHON": str(waiting)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as loading:
        began.read_bytes()
        (jvm,) = java_children(loading.pid)
        os.kill(jvm, signal.SIGKILL)
        said = loading.communicate(timeout=100)[1]
    assert said == "barnabas: a Spark task failed: Spark's Java process was ended by SIGKILL\n"
    assert loading.returncode == 1


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_java")
def test_ctrl_c_ends_a_load_that_waits_for_a_master(broker: BrokerProcess, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(200)
        command = load(broker, tmp_path, "--master", f"spark://127.0.0.1:{silent.getsockname()[1]}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as loading:
            waiting, _ = silent.accept()
            with waiting:
                loading.send_signal(signal.SIGINT)
                said = loading.communicate(timeout=SPARK_WAITS_S / 2)[0]
    assert (loading.returncode, said) == (130, "\n"), "but for the end of the line with ^C"
