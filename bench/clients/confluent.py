"""The confluent-kafka (librdkafka) client, with the settings that its documentation recommends for throughput.

Producing: `linger.ms=5` and `batch.num.messages=10000` are the defaults; the queue holds a million messages instead of
a hundred thousand, so that `produce` does not block. Consuming: `fetch.queue.backoff.ms=1`, because with the default
the client pauses for a second whenever its queue is full. That makes it ten times slower. Mode `default` keeps the
default. Latency: `linger.ms=0`, or the default in mode `default`.
"""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import time
from array import array
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.laboratory.perf.meter import process_cpu_s
from bench.clients.request import Request, new_meter, parse_request, print_report, require_progress

STRETCH_RECORDS = 1000
BATCH_CALL_RECORDS = 1000
POLL_RECORDS = 10_000
POLL_S = 0.1
FLUSH_LIMIT_S = 120
PACED, PACED_DEFAULT = "paced", "paced-default"
"""The modes of the process that `latency` starts: without linger, and with the default linger."""

TIMESTAMP = struct.Struct("<q")


def producer_settings(request: Request) -> dict[str, Any]:
    """Return librdkafka's settings for a producer."""
    settings: dict[str, Any] = {
        "bootstrap.servers": request.bootstrap,
        "acks": request.acks,
        "linger.ms": 0 if request.mode == PACED else 5,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "message.max.bytes": 2_000_000,
    }
    if request.batch_records:
        settings["batch.num.messages"] = request.batch_records
    return settings


def consumer_settings(request: Request) -> dict[str, Any]:
    """Return librdkafka's settings for a consumer."""
    settings: dict[str, Any] = {
        "bootstrap.servers": request.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if request.mode != "default":
        settings["fetch.queue.backoff.ms"] = 1
    if request.fetch_bytes:
        settings["fetch.message.max.bytes"] = request.fetch_bytes
    return settings


def produce(request: Request) -> None:
    """Send one record per call (mode `send`) or a list per call (mode `many`). Wait for all deliveries."""
    producer = Producer(producer_settings(request))
    values = request.values()
    producer.list_topics(request.topic, 10)
    meter = new_meter()
    meter.begin()
    (send_lists if request.mode == "many" else send_singly)(producer, request, values, meter)
    if producer.flush(FLUSH_LIMIT_S):
        raise TimeoutError("some records were not acknowledged")
    print_report(meter.end())


def send_singly(producer: Producer, request: Request, values: list[bytes], meter: Any) -> None:
    """Call `produce` once per record."""
    topic, send = request.topic, producer.produce
    endless = itertools.cycle(values)
    for begin in range(0, request.records, STRETCH_RECORDS):
        count = min(STRETCH_RECORDS, request.records - begin)
        for value in itertools.islice(endless, count):
            while True:
                try:
                    send(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        meter.add(count, count * request.size)


def send_lists(producer: Producer, request: Request, values: list[bytes], meter: Any) -> None:
    """Call `produce_batch` with lists of new dictionaries, because it adds errors to the dictionaries."""
    endless = itertools.cycle(values)
    for begin in range(0, request.records, BATCH_CALL_RECORDS):
        count = min(BATCH_CALL_RECORDS, request.records - begin)
        batch = [{"value": value} for value in itertools.islice(endless, count)]
        while (queued := producer.produce_batch(request.topic, batch)) < len(batch):
            producer.poll(0.01)
            batch = [each for each in batch if "_error" in each] if queued else batch
            batch = [{"value": each["value"]} for each in batch]
        producer.poll(0)
        meter.add(count, count * request.size)


def assigned_consumer(request: Request) -> Consumer:
    """Return a consumer that reads its partitions from their beginning."""
    consumer = Consumer(consumer_settings(request))
    consumer.assign([TopicPartition(request.topic, number, 0) for number in request.read_partitions])
    return consumer


def records_to_read(consumer: Consumer, request: Request) -> int:
    """Return the number of records to wait for: all records of the named partitions, if partitions are named."""
    if request.only is None:
        return request.records
    partitions = [TopicPartition(request.topic, number) for number in request.only]
    return sum(consumer.get_watermark_offsets(partition, 10)[1] for partition in partitions)


def consume(request: Request) -> None:
    """Read with `consume`. The clock starts at the first records."""
    consumer = assigned_consumer(request)
    expected = records_to_read(consumer, request)
    meter = new_meter()
    began_s = time.monotonic()
    while not consumer.consume(1, POLL_S):
        require_progress(0, time.monotonic() - began_s)
    meter.begin()
    got = 1
    last_s = time.monotonic()
    while got < expected:
        messages = consumer.consume(POLL_RECORDS, POLL_S)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
            message.value()
        if messages:
            got += len(messages)
            last_s = time.monotonic()
            meter.add(len(messages), len(messages) * request.size)
        require_progress(len(messages), time.monotonic() - last_s)
    print_report(meter.end())
    consumer.close()


def latency(request: Request) -> None:
    """Receive the records of a second process that sends at the given rate. Each value begins with the due time of its
    record."""
    consumer = assigned_consumer(request)
    consumer.consume(1, 1.0)  # connect before the first record is sent
    mode = PACED_DEFAULT if request.mode == "default" else PACED
    command = [sys.executable, "-m", __spec__.name, "produce", *sys.argv[2:], "--mode", mode]
    sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    meter = new_meter()
    meter.begin()
    latencies_s: array[float] = array("d")
    last_s = time.monotonic()
    while len(latencies_s) < request.warm_up + request.records:
        messages = consumer.consume(1, POLL_S)
        now_s = time.monotonic()
        for message in messages:
            latencies_s.append(now_s - TIMESTAMP.unpack_from(message.value() or b"")[0] / 1e9)
            last_s = now_s
        meter.add(len(messages), len(messages) * request.size)
        require_progress(len(messages), now_s - last_s)
    measured = meter.end()
    senders_cpu_s, _ = sender.communicate(timeout=FLUSH_LIMIT_S)
    measured = replace(measured, cpu_s=measured.cpu_s + float(senders_cpu_s))
    print_report(measured, latencies_s[request.warm_up :])
    consumer.close()


def send_paced(request: Request) -> None:
    """Send at the given rate in an open loop. A late record is sent immediately and keeps its due time.

    Print the CPU seconds.
    """
    assert request.rate
    producer = Producer(producer_settings(request))
    producer.list_topics(request.topic, 10)
    filler = bytes(max(0, request.size - TIMESTAMP.size))
    cpu_began_s = process_cpu_s()
    begin_s = time.monotonic() + 0.2
    for number in range(request.warm_up + request.records):
        due_s = begin_s + number / request.rate
        while (wait_s := due_s - time.monotonic()) > 0:
            time.sleep(min(wait_s, 0.0005))
        producer.produce(request.topic, TIMESTAMP.pack(int(due_s * 1e9)) + filler)
        if number % 100 == 0:
            producer.poll(0)
    producer.flush(FLUSH_LIMIT_S)
    sys.stdout.write(f"{process_cpu_s() - cpu_began_s}\n")


def main() -> None:
    """Run the command line."""
    request = parse_request()
    if request.mode in (PACED, PACED_DEFAULT):
        send_paced(request)
    else:
        {"produce": produce, "consume": consume, "latency": latency}[request.action](request)


if __name__ == "__main__":
    main()
