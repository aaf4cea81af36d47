"""Every record that the broker takes is a row: in tables of Iceberg and Delta, in SQL, in the Spark source, in streams.

The topics hold what a decoder or a table may stumble over: schemas that are no records, numbers beyond the columns,
damaged values, times of any 64 bits, tombstones, headers without values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2

import barnabas
from barnabas.errors import ConfigurationError
from barnabas.serialization.wire_format import header
from barnabas.spark import load, read_table, scan_table
from barnabas.spark.table_names import table_name_of_topic
from barnabas.sql.duckdb_engine import DuckDbEngine
from barnabas.sql.engine import Engine
from barnabas.sql.sampling import ValueOptions, json_rules
from barnabas.sql.spark_engine import SparkEngine
from barnabas.sql.topics import Topics
from tests.support.registry_process import RegistryProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.broker_process import BrokerProcess

pytest.importorskip("duckdb")

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}
VISIT = {"type": "record", "name": "Visit", "fields": [{"name": "a", "type": "int"}]}


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Odd", "fields": [{"name": "i", "type": "int"}, {"name": name, "type": kind}]}


def deep(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return field("deep", kind)


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


AVRO: list[tuple[Any, bytes]] = [
    (["null", VISIT], b"\2\x10"),
    (["null", VISIT], b"\0"),
    ([VISIT, "null"], b"\0\x10"),
    ("string", b"\4hi"),
    ("null", b""),
    ({"type": "map", "values": "int"}, b"\4\2a\2\2a\4\0"),
    ({"type": "array", "items": ["null", "string"]}, b"\2\2\2x\0"),
    ({"type": "enum", "name": "Topic", "symbols": ["A", "B"]}, b"\2"),
    ([VISIT, "long", NODE], b"\4\2\2\2\2\0"),
    (NODE, b"\2\2\4\0"),
    ({"type": "record", "name": "Empty", "fields": []}, b""),
    (field("offset", logical("long", "timestamp-nanos")), b"\2" + b"\xfe" + b"\xff" * 8 + b"\1"),
    (field("f2", logical("long", "timestamp-millis")), b"\2" + b"\xfe" + b"\xff" * 8 + b"\1"),
    (field("f3", logical("long", "local-timestamp-micros")), b"\2\2"),
    (field("f4", logical("int", "date")), b"\2\xfe\xff\xff\xff\x0f"),
    (field("f5", logical("fixed", "duration", name="D", size=12)), b"\2" + bytes(12)),
    (field("f6", logical("bytes", "decimal", precision=60, scale=10)), b"\2\x36\x7f" + b"\xff" * 26),
    (field("f7", logical("bytes", "decimal", precision=38, scale=2)), b"\2\x20\x7f" + b"\xff" * 15),
    (field("f8", logical("string", "uuid")), b"\2\6abc"),
    (field("f9", "double"), b"\2" + b"\0" * 6 + b"\xf8\x7f"),
    (field("f10", "float"), b"\2" + b"\0\0\x80\xff"),
    (field("f11", "string"), b"\2\x78" + "\ud7ff".encode() * 20),
    (
        field("f12", {"type": "record", "name": "In", "fields": [{"name": "s", "type": "string"}]}),
        b"\2\x78" + "\ud7ff".encode() * 20,
    ),
    (field("f13", "bytes"), b"\2\x78" + b"\xff" * 60),
    (field("f14", {"type": "map", "values": "string"}), b"\2\2\x78" + "\ud7ff".encode() * 20 + b"\2x\0"),
    (deep(90), b"\2" + b"\2" * 90 + b"\4" + b"\0" * 90),
    (VISIT, b"\x10"),
    (VISIT, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
    (VISIT, b"\x10?"),
    (VISIT, b""),
]
JSON = [
    b'{"d":1.1,"n":1}',
    b'{"d":12345678901234567890123456789012345678}',
    b'{"d":[1.1,12345678901234567890123456789012345678]}',
    b'{"d":1e999,"offset":"x","Offset":1,"n":99999999999999999999}',
    b'{"d":NaN}',
    b'{"d":1,"d":2}',
    b'{"s":"' + "\ud7ff".encode() * 20 + b'"}',
    b'{"o":{"s":"' + "\ud7ff".encode() * 20 + b'"}}',
    b'{"s":"\\ud800"}',
    b'{"s":"\\u0000"}',
    b'{"t":"9999-12-31T23:59:59Z"}',
    b'{"":1,"a.b":2}',
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b"[" * 3_000,
    b"null",
    b"",
    b"\xff",
    b"{}",
]
PATIENCE_S = 300
TIMES_MS = [0, 1_700_000_000_000, 2**62, 2**63 - 1, 253_370_764_800_000]


def produce(bootstrap: str, topic: str, values: list[bytes | None]) -> int:
    with barnabas.Producer(bootstrap) as producer:
        for number, value in enumerate([*values, None, b"\0", b"\0\0\0\0\x7f."]):
            headers: list[tuple[str, bytes | None]] = [("h", None), ("h", b"\xff"), ("", b"")] if number % 2 else []
            at_ms = TIMES_MS[number % len(TIMES_MS)]
            key = None if number % 3 else b"\xff"
            producer.send(topic, value, key, timestamp_ms=at_ms, headers=headers).result(60)
    return len(values) + 3


def message_file() -> str:
    """Return a file with a message that holds itself, a map, an enum and well-known types."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="odd.proto", package="odd", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "any", "struct"))
    top = file.message_type.add(name="Top")
    for number, (name, kind) in enumerate(
        (
            ("self", ".odd.Top"),
            ("at", ".google.protobuf.Timestamp"),
            ("span", ".google.protobuf.Duration"),
            ("any", ".google.protobuf.Any"),
            ("more", ".google.protobuf.Value"),
        ),
        start=1,
    ):
        top.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, type_name=kind, label=kinds.LABEL_OPTIONAL)
    top.field.add(name="offset", number=6, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    return base64.b64encode(file.SerializeToString()).decode()


PROTOBUF = [
    b"",
    b"\x0a\x02\x0a\0",
    b"\x12\x0b\x08" + b"\xff" * 9 + b"\x01",
    b"\x1a\x04\x08\x01\x10\x02",
    b"\x22\x05\x0a\x03x/y",
    b"\x2a\x09\x11" + b"\0" * 6 + b"\xf8\x7f",
    b"\x30" + b"\xff" * 9 + b"\x01",
    b"\xa2\x06\x01x",
    b"\x0a\x7f",
]


@pytest.fixture
def registry(broker: BrokerProcess, tmp_path: Path) -> Iterator[RegistryProcess]:
    process = RegistryProcess(broker.bootstrap, tmp_path / "registry.log")
    yield process
    process.close()


def count(engine: Engine, text: str) -> int:
    (query,) = engine.split(text)
    return sum(batch.num_rows for batch in engine.run(query).batches)


def check_loads(bootstrap: str, topic: str, url: str | None, expected: int, folder: Path, spark: SparkSession) -> None:
    """Load a topic into both formats of tables, and check that each has a row for every offset."""
    rules: dict[str, Any] = {"nested": True, "decimals": True} if topic == "json" else {}
    for table_format in ("iceberg", "delta"):
        place: dict[str, Any] = {"warehouse": folder / table_format, "table_format": table_format}
        loaded = load(topic, bootstrap=bootstrap, spark=spark, format=topic, registry=url, **place, **rules)
        assert loaded.records == expected
        batches = scan_table(place["warehouse"], topic, table_format=table_format)
        assert sorted(offset for batch in batches for offset in batch.column("offset").to_pylist()) == list(
            range(expected)
        )


@pytest.mark.timeout(600)
def test_every_record_is_a_row_in_tables_in_sql_in_the_source_and_in_a_stream(
    spark: SparkSession, broker: BrokerProcess, registry: RegistryProcess, tmp_path: Path
) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        for topic in ("avro", "json", "protobuf"):
            admin.create_topic(topic, config={"retention.ms": "-1"})
    registry.call("PUT", "/config", {"compatibility": "NONE"})
    avro = [header(registry.register("avro-value", json.dumps(schema))) + body for schema, body in AVRO]
    protobuf_id = registry.register("protobuf-value", message_file(), schemaType="PROTOBUF")
    counts = {
        "avro": produce(broker.bootstrap, "avro", [*avro]),
        "json": produce(broker.bootstrap, "json", [*JSON]),
        "protobuf": produce(broker.bootstrap, "protobuf", [header(protobuf_id) + b"\0" + body for body in PROTOBUF]),
    }
    for topic, expected in counts.items():
        url = None if topic == "json" else registry.url
        check_loads(broker.bootstrap, topic, url, expected, tmp_path, spark)
        options = ValueOptions(topic, url, json_rules(nested=topic == "json"))
        with Topics(broker.bootstrap, options) as topics, DuckDbEngine(topics) as duckdb:
            assert count(duckdb, f"select * from {topic}") == expected
            if topic == "avro":
                assert count(SparkEngine(topics, spark), f"select * from {topic}") == expected
    assert read_table(spark, tmp_path / "iceberg", "avro").count() == counts["avro"]
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(counts), "includeHeaders": "true"}
    assert len(spark.read.format("barnabas").options(**source).load().collect()) == sum(counts.values())
    came: list[Any] = []
    stream = spark.readStream.format("barnabas").options(**source, startingOffsets="earliest").load()
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True)
    query = writer.foreachBatch(lambda batch, _: came.extend(batch.collect())).start()
    assert query.awaitTermination(PATIENCE_S)
    assert len(came) == sum(counts.values())


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_each_topic_has_a_table_of_its_own(broker: BrokerProcess, tmp_path: Path, table_format: str) -> None:
    names = ["visits", "Visits", "web.visits", "sqlite_master", "-", "0", "l" * 249]
    place: dict[str, Any] = {"warehouse": tmp_path, "table_format": table_format}
    with barnabas.Producer(broker.bootstrap) as producer:
        for name in (*names, "web-visits"):
            producer.send(name, json.dumps({"who": name}).encode()).result(60)
    for name in names:
        load(name, bootstrap=broker.bootstrap, format="json", **place)
    for name in names:
        (batch,) = scan_table(tmp_path, table_name_of_topic(name), table_format=table_format)
        assert [(row["topic"], row["who"]) for row in batch.to_pylist()] == [(name, name)]
    with pytest.raises(ConfigurationError, match=r"has records of 'web\.visits'"):
        load("web-visits", bootstrap=broker.bootstrap, format="json", **place)
    with pytest.raises(ConfigurationError, match="have the same default table"):
        load(["visits", "Visits"], bootstrap=broker.bootstrap, format="json", **place)
