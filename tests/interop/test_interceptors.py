"""Interceptors in all four clients against a real broker: headers, commits, order at the end, exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import barnabas
from barnabas import ConsumerInterceptor, OffsetAndMetadata, ProducerInterceptor, ProducerRecord, Record, TopicPartition
from tests.support.broker_process import BrokerProcess

TOPIC = "traced"
TRACE = ("traceparent", b"00-1-2-01")
COUNT = 8
"""Records that `produce` and `produce_async` send."""


class Tracing(ProducerInterceptor):
    """Adds a header to each record, as a tracer does, and notes the outcomes."""

    def __init__(self) -> None:
        self.delivered: list[tuple[int, int]] = []
        self.life: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record.with_headers(TRACE)

    def on_delivery(self, record: Record, error: barnabas.BarnabasError | None) -> None:
        assert error is None
        assert record.headers == (TRACE,)
        self.delivered.append((record.partition, record.offset))

    def flush(self, timeout_s: float | None) -> None:
        self.life.append(f"flush after {len(self.delivered)}")

    async def close(self, timeout_s: float | None) -> None:
        self.life.append(f"close after {len(self.delivered)}")


class Reading(ConsumerInterceptor):
    """Reads the header of each record, as a tracer does, and notes the commits."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.committed: dict[TopicPartition, int] = {}
        self.life: list[str] = []

    def on_records(self, records: Sequence[Record]) -> None:
        assert {record.headers for record in records} == {(TRACE,)}
        self.read += [(record.partition, record.offset) for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.update({where: each.offset for where, each in offsets.items()})

    async def close(self, timeout_s: float | None) -> None:
        self.life.append(f"close after commit of {sum(self.committed.values())}")


PRODUCER_HOOKS = ["start", "on_send", "on_send_batch", "on_delivery", "on_delivery_batch", "flush", "close"]
CONSUMER_HOOKS = [
    "start", "on_records", "on_records_batch", "on_reposition", "before_commit", "on_commit", "close"
]  # fmt: skip


def failing(base: Any, hook: str) -> Any:
    """Return an interceptor whose hook raises."""

    def fail(*_arguments: object) -> None:
        raise RuntimeError(f"planted in {hook}")

    return type(f"Failing_{hook}", (base,), {hook: fail})()


SETTINGS: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
ROWS = pa.table({"value": [b"f", b"g", b"h"]})


def produce(bootstrap: str, interceptors: list[ProducerInterceptor]) -> None:
    with barnabas.Producer(bootstrap, interceptors=interceptors) as producer:
        producer.send(TOPIC, b"a")
        producer.send(TOPIC, b"b", key=b"k", partition=1)
        producer.send_many(TOPIC, [b"c", b"d", b"e"])
        producer.send_arrow(TOPIC, ROWS)
        producer.flush()


async def produce_async(bootstrap: str, interceptors: list[ProducerInterceptor]) -> None:
    async with barnabas.AsyncProducer(bootstrap, interceptors=interceptors) as producer:
        await producer.send(TOPIC, b"a")
        await producer.send(TOPIC, b"b", key=b"k", partition=1)
        await producer.send_many(TOPIC, [b"c", b"d", b"e"])
        await producer.send_arrow(TOPIC, ROWS)
        await producer.flush()


def consume(bootstrap: str, group: str, interceptors: list[ConsumerInterceptor]) -> list[bytes]:
    values: list[bytes] = []
    with barnabas.Consumer(bootstrap, **SETTINGS, group=group, interceptors=interceptors) as consumer:
        consumer.subscribe(TOPIC)
        while len(values) < 3:
            values += [record.value or b"" for record in consumer.poll(timeout_s=10, max_records=3 - len(values))]
        while len(values) < COUNT:
            values += consumer.poll_arrow(timeout_s=10)["value"].to_pylist()
        consumer.commit()
        consumer.seek((TOPIC, 0), 0)
    return sorted(values)


async def consume_async(bootstrap: str, group: str, interceptors: list[ConsumerInterceptor]) -> list[bytes]:
    values: list[bytes] = []
    async with barnabas.AsyncConsumer(bootstrap, **SETTINGS, group=group, interceptors=interceptors) as consumer:
        consumer.subscribe(TOPIC)
        async for record in consumer:
            values.append(record.value or b"")
            if len(values) == 3:
                break
        while len(values) < COUNT:
            values += (await consumer.poll_arrow(timeout_s=10))["value"].to_pylist()
        await consumer.commit()
        consumer.seek((TOPIC, 0), 0)
    return sorted(values)


VALUES = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2)
    return broker.bootstrap


def test_headers_that_one_interceptor_adds_another_reads_in_all_clients(bootstrap: str) -> None:
    tracing, tracing_async, reading, reading_async = Tracing(), Tracing(), Reading(), Reading()
    produce(bootstrap, [tracing])
    assert consume(bootstrap, "blocking", [reading]) == VALUES
    assert asyncio.run(consume_async(bootstrap, "async", [reading_async])) == VALUES
    for each in (reading, reading_async):
        assert set(each.read) == set(tracing.delivered)
        assert sum(each.committed.values()) == COUNT
        assert each.life == [f"close after commit of {COUNT}"]
    asyncio.run(produce_async(bootstrap, [tracing_async]))
    assert not set(tracing_async.delivered) & set(tracing.delivered)
    for made in (tracing, tracing_async):
        assert len(set(made.delivered)) == COUNT
        assert (made.life[0], made.life[-1]) == (f"flush after {COUNT}", f"close after {COUNT}")


def test_exceptions_of_all_hooks_change_nothing_in_any_client(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    producers = [failing(ProducerInterceptor, hook) for hook in PRODUCER_HOOKS]
    produce(bootstrap, producers)
    asyncio.run(produce_async(bootstrap, [failing(ProducerInterceptor, hook) for hook in PRODUCER_HOOKS]))
    logged = [line.getMessage().split("planted in ")[1].split("'")[0] for line in caplog.records]
    assert sorted(logged) == sorted(PRODUCER_HOOKS * 2)
    caplog.clear()
    for group in ("blocking", "async"):
        consumers = [failing(ConsumerInterceptor, hook) for hook in CONSUMER_HOOKS]
        read = consume if group == "blocking" else lambda *given: asyncio.run(consume_async(*given))
        assert len(read(bootstrap, group, consumers)) >= COUNT
    logged = [line.getMessage().split("planted in ")[1].split("'")[0] for line in caplog.records]
    assert sorted(logged) == sorted(CONSUMER_HOOKS * 2)
