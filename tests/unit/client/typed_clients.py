"""Read by type checkers, never run: keys and values have the types that serializers give them. See test_types.py."""

from __future__ import annotations

import json
from datetime import datetime

import barnabas


def use(*_values: object) -> None:
    """Take values, so that they are used."""


def dumps(value: object) -> bytes:
    return json.dumps(value).encode()


def without_serializers(producer: barnabas.Producer, consumer: barnabas.Consumer) -> None:
    producer.send("t", b"value", b"key", partition=1)
    producer.send("t", memoryview(b"value"), key=bytearray(b"key"))
    producer.send("t", None, key=b"deleted")
    producer.send_many("t", [b"a", None], keys=[b"k", None])
    producer.send("t", "text")  # WRONG
    producer.send("t", b"value", key="key")  # WRONG
    producer.send_many("t", ["text"])  # WRONG
    producer.send("t", b"value", on_delivery=lambda delivery: delivery.result().offset)
    producer.send("t", b"value", on_delivery=5)  # WRONG
    for record in consumer:
        value: bytes | None = record.value
        time: datetime | None = record.timestamp
        text: str | None = record.value  # WRONG
        use(value, time, text, record.offset + 1, record._asdict(), record._replace(offset=1).offset)
    consumer.poll(1.0)  # WRONG
    consumer.poll_arrow(1000)  # WRONG
    consumer.close(timeout_s=1)
    consumer.close(1)  # WRONG


def made_without_serializers() -> None:
    made = barnabas.Producer("localhost")
    made.send("t", "text")  # WRONG
    wanted: barnabas.Producer[str, str] = barnabas.Producer("localhost")  # WRONG
    use(wanted)


def with_serializers() -> None:
    texts = barnabas.Producer("localhost", value_serializer=str.encode)
    texts.send("t", "text", b"key")
    texts.send("t", b"bytes")  # WRONG
    texts.send("t", "text", "key")  # WRONG
    both = barnabas.Producer("localhost", key_serializer=str.encode, value_serializer=dumps, linger_ms=5)
    both.send("t", {"a": 1}, "key")
    both.send("t", {"a": 1}, b"key")  # WRONG
    declared(both)
    lambdas = barnabas.Producer("localhost", value_serializer=lambda value: json.dumps(value).encode())
    lambdas.send("t", {"any": "thing"}, b"key")
    by_schema = barnabas.Producer("localhost", value_serializer=barnabas.AvroSerializer(schemas(), "{}"))
    by_schema.send("t", {"any": "thing"})
    barnabas.Producer("localhost", value_serializer="utf-8")  # WRONG


def declared(producer: barnabas.Producer[str, dict[str, int]]) -> None:
    producer.send("t", {"a": 1}, "key")
    producer.send("t", {"a": "b"}, "key")  # WRONG


def with_deserializers() -> None:
    texts = barnabas.Consumer("localhost", group="g", key_deserializer=bytes.decode, value_deserializer=int)
    for record in texts.poll(max_records=10):
        key: str | None = record.key
        number: int | None = record.value
        wrong: bytes | None = record.value  # WRONG
        use(key, number, wrong)
    [stream] = texts.create_message_streams({"t": 1})["t"]
    for record in stream:
        use((record.key or "").upper())
    objects = barnabas.Consumer("localhost", value_deserializer=json.loads)
    use([record.value["name"] for record in objects if record.value])


def offsets(consumer: barnabas.Consumer) -> None:
    one = consumer.committed(("t", 0))
    use(one.offset)  # WRONG
    use(one and one.offset)
    several = consumer.committed([("t", 0), barnabas.TopicPartition("t", 1)])
    use([each and each.offset for each in several.values()])


async def on_a_loop() -> None:
    async with barnabas.AsyncProducer("localhost", key_serializer=str.encode) as producer:
        metadata = await (await producer.send("t", b"value", "key"))
        use(metadata.offset)
        await producer.send("t", "text")  # WRONG
    async with barnabas.AsyncConsumer("localhost", value_deserializer=bytes.decode) as consumer:
        async for record in consumer:
            use((record.value or "").upper(), record.key or b"")
        async for records in consumer.batches():
            use([record.value.upper() for record in records if record.value])
        await consumer.poll(500)  # WRONG
    async with barnabas.AsyncAdmin("localhost") as admin:
        use([node.host for node in await admin.brokers()])


def schemas() -> barnabas.SchemaRegistry:
    return barnabas.SchemaRegistry("http://localhost:8081")


def errors() -> None:
    try:
        barnabas.Admin("localhost").create_topic("t")
    except barnabas.ApiError as refused:
        use(refused.code.name, refused.retriable)
    except ConnectionError as lost:
        use(lost)


def records(plain: barnabas.Record, typed: barnabas.Record[str, int]) -> None:
    topic, partition, offset, *_ = plain
    use(topic, partition, offset, len(typed), hash(plain), plain == plain._replace(key=None), plain._fields)
    use((typed.value or 0) + 1, [header.name.upper() for header in plain.headers])
