"""Fixtures that every kind of test may use: real broker processes, each with a folder and a port of its own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.searches import register_profiles
from tests.support.watchdog import Watchdog
from tests.support.xdist_groups import SYSTEMS

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would all that the tests start, also what they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` ignores it

register_profiles()


def _no_fsync(_file: object) -> None:
    """Return at once: nobody cuts the power while tests run. Those of what is left then have a file system that forgets
    what it was not told to keep (`tests/crash/conftest.py`, `tests/simulation/disk.py`). Broker processes do wait."""


os.fsync = _no_fsync  # many tests that write at once wait for little else


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
