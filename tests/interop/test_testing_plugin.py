"""The pytest plugin of `barnabas.testing`, in runs of pytest of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.reading import TIMEOUT_S, wait_until

SENDS = """
import barnabas
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_topic_is_fresh(barnabas_broker, barnabas_topic, number):
    with barnabas.Producer(barnabas_broker.bootstrap) as producer:
        assert producer.send(barnabas_topic, b"x").result().offset == 0
"""
DISTURBS = """
import barnabas
import pytest

def test_that_leaves_a_dead_broker(barnabas_broker):
    barnabas_broker.kill()

def test_that_leaves_a_paused_broker_with_faults(barnabas_broker, barnabas_topic):
    barnabas_broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", 1_000)
    barnabas_broker.cut()
    barnabas_broker.pause()

def test_that_needs_a_healthy_broker(barnabas_broker, barnabas_topic):
    with barnabas.Producer(barnabas_broker.bootstrap) as producer:
        assert producer.send(barnabas_topic, b"x").result().offset == 0
    assert barnabas_broker.pending_failures("Produce") == 0

def test_that_fails(barnabas_broker):
    barnabas_broker.create_topic("topic-of-the-failed-test")
    assert False

@pytest.fixture
def broken(barnabas_topic):
    raise RuntimeError("a fixture with an error")

def test_with_a_broken_fixture(broken):
    pass
"""
WAITS = """
import threading

def test_that_waits(barnabas_broker, barnabas_topic):
    print(f"pid={barnabas_broker.pid}", flush=True)
    threading.Event().wait(600)
"""
SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def barnabas_settings():
    return {"num.partitions": 3}
"""


class Run:
    """A folder with tests, and a temporary folder for them."""

    def __init__(self, folder: Path) -> None:
        self.tests = folder / "project"
        self.temporary = folder / "temporary"
        self.tests.mkdir()
        self.temporary.mkdir()

    def begin(self, content: str, *arguments: str) -> subprocess.Popen[str]:
        (self.tests / "test_it.py").write_text(textwrap.dedent(content))
        (self.tests / "pytest.ini").write_text("[pytest]\n")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        base = self.temporary.parent / "base"
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={base}", *arguments],
            cwd=self.tests,
            env={**own, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, content: str, *arguments: str) -> str:
        with self.begin(content, *arguments) as process:
            return process.communicate(timeout=TIMEOUT_S)[0]

    def left(self) -> list[str]:
        """Return the folders of brokers that have not been removed."""
        return [each.name for each in self.temporary.iterdir() if each.name.startswith("barnabas-test-")]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    return Run(tmp_path)


def test_each_worker_of_xdist_has_a_broker(run: Run) -> None:
    said = run.finish(SENDS.format(count=8), "-n", "2", "-q")
    assert "8 passed" in said, said
    assert run.left() == []


def test_next_test_gets_a_healthy_broker_and_failures_show_the_log(run: Run) -> None:
    said = run.finish(DISTURBS, "-v", "-p", "no:xdist")
    outcomes = dict(re.findall(r"::(test_\w+) (PASSED|FAILED|ERROR)", said))
    assert outcomes == {
        "test_that_leaves_a_dead_broker": "PASSED",
        "test_that_leaves_a_paused_broker_with_faults": "PASSED",
        "test_that_needs_a_healthy_broker": "PASSED",
        "test_that_fails": "FAILED",
        "test_with_a_broken_fixture": "ERROR",
    }, said
    log = said.partition("Log of barnabas_broker")[2]
    assert "created topic topic-of-the-failed-test" in log
    assert "test-that-needs-a-healthy-broker" not in log
    assert run.left() == []


def test_settings_come_from_a_fixture(run: Run) -> None:
    content = SETTINGS + textwrap.dedent(
        """
        import barnabas

        def test_settings(barnabas_broker):
            with barnabas.Admin(barnabas_broker.bootstrap) as admin:
                assert admin.describe_config(broker=0)["num.partitions"].value == "3"
        """
    )
    assert "1 passed" in run.finish(content, "-q")


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_leaves_nothing(run: Run, ended_by: signal.Signals) -> None:
    with run.begin(WAITS, "-s", "-q") as process:
        assert process.stdout
        pid = next(int(line.partition("pid=")[2]) for line in process.stdout if "pid=" in line)
        assert len(run.left()) == 1
        process.send_signal(ended_by)
        process.communicate(timeout=TIMEOUT_S)
    wait_until(lambda: run.left() == [], "the folder of the broker is removed")
    wait_until(lambda: not has_command(pid), "the broker ends")


def has_command(pid: int) -> bool:
    """Return whether a process runs. A zombie has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_plugin_does_not_import_the_broker_for_other_tests(run: Run) -> None:
    content = """
        import sys

        def test_imports():
            assert "barnabas.testing.pytest_plugin" in sys.modules
            assert not [each for each in sys.modules if each.startswith(("barnabas.broker", "barnabas.client"))]
    """
    assert "1 passed" in run.finish(content, "-q")
