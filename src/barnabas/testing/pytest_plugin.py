"""The fixtures `barnabas_broker`, `barnabas_topic` and `barnabas_cluster` for pytest.

pytest loads this module in each run, so it imports the brokers only for a test that uses them. With pytest-xdist, each
worker has its own broker: workers share no state, and no worker waits for another one.

A broker ends with the session. A test may leave it disturbed (killed, paused, cut off, with failing requests): the next
test gets it healed. A failed test shows the log lines that its broker has written during the test.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker_cluster import BrokerCluster
    from barnabas.testing.broker_process import BrokerProcess

TOPIC_NAME_CHARACTERS_MAX = 100
LOG_CHARACTERS_MAX = 20_000


class _Shared:
    """The brokers and clusters of this session, with the sizes of their logs before the current test."""

    def __init__(self) -> None:
        self.running: dict[str, BrokerProcess | BrokerCluster] = {}
        self._log_sizes: dict[str, int] = {}
        self.topics = 0
        """The number of topics that `barnabas_topic` has created."""

    def begin(self) -> None:
        """Note the sizes of the logs before a test."""
        self._log_sizes = {title: broker.log_size for title, broker in self._brokers(self.running)}

    def logs(self, fixtures: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the log lines since `begin`, with their titles.

        :param fixtures: the names of the fixtures of the test.
        """
        for title, broker in self._brokers(fixtures):
            if lines := broker.log_since(self._log_sizes.get(title, 0)):
                yield title, lines[-LOG_CHARACTERS_MAX:]

    def heal(self) -> None:
        """End the faults that a test has left."""
        for each in self.running.values():
            if each.is_disturbed:
                each.heal()

    def _brokers(self, fixtures: Collection[str]) -> Iterator[tuple[str, BrokerProcess]]:
        for name, made in self.running.items():
            if name in fixtures:
                for number, broker in made.brokers.items():
                    yield f"Log of {name}, broker {number}", broker


_SHARED = pytest.StashKey[_Shared]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin a session."""
    config.stash[_SHARED] = _Shared()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where the logs begin."""
    shared = item.config.stash[_SHARED]
    if shared.running:
        shared.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the brokers to the report of a failed test."""
    report = yield
    fixtures = getattr(item, "fixturenames", ())
    if report.failed:
        report.sections.extend(item.config.stash[_SHARED].logs(fixtures))
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Heal the brokers after a test and its fixtures."""
    item.config.stash[_SHARED].heal()


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, object]:
    """The settings of `barnabas_broker` and `barnabas_cluster`, by Kafka's names. A conftest.py can override them."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(pytestconfig: pytest.Config, barnabas_settings: Mapping[str, object]) -> Iterator[BrokerProcess]:
    """A broker for all tests of the session: `barnabas_broker.bootstrap` is its address."""
    from barnabas.testing.broker_process import BrokerProcess  # noqa: PLC0415

    with BrokerProcess(barnabas_settings) as broker, _shared(pytestconfig, "barnabas_broker", broker):
        yield broker


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, pytestconfig: pytest.Config, barnabas_broker: BrokerProcess) -> str:
    """The name of a new topic on `barnabas_broker` with one partition."""
    shared = pytestconfig.stash[_SHARED]
    shared.topics += 1
    test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_NAME_CHARACTERS_MAX].strip("-.")
    return barnabas_broker.create_topic(f"{test}-{shared.topics}")


@pytest.fixture(scope="session")
def barnabas_cluster(pytestconfig: pytest.Config, barnabas_settings: Mapping[str, object]) -> Iterator[BrokerCluster]:
    """A cluster of three brokers for all tests of the session. ZooKeeper needs a Java runtime."""
    from barnabas.testing.broker_cluster import BrokerCluster  # noqa: PLC0415

    with BrokerCluster(settings=barnabas_settings) as cluster, _shared(pytestconfig, "barnabas_cluster", cluster):
        yield cluster


@contextmanager
def _shared(config: pytest.Config, name: str, made: BrokerProcess | BrokerCluster) -> Iterator[None]:
    """Register a broker or a cluster until the end of the block."""
    running = config.stash[_SHARED].running
    running[name] = made
    try:
        yield
    finally:
        del running[name]
