"""Tables with partitions of choice, read as DataFrames: every row once, also after other tools changed the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.transforms import BucketTransform
from pyspark.sql import SparkSession

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark import read_table
from barnabas.spark.layout_syntax import parse_partition
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_store import maintain
from tests.support.loads_without_spark import Lake

COUNTRIES = ["nl", "x y", "é%/=", None]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_frames_have_every_row_and_the_values_of_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    lake = Lake(tmp_path, table_format)
    lake.stand_in(monkeypatch)
    for first in (0, 8):
        lake.values += [
            json.dumps({"n": number, "country": COUNTRIES[number % 4]}, ensure_ascii=False).encode()
            for number in range(first, first + 8)
        ]
        lake.load(bad=None, partition_by=parse_partition("country, month(event_time)"))
    expected = [(number, COUNTRIES[number % 4]) for number in range(16)]

    def check() -> None:
        frame = read_table(spark, tmp_path, "t", table_format=table_format)
        assert (
            sorted((row["offset"], row["country"]) for row in frame.select("offset", "country").collect()) == expected
        )
        if table_format == "delta":
            assert frame.where("event_month = '2014-05'").count() == len(expected)
        assert frame.where("country = 'x y' and n > 4").count() == 3

    check()
    maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK))
    check()
    if table_format == "iceberg":
        table = lake.open().current_table("t").table
        with table.update_spec() as spec:
            spec.remove_field("country")
            spec.add_field("n", BucketTransform(2), "by_n")
        with table.update_sort_order() as order:
            order.desc("n", BucketTransform(2))
    lake.values += [json.dumps({"n": 16, "country": "nl"}).encode()]
    expected.append((16, "nl"))
    lake.load(bad=None)
    check()
