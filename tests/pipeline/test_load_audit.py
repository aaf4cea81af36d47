"""The audit of tables: loads tell what they put in, and a row too few, too many or too late is found with its place."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F  # noqa: N812

import barnabas.spark
from barnabas import Admin, Producer
from barnabas.audit.events import CONSUMED, LOADED, MIRRORED, Reach
from barnabas.audit.identities import Producer as Identity
from barnabas.audit.windows import tally
from barnabas.cli.audit import audit as command
from barnabas.cli.load_until import LoadUntil
from barnabas.client.audit.event_log import EventWriter, read_events
from barnabas.clock import SYSTEM_CLOCK
from barnabas.records.mirror_identity import MIRROR_MARK
from barnabas.spark import LoadResult, load
from barnabas.spark.table_status import table_status
from barnabas.spark.warehouse import Warehouse
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TOPIC = "clicks"
MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_040_000
COUNT = 300
PARTITIONS = 3


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A broker with a topic; returns its address."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "-1"})
    return broker.bootstrap


def send(bootstrap: str, begin: int = 0, end: int = COUNT, *, audit: bool = True) -> None:
    """Send records of three minutes, in small batches."""
    with Producer(bootstrap, audit=audit, client_id="shop", batch_size=500) as producer:
        for number in range(begin, end):
            at_ms = BEGIN_MS + number * 600
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=at_ms)


def audit(bootstrap: str, warehouse: Path, *words: str) -> tuple[int, Any]:
    """Run `barnabas audit --json` with a table; return the exit code and what it says."""
    result = CliRunner().invoke(command, [*words, "--json", "-b", bootstrap, "--warehouse", str(warehouse)])
    assert result.exit_code in (0, 1), (result.output, result.exception)
    return result.exit_code, json.loads(result.stdout)


def windows(found: Any) -> list[tuple[int, int, int, int, str]]:
    return [
        (each["window"] - BEGIN_MS, each["produced"], each["stored"], each["loaded"], each["status"])
        for each in found["windows"]
    ]


def audit_frame(spark: SparkSession, bootstrap: str, warehouse: Path, group: str | None = None) -> DataFrame:
    return barnabas.spark.audit(
        spark,
        TOPIC,
        bootstrap=bootstrap,
        warehouse=warehouse,
        group=group,
        from_=datetime.fromtimestamp(BEGIN_MS / 1_000, UTC),
        to=datetime.fromtimestamp(BEGIN_MS / 1_000 + 180, UTC),
    )


def rows_of(found: DataFrame) -> list[tuple[str, int, str | None, int, str]]:
    begin = F.unix_millis("window").alias("begin")
    return [
        (row["tier"], row["begin"] - BEGIN_MS, row["application"], row["count"], row["status"])
        for row in found.select("tier", begin, "application", "count", "status").collect()
    ]


def spark_audit(
    spark: SparkSession, bootstrap: str, warehouse: Path, group: str | None = None
) -> list[tuple[str, int, str | None, int, str]]:
    return rows_of(audit_frame(spark, bootstrap, warehouse, group))


ALL_COMPLETE = [(minute * MINUTE_MS, 100, 100, 100, "complete") for minute in range(3)]


def change_rows(warehouse: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a table's file behind its back."""
    path = max(warehouse.rglob("data/**/*.parquet"), key=lambda each: each.stat().st_size)
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def test_table_has_all_that_was_produced_and_says_until_when(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    send(topic, 0, 150)
    first = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    of_now = audit_frame(spark, topic, tmp_path)
    send(topic, 150)
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, [each["status"] for each in found["windows"]]) == (1, ["complete", "late 50", "late 100"])
    # What no load has reached is not lost.
    assert [each[3:] for each in spark_audit(spark, topic, tmp_path) if each[0] == "loaded"] == [
        (100, "complete"), (50, "open 50"), (0, "open 100"),
    ]  # fmt: skip
    second = load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark).tables[0]
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, windows(found)) == (0, ALL_COMPLETE)
    assert audit(topic, tmp_path, "why", TOPIC) == (0, [])
    assert (first.audited_windows, second.audited_windows) == (2, 2)
    assert first.complete_until_ms is not None
    assert second.complete_until_ms is not None
    assert sorted(set(spark_audit(spark, topic, tmp_path))) == [
        (tier, minute * MINUTE_MS, application, 100, "complete")
        for tier, application in (("loaded", "shop"), ("produced", "shop"), ("table", None))
        for minute in range(3)
    ]
    # A frame is of the moment when it was made, though it is looked at when there is more of everything.
    assert sorted(rows_of(of_now)) == [
        (tier, minute * MINUTE_MS, application, count, "complete")
        for tier, application in (("loaded", "shop"), ("produced", "shop"), ("table", None))
        for minute, count in ((0, 100), (1, 50))
    ]
    # Nothing that was told is missing, so the table is complete until just now.
    assert BEGIN_MS + 3 * MINUTE_MS < first.complete_until_ms <= second.complete_until_ms
    assert found["table_complete_until"] == second.complete_until_ms
    assert table_status(Warehouse.open(tmp_path), TOPIC).audited_until_ms == second.complete_until_ms


