"""The latency workload: an open loop that measures the time from the due time of a record to its arrival at a consumer.

Each record contains its due time on the monotonic clock, which all processes of the machine share. Producer and
consumer run in separate processes.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.errors import BarnabasError
from barnabas.laboratory.perf.consume_workload import EndWatch
from barnabas.laboratory.perf.latency_summary import LatencySummary, summarise
from barnabas.laboratory.perf.meter import Measured, Meter, next_chunk_records
from barnabas.laboratory.perf.open_loop import OpenLoop, pause, reduce_timer_slack
from barnabas.laboratory.perf.run_control import RunControl, RunFailedError
from barnabas.model import TopicPartition

DUE = struct.Struct(">d")
"""The first bytes of each payload: the due time of the record, in seconds of the monotonic clock."""

CHUNK_RECORDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LatencyJob:
    """The job of the producer and of the consumer.

    :param producer_settings: the producer's settings under Kafka's names.
    :param consumer_settings: the consumer's settings under Kafka's names.
    :param starts: the offset of the run's first record in each partition.
    :param rate: the number of records per second.
    :param records: the number of records to measure.
    :param warm_up: the number of unmeasured records before the measured ones.
    :param size: the size of each value in bytes, including the due time.
    """

    producer_settings: Mapping[str, Any] = field(repr=False)
    consumer_settings: Mapping[str, Any] = field(repr=False)
    topic: str
    starts: Mapping[int, int]
    rate: float
    records: int
    warm_up: int
    size: int = 100
    seconds: float | None = None
    """Always None: the rate and the number of records determine the duration."""


@dataclass(frozen=True, slots=True)
class LatencyMeasured:
    """The result of the consumer."""

    measured: Measured
    latency: LatencySummary


def send_paced(job: LatencyJob, meter: Meter, control: RunControl) -> Measured:
    """Send each record when it is due: sleep until the next due time, then send all records that are due.

    :raises BarnabasError: if the last record was not delivered.
    """
    total = job.warm_up + job.records
    filler = bytes(job.size - DUE.size)
    clock, stopped = meter.clock, control.stopped
    topic, pack = job.topic, DUE.pack
    sent = 0
    with Producer(dict(job.producer_settings)) as producer:
        producer.partitions_for(topic)
        send = producer.send
        reduce_timer_slack()
        loop = OpenLoop(control.await_go(), job.rate)
        meter.begin()
        warm = not job.warm_up
        delivery = None
        while sent < total and not pause(loop.due_s(sent) - clock.monotonic(), stopped):
            due = min(loop.count_due(clock.monotonic()), total)
            for number in range(sent, due):
                delivery = send(topic, pack(loop.due_s(number)) + filler)
            meter.add(due - sent, (due - sent) * job.size)
            sent = due
            if not warm and sent >= job.warm_up:
                warm = True
                meter.begin()
        producer.flush()
        measured = meter.end()
        error: BarnabasError | None = None if delivery is None else delivery.exception()
        if error is not None:
            raise error
    return measured


def receive(job: LatencyJob, meter: Meter, control: RunControl) -> LatencyMeasured:
    """Read all records and measure the delay of each one after its due time. Warm-up records are not measured.

    :raises RunFailedError: if the topic contains other records.
    """
    samples: array[float] = array("d")
    with Consumer(dict(job.consumer_settings)) as consumer:
        consumer.assign(TopicPartition(job.topic, partition) for partition in job.starts)
        for partition, offset in job.starts.items():
            consumer.seek(TopicPartition(job.topic, partition), offset)
        from_s = OpenLoop(control.await_go(), job.rate).due_s(job.warm_up)
        meter.begin()
        watch = EndWatch(consumer, meter, control)
        watch.start()
        try:
            _read(consumer, meter, job, samples, from_s)
        except struct.error:
            raise RunFailedError(f"topic {job.topic!r} contains records of other producers") from None
        finally:
            measured = meter.end()
            watch.finish()
    counted = replace(measured, records=len(samples), bytes=len(samples) * job.size)
    return LatencyMeasured(counted, summarise(samples))


def _read(consumer: Consumer, meter: Meter, job: LatencyJob, samples: array[float], from_s: float) -> None:
    now, unpack, note = meter.clock.monotonic, DUE.unpack_from, samples.append
    total = job.warm_up + job.records
    iterator = iter(consumer)
    stretch, seen, warm = 1, 0, False
    while meter.is_running and (left := total - seen) > 0:
        wanted = min(stretch, left)
        count, began_s = 0, now()
        for record in islice(iterator, wanted):
            (due_s,) = unpack(record.value or b"")
            if due_s >= from_s:
                note(now() - due_s)
            count += 1
        if not warm and samples:
            warm = True
            meter.begin()
        seen += count
        meter.add(count, count * job.size)
        if count < wanted:
            return  # `EndWatch` closed the consumer, because no more records will arrive
        stretch = next_chunk_records(stretch, now() - began_s, CHUNK_RECORDS_MAX)
