"""The kafka-python client in pure Python. The client has `linger_ms=5` and batches larger than the default of 16 KB."""

# mypy: disable-error-code="import-untyped,import-not-found"

from __future__ import annotations

import itertools
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.clients.request import Request, new_meter, parse_request, print_report, require_progress

STRETCH_RECORDS = 500
FLUSH_LIMIT_S = 120


def produce(request: Request) -> None:
    """Send one record per call. Wait for all deliveries."""
    acks: Any = request.acks if request.acks == "all" else int(request.acks)
    producer = KafkaProducer(
        bootstrap_servers=request.bootstrap, acks=acks, enable_idempotence=False, linger_ms=5, batch_size=131_072
    )
    producer.partitions_for(request.topic)
    endless = itertools.cycle(request.values())
    meter = new_meter()
    meter.begin()
    for begin in range(0, request.records, STRETCH_RECORDS):
        count = min(STRETCH_RECORDS, request.records - begin)
        for value in itertools.islice(endless, count):
            producer.send(request.topic, value)
        meter.add(count, count * request.size)
    producer.flush(FLUSH_LIMIT_S)
    print_report(meter.end())


def consume(request: Request) -> None:
    """Read with `poll`. The clock starts at the first records."""
    settings = {"max_partition_fetch_bytes": request.fetch_bytes} if request.fetch_bytes else {}
    consumer = KafkaConsumer(
        bootstrap_servers=request.bootstrap, enable_auto_commit=False, max_poll_records=10_000, **settings
    )
    partitions = [TopicPartition(request.topic, number) for number in range(request.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    meter = new_meter()
    meter.begin()
    got, begun, last_s = 0, False, time.monotonic()
    while got < request.records:
        count = sum(map(len, consumer.poll(timeout_ms=100).values()))
        if count:
            last_s = time.monotonic()
        require_progress(count, time.monotonic() - last_s)
        got += count
        if begun:
            meter.add(count, count * request.size)
        elif count:
            meter.begin()
            begun = True
    print_report(meter.end())


def main() -> None:
    """Run the command line."""
    request = parse_request()
    {"produce": produce, "consume": consume}[request.action](request)


if __name__ == "__main__":
    main()
