"""`barnabas load` as a user runs it: a real broker, a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark import open_table

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]


@pytest.mark.timeout(600)
def test_load_brings_json_lines_into_a_table_once(broker, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap}

    def run(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [*COMMAND, *arguments], input=given, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    load = ("load", "clicks", "--warehouse", str(warehouse), "--format", "json", "--json")
    run("topic", "create", "clicks", "--partitions", "2")
    run("produce", "clicks", given="".join(f'{{"page": "/jobs/{number}"}}\n' for number in range(100)))
    (first,) = json.loads(run(*load))
    assert (first["records"], first["snapshot_id"] is not None) == (100, True)
    run("produce", "clicks", given='{"page": "/home"}\n')
    (second,) = json.loads(run(*load))
    assert second["records"] == 1
    pages = open_table(warehouse, first["table"]).scan().to_arrow()["page"].to_pylist()
    assert sorted(pages) == sorted(["/home", *(f"/jobs/{number}" for number in range(100))])
