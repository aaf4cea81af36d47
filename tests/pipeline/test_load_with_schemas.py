"""Loads of records with schemas: Avro and Protobuf by a registry, tables that grow and columns that are renamed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import barnabas
from barnabas.serialization import wire_format
from barnabas.serialization.protobuf import message_class
from barnabas.spark import load, open_table, read_table
from barnabas.spark.load_types import TableLoad
from barnabas.spark.warehouse import Warehouse
from tests.conftest import BrokerProcess
from tests.registry_process import RegistryProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

MOMENT = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)
CLICK: dict[str, Any] = {
    "type": "record",
    "name": "web.Click",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "page", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "BUY"]}},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]}],
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "code", "type": ["null", "long", "string"]},
    ],
}
RENAMED: dict[str, Any] = {
    **CLICK,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "url", "aliases": ["page"], "type": "string"},
        *CLICK["fields"][2:],
        {"name": "user", "type": ["null", "string"], "default": None},
    ],
}
FIRST: dict[str, Any] = {
    "id": 1,
    "page": "/jobs",
    "at": MOMENT,
    "price": Decimal("19.99"),
    "kind": "BUY",
    "place": {"x": 0.5},
    "tags": ["a", "b"],
    "counts": {"y": 2, "x": 1},
    "code": "c-7",
}


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.close()


@pytest.fixture(scope="module")
def registry(shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    process = RegistryProcess(shared_broker.bootstrap, tmp_path_factory.mktemp("registry") / "registry.log")
    yield process
    process.close()


def avro(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return wire_format.header(schema_id) + out.getvalue()


def send(bootstrap: str, topic: str, values: Sequence[bytes | None]) -> None:
    with barnabas.Producer(bootstrap) as producer:
        producer.send_many(topic, values, partition=0).result(60)


def rows_of(folder: Path, topic: str) -> pa.Table:
    return open_table(folder, topic).scan().to_arrow().sort_by("offset").combine_chunks()


def restored(folder: Path, topic: str, registry: str) -> list[bytes | None]:
    """Return the values as the table gives them back."""
    shape = Warehouse.open(folder).begin(topic).shape()
    assert shape is not None
    decoder = shape.decoder(registry)
    assert decoder is not None
    rows = rows_of(folder, topic)
    columns = {field: rows[column].combine_chunks() for field, column in shape.columns.items()}
    values = decoder.restore(rows["value"].combine_chunks(), rows["value_form"].combine_chunks(), columns)
    return list(values.to_pylist())


def test_avro_is_loaded_grows_and_keeps_its_columns_under_new_names(
    spark: SparkSession, shared_broker: BrokerProcess, registry: RegistryProcess, tmp_path: Path
) -> None:
    topic, bootstrap = "avro-clicks", shared_broker.bootstrap

    def load_it(**more: Any) -> TableLoad:
        result = load(
            topic, bootstrap=bootstrap, warehouse=tmp_path, spark=spark, format="avro", registry=registry.url, **more
        )
        return result.tables[0]

    old = registry.register(f"{topic}-value", CLICK)
    good = avro(old, CLICK, FIRST)
    unknown, no_id = b"\0\x7f\0\0\0" + good[5:], b"\x01"
    sent: list[bytes | None] = [good, None, good[:-1], good + b"?", unknown, no_id]
    send(bootstrap, topic, sent)
    first = load_it(event_time="at", dead_letter="avro-dead")
    assert (first.records, first.kept_values, first.dead_letters) == (6, 4, 4)
    assert set(first.bad.reasons) == {
        "a length is more than what is left of the record",
        "bytes are left over behind the record",
        f"schema {0x7F000000} is not known to the registry",
        "1 bytes are too few for a record with a schema id, which has 5 before it",
    }
    rows = rows_of(tmp_path, "avro_clicks").to_pylist()
    assert rows[0] == rows[0] | FIRST | {
        "event_time": MOMENT,
        "counts": [("y", 2), ("x", 1)],
        "code": {"long": None, "string": "c-7"},
        "value": None,
        "value_form": f"avro:{old}",
    }
    assert [row["value"] for row in rows] == [None, None, *sent[2:]]
    page_id = open_table(tmp_path, "avro_clicks").schema().find_field("page").field_id

    new = registry.register(f"{topic}-value", RENAMED)
    second_value = {**FIRST, "id": 2**40, "url": "/about", "user": "ann"}
    later = [avro(new, RENAMED, second_value), avro(old, CLICK, {**FIRST, "id": 3, "page": "/old"})]
    send(bootstrap, topic, later)
    second = load_it()
    assert second.new_fields == {"id": "long", "url": "string", "user": "string"}
    assert (second.bad.count, second.kept_values) == (0, 0)
    assert open_table(tmp_path, "avro_clicks").schema().find_field("url").field_id == page_id
    rows = rows_of(tmp_path, "avro_clicks").to_pylist()
    assert [(row["id"], row["url"], row["user"]) for row in (rows[0], *rows[6:])] == [
        (1, "/jobs", None),
        (2**40, "/about", "ann"),
        (3, "/old", None),
    ]
    assert restored(tmp_path, "avro_clicks", registry.url) == [*sent, *later]
    by_spark = read_table(spark, tmp_path, "avro_clicks").where("id is not null")
    by_spark = by_spark.selectExpr("url", "place.x", "counts['y']")
    assert {tuple(row) for row in by_spark.collect()} == {("/jobs", 0.5, 2), ("/about", 0.5, 2), ("/old", 0.5, 2)}


def person_file(*more: descriptor_pb2.FieldDescriptorProto) -> Any:
    """Return the class of a message, made of a file."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="person.proto", package="web", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Person")
    message.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="age", number=2, type=kinds.TYPE_UINT32, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="born",
        number=3,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=kinds.LABEL_OPTIONAL,
    )
    message.field.add(name="nicknames", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    message.field.extend(more)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(
        __import__("google.protobuf.timestamp_pb2", fromlist=["DESCRIPTOR"]).DESCRIPTOR.serialized_pb
    )
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("web.Person"))


