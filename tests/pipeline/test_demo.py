"""`python -m demo LOG` through real processes: the books balance, also after a run that was killed half way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark import scan_table
from demo.departures import COUNT, departures
from tests.support.quick_java import java_home_or_skip
from tests.support.xdist_groups import SPARK_PROGRAMS

pytestmark = pytest.mark.xdist_group(SPARK_PROGRAMS)

ROOT = Path(__file__).resolve().parents[2]
LOG = "odd $log.log"
"""A name that no quoting must break."""
TABLE = "odd__log_log"
LINES = [b"line %d \xff\xfe" % number for number in range(3_000)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a log in it."""
    java_home_or_skip()
    (tmp_path / LOG).write_bytes(b"\n".join(LINES) + b"\n")
    return tmp_path


def start_demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return start(folder, sys.executable, "-m", "demo", *arguments, LOG)


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def make_demo(folder: Path, *settings: str) -> subprocess.Popen[str]:
    """Start `make demo` as somebody does in a clone that is set up."""
    (folder / "tools").symlink_to(ROOT / "tools")
    python = f"PYTHON={sys.executable}"
    return start(folder, "make", "-s", "-f", str(ROOT / "Makefile"), "-o", "setup-demo", "demo", python, *settings)


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def run_demo(folder: Path, *arguments: str) -> str:
    """Run it to its end, and return what it printed."""
    with start_demo(folder, *arguments) as demo:
        output, errors = demo.communicate(timeout=400)
    assert (demo.returncode, errors) == (0, ""), f"{output}{errors}"
    assert output.splitlines()[-1] == books(lost=0)
    return output


def books(lost: int) -> str:
    """Return the last line of a run."""
    count = len(LINES)
    return f"audit: produced={count} stored={count} consumed={count} loaded={count - lost} lost={lost} duplicated=0"


@pytest.mark.timeout(900)
def test_the_books_balance_in_every_run_whatever_happened_to_the_one_before(folder: Path) -> None:
    run_demo(folder)
    with start_demo(folder) as killed:
        assert any(line.startswith("2 ") for line in lines_of(killed)), "it did not come to the end of shipping"
        killed.kill()
    with start_demo(folder) as stopped:
        assert any(line.startswith("1 ") for line in lines_of(stopped)), "it did not start a broker"
        stopped.send_signal(signal.SIGINT)
        assert stopped.stderr is not None
        assert stopped.stderr.read().startswith("demo: stopped; no process is left running.")
    assert stopped.returncode == 130
    with make_demo(folder, "FAULT=lose", f"LOG={LOG.replace('$', '$$')}") as faulty:
        output, errors = faulty.communicate(timeout=400)
    assert faulty.returncode == 2, f"{output}{errors}"  # make's own
    # Exact to the record, and its place is told.
    assert "1 lost in the table: partition " in output
    assert output.splitlines()[-1] == books(lost=1)
    assert f"the consumer saw {len(LINES):,} in " in output
    assert "Traceback" not in errors
    assert (folder / ".barnabas" / f"{TABLE}.png").stat().st_size > 10_000
    batches = scan_table(folder / ".barnabas/warehouse", TABLE, columns=["value"])
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert set(values) == set(LINES)
    assert len(values) >= 3 * len(LINES) - 1  # but for the one that was lost


@pytest.mark.timeout(600)
def test_the_books_balance_when_a_leader_of_several_brokers_is_killed(folder: Path) -> None:
    assert ", a leader, was killed half way" in run_demo(folder, "--brokers", "3")
    log = (folder / ".barnabas/3-brokers/broker.log").read_text()
    assert "was ended by SIGKILL; restarting it" in log
    assert "Traceback" not in log


def test_the_package_has_all_departures() -> None:
    feed = departures()
    assert sum(1 for _ in feed.read()) == feed.count == COUNT
