"""The README's first commands and its Spark snippet run as they stand, except for the address of the broker."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.timeout(600)
def test_spark_snippet_reads_and_loads_the_topic(broker, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (snippet,) = [code for code in blocks if "barnabas.spark" in code]
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send_many("clicks", [b"/home", b"/jobs"])
    program = snippet.replace("localhost:9092", broker.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "|        0|    2|" in done.stdout
    assert (tmp_path / "warehouse").is_dir()


@pytest.mark.timeout(600)
def test_first_commands_run_and_prove_the_table_complete(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    first = re.search(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert first is not None
    commands = re.findall(r"^\$ (barnabas .*)$", first[1], re.MULTILINE)
    assert commands.pop(0).startswith("barnabas up ")
    assert len(commands) == 4
    broker = BrokerProcess(tmp_path / "log")
    broker.start()
    with contextlib.closing(broker):
        environment = os.environ | {
            "BARNABAS_BOOTSTRAP": broker.bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for command in commands:
            done = subprocess.run(
                command,
                shell=True,
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
                timeout=500,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
    windows = [line.split() for line in done.stdout.splitlines() if re.match(r"\d{4}-", line)]
    assert len(windows) > 100
    assert {tuple(line[1:4]) for line in windows if len(set(line[1:4])) != 1} == set()
