"""Fixtures of the pipeline's tests: one Spark session for all of them. Without Java they are skipped, and say so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin
from barnabas.spark import JavaNotFoundError, local_session, stop_session
from barnabas.spark.options import parse_stream_options
from tests.support.broker_process import BrokerProcess
from tests.support.numbered_topic import COUNT, TOPIC, produce_numbers
from tests.support.object_store import ObjectStore, running_store
from tests.support.quick_java import java_home_or_skip, quick_environment
from tests.support.xdist_groups import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.stream_reader import BarnabasStreamReader


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, one process has all that share a session. Those of programs that start a Spark say
    so themselves."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            if "spark" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(SPARK))
            if item.get_closest_marker("xdist_group") and "quick_java" not in item.fixturenames:
                item.fixturenames.insert(0, "quick_java")


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """All Sparks that tests of this folder start do so fast. All that start one have this before anything else."""
    with pytest.MonkeyPatch.context() as patched:
        with suppress(JavaNotFoundError):  # tests without it say so
            for name, value in quick_environment().items():
                patched.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """An empty bucket in an S3 of its own."""
    with running_store() as store:
        yield store


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, quick_java: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A local session on two cores."""
    if "PYTEST_XDIST_TESTRUNUID" in os.environ:
        assert any(item.nodeid.endswith(f"@{SPARK}") for item in request.session.items), "groups are not kept together"
    java_home_or_skip()
    session = local_session("barnabas tests", master="local[2]", log_file=tmp_path_factory.mktemp("spark") / "log")
    yield session
    stop_session(session)


@pytest.fixture
def one_shuffle(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that makes one task of a shuffle: the frames are small."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def numbered_topic(broker: BrokerProcess) -> BrokerProcess:
    """A broker with the first numbers in two partitions."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
    produce_numbers(broker.bootstrap, range(COUNT))
    return broker


@pytest.fixture
def open_reader(broker: BrokerProcess) -> Iterator[Callable[..., BarnabasStreamReader]]:
    """A function from options (without the brokers) to what Spark's driver asks about a stream; no JVM runs for it.

    Without options that say what is read it is the topic `clicks`.
    """
    from barnabas.spark.stream_reader import BarnabasStreamReader  # noqa: PLC0415  # needs Spark 4.2

    readers: list[BarnabasStreamReader] = []

    def make(*, cores: int | None = None, **options: str) -> BarnabasStreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        if not {"subscribe", "subscribePattern", "assign"} & set(given):
            given["subscribe"] = "clicks"
        columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
        readers.append(BarnabasStreamReader(parse_stream_options(given), columns, cores))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()
