"""What a test without an end comes to, and what is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.watchdog import Watchdog

def pytest_configure(config):
    config.pluginmanager.register(Watchdog(config, grace_s=0.2))
"""
HANGS = {
    "test_an_alarm_of_its_own": """
def test_an_alarm_of_its_own():
    signal.setitimer(signal.ITIMER_REAL, 0)
    threading.Event().wait()
""",
    "test_that_takes_no_interrupt": """
def test_that_takes_no_interrupt():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()
""",
    "test_whose_fixture_hangs_after_it_failed": """
@pytest.fixture
def tidied():
    yield
    threading.Event().wait()

def test_whose_fixture_hangs_after_it_failed(tidied):
    threading.Event().wait()
""",
}
OTHERS = """
import signal, threading
import pytest

@pytest.mark.parametrize("each", range(20))
def test_other(each):
    pass
"""


@pytest.mark.parametrize("name", HANGS)
def test_a_test_without_an_end_is_told_with_its_line_and_keeps_no_other_from_its_own(tmp_path, name) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(OTHERS + HANGS[name])
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--rootdir=.", "--timeout=1"),
            *("--numprocesses=2", "--dist=loadgroup", "--max-worker-restart=0"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"crashed while running 'test_it.py::{name}'" in run.stdout
    assert "20 passed" in run.stdout
    line = next(number for number, text in enumerate((OTHERS + HANGS[name]).split("\n"), 1) if "Event().wait()" in text)
    assert f'test_it.py", line {line} in ' in run.stderr
    assert "threads in the kernel:" in run.stderr
    assert "innermost first" in run.stdout
    assert f" test_it.py:{line} " in run.stdout.partition("innermost first")[2]
