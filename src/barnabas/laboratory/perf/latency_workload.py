"""End-to-end latency in an open loop: from the moment when a record is due to its arrival at a consumer.

Each record carries the moment it was due, on the monotonic clock that all processes of the machine share. Producer
and consumer are processes of their own.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
"""The head of each payload: when the record was due, in seconds of the monotonic clock."""

CHUNK_RECORDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LatencyJob:
    """What both sides of a run know.

    :param producer_settings: under Kafka's names; likewise `consumer_settings`.
    :param starts: the offset of each partition at which its first record will be.
    :param size: bytes of each value, at least those of the moment that it carries.
    :param warm_up: records at the beginning that are sent and not counted.
    :param records: those after them.
    """

    producer_settings: Mapping[str, Any]
    consumer_settings: Mapping[str, Any]
    topic: str
    starts: Mapping[int, int]
    rate: float
    records: int
    warm_up: int
    size: int = 100
    seconds: float | None = None
    """Without meaning: the rate and the records say how long it takes."""


@dataclass(frozen=True, slots=True)
class LatencyMeasured:
    """What the consumer saw."""

    measured: Measured
    latency: LatencySummary


def send_paced(job: LatencyJob, meter: Meter, control: RunControl) -> Measured:
    """Send each record when it is due: sleep until the next one is, then send all that are.

    :raises BarnabasError: why the last record was not delivered.
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
    """Read all records and note how long after they were due they came; leave out those that warm up.

    :raises RunFailedError: there are others' records in the topic.
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
            raise RunFailedError(f"there are records of others in topic {job.topic!r}") from None
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
            return  # the consumer was closed: nothing more is to come
        stretch = next_chunk_records(stretch, now() - began_s, CHUNK_RECORDS_MAX)
