"""Records with schemas, between our serialisers and those of confluent-kafka, by our registry; both ways, each kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.schema_registry.error import SchemaRegistryError as TheirError
from confluent_kafka.schema_registry.schema_registry_client import Schema as TheirSchema
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.registry_process import RegistryProcess

CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "web",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "number", "type": "int"},
        {"name": "referrer", "type": ["null", "string"], "default": None},
    ],
}
VALUE = {"page": "/jobs", "number": 7, "referrer": None}
JSON_CLICK = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Click",
    "type": "object",
    "properties": {"page": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["page"],
}


@pytest.fixture(scope="module")
def process(shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    folder: Path = tmp_path_factory.mktemp("registry")
    process = RegistryProcess(shared_broker.bootstrap, folder / "registry.log")
    yield process
    process.close()


@pytest.fixture
def ours(process: RegistryProcess) -> barnabas.SchemaRegistry:
    return barnabas.SchemaRegistry(process.url)


@pytest.fixture
def theirs(process: RegistryProcess) -> Any:
    return SchemaRegistryClient({"url": process.url})


def context(topic: str) -> Any:
    return SerializationContext(topic, MessageField.VALUE)


def message_types() -> tuple[Any, Any]:
    """Return a message class that has another file's message in it, and a class within it."""
    place = descriptor_pb2.FileDescriptorProto(name="web/place.proto", package="web", syntax="proto3")
    street = place.message_type.add(name="Place").field.add(name="street", number=1)
    street.type, street.label = street.TYPE_STRING, street.LABEL_OPTIONAL
    click = descriptor_pb2.FileDescriptorProto(name="web/click.proto", package="web", syntax="proto3")
    click.dependency.extend(["web/place.proto", "google/protobuf/timestamp.proto"])
    click.message_type.add(name="Other")
    message = click.message_type.add(name="Click")
    for number, (name, kind) in enumerate(
        (("page", ""), ("home", ".web.Place"), ("at", ".google.protobuf.Timestamp")), 1
    ):
        field = message.field.add(name=name, number=number, label=street.LABEL_OPTIONAL)
        field.type = field.TYPE_MESSAGE if kind else field.TYPE_STRING
        if kind:
            field.type_name = kind
    message.nested_type.add(name="Inner").field.add(name="x", number=1, label=1, type=street.TYPE_INT64)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(place.SerializeToString())
    pool.AddSerializedFile(click.SerializeToString())
    found = pool.FindMessageTypeByName("web.Click")
    return message_factory.GetMessageClass(found), message_factory.GetMessageClass(found.nested_types_by_name["Inner"])


CLICK_MESSAGE, INNER_MESSAGE = message_types()


def test_avro(ours: barnabas.SchemaRegistry, theirs: Any, topic: str) -> None:
    record = barnabas.AvroSerializer(ours, CLICK).serialize(VALUE, topic)
    assert their_avro.AvroSerializer(theirs, json.dumps(CLICK))(VALUE, context(topic)) == record
    assert their_avro.AvroDeserializer(theirs)(record, context(topic)) == VALUE
    assert barnabas.AvroDeserializer(ours).deserialize(record) == VALUE


@pytest.mark.parametrize("is_async", [False, True])
def test_columns_are_sent_as_avro_and_polled_as_columns(
    ours: barnabas.SchemaRegistry, theirs: Any, bootstrap: str, topic: str, is_async: bool
) -> None:
    rows = [{**VALUE, "number": number} for number in range(300)]
    table = pa.Table.from_pylist(rows).append_column("user", pa.array([b"key"] * 300))
    options: dict[str, Any] = {"key": "user", "value_schema": barnabas.AvroSerializer(ours, CLICK)}

    async def send() -> None:
        async with barnabas.AsyncProducer(bootstrap) as producer:
            await producer.send_arrow(topic, table, **options)

    if is_async:
        asyncio.run(send())
    else:
        with barnabas.Producer(bootstrap) as producer:
            producer.send_arrow(topic, table, **options).check()
    away = barnabas.AvroDeserializer(barnabas.SchemaRegistry(f"http://127.0.0.1:{free_port()}", timeout_s=0.1))
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        polled = poll_all(consumer, len(rows), away, barnabas.AvroDeserializer(ours))
    assert polled["value_fields"].to_pylist() == rows
    assert polled["value_error"].null_count == len(rows)
    assert their_avro.AvroDeserializer(theirs)(polled["value"][0].as_py(), context(topic)) == rows[0]


def poll_all(consumer: barnabas.Consumer, count: int, away: Any, schema: Any) -> pa.Table:
    """Return so many records, of which none is lost where the registry is away at first."""
    with pytest.raises(barnabas.TimedOutError, match="no schema registry responds"):
        consumer.poll_arrow(timeout_s=60, value_schema=away)
    batches = []
    while sum(batch.num_rows for batch in batches) < count:
        batches.append(consumer.poll_arrow(timeout_s=60, value_schema=schema))
        assert batches[-1].num_rows, "nothing came for a minute"
    return pa.Table.from_batches(batches)


def test_columns_of_bad_records_say_why(ours: barnabas.SchemaRegistry, bootstrap: str, topic: str) -> None:
    with barnabas.Producer(bootstrap) as producer:
        producer.send_many(topic, [b"?", b"no schema"], partition=0).check()

    async def poll() -> pa.RecordBatch:
        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            return await consumer.poll_arrow(timeout_s=60, value_schema=barnabas.AvroDeserializer(ours))

    batch = asyncio.run(poll())
    assert batch.column("value_fields").null_count == batch.num_rows == 2
    assert "was written without a schema id" in batch.column("value_error")[1].as_py()


