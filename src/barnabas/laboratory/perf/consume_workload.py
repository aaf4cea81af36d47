"""The consume workload: a `Consumer` returns records one by one, in lists, or in Arrow batches.

The clock runs from before the first assignment until the last record. Reading ends at the end offsets that the topic
had at the start of the run, or at the end offsets in `RunControl`. `EndWatch` ends it if the topic has fewer records
than offsets (a compacted topic), or if no more records arrive.
"""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from barnabas.client.consumer.consumer import Consumer
from barnabas.errors import ClosedError, ConfigurationError, TimedOutError
from barnabas.extras import require
from barnabas.laboratory.perf.meter import Measured, Meter, next_chunk_records
from barnabas.laboratory.perf.run_control import RunControl
from barnabas.model import TopicPartition

CHUNK_RECORDS_MAX = 10_000
ARROW_RECORDS_MAX = 100_000
POLL_TIMEOUT_S = 0.1
WATCH_INTERVAL_S = 0.05
IDLE_S_MAX = 30.0
"""The maximum time without a record, in seconds. After this time, the run ends with the records received so far."""


class ReadMode(enum.StrEnum):
    """The way in which the workload takes records from the consumer."""

    RECORDS = "records"
    POLL = "poll"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """The job of one consumer.

    :param settings: the consumer's settings under Kafka's names.
    :param partitions: the partitions to assign; None to subscribe as a member of the group that the settings name.
    :param starts: the initial offsets, if a producer writes the records during the run. Reading then begins before
        the clock starts. None for the beginning.
    :param records: the number of records to read; None to read to the end of the topic.
    :param warm_up: the number of records to read before the clock starts. Without `starts`, reading then restarts at
        the beginning.
    """

    settings: Mapping[str, Any] = field(repr=False)
    topic: str
    partitions: tuple[int, ...] | None
    mode: ReadMode = ReadMode.RECORDS
    starts: Mapping[int, int] | None = None
    records: int | None = None
    seconds: float | None = None
    warm_up: int = 0


Read = Callable[[Consumer, Meter, int], None]


def consume(job: ConsumeJob, meter: Meter, control: RunControl) -> Measured:
    """Consume until the end, or until the meter or the control stops the workload."""
    read = _reader(job.mode)
    joined = threading.Event()
    with Consumer(dict(job.settings)) as consumer:
        watch = EndWatch(consumer, meter, control, joined)
        watch.start()
        try:
            if job.warm_up or job.starts is not None:
                _start_reading(consumer, job, joined)
                read(consumer, meter, job.warm_up)
            if job.starts is None and job.warm_up:
                consumer.unsubscribe()
            control.await_go()
            meter.begin()
            if job.starts is None:
                _start_reading(consumer, job, joined)
            read(consumer, meter, sys.maxsize if job.records is None else job.records)
        finally:
            measured = meter.end()
            watch.finish()
    return measured


def _start_reading(consumer: Consumer, job: ConsumeJob, joined: threading.Event) -> None:
    if job.partitions is None:
        consumer.subscribe(job.topic, on_assign=lambda _tps: joined.set(), on_revoke=lambda _tps: joined.clear())
        return
    consumer.assign(TopicPartition(job.topic, partition) for partition in job.partitions)
    for partition, offset in (job.starts or {}).items():
        consumer.seek(TopicPartition(job.topic, partition), offset)


def _read_iterating(consumer: Consumer, meter: Meter, records_max: int) -> None:
    stretch = 100
    iterator = iter(consumer)
    while meter.is_running and (left := records_max - meter.records) > 0:
        wanted = min(stretch, left)
        began_s = meter.clock.monotonic()
        count = size = 0
        try:
            for record in islice(iterator, wanted):
                count += 1
                value = record.value
                if value is not None:
                    size += len(value)
        finally:
            meter.add(count, size)
        if count < wanted:
            return  # `EndWatch` closed the consumer, because no more records will arrive
        stretch = next_chunk_records(stretch, meter.clock.monotonic() - began_s, CHUNK_RECORDS_MAX)


def _read_polling(consumer: Consumer, meter: Meter, records_max: int) -> None:
    while meter.is_running and (left := records_max - meter.records) > 0:
        try:
            records = consumer.poll(max_records=min(left, CHUNK_RECORDS_MAX), timeout_s=POLL_TIMEOUT_S)
        except ClosedError:
            return  # `EndWatch` closed the consumer, because no more records will arrive
        if records:
            meter.add(len(records), sum(len(record.value) for record in records if record.value is not None))


def _arrow_reader() -> Read:
    """Import the packages for Arrow batches before the clock starts, and return the reader."""
    compute = require("pyarrow.compute", "arrow")

    def read(consumer: Consumer, meter: Meter, records_max: int) -> None:
        while meter.is_running and (left := records_max - meter.records) > 0:
            try:
                batch = consumer.poll_arrow(max_records=min(left, ARROW_RECORDS_MAX), timeout_s=POLL_TIMEOUT_S)
            except ClosedError:
                return  # `EndWatch` closed the consumer, because no more records will arrive
            if batch.num_rows:
                size = compute.sum(compute.binary_length(batch.column("value"))).as_py()
                meter.add(batch.num_rows, size or 0)

    return read


def _reader(mode: ReadMode) -> Read:
    if mode is ReadMode.ARROW:
        return _arrow_reader()
    return _read_polling if mode is ReadMode.POLL else _read_iterating


class EndWatch:
    """A thread that closes the consumer after the last record, because the thread that reads would otherwise block
    forever.

    :param joined: set while the consumer is a member of its group.

    The thread checks the positions only if no record was counted since the last check, so it does not slow down the
    reader.
    """

    def __init__(
        self, consumer: Consumer, meter: Meter, control: RunControl, joined: threading.Event | None = None
    ) -> None:
        self._consumer = consumer
        self._meter = meter
        self._control = control
        self._joined = joined or threading.Event()
        self._finished = False
        self._records_seen = -1
        self._moved_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name="barnabas-perf-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._moved_at_s = self._meter.clock.monotonic()
        self._thread.start()

    def finish(self) -> None:
        """End the thread."""
        self._finished = True
        self._control.changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._finished:
            self._control.changed.wait(WATCH_INTERVAL_S)
            self._control.changed.clear()
            if not self._finished and self.is_over():
                self._meter.stop()
                self._consumer.close()
                return

    def is_over(self) -> bool:
        """Return whether no more records will arrive."""
        if self._control.stopped.is_set() or self._meter.overdue:
            return True
        if self._meter.records != self._records_seen:
            self._records_seen = self._meter.records
            self._moved_at_s = self._meter.clock.monotonic()
            return False
        if self._control.ends is None:
            return False
        idle_s = self._meter.clock.monotonic() - self._moved_at_s
        return self._at_end(self._control.ends) or idle_s > IDLE_S_MAX

    def _at_end(self, ends: Mapping[int, int]) -> bool:
        """Return whether the consumer has reached the end of all its partitions. A group member without partitions has
        reached the end."""
        assigned = self._consumer.assignment()
        if not assigned and not self._joined.is_set():
            return False
        try:
            return all(self._consumer.position(tp, timeout_s=0) >= ends.get(tp.partition, 0) for tp in assigned)
        except (TimedOutError, ConfigurationError, ClosedError):
            return False  # the position is not known yet, or the partition was revoked