def test_frame_tells_mirrors_from_producers_and_what_a_group_has_had_again_from_what_is_open(
    one_shuffle: SparkSession, topic: str, tmp_path: Path
) -> None:
    send(topic)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=one_shuffle)
    with Admin(topic) as admin:
        told = read_events(topic, admin, TOPIC)
    loads = {each.window_ms: each for each in told if each.tier == LOADED}
    first, second, third = (loads[BEGIN_MS + minute * MINUTE_MS] for minute in range(3))
    member = replace(first, tier=CONSUMED, instance="one", application="reports", counted={})
    behind_the_table = {partition: Reach(0, COUNT) for partition in range(PARTITIONS)}
    ahead = replace(member, window_ms=third.window_ms, offsets=third.offsets, reached=behind_the_table)
    half = {partition: found for partition, found in second.offsets.items() if partition}
    mirror = Identity(MIRROR_MARK, 0, 0)
    with EventWriter(topic) as writer:
        writer.write(
            [
                member,
                replace(member, instance="two"),
                replace(member, window_ms=second.window_ms, offsets=half),
                replace(member, window_ms=second.window_ms, instance="three", application="others"),
                *(replace(ahead, instance=each) for each in ("four", "five")),
                replace(
                    first, tier=MIRRORED, instance="m", application="mirror", counted={mirror: tally(mirror, 0, 5, 0)}
                ),
            ]
        )
    missing = second.offsets[0].records
    found = [each for each in spark_audit(one_shuffle, topic, tmp_path, "reports") if each[0] != "table"]
    assert sorted(each for each in found if each[0] in ("consumed", "mirrored")) == [
        ("consumed", 0, "reports", 200, "again 100"),
        ("consumed", MINUTE_MS, "reports", 100 - missing, f"open {missing}"),
        ("consumed", 2 * MINUTE_MS, "reports", 200, "open 100"),
        ("mirrored", 0, "mirror", 5, "complete"),
    ]
    assert [each for each in found if each[0] == "loaded" and each[2] == "mirror"] == [
        ("loaded", 0, "mirror", 0, "lost 5")
    ]
    assert {each[3] for each in found if each[0] == "produced"} == {100}


def test_load_that_waits_goes_on_until_what_was_told_is_in_the_table(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    """A producer that tells first is waited for, although nothing of that is in the log yet."""
    send(topic, 0, 10)
    with Admin(topic) as admin:
        told = [event for event in read_events(topic, admin, TOPIC) if event.is_last]
    elsewhere = replace(
        told[0], instance="another", counted={Identity(10**6, 0, 0): tally(Identity(10**6, 0, 0), 0, 5, 0)}
    )
    with EventWriter(topic) as writer:
        writer.write([elsewhere])
    lines: list[str] = []

    def load_once() -> tuple[LoadResult, dict[str, Exception]]:
        return load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark), {}

    def wait(_seconds: float) -> None:
        """Take it back: the producer had told of what was not so."""
        with EventWriter(topic) as writer:
            writer.write([replace(elsewhere, counted={}, number=elsewhere.number + 1)])

    until = LoadUntil(
        load_once, BEGIN_MS + MINUTE_MS, 1.0, 300, lambda _result, _failures: None, lines.append, SYSTEM_CLOCK, wait
    )
    assert until.run()
    assert len(lines) == 1
    assert lines[0].startswith("waiting for ")
    assert f"default.{TOPIC} is complete until " in lines[0]


def test_row_that_is_deleted_and_one_that_is_appended_twice_are_found_with_their_places(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    send(topic)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    change_rows(tmp_path, lambda rows: pa.concat_tables([rows.slice(1), rows.slice(5, 1)]))
    code, found = audit(topic, tmp_path, TOPIC)
    assert code == 1
    assert (sum(each["lost"] for each in found["windows"]), sum(each["doubled"] for each in found["windows"])) == (1, 1)
    assert sum(each["loaded"] for each in found["windows"]) == COUNT
    _code, why = audit(topic, tmp_path, "why", TOPIC)
    assert {(each["tier"], each["kind"], each["application"], each["records"]) for each in why} == {
        ("loaded", "lost", "shop", 1),
        ("loaded", "doubled", "shop", 1),
    }
    assert all(len(each["offsets"]) == 1 and each["offsets"][0][1] == 1 for each in why)
    in_spark = spark_audit(spark, topic, tmp_path)
    # It has no log to look at: a lost and a doubled row of one partition and window are exchanged for it.
    assert {each for each in in_spark if each[0] != "table"} == {
        (tier, minute * MINUTE_MS, "shop", 100, "complete") for tier in ("produced", "loaded") for minute in range(3)
    }
    assert {each[4] for each in in_spark if each[0] == "table"} - {"complete"}


def test_what_loads_have_told_vouches_for_the_table_when_the_log_has_expired(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    send(topic)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    with Admin(topic) as admin:
        admin.delete_records({(TOPIC, partition): -1 for partition in range(PARTITIONS)})
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, windows(found)) == (0, [(minute * MINUTE_MS, 100, 0, 100, "complete") for minute in range(3)])
    change_rows(tmp_path, lambda rows: rows.slice(1))
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, sum(each["lost"] for each in found["windows"])) == (1, 1)
    change_rows(tmp_path, lambda rows: pa.concat_tables([rows, rows.slice(0, 2)]))
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, sum(each["loaded"] for each in found["windows"])) == (1, COUNT + 1)


def test_rows_of_producers_that_tell_nothing_are_compared_by_offsets(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    send(topic, audit=False)
    load(TOPIC, bootstrap=topic, warehouse=tmp_path, spark=spark)
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, [each[2:] for each in windows(found)]) == (0, [(100, 100, "not audited")] * 3)
    change_rows(tmp_path, lambda rows: rows.slice(1))
    code, found = audit(topic, tmp_path, TOPIC)
    assert (code, sum(each["lost"] for each in found["windows"])) == (1, 1)
