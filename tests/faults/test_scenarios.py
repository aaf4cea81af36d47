"""Each scenario once, as short as its meaning allows; `make faults` plays them many times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.runs import END_S, RUN_S_MAX, Run, Runner
from tests.faults.scenarios import SCENARIOS
from tests.faults.stage import Result
from tests.faults.table import line, table
from tests.interop.java.maven import java
from tests.support.reading import wait_until
from tests.support.xdist_groups import FAULTS

pytestmark = [pytest.mark.xdist_group(FAULTS), pytest.mark.timeout(RUN_S_MAX + 2 * END_S)]

SEED = 1
NAMED = [name for name in SCENARIOS if name != "random"]
"""What is mixed at random is a search: `make faults SCENARIO=random`. What it finds becomes a test of its own."""


@pytest.mark.parametrize("name", NAMED)
def test_nothing_is_lost(tmp_path: Path, name: str) -> None:
    java()
    (run,) = Runner(tmp_path, 1, is_short=True).runs([(name, SEED)])
    assert run.ok, line(run)
    assert run.result.records
    assert not list(tmp_path.iterdir()), "what was well leaves nothing"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_after_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    java()
    command = [sys.executable, "-m", "tests.faults", "--scenario", "1", "--runs", "1", "--folder", str(tmp_path)]
    runner = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: len(running_in(tmp_path)) >= 3, "brokers run")
    finally:
        runner.send_signal(number)
        runner.wait()
    wait_until(lambda: not running_in(tmp_path), lambda: f"these run on: {running_in(tmp_path)}")


def running_in(folder: Path) -> list[str]:
    """Return the processes whose command names a folder, without the one that was told of it."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                command = (each / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(f"{folder}/" in part for part in command):
                found.append(f"{each.name} {command[:4]}")
    return found


def test_table_has_a_line_for_each_scenario(tmp_path: Path) -> None:
    runs = [
        Run("1", seed, tmp_path, Result(records=1_000, recoveries_s=[float(seed)], problems=["bad"] * (seed == 3)))
        for seed in (1, 2, 3)
    ]
    assert table(runs).splitlines()[2:] == ["| 1 | 3 | 2 | 3,000 | 2.0 | 3.0 | the leader is killed under load |"]
    assert line(runs[0]).startswith("scenario 1, seed 1: ok; 1,000 records acknowledged")
    assert "make faults SCENARIO=1 SEED=3 RUNS=1" in line(runs[2])