def test_protobuf_is_loaded_and_grows(
    spark: SparkSession, shared_broker: BrokerProcess, registry: RegistryProcess, tmp_path: Path
) -> None:
    topic, bootstrap = "protobuf-people", shared_broker.bootstrap
    client = barnabas.SchemaRegistry(registry.url)

    def load_it() -> TableLoad:
        return load(
            topic, bootstrap=bootstrap, warehouse=tmp_path, spark=spark, format="protobuf", registry=registry.url
        ).tables[0]

    person = person_file()
    ann = person(name="Ann", age=7, nicknames=["a", "b"])
    ann.born.FromJsonString("2015-05-17T10:05:03Z")
    write = barnabas.ProtobufSerializer(client, person).serialize
    sent: list[bytes | None] = [write(ann, topic), write(person(), topic), None]
    sent.append(write(person(), topic) + b"\xff")
    send(bootstrap, topic, sent)
    first = load_it()
    assert (first.records, first.bad.reasons) == (4, {"no message of type web.Person": 1})
    kinds = descriptor_pb2.FieldDescriptorProto
    taller = person_file(kinds(name="height", number=5, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL))
    later = [barnabas.ProtobufSerializer(client, taller).serialize(taller(name="Bo", height=1.8), topic)]
    send(bootstrap, topic, later)
    assert load_it().new_fields == {"height": "double"}
    rows = rows_of(tmp_path, "protobuf_people").select(["name", "age", "born", "nicknames", "height"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("Ann", 7, MOMENT, ["a", "b"], None),
        ("", 0, None, [], None),
        (None, None, None, None, None),
        (None, None, None, None, None),
        ("Bo", 0, None, [], 1.8),
    ]
    assert restored(tmp_path, "protobuf_people", registry.url) == [*sent, *later]
    assert message_class(client, wire_format.schema_id(later[0]), (0,)).DESCRIPTOR.name == "Person"
