"""A producer with a transactional id is told at once, by whatever client, that there are no transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from tests.support.broker_process import BrokerProcess

PATIENCE_S = 1_000.0
"""How long a client would try on its own: longer than a test may take."""


def with_confluent_kafka(servers: str) -> str:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(PATIENCE_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert not error.retriable()
    return str(error.str())


def with_kafka_python(servers: str) -> str:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, transactional_id="t", max_block_ms=int(PATIENCE_S * 1000), acks="all"
    )
    try:
        with pytest.raises(kafka.errors.KafkaError) as caught:
            producer.init_transactions()
    finally:
        producer.close(timeout=0)
    return str(caught.value)


def with_aiokafka(servers: str) -> str:
    async def start() -> str:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t")
        try:
            with pytest.raises(aiokafka.errors.KafkaError) as caught:
                await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.stop()
        return type(caught.value).__name__

    return asyncio.run(start())


@pytest.mark.parametrize("start", [with_confluent_kafka, with_kafka_python, with_aiokafka])
def test_a_transactional_producer_ends_at_once(broker: BrokerProcess, start: Callable[[str], str]) -> None:
    told = start(f"127.0.0.1:{broker.port}")
    # librdkafka shows the broker's words; of the others kafka-python shows the name of the error alone.
    expected = {
        with_confluent_kafka: "this broker does not support transactions; no permission is missing",
        with_kafka_python: "UnsupportedVersion",
        with_aiokafka: "TransactionalIdAuthorizationFailed",
    }
    assert expected[start] in told
