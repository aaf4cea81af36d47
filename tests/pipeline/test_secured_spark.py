"""Spark reads and writes topics of a secured broker, and shows no password: in plans, errors and logs."""

from __future__ import annotations

import contextlib
import io
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import barnabas as client
from barnabas.spark import audit, load, register
from tests.support.secured_broker import PASSWORD, SecuredBroker, secured_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 50
WRONG = "planted wrong password"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def topic(secured: SecuredBroker) -> str:
    """A topic with records."""
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    with client.Admin(**settings(secured)) as admin:
        admin.create_topic(name, 2)
        admin.create_topic(f"{name}-copy", 2)  # the copy keeps the partitions of the records
    with client.Producer(**settings(secured)) as producer:
        for number in range(RECORDS):
            producer.send(name, b"%d" % number)
    return name


def settings(secured: SecuredBroker, password: str = PASSWORD) -> dict[str, Any]:
    """Return the settings of a client."""
    return secured.client(sasl_password=password)


def options(secured: SecuredBroker, password: str = PASSWORD) -> dict[str, str]:
    """Return the same settings as options of Spark, under Kafka's names."""
    given = settings(secured, password)
    found = {"kafka.bootstrap.servers": given.pop("bootstrap")}
    return found | {f"kafka.{name.replace('_', '.')}": str(value) for name, value in given.items()}


def explained(frame: DataFrame) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain(True)
        frame.explain("formatted")
    return text.getvalue()


def test_queries_and_streams_authenticate_and_plans_hide_the_password(
    spark: SparkSession, secured: SecuredBroker, topic: str, tmp_path: Path
) -> None:
    given = options(secured)
    frame = spark.read.format("barnabas").options(**given).option("subscribe", topic).load()
    assert frame.count() == RECORDS
    assert PASSWORD not in explained(frame)

    stream = spark.readStream.format("barnabas").options(**given).option("subscribe", topic)
    source = stream.option("startingOffsets", "earliest").load()
    query = (
        source.writeStream.format("barnabas")
        .options(**given)
        .option("topic", f"{topic}-copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = spark.read.format("barnabas").options(**given).option("subscribe", f"{topic}-copy").load()
    assert copied.count() == RECORDS
    assert PASSWORD not in str(query.lastProgress)
    assert all(PASSWORD not in file.read_text("latin-1") for file in tmp_path.rglob("*") if file.is_file())
    assert all(PASSWORD not in value for _, value in spark.sparkContext.getConf().getAll())


def test_wrong_password_is_an_error_without_the_password(
    spark: SparkSession, secured: SecuredBroker, topic: str
) -> None:
    frame = spark.read.format("barnabas").options(**options(secured, WRONG)).option("subscribe", topic)
    with pytest.raises(Exception, match="AuthenticationError") as refused:
        frame.load().count()
    assert WRONG not in str(refused.value)


def test_table_reads_its_password_from_a_file(
    spark: SparkSession, secured: SecuredBroker, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    given = options(secured, f"${{file:{file}}}") | {"subscribe": topic}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    name = f"secured_{os.getpid()}"
    spark.sql(f"CREATE TABLE {name} USING barnabas OPTIONS ({listed})")
    try:
        assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == RECORDS
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        assert PASSWORD not in str(described)
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_audit_of_a_secured_cluster(spark: SparkSession, secured: SecuredBroker, tmp_path: Path) -> None:
    given = settings(secured)
    name = f"audited-{uuid.uuid4().hex[:8]}"
    with client.Producer(**given, audit=True) as producer:
        for number in range(RECORDS):
            producer.send(name, b'{"id": %d}' % number)
    bootstrap = given.pop("bootstrap")
    named = {each.replace("_", "."): str(value) for each, value in given.items()}
    load(name, bootstrap=bootstrap, warehouse=tmp_path, audit=True, client_options=named)
    rows = audit(spark, name, bootstrap=bootstrap, warehouse=tmp_path, client_options=named).collect()
    assert {row["tier"] for row in rows} == {"produced", "loaded", "table"}
    assert {row["count"] for row in rows} == {RECORDS}