def test_avro_with_another_reader_and_references(ours: barnabas.SchemaRegistry, topic: str) -> None:
    ours.register("web.Click", barnabas.Schema(json.dumps(CLICK)))
    outer = {"type": "record", "name": "Visit", "fields": [{"name": "click", "type": "web.Click"}]}
    reference = barnabas.SchemaReference("web.Click", "web.Click", 1)
    record = barnabas.AvroSerializer(ours, outer, references=(reference,)).serialize({"click": VALUE}, topic)
    reader = {
        "type": "record",
        "name": "Visit",
        "fields": [
            {
                "name": "click",
                "type": {
                    **CLICK,
                    "fields": [{"name": "number", "type": "long"}, {"name": "x", "type": "int", "default": 3}],
                },
            }
        ],
    }
    assert barnabas.AvroDeserializer(ours).deserialize(record) == {"click": VALUE}
    assert barnabas.AvroDeserializer(ours, reader).deserialize(record) == {"click": {"number": 7, "x": 3}}


def test_json(ours: barnabas.SchemaRegistry, theirs: Any, topic: str) -> None:
    value = {"page": "/jöbs", "number": 7}
    record = barnabas.JsonSerializer(ours, JSON_CLICK).serialize(value, topic)
    theirs_record = their_json.JSONSerializer(json.dumps(JSON_CLICK), theirs)(value, context(topic))
    assert theirs_record[:5] == record[:5]
    for each in (record, theirs_record):
        read = their_json.JSONDeserializer(json.dumps(JSON_CLICK), schema_registry_client=theirs)
        assert read(each, context(topic)) == value
        assert barnabas.JsonDeserializer(ours, validate=True).deserialize(each) == value
    with pytest.raises(barnabas.SerializationError, match="page"):
        barnabas.JsonSerializer(ours, JSON_CLICK).serialize({"number": 7}, topic)


@pytest.mark.parametrize("made", [CLICK_MESSAGE, INNER_MESSAGE])
def test_protobuf(ours: barnabas.SchemaRegistry, theirs: Any, topic: str, made: Any) -> None:
    message = made(page="/jobs", home={"street": "High"}, at={"seconds": 7}) if made is CLICK_MESSAGE else made(x=7)
    settings = {"use.deprecated.format": False}
    record = barnabas.ProtobufSerializer(ours, made).serialize(message, topic)
    assert their_protobuf.ProtobufSerializer(made, theirs, settings)(message, context(topic)) == record
    read = their_protobuf.ProtobufDeserializer(made, settings, schema_registry_client=theirs)
    assert read(record, context(topic)) == message
    assert barnabas.ProtobufDeserializer(ours, made).deserialize(record) == message
    by_registry = barnabas.ProtobufDeserializer(ours).deserialize(record)
    assert by_registry.SerializeToString() == message.SerializeToString()


def test_their_client_as_an_administrator(theirs: Any, topic: str) -> None:
    first = theirs.register_schema(topic, TheirSchema('"int"', "AVRO"))
    assert theirs.get_schema(first).schema_str == '"int"'
    assert theirs.lookup_schema(topic, TheirSchema('"int"', "AVRO")).version == 1
    assert topic in theirs.get_subjects()
    assert theirs.get_versions(topic) == [1]
    assert theirs.get_latest_version(topic).schema_id == first
    assert theirs.set_compatibility(topic, "FULL") == {"compatibility": "FULL"}
    assert theirs.get_compatibility(topic) == "FULL"
    assert not theirs.test_compatibility(topic, TheirSchema('"long"', "AVRO"))
    with pytest.raises(TheirError) as refused:
        theirs.register_schema(topic, TheirSchema('"long"', "AVRO"))
    assert refused.value.http_status_code == 409
    assert theirs.delete_version(topic, 1) == 1
    with pytest.raises(TheirError) as gone:
        theirs.get_versions(topic)
    assert gone.value.error_code == 40401


def test_a_producer_and_a_consumer(ours: barnabas.SchemaRegistry, bootstrap: str, topic: str) -> None:
    with barnabas.Producer(bootstrap, value_serializer=barnabas.AvroSerializer(ours, CLICK)) as producer:
        producer.send(topic, VALUE).result()
        producer.send(topic, None).result()
        with pytest.raises(barnabas.SerializationError, match=r"web\.Click"):
            producer.send(topic, {"page": 7})
    with barnabas.Consumer(
        bootstrap, auto_offset_reset="earliest", value_deserializer=barnabas.AvroDeserializer(ours)
    ) as consumer:
        consumer.subscribe(topic)
        values = [record.value for _, record in zip(range(2), consumer, strict=False)]
    assert values == [VALUE, None]
    assert ours.latest(f"{topic}-value")[1].kind == "AVRO"


def test_what_does_not_fit_the_subject_is_not_sent(ours: barnabas.SchemaRegistry, topic: str) -> None:
    barnabas.AvroSerializer(ours, CLICK).serialize(VALUE, topic)
    other = {**CLICK, "fields": [{"name": "page", "type": "int"}]}
    with pytest.raises(barnabas.SchemaRegistryError, match="incompatible") as refused:
        barnabas.AvroSerializer(ours, other).serialize({"page": 7}, topic)
    assert refused.value.code == 409
    with pytest.raises(barnabas.SchemaRegistryError) as unknown:
        barnabas.AvroSerializer(ours, CLICK, auto_register=False).serialize(VALUE, f"{topic}-unknown")
    assert unknown.value.code == 40401
    latest = barnabas.AvroSerializer(ours, other, use_latest=True).serialize(VALUE, topic)
    assert barnabas.AvroDeserializer(ours).deserialize(latest) == VALUE
