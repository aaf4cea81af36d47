"""`barnabas load` as a user runs it: a real broker, a real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.spark import open_table
from barnabas.spark.load_plan import RECORDS_WORTH_A_TASK
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]


@pytest.mark.timeout(900)
def test_loads_bring_json_lines_into_a_table_once_and_go_on_until_they_are_told_to_end(broker, tmp_path: Path) -> None:
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap}

    def run(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [*COMMAND, *arguments], input=given, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    warehouse = tmp_path / "warehouse"
    place = ("--warehouse", str(warehouse))
    load = ("load", "clicks", *place, "--format", "json", "--json")
    run("topic", "create", "clicks", "--partitions", "2")
    run("produce", "clicks", given="".join(f'{{"page": "/jobs/{number}"}}\n' for number in range(100)))
    (first,) = json.loads(run(*load))["tables"]
    assert (first["records"], first["snapshot_id"] is not None) == (100, True)
    with Producer(broker.bootstrap) as producer:  # so many that Spark is started for them
        producer.send_many("clicks", [b'{"page": "/home"}'] * (RECORDS_WORTH_A_TASK + 1))
    with subprocess.Popen(
        [*COMMAND, *load, "--every", "1s"], stdout=subprocess.PIPE, text=True, env=environment
    ) as service:
        assert service.stdout is not None
        events = (json.loads(line) for line in service.stdout)
        loaded = 0
        while loaded <= RECORDS_WORTH_A_TASK:
            loaded += next(event for event in events if event.get("records"))["records"]
        run("produce", "clicks", given='{"page": "/b", "new": 1}\nnot json\n')
        loaded = 0
        while loaded < 2:  # they may come in two rounds
            loaded += next(event for event in events if event.get("records"))["records"]
        service.send_signal(signal.SIGTERM)
        service.stdout.read()
        assert service.wait(60) == 143
    status = json.loads(run("table", "status", "clicks", *place, "--json"))
    assert sum(status["topics"]["clicks"].values()) == 103 + RECORDS_WORTH_A_TASK
    assert (status["records"], "new" in status["fields"]) == (103 + RECORDS_WORTH_A_TASK, True)
    (done,) = json.loads(run("table", "maintain", "clicks", *place, "--json"))
    assert done["new_files"] >= 1
    assert json.loads(run("table", "status", "clicks", *place, "--json"))["topics"] == status["topics"]
    pages = open_table(warehouse, first["table"]).scan().to_arrow()["page"].to_pylist()
    wanted = Counter({"/home": RECORDS_WORTH_A_TASK + 1, "/b": 1, None: 1})
    assert Counter(pages) == wanted + Counter(f"/jobs/{number}" for number in range(100))
