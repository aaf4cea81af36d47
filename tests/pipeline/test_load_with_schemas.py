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
from barnabas.spark import load, open_table, read_table, scan_table
from barnabas.spark.iceberg_maintenance import IcebergMaintainer
from barnabas.spark.load_types import TableLoad
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_shape import TableShape
from barnabas.spark.warehouse import Warehouse
from tests.support.broker_process import BrokerProcess
from tests.support.registry_process import RegistryProcess

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
    return restored_rows(Warehouse.open(folder).begin(topic).shape(), rows_of(folder, topic), registry)


def restored_rows(shape: TableShape | None, rows: pa.Table, registry: str) -> list[bytes | None]:
    assert shape is not None
    decoder = shape.decoder(registry)
    assert decoder is not None
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
        "a length exceeds the rest of the record",
        "the record has bytes after its last field",
        f"schema {0x7F000000} is not known to the registry",
        "a record of 1 bytes is too short for a schema id: its header takes 5 bytes",
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


def placed(name: str, *, x: str, tags: str, k: str, y: str, is_new: bool) -> dict[str, Any]:
    """Return a schema with fields of these names in a record, in a list of records, and in a map of records."""
    before = {"x": "x", "tags": "tags", "k": "k", "y": "y"} if is_new else {}

    def named(old: str, new: str, kind: Any) -> dict[str, Any]:
        told = {"aliases": [before[old]]} if old in before and before[old] != new else {}
        return {"name": new, "type": kind} | told

    tag = {"type": "record", "name": "Tag", "fields": [named("k", k, "string")]}
    fields = [named("x", x, "double"), named("tags", tags, {"type": "array", "items": tag})]
    corner = {"type": "record", "name": "Corner", "fields": [named("y", y, "int")]}
    place = {"type": "record", "name": "Place", "fields": fields}
    return {
        "type": "record",
        "name": "web.Visit",
        "fields": [
            {"name": name, "type": ["null", place]} | ({"aliases": ["place"]} if name != "place" else {}),
            {"name": "corners", "type": {"type": "map", "values": corner}},
        ],
    }


BEFORE = placed("place", x="x", tags="tags", k="k", y="y", is_new=False)
AFTER = placed("spot", x="longitude", tags="labels", k="key", y="height", is_new=True)
VISIT: dict[str, Any] = {"place": {"x": 1.5, "tags": [{"k": "a"}, {"k": "b"}]}, "corners": {"n": {"y": 7}}}
LATER: dict[str, Any] = {"spot": {"longitude": 2.5, "labels": [{"key": "c"}]}, "corners": {"n": {"height": 8}}}
PATHS = {
    "place": "spot",
    "place.x": "spot.longitude",
    "place.tags": "spot.labels",
    "place.tags.element.k": "spot.labels.element.key",
    "corners.value.y": "corners.value.height",
}


@pytest.mark.parametrize("order", ["old first", "new first", "at once"])
def test_fields_within_structs_keep_their_columns_under_new_names(
    order: str, spark: SparkSession, shared_broker: BrokerProcess, registry: RegistryProcess, tmp_path: Path
) -> None:
    topic = f"avro-visits-{order.replace(' ', '-')}"
    table = topic.replace("-", "_")
    old, new = (registry.register(f"{topic}-value", schema) for schema in (BEFORE, AFTER))
    visit, empty, later = avro(old, BEFORE, VISIT), avro(old, BEFORE, {**VISIT, "place": None}), avro(new, AFTER, LATER)
    sends = {"old first": [[visit, empty], [later, visit]], "new first": [[later], [visit, empty]]}
    loaded, results = [], []
    for values in sends.get(order, [[visit, later, empty]]):
        send(shared_broker.bootstrap, topic, values)
        place: dict[str, Any] = {"bootstrap": shared_broker.bootstrap, "warehouse": tmp_path, "spark": spark}
        results.append(load(topic, format="avro", registry=registry.url, **place).tables[0])
        loaded += values
    assert [(result.bad.count, result.kept_values, dict(result.not_renamed)) for result in results] == [
        (0, 0, {}) for _ in results
    ]
    now = open_table(tmp_path, table)
    rows = {visit: (1.5, ["a", "b"], 7), later: (2.5, ["c"], 8), empty: (None, None, 7)}
    frame = read_table(spark, tmp_path, table).orderBy("offset")
    frame = frame.selectExpr("spot.longitude", "spot.labels.key", "corners['n'].height")
    assert [tuple(row) for row in frame.collect()] == [rows[value] for value in loaded]
    assert restored(tmp_path, table, registry.url) == loaded
    if order == "old first":
        snapshot = now.snapshot_by_id(results[0].snapshot_id or 0)
        assert snapshot is not None
        before = now.schemas()[snapshot.schema_id or 0]
        ids = {path: before.find_field(path).field_id for path in PATHS}
        assert {path: now.schema().find_field(after).field_id for path, after in PATHS.items()} == ids
        then = now.scan(snapshot_id=snapshot.snapshot_id).to_arrow().sort_by("offset").to_pylist()
        assert [(row["place"], row["corners"]) for row in then] == [
            (VISIT["place"], [("n", {"y": 7})]),
            (None, [("n", {"y": 7})]),
        ]
        assert IcebergMaintainer(Warehouse.open(tmp_path), table).compact() == (2, 1)
        assert restored(tmp_path, table, registry.url) == loaded


def test_a_delta_table_gets_renamed_fields_as_new_ones_and_says_so(
    spark: SparkSession, shared_broker: BrokerProcess, registry: RegistryProcess, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    topic, loaded = "avro-visits-delta", []
    place: dict[str, Any] = {"bootstrap": shared_broker.bootstrap, "warehouse": tmp_path, "spark": spark}
    after = placed("place", x="longitude", tags="tags", k="key", y="y", is_new=True)
    later = {"place": {"longitude": 2.5, "tags": [{"key": "c"}]}, "corners": {"n": {"y": 8}}}
    old, new = (registry.register(f"{topic}-value", schema) for schema in (BEFORE, after))
    for value in (avro(old, BEFORE, VISIT), avro(new, after, later)):
        send(shared_broker.bootstrap, topic, [value])
        loaded.append(value)
        done = load(topic, format="avro", registry=registry.url, table_format="delta", **place).tables[0]
    assert (done.kept_values, done.not_renamed) == (
        0,
        {"place.x": "place.longitude", "place.tags.k": "place.tags.key"},
    )
    batches = scan_table(tmp_path, "avro_visits_delta", table_format="delta")
    rows = pa.Table.from_batches(batches).sort_by("offset").combine_chunks()
    assert rows["place"].to_pylist() == [
        {"x": 1.5, "longitude": None, "tags": [{"k": "a", "key": None}, {"k": "b", "key": None}]},
        {"x": None, "longitude": 2.5, "tags": [{"k": None, "key": "c"}]},
    ]
    shape = open_place(TablePlace.of(tmp_path, table_format="delta")).begin("avro_visits_delta").shape()
    assert restored_rows(shape, rows, registry.url) == loaded


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
    assert (first.records, first.bad.reasons) == (4, {"invalid message of type web.Person": 1})
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
