"""A load that goes on, under which Spark's JVM dies: the next round has a new one. In a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.spark import JavaNotFoundError
from barnabas.spark.java import find_java_home
from tests.conftest import BrokerProcess
from tests.groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "load", "t", "--every", "1s", "--json", "--master", "local[1]"]


def java_children(process: int) -> list[int]:
    """Return the JVMs that a process has started, by Linux's own list."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread or a process that has just ended
            for child in map(int, (task / "children").read_text().split()):
                if b"java" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    found.append(child)
    return found


@pytest.mark.timeout(600)
def test_a_jvm_that_is_killed_between_rounds_costs_no_round(broker: BrokerProcess, tmp_path: Path) -> None:
    try:
        find_java_home(os.environ)
    except JavaNotFoundError as error:
        pytest.skip(str(error))
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
