"""The aiokafka client: asyncio, partly in Cython. The client has `linger_ms=5` and batches larger than the default of
16 KB."""

# mypy: disable-error-code="import-untyped,import-not-found"

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.clients.request import Request, new_meter, parse_request, print_report, require_progress

STRETCH_RECORDS = 500


async def produce(request: Request) -> None:
    """Await `send` for each record. It waits for space in a batch, but not for the broker. Then wait for all
    deliveries.
    """
    acks: Any = request.acks if request.acks == "all" else int(request.acks)
    producer = AIOKafkaProducer(bootstrap_servers=request.bootstrap, acks=acks, linger_ms=5, max_batch_size=131_072)
    await producer.start()
    endless = itertools.cycle(request.values())
    await producer.partitions_for(request.topic)
    meter = new_meter()
    meter.begin()
    for begin in range(0, request.records, STRETCH_RECORDS):
        count = min(STRETCH_RECORDS, request.records - begin)
        for value in itertools.islice(endless, count):
            await producer.send(request.topic, value)
        meter.add(count, count * request.size)
    await producer.flush()
    print_report(meter.end())
    await producer.stop()


async def consume(request: Request) -> None:
    """Read with `getmany`. The clock starts at the first records."""
    settings = {"max_partition_fetch_bytes": request.fetch_bytes} if request.fetch_bytes else {}
    consumer = AIOKafkaConsumer(bootstrap_servers=request.bootstrap, enable_auto_commit=False, **settings)
    await consumer.start()
    partitions = [TopicPartition(request.topic, number) for number in range(request.partitions)]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    meter = new_meter()
    got, begun, last_s = 0, False, time.monotonic()
    while got < request.records:
        count = sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
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
    await consumer.stop()


def main() -> None:
    """Run the command line."""
    request = parse_request()
    asyncio.run({"produce": produce, "consume": consume}[request.action](request))


if __name__ == "__main__":
    main()
