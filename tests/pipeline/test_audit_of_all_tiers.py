"""The whole run: three brokers, a mirror, another cluster, a group that reads there, a table; audited over all tiers.

First all is well, though the mirror was killed. Then one record is taken away, first from the table and then from the
mirror's hands, and is found at its tier.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users call it

import barnabas.spark
from barnabas import Admin, Consumer, Producer
from barnabas.cli.audit import audit as command
from barnabas.errors import ApiError
from barnabas.mirror import partition_copy
from barnabas.mirror.batch_rewriting import RewrittenBatch, rewrite_batch
from barnabas.mirror.mirror import Mirror, MirrorConfig
from barnabas.spark import load
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_process import MirrorProcess
from tests.support.process_cluster import running_cluster
from tests.support.reading import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "clicks"
GROUP = "reports"
BEGIN_MS = 1_700_000_040_000
PARTITIONS = 3
COUNT = 600
PLACES = [(TOPIC, each) for each in range(PARTITIONS)]


def send(bootstrap: str, begin: int, end: int) -> None:
    """Send records of three minutes, in small batches."""
    with Producer(bootstrap, audit=True, client_id="shop", batch_size=500) as producer:
        for number in range(begin, end):
            at_ms = BEGIN_MS + number % COUNT * 300
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=at_ms)


def stored(bootstrap: str) -> int:
    with Admin(bootstrap) as admin:
        try:
            return sum(admin.end_offsets(PLACES).values()) if TOPIC in admin.list_topics() else 0
        except ApiError:
            return 0


def read_all(bootstrap: str) -> None:
    """Read as a member of the group, to the end."""
    with Consumer(bootstrap, group=GROUP, audit=True, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        records: list[object] = []
        wait_until(lambda: records.extend(consumer.poll(timeout_s=0.2)) or len(records) >= COUNT, "all records")  # type: ignore[func-returns-value]


def in_spark(
    spark: SparkSession, source: str, target: str, warehouse: Path
) -> set[tuple[str, int, str | None, int, str]]:
    """Return what the audit over months says: tier, minute, application, records and status."""
    found = barnabas.spark.audit(
        spark, TOPIC, bootstrap=target, source=source, warehouse=warehouse, group=GROUP,
        from_=datetime.fromtimestamp(BEGIN_MS / 1_000, UTC),
    )  # fmt: skip
    rows = found.select("tier", F.unix_millis("window").alias("begin"), "application", "count", "status").collect()
    return {
        (row["tier"], (row["begin"] - BEGIN_MS) // 60_000, row["application"], row["count"], row["status"])
        for row in rows
    }


class Tiers:
    """What `barnabas audit` says of all of them."""

    def __init__(self, source: str, target: str, warehouse: Path) -> None:
        self._options = ["--source", source, "-b", target, "--warehouse", str(warehouse), "--group", GROUP, "--json"]

    def ask(self, *words: str) -> tuple[int, Any]:
        result = CliRunner().invoke(command, [*words, *self._options])
        assert result.exit_code in (0, 1), (result.output, result.exception)
        return result.exit_code, json.loads(result.stdout)

    def wrong(self) -> set[tuple[str, str, int, str]]:
        """Return tier, kind, records and application of what is not just waiting."""
        _code, why = self.ask("why", TOPIC)
        found = [(each["tier"], each["kind"], each["records"], each["application"]) for each in why]
        return {each for each in found if each[1] not in ("open", "late")}


def mirror_all_but_one(monkeypatch: pytest.MonkeyPatch, source: str, target: str, wanted: int) -> None:
    """Mirror in this process, and lose the first batch that there is."""
    lost: list[RewrittenBatch] = []

    def losing(*arguments: Any) -> RewrittenBatch | None:
        piece = rewrite_batch(*arguments)
        if piece is not None and not lost:
            lost.append(piece)
            return None
        return piece

    async def run() -> None:
        sides = ({"bootstrap.servers": source}, {"bootstrap.servers": target})
        mirror = Mirror(MirrorConfig(*sides, topics=(TOPIC,), refresh_s=0.2), lambda _event: None)
        stop = asyncio.Event()
        try:
            await mirror.start()
            running = asyncio.create_task(mirror.run_until(stop))
            await asyncio.to_thread(wait_until, lambda: stored(target) >= wanted, "what follows on the lost one")
            stop.set()
            await running
        finally:
            await mirror.stop()

    with monkeypatch.context() as patched:
        patched.setattr(partition_copy, "rewrite_batch", losing)
        asyncio.run(run())
    assert [piece.records for piece in lost] == [1]


def test_each_tier_has_all_and_a_record_that_is_taken_away_is_missed_at_its_tier(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, warehouse = broker.bootstrap, tmp_path / "warehouse"
    with running_cluster(tmp_path, {}) as cluster:
        source = cluster.bootstrap
        with Admin(source) as admin:
            admin.create_topic(TOPIC, PARTITIONS, 3, {"retention.ms": "-1"})
        send(source, 0, COUNT // 2)
        mirror = MirrorProcess(source, target, tmp_path / "mirror.log", "--topics", TOPIC)
        try:
            wait_until(lambda: stored(target) > 0, mirror.log.read_text)
        finally:
            mirror.kill()
        send(source, COUNT // 2, COUNT)
        mirror = MirrorProcess(source, target, tmp_path / "mirror.log", "--topics", TOPIC, "--once")
        try:
            assert mirror.wait() == 0, mirror.log.read_text()
        finally:
            mirror.close()
        read_all(target)
        loaded = load(TOPIC, bootstrap=target, warehouse=warehouse, spark=spark).tables[0]
        assert loaded.complete_until_ms is not None
        assert loaded.complete_until_ms > BEGIN_MS + 3 * 60_000

        tiers = Tiers(source, target, warehouse)
        code, found = tiers.ask(TOPIC)
        names = ("produced", "mirrored", "stored", "consumed", "loaded", "status")
        assert [tuple(each[name] for name in names) for each in found["windows"]] == [
            (200, 200, 200, 200, 200, "complete")
        ] * 3
        assert (code, found["complete_until"]) == (0, BEGIN_MS + 3 * 60_000)

        assert in_spark(spark, source, target, warehouse) == {
            (tier, minute, application, 200, "complete")
            for tier, application in (
                ("produced", "shop"), ("mirrored", "shop"), ("loaded", "barnabas mirror"), ("consumed", GROUP),
                ("table", None),
            )
            for minute in range(3)
        }  # fmt: skip

        path = max(warehouse.rglob("data/**/*.parquet"), key=lambda each: each.stat().st_size)
        whole = path.read_bytes()
        pq.write_table(pq.ParquetFile(path).read().slice(1), path)
        assert tiers.wrong() == {("loaded", "lost", 1, "barnabas mirror")}
        path.write_bytes(whole)
        assert tiers.wrong() == set()

        for number in (COUNT, COUNT + PARTITIONS):  # in the same partition, each a batch of its own
            send(source, number, number + 1)
        mirror_all_but_one(monkeypatch, source, target, COUNT + 1)
        assert tiers.ask(TOPIC)[0] == 1
        assert tiers.wrong() == {("mirrored", "lost", 1, "shop")}
        told = in_spark(spark, source, target, warehouse)
        assert {each for each in told if each[4] != "complete"} == {
            ("mirrored", 0, "shop", 201, "lost 1"),
            ("loaded", 0, "barnabas mirror", 200, "open 1"),
        }
        # What the mirror has not reached yet is not lost, though another look shows it.
        for number in (COUNT + 1, COUNT + 2):
            send(source, number, number + 1)
        told = in_spark(spark, source, target, warehouse)
        assert {each[4] for each in told if each[0] == "mirrored"} == {"lost 1, open 2", "complete"}
