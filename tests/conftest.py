"""Fixtures that every kind of test may use: real broker processes, each with a folder and a port of its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.groups import SYSTEMS
from tests.ports import free_port
from tests.searches import register_profiles
from tests.watchdog import Watchdog

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would all that the tests start, also what they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

register_profiles()


def _no_fsync(_file: object) -> None:
    """Return at once: nobody cuts the power while tests run. Those of what is left then have a file system that forgets
    what it was not told to keep (`tests/crash/conftest.py`, `tests/simulation/disk.py`). Broker processes do wait."""


os.fsync = _no_fsync  # many tests that write at once wait for little else

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """In how many processes `make test` runs: one more than there are cores, because many tests wait."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Watch over all tests."""
    config.pluginmanager.register(Watchdog(config))


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers that it was asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of whole systems, for `make system`; the hooks of the folders below have put theirs in groups."""
    for item in items:
        if _group(item) in SYSTEMS:
            item.add_marker(pytest.mark.system)
    begin = {group: place for place, group in enumerate(SYSTEMS)}
    items.sort(key=lambda item: begin.get(_group(item), len(begin)))


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return "" if marker is None else str(marker.args[0])


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections: there is more of it than all tests make, it
    stays to the end, and each full collection would look through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Give what is logged the form that `caplog.text` is known by. pytest hangs its handlers on loggers that do not
    propagate, before each phase of a test; where PySpark made one of these, it gives every such handler JSON's form,
    and a test that ran long after it in the same process would look for a traceback in vain."""
    plugin = item.config.pluginmanager.getplugin("logging-plugin")
    if plugin is not None:
        plugin.caplog_handler.setFormatter(plugin.formatter)
        plugin.report_handler.setFormatter(plugin.formatter)
    return (yield)


class BrokerProcess:
    """A broker in a process of its own. The port stays the same over restarts.

    :param more_data: its other data folders.
    """

    def __init__(self, data: Path, settings: dict[str, str] | None = None, more_data: Sequence[Path] = ()) -> None:
        self.data = data
        self.more_data = more_data
        self.settings = settings or {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.with_suffix(".log")

    @property
    def program(self) -> Sequence[str]:
        """The module that is run, and what stands before the subcommand."""
        return ("barnabas.cli.main",)

    @property
    def arguments(self) -> Sequence[str]:
        """What stands behind the usual options."""
        return ()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start it; `wait_until_ready` is to follow. Of several, each is begun before the first is waited for."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        environment.update({f"BARNABAS_{name.upper()}": value for name, value in self.settings.items()})
        command = [sys.executable, "-m", *self.program, "up", "--port", str(self.port)]
        for folder in (self.data, *self.more_data):
            command += ["--data", str(folder)]
        command += self.arguments
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)

    def wait_until_ready(self) -> None:
        """Wait until it serves."""
        assert self.process
        assert self.process.stdout
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            self.process.wait(START_TIMEOUT_S)
            raise AssertionError(f"the broker did not start: {line!r}\n{self.log.read_text()}")
        assert line.strip().endswith(f":{self.port}"), line

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        assert self.process
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """Stop it cleanly and return its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def restart(self) -> None:
        """Start it again on the same port and data, after `kill` or `stop`."""
        self.start()

    def close(self) -> None:
        """End it, however it stands."""
        if self.process and self.process.poll() is None:
            self.kill()

    def _reap(self) -> int:
        assert self.process
        assert self.process.stdout
        code = self.process.wait(STOP_TIMEOUT_S)
        self.process.stdout.close()
        return code


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with settings: `make_broker(num_partitions="3")`. All are ended after the test."""
    made: list[BrokerProcess] = []

    def make(**settings: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(made)}", settings)
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker with the default settings."""
    return make_broker()
