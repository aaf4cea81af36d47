"""The cost of one broker: time to start, memory, recovery, and CPU time with librdkafka.

    python -m bench.broker_figures [--folder DIR] [--gigabytes 10]

The program prints a Markdown table. The directory needs twice as much free space as `--gigabytes`.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker_process import MeasuredBroker

RECORD = b"x" * 100
STARTS = 7
PARTITIONS = 1000
CONNECTIONS = 1000
TOPIC = "figures"


@contextmanager
def fresh_folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder)


def create_topic(broker: MeasuredBroker, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values()
    future.result()


def produce(broker: MeasuredBroker, records: int, value: bytes = RECORD) -> float:
    """Send records as fast as librdkafka can. Return the duration in seconds."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 5,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    begun = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return time.perf_counter() - begun


def consume(broker: MeasuredBroker, records: int) -> float:
    """Read records as fast as librdkafka can. Return the time from the first to the last record in seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "figures",
            "auto.offset.reset": "earliest",
            "queued.min.messages": 2000000,
        }
    )
    consumer.subscribe([TOPIC])
    got = len(consumer.consume(1, 30.0))
    begun = time.perf_counter()
    while got < records:
        got += len(consumer.consume(10_000, 0.2))
    took = time.perf_counter() - begun
    consumer.close()
    return took


def starts(parent: Path) -> Iterator[tuple[str, str, str]]:
    with fresh_folder(parent) as data:
        times = []
        for _ in range(STARTS):
            shutil.rmtree(data, ignore_errors=True)
            with MeasuredBroker(data) as broker:
                times.append(broker.ready_s)
                memory = broker.memory_mib
        yield "start to ready, empty folder", f"{statistics.median(times):.2f} s (max {max(times):.2f})", "0.5 s"
        yield "memory after start", f"{memory:.0f} MiB", "60 MiB"
    with fresh_folder(parent) as data:
        with MeasuredBroker(data) as broker:
            create_topic(broker, PARTITIONS)
        with MeasuredBroker(data) as broker:
            yield f"start to ready, {PARTITIONS:,} partitions", f"{broker.ready_s:.2f} s", "2 s"
            broker.kill()
        with MeasuredBroker(data) as broker:
            yield "the same after kill -9", f"{broker.ready_s:.2f} s", "2 s"


def connections(parent: Path) -> Iterator[tuple[str, str, str]]:
    with fresh_folder(parent) as data, MeasuredBroker(data) as broker, ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
        time.sleep(1)
        yield f"memory with {CONNECTIONS:,} idle connections", f"{broker.memory_mib:.0f} MiB", "120 MiB"


def load(parent: Path, gigabytes: float) -> Iterator[tuple[str, str, str]]:
    records = int(gigabytes * 1e9 / 1000)
    with fresh_folder(parent) as data, MeasuredBroker(data) as broker:
        create_topic(broker, 6)
        took = produce(broker, records, b"x" * 1000)
        took_reading = consume(broker, records)
        rates = f"{records / took:,.0f}/s in, {records / took_reading:,.0f}/s out"
        yield f"memory after {gigabytes:g} GB written and read", f"{broker.memory_mib_max:.0f} MiB ({rates})", "100 MiB"


def recovery(parent: Path) -> Iterator[tuple[str, str, str]]:
    with fresh_folder(parent) as data:
        with MeasuredBroker(data, log_segment_bytes="2147483647") as broker:
            create_topic(broker, 1)
            produce(broker, 1_000_000, b"x" * 1000)
            broker.kill()
        with MeasuredBroker(data) as broker:
            yield "start after kill -9 with 1 GB unflushed", f"{broker.ready_s:.2f} s", "3 s"


def cpu(parent: Path) -> Iterator[tuple[str, str, str]]:
    records = 3_000_000
    with fresh_folder(parent) as data, MeasuredBroker(data) as broker:
        create_topic(broker, 6)
        produce(broker, 300_000)
        before, took = broker.cpu_s, produce(broker, records)
        used = broker.cpu_s - before
        rate = f"{records / took:,.0f} records/s of 100 B, broker {used / took:.2f} cores"
        yield "librdkafka produces (acks=all, idempotence off)", rate, "below 1 core"
        before, took = broker.cpu_s, consume(broker, records)
        rate = f"{records / took:,.0f} records/s, broker {(broker.cpu_s - before) / took:.2f} cores"
        yield "librdkafka consumes", rate, "below 1 core"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gigabytes", type=float, default=10)
    arguments = parser.parse_args()
    sys.stdout.write("| what | measured | to reach |\n|---|---|---|\n")
    for rows in (
        starts(arguments.folder),
        connections(arguments.folder),
        recovery(arguments.folder),
        cpu(arguments.folder),
        load(arguments.folder, arguments.gigabytes),
    ):
        for row in rows:
            sys.stdout.write("| " + " | ".join(row) + " |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
