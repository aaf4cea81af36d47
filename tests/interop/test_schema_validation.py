"""A topic that takes values with schemas only: what fits is appended in order, all else is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError as TheirError
from confluent_kafka import Message
from confluent_kafka import Producer as TheirProducer

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.registry_process import RegistryProcess

VALIDATED = {"barnabas.value.schema.validation": "true"}


@pytest.fixture
def process(bootstrap: str, tmp_path: Path) -> Iterator[RegistryProcess]:
    process = RegistryProcess(bootstrap, tmp_path / "registry.log")
    yield process
    process.close()


def refusal(producer: barnabas.Producer, value: bytes) -> str:
    with pytest.raises(barnabas.ApiError) as refused:
        producer.send("clicks", value).result()
    assert refused.value.code is barnabas.ErrorCode.INVALID_RECORD
    return str(refused.value)


def test_only_values_with_a_schema_of_the_topic_are_taken(
    make_broker: Callable[..., BrokerProcess], process: RegistryProcess
) -> None:
    broker = make_broker(schema_registry_url=process.url)
    registry = barnabas.SchemaRegistry(process.url)
    other = registry.register("views-value", barnabas.Schema('"long"'))
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", config=VALIDATED)
    serializer = barnabas.AvroSerializer(registry, '"string"')
    with barnabas.Producer(broker.bootstrap, compression_type="gzip") as producer:
        good = [serializer.serialize(f"/{number}", "clicks") for number in range(20)]
        assert [delivery.result().offset for delivery in [producer.send("clicks", each) for each in good]] == [
            *range(20)
        ]
        assert producer.send("clicks", None, key=b"deleted").result().offset == 20
        assert "without a schema" in refusal(producer, b"no schema")
        assert f"schema {other} is not a version" in refusal(producer, b"\0" + other.to_bytes(4, "big") + b"x")
        assert "schema 99 is not a version" in refusal(producer, b"\0\0\0\0\x63x")
        assert producer.send("clicks", good[0]).result().offset == 21
    told: list[TheirError] = []

    def note(error: TheirError | None, _message: Message) -> None:
        assert error is not None
        told.append(error)

    theirs = TheirProducer({"bootstrap.servers": broker.bootstrap})
    theirs.produce("clicks", b"no schema", on_delivery=note)
    assert theirs.flush(60) == 0
    assert [error.code() for error in told] == [TheirError.INVALID_RECORD]


def test_without_a_registry_nothing_is_taken_and_producers_try_again(
    make_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = make_broker(schema_registry_url=f"http://127.0.0.1:{free_port()}")
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, config=VALIDATED)
        admin.create_topic(f"{topic}-any")
    with barnabas.Producer(broker.bootstrap, delivery_timeout_ms=8_000, request_timeout_ms=7_000) as producer:
        waiting = producer.send(topic, b"\0\0\0\0\1x")
        # Nobody else waits for the registry.
        assert producer.send(f"{topic}-any", b"any").result().offset == 0
        with pytest.raises(barnabas.TimedOutError):
            waiting.result()
