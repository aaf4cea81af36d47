"""`both` and `latency`: a producer and a consumer run at the same time, in separate processes, on a topic that the run
creates or the user names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from barnabas.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from barnabas.laboratory.perf.consume_workload import ConsumeJob, ReadMode, consume
from barnabas.laboratory.perf.latency_summary import NOTHING
from barnabas.laboratory.perf.latency_workload import DUE, LatencyJob, LatencyMeasured, receive, send_paced
from barnabas.laboratory.perf.meter import Measured
from barnabas.laboratory.perf.produce_run import ProduceSpec, producer_job
from barnabas.laboratory.perf.produce_workload import produce
from barnabas.laboratory.perf.report import Report, per_second
from barnabas.laboratory.perf.run_context import RunContext, stop_workers
from barnabas.laboratory.perf.run_control import RunFailedError
from barnabas.laboratory.perf.topics import TopicSpec, ends_of, run_topic
from barnabas.laboratory.perf.worker_processes import DONE, ENDS, GO, READY, Workers, Workload

PRODUCER, CONSUMER = "producer", "consumer"

START_DELAY_S = 0.2
"""The delay from the start message to the first due record, in seconds: longer than the delivery of the message
takes."""


@dataclass(frozen=True, slots=True)
class LatencySpec:
    """The specification of a latency run.

    :param rate: the number of records per second.
    :param seconds: the duration of the measurement. The warm-up precedes it.
    :param warm_up: the number of warm-up records.
    """

    topic: TopicSpec
    rate: float = 10_000.0
    seconds: float = 10.0
    warm_up: int = 10_000
    size: int = 100
    acks: str = "all"
    compression: str = "none"

    @property
    def size_min(self) -> int:
        """The minimum size of a value in bytes: each value contains the due time of its record."""
        return DUE.size

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the report."""
        return {
            "rate": self.rate,
            "seconds": self.seconds,
            "size": self.size,
            "acks": self.acks,
            "compression": self.compression,
            "warm_up": self.warm_up,
        }


def run_both(context: RunContext, spec: ProduceSpec, read_mode: ReadMode, new_name: Callable[[], str]) -> Report:
    """Produce and consume at the same time. The reported rate is the consumer's rate while both clients are active.

    :raises RunFailedError: if the consumer has not received all records.
    """
    with run_topic(context.admin, spec.topic, new_name) as topic:
        starts = ends_of(context.admin, topic.name)
        reading = ConsumeJob(
            settings=_reader(context).settings(auto_offset_reset="earliest"),
            topic=topic.name,
            partitions=tuple(starts),
            mode=read_mode,
            starts=starts,
            records=spec.records,
            warm_up=spec.warm_up,
        )
        writing = producer_job(_writer(context), spec, topic, spec.records, spec.warm_up)
        results, interrupted = _perform(context, topic.name, (produce, writing), (consume, reading), 0.0)
        produced, consumed = results.get(PRODUCER), results.get(CONSUMER)
        produced, consumed = produced or context.empty_result(), consumed or context.empty_result()
        if consumed.records < produced.records and not interrupted:
            raise RunFailedError(
                f"{produced.records - consumed.records:,} of {produced.records:,} records were not consumed"
            )
        about = {"topic": topic.name, "partitions": topic.partitions, **spec.as_json(), "read_mode": str(read_mode)}
        return _both_report(context, produced, consumed, about, interrupted)


def _both_report(
    context: RunContext, produced: Measured, consumed: Measured, about: dict[str, Any], interrupted: bool
) -> Report:
    begin_s = max(produced.started_s, consumed.started_s)
    end_s = min(produced.ended_s, consumed.ended_s)
    in_common = consumed.records_at(end_s) - consumed.records_at(begin_s)
    extra = {
        "common_s": round(max(0.0, end_s - begin_s), 4),
        "produced": produced.records,
        "produced_per_s": round(per_second(produced.records, produced.elapsed_s), 1),
        "consumed_per_s": round(per_second(consumed.records, consumed.elapsed_s), 1),
        "behind_at_end": max(0, produced.records - round(consumed.records_at(produced.ended_s))),
        "cpu_producer_s": round(produced.cpu_s, 4),
        "cpu_consumer_s": round(consumed.cpu_s, 4),
    }
    whole = Measured(
        started_s=min(produced.started_s, consumed.started_s),
        ended_s=max(produced.ended_s, consumed.ended_s),
        records=consumed.records,
        bytes=consumed.bytes,
        cpu_s=produced.cpu_s + consumed.cpu_s,
        samples=consumed.samples,
    )
    rate = per_second(in_common, end_s - begin_s)
    return Report("both", context.bootstrap, whole, about, extra, records_per_s=rate, interrupted=interrupted)


