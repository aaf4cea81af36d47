"""What a query that writes is told before it begins."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.sink_options import parse_sink_options

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_columns_of_the_source_can_be_written_back_as_they_are() -> None:
    types = {"Key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint"}
    options = parse_sink_options(BASE, types | {"headers": "array<struct<key:string,value:binary>>"})
    assert dict(options.columns) == {
        "key": "Key",
        "value": "value",
        "topic": "topic",
        "partition": "partition",
        "headers": "headers",
    }
    assert options.topic is None


def test_settings_reach_the_producer_and_those_without_effect_do_not() -> None:
    given = BASE | {
        "topic": "t",
        "kafka.compression.type": "zstd",
        "kafka.linger.ms": "50",
        "kafka.send.buffer.bytes": "9",
    }
    options = parse_sink_options(given, {"value": "string"})
    assert options.producer_settings == {"compression_type": "zstd", "linger_ms": "50"}


@pytest.mark.parametrize(
    ("options", "types", "told"),
    [
        ({"topic": "t"}, {"key": "binary"}, "no column 'value'"),
        ({"topic": "t"}, {"value": "bigint"}, "'value' must be of type binary or string, not bigint"),
        ({}, {"topic": "int", "value": "string"}, "'topic' must be of type string, not int"),
        ({"topic": "t"}, {"value": "string", "key": "int"}, "'key' must be of type binary or string, not int"),
        ({}, {"topic": "string", "key": "string"}, "no column 'value'"),
        ({"topic": "t", "kafka.key.serializer": "x"}, {"value": "string"}, "encode it in the query"),
        ({"topic": "t"}, {"value": "string", "partition": "bigint"}, "'partition' must be of type int"),
        ({"topic": "t"}, {"value": "string", "headers": "map<string,string>"}, "'headers' must be of type array"),
        ({"topic": "t"}, {"value": "string", "VALUE": "string"}, "differ only in case"),
        ({}, {"value": "string"}, "the destination is missing"),
        ({"topics": "t"}, {"value": "string"}, "did you mean 'topic'"),
        ({"topic": "t", "path": "/x"}, {"value": "string"}, "take no path"),
        ({"topic": "t", "kafka.acks": "7"}, {"value": "string"}, "acks"),
        ({"topic": "t", "kafka.partitioner.class": "x"}, {"value": "string"}, "partitioner"),
        ({"topic": "t", "kafka.linger": "7"}, {"value": "string"}, "linger_ms"),
        ({"topic": "t", "kafka.value.serializer": "x"}, {"value": "string"}, "encode it in the query"),
        ({"topic": "t", "kafka.bootstrap.servers": ""}, {"value": "string"}, "set the brokers"),
    ],
)
def test_what_cannot_be_written_is_told_at_the_driver(
    options: dict[str, str], types: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        parse_sink_options(BASE | options, types)
