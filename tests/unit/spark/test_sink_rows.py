"""Rows of a batch, put together by topic and partition."""

from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.sink import split_by_partition
from barnabas.spark.sink_options import SinkOptions, parse_sink_options

BASE = {"kafka.bootstrap.servers": "localhost:9092"}
TYPES = {"value": "binary", "topic": "string", "partition": "int"}


def parts(options: SinkOptions, **columns: list[object]) -> list[tuple[str, int | None, list[object]]]:
    kinds = {"value": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, kinds[name]) for name, values in columns.items()], names=list(columns)
    )
    found = split_by_partition(batch, options)
    return [(part.topic, part.partition, part.rows.column("value").to_pylist()) for part in found]


def test_rows_keep_their_order_within_a_topic_and_partition() -> None:
    found = parts(
        parse_sink_options(BASE, TYPES),
        value=[b"1", b"2", b"3", b"4", b"5"],
        topic=["a", "b", "a", "a", "b"],
        partition=[0, None, None, 0, None],
    )
    assert found == [("a", 0, [b"1", b"4"]), ("a", None, [b"3"]), ("b", None, [b"2", b"5"])]


def test_the_option_is_the_topic_of_all_rows_whatever_the_column_has() -> None:
    options = parse_sink_options(BASE | {"topic": "x"}, {"value": "binary", "topic": "string"})
    found = parts(options, value=[b"1", b"2"], topic=["a", None])
    assert found == [("x", None, [b"1", b"2"])]
    assert parts(parse_sink_options(BASE | {"topic": "x"}, {"value": "binary"}), value=[]) == []


def test_a_row_without_a_topic_is_told() -> None:
    with pytest.raises(ConfigurationError, match="rows have no topic"):
        parts(parse_sink_options(BASE, {"value": "binary", "topic": "string"}), value=[b"1"], topic=[None])