def run_latency(context: RunContext, spec: LatencySpec, new_name: Callable[[], str]) -> Report:
    """Send at a fixed rate, and measure the time from when a record is due until the consumer has it.

    :raises RunFailedError: if the consumer has not received all records.
    """
    with run_topic(context.admin, spec.topic, new_name) as topic:
        job = LatencyJob(
            producer_settings=_writer(context).settings(acks=spec.acks, compression_type=spec.compression),
            consumer_settings=_reader(context).settings(auto_offset_reset="earliest"),
            topic=topic.name,
            starts=ends_of(context.admin, topic.name),
            rate=spec.rate,
            records=max(1, round(spec.rate * spec.seconds)),
            warm_up=spec.warm_up,
            size=spec.size,
        )
        results, interrupted = _perform(context, topic.name, (send_paced, job), (receive, job), START_DELAY_S)
        sent = results.get(PRODUCER) or context.empty_result()
        received = results.get(CONSUMER) or LatencyMeasured(context.empty_result(), NOTHING)
        if received.latency.count < job.records and not interrupted:
            lost = job.records - received.latency.count
            raise RunFailedError(f"{lost:,} of {job.records:,} records were not consumed")
        whole = Measured(
            received.measured.started_s,
            received.measured.ended_s,
            received.measured.records,
            received.measured.bytes,
            sent.cpu_s + received.measured.cpu_s,
            received.measured.samples,
        )
        extra = {
            **received.latency.as_json(),
            "cpu_producer_s": round(sent.cpu_s, 4),
            "cpu_consumer_s": round(received.measured.cpu_s, 4),
        }
        about = {"topic": topic.name, "partitions": topic.partitions, **spec.as_json()}
        return Report("latency", context.bootstrap, whole, about, extra, interrupted=interrupted)


def _writer(context: RunContext) -> RunContext:
    return replace(context, properties=settings_without(context.properties, ConsumerConfig, ProducerConfig))


def _reader(context: RunContext) -> RunContext:
    return replace(context, properties=settings_without(context.properties, ProducerConfig, ConsumerConfig))


def settings_without(
    properties: Mapping[str, str], other: type[ClientConfig], own: type[ClientConfig]
) -> dict[str, str]:
    """Return the settings without the ones that only the `other` client has.

    Settings that neither client has are kept, so that the client reports them as unknown.

    >>> settings_without({"linger.ms": "0", "client.id": "me", "fetch.min.bytes": "9"}, ProducerConfig, ConsumerConfig)
    {'client.id': 'me', 'fetch.min.bytes': '9'}
    """
    theirs = _names(other) - _names(own)
    return {name: value for name, value in properties.items() if name.replace(".", "_") not in theirs}


def _names(config: type[ClientConfig]) -> set[str]:
    return {name for each in fields(config) for name in (each.name, *each.metadata["aliases"])}


def _perform(
    context: RunContext,
    topic: str,
    writing: tuple[Workload, Any],
    reading: tuple[Workload, Any],
    delay_s: float,
) -> tuple[dict[str, Any], bool]:
    """Run the producer and the consumer. The consumer gets the topic's end offsets when the producer has finished.

    :returns: the results by name, and whether Ctrl-C ended the run early.
    """
    with Workers(context.on_progress) as workers:
        try:
            workers.start(CONSUMER, *reading)
            workers.start(PRODUCER, *writing)
            workers.await_all(workers.names, READY)
            workers.send_all(GO, context.clock.monotonic() + delay_s)
            workers.await_all([PRODUCER], DONE)
            workers.send([CONSUMER], ENDS, ends_of(context.admin, topic))
            return workers.await_all([PRODUCER, CONSUMER], DONE), False
        except KeyboardInterrupt:
            return stop_workers(workers), True
