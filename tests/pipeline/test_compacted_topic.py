"""Topics that were compacted are read and loaded: what compaction took away is no loss, and holds nothing up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas import Admin, Producer
from barnabas.spark import load, register, scan_table
from tests.support.broker_process import BrokerProcess
from tests.support.compacted_logs import SAMPLE_END, SAMPLE_RECORDS, with_samples
from tests.support.table_contents import TOPIC, next_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS = [record.offset for record in SAMPLE_RECORDS]


def compacted(broker: BrokerProcess) -> str:
    """A topic whose records have gaps between them, and none at its end; returns the broker's address."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, config={"retention.ms": "-1"})
    with_samples(broker, TOPIC)
    return broker.bootstrap


def test_gaps_are_no_loss_for_a_load(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = compacted(broker)
    first = load(TOPIC, bootstrap=bootstrap, warehouse=tmp_path, spark=spark).tables[0]
    assert (first.records, first.missing) == (len(OFFSETS), ())
    assert next_offsets(tmp_path) == {TOPIC: {0: SAMPLE_END}}
    assert load(TOPIC, bootstrap=bootstrap, warehouse=tmp_path, spark=spark).records == 0
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, b"new", b"key").result(60)
    assert load(TOPIC, bootstrap=bootstrap, warehouse=tmp_path, spark=spark).records == 1
    rows = [row for batch in scan_table(tmp_path, TOPIC, columns=["offset"]) for row in batch.to_pylist()]
    assert sorted(row["offset"] for row in rows) == [*OFFSETS, SAMPLE_END]


def test_every_part_of_a_query_comes_to_its_end(spark: SparkSession, broker: BrokerProcess) -> None:
    """Tasks of three offsets each: some begin or end in a gap, and some lie in one."""
    register(spark)
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", compacted(broker))
    for start, end in [(0, SAMPLE_END), (3, 23)]:
        offsets = {
            "startingOffsets": json.dumps({TOPIC: {"0": start}}),
            "endingOffsets": json.dumps({TOPIC: {"0": end}}),
        }
        frame = reader.options(subscribe=TOPIC, maxRecordsPerPartition="3", **offsets).load()
        found = sorted(row["offset"] for row in frame.select("offset").collect())
        assert found == [offset for offset in OFFSETS if start <= offset < end]
