"""Fixtures for tests with other people's clients: each client by its adapter, and one broker for all such tests.

A broker of one's own (`broker`, `make_broker`) is for tests that kill it, restart it or count what is in it; the
others share one, each with topics and groups of its own (`topic`, `group`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients.asyncio_kafka import Aiokafka
from tests.interop.clients.confluent import ConfluentKafka
from tests.interop.clients.kafka_python import KafkaPython
from tests.interop.clients.neutral import Client
from tests.interop.clients.ours import Ours
from tests.interop.java.maven import java
from tests.interop.java.program import LOGGING, OPTIONS, Program, Run
from tests.support.broker_process import BrokerProcess
from tests.support.group_flow import PARTITIONS, Flow
from tests.support.process_cluster import brokers, cluster  # noqa: F401 - fixtures

CLIENTS: list[Client] = [ConfluentKafka(), KafkaPython(), Aiokafka(), Ours()]

COMPACTS_SOON = {"log_cleaner_max_compaction_lag_ms": "1000", "log_cleaner_backoff_ms": "200"}
"""Settings of a broker that compacts within seconds what other programs keep in compacted topics."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that tests of this folder share."""
    settings = {
        "group_min_session_timeout_ms": "500",
        # Tests write records of years ago. On a slow machine it lives so long that it would delete them in between.
        "log_retention_check_interval_ms": "86400000",
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("shared") / "broker", settings)
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def bootstrap(shared_broker: BrokerProcess) -> str:
    """The address of the shared broker."""
    return shared_broker.bootstrap


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    """The name of a group that does not exist yet."""
    return f"group-{next(_numbers)}"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn."""
    found: Client = request.param
    return found


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def other_client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, for the second part in a test of two."""
    found: Client = request.param
    return found


@pytest.fixture
def our_admin(bootstrap: str) -> Iterator[object]:
    """Makes topics for tests whose subject is something else."""
    admin = Ours().admin(bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def flow(bootstrap: str, topic: str) -> Iterator[Flow]:
    """A topic with four partitions into which records flow."""
    with contextlib.closing(Ours().admin(bootstrap)) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    flow = Flow(bootstrap, topic)
    yield flow
    flow.stop()


@pytest.fixture
def run_java(tmp_path: Path) -> Iterator[Run]:
    """Start Java programs: `run_java(["-cp", "...", "Main", "argument"], VARIABLE="value")`. All end with the test."""
    started: list[Program] = []

    def run(arguments: list[str], **variables: str) -> Program:
        command = [java(), *OPTIONS, *LOGGING, f"-Djava.io.tmpdir={tmp_path}", *arguments]
        program = Program(tmp_path / f"java-{len(started)}.log", command, os.environ | variables)
        started.append(program)
        return program

    yield run
    for program in started:
        program.kill()
