"""Encodes Produce requests."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.clock import SYSTEM_CLOCK
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from bench.stalls.connection import frame
from bench.stalls.stage import TOPIC

VERSION = 9
TIMEOUT_MS = 30_000


def produce_request(parts: Sequence[tuple[int, bytes | bytearray | memoryview]], topic: str = TOPIC) -> bytes:
    """Return a Produce request with batches for partitions of a topic, acks=1."""
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return frame(ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=topics), VERSION)


def batch_of(size: int, value: bytes, timestamp_ms: int | None = None) -> bytes:
    """Return an uncompressed batch with as many records of this value as fit into a size, at least one."""
    timestamp_ms = SYSTEM_CLOCK.time_ms() if timestamp_ms is None else timestamp_ms
    one = BatchBuilder()
    one.append_many(timestamp_ms, [value, value])
    single = BatchBuilder()
    single.append(timestamp_ms, None, value)
    # the offset deltas of later records take up to 3 more bytes
    record_bytes = len(one.build()) - len(single.build()) + 3
    builder = BatchBuilder()
    builder.append_many(timestamp_ms, [value] * max(1, (size - len(single.build())) // record_bytes))
    return bytes(builder.build())
