"""The completeness pages of the console with a table that lacks a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas import Admin
from barnabas.spark import load
from tests.interop.test_completeness_pages import PAGE, links, whole
from tests.pipeline.test_load_audit import PARTITIONS, TOPIC, change_rows, send
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import running_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_clicks_lead_from_a_window_to_the_record_that_the_table_lacks(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "-1"})
        admin.create_topic("views", partitions=1)
    send(bootstrap)
    load(TOPIC, bootstrap=bootstrap, warehouse=tmp_path, spark=spark)
    lost: list[tuple[int, int, str]] = []

    def lose(rows: pa.Table) -> pa.Table:
        gone = rows.slice(7, 1).to_pylist()[0]
        lost.append((gone["partition"], gone["offset"], gone["value"].decode()))
        return pa.concat_tables([rows.slice(0, 7), rows.slice(8)])

    change_rows(tmp_path, lose)
    send(bootstrap, 0, 30)  # more records in the log than in the table
    ((partition, offset, value),) = lost
    with running_console(bootstrap, "--warehouse", str(tmp_path)) as console:
        page = whole(console, PAGE)
        assert "produced: 3 complete" in page
        assert 'aria-label="loaded: ' in page
        assert "1 lost" in page
        record = f"/record?topic={TOPIC}&partition={partition}&offset={offset}"
        assert record in links(page, "/record\\?")
        assert value in console.page(record)
        assert "Table default.clicks" in page
        assert "<dt>Records behind the log</dt><dd>30</dd>" in page
        snapshots = console.page(f"/table?topic={TOPIC}")
        assert len(links(snapshots, "/table/files")) == 1
        assert f"/records?topic={TOPIC}&partition=0&from=offset&offset=0" in links(snapshots, "/records")
        files = [console.page(each) for each in links(snapshots, "/table/files")]
        assert any(".parquet" in each and "event_day" in each for each in files)
        for path in ("/table?topic=views", f"/table/files?topic={TOPIC}&snapshot={2**62}"):
            assert console.get(path)[0] in (404, 502)
        assert console.get(f"/table?topic={TOPIC}&page=x")[0] == 400
        assert "There are no snapshots on this page." in console.page(f"/table?topic={TOPIC}&page=999")
        assert "The warehouse has no table of this topic." in whole(console, "/completeness/topic?topic=views")
