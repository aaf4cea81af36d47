"""`produce` and `requests`: each runs a workload on a topic, and checks that the log has all records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.laboratory.perf.meter import combined
from barnabas.laboratory.perf.payloads import PayloadSpec
from barnabas.laboratory.perf.pipelined_workload import PipelineJob, produce_pipelined
from barnabas.laboratory.perf.produce_workload import ProduceJob, SendMode, produce
from barnabas.laboratory.perf.report import Report, per_second
from barnabas.laboratory.perf.run_context import RunContext
from barnabas.laboratory.perf.run_control import RunFailedError
from barnabas.laboratory.perf.topics import RunTopic, TopicSpec, await_stored, ends_of, leaders_of, run_topic
from barnabas.laboratory.perf.work_shares import share_evenly
from barnabas.laboratory.perf.worker_processes import Workload


@dataclass(frozen=True, slots=True)
class ProduceSpec:
    """The specification of a produce run.

    :param records: the total number of records; None for as many as can be sent in `seconds`.
    :param batch_records: None to use `Producer` in `mode`. Otherwise the exact number of records in each request.
    :param in_flight: the maximum number of requests without a response, if `batch_records` is set.
    :param producers: the number of producers, each in its own process.
    """

    topic: TopicSpec
    payload: PayloadSpec = field(default_factory=PayloadSpec)
    mode: SendMode = SendMode.SEND
    acks: str = "all"
    compression: str = "none"
    records: int | None = None
    seconds: float | None = None
    warm_up: int = 0
    batch_records: int | None = None
    in_flight: int = 100
    producers: int = 1

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the report."""
        pipelined = self.batch_records is not None
        return {
            "mode": "pipelined" if pipelined else str(self.mode),
            "acks": self.acks,
            "compression": self.compression,
            "size": self.payload.size,
            "payload": self.payload.value_file or str(self.payload.kind),
            "warm_up": self.warm_up,
            "producers": self.producers,
            "batch_records": self.batch_records,
            "in_flight": self.in_flight if pipelined and self.acks != "0" else None,
        }


def run_produce(
    context: RunContext, spec: ProduceSpec, new_name: Callable[[], str], workload: str = "produce"
) -> Report:
    """Produce, then check the log's end offsets.

    :param workload: the name of the run in its report.
    :raises RunFailedError: if the log does not have all records.
    :raises BarnabasError: if a record was not delivered, or if no broker responds.
    """
    with run_topic(context.admin, spec.topic, new_name) as topic:
        work, jobs = _jobs(context, spec, topic)
        begun_at = sum(ends_of(context.admin, topic.name).values())
        parts, interrupted = context.run_workload(work, jobs)
        measured = combined(parts) if len(parts) > 1 else parts[0]
        expected = begun_at + spec.warm_up + measured.records
        now_there = _stored(context, topic, 0 if interrupted else expected)
        stored = max(0, now_there - begun_at - spec.warm_up)
        if stored < measured.records and not interrupted:
            raise RunFailedError(
                f"{measured.records - stored:,} of {measured.records:,} records are not in topic {topic.name}"
            )
        extra: dict[str, Any] = {"stored": stored}
        if spec.batch_records is not None:
            requests = -(-measured.records // spec.batch_records)
            extra["requests_per_s"] = round(per_second(requests, measured.elapsed_s), 1)
        about = {"topic": topic.name, "partitions": topic.partitions, **spec.as_json()}
        return Report(workload, context.bootstrap, measured, about, extra, interrupted=interrupted)


def _stored(context: RunContext, topic: RunTopic, expected: int) -> int:
    return await_stored(
        lambda: sum(ends_of(context.admin, topic.name).values()), expected, context.clock, context.pause
    )


def _jobs(context: RunContext, spec: ProduceSpec, topic: RunTopic) -> tuple[Workload, Mapping[str, Any]]:
    count = spec.producers
    records = [None] * count if spec.records is None else share_evenly(spec.records, count)
    warm_ups = share_evenly(spec.warm_up, count)
    names = ["producer"] if count == 1 else [f"producer {number}" for number in range(count)]
    make = producer_job if spec.batch_records is None else _pipeline_job
    jobs = [make(context, spec, topic, *each) for each in zip(records, warm_ups, strict=True)]
    return produce if spec.batch_records is None else produce_pipelined, dict(zip(names, jobs, strict=True))


def producer_job(
    context: RunContext, spec: ProduceSpec, topic: RunTopic, records: int | None, warm_up: int
) -> ProduceJob:
    return ProduceJob(
        settings=context.settings(acks=spec.acks, compression_type=spec.compression),
        topic=topic.name,
        mode=spec.mode,
        payload=spec.payload,
        records=records,
        seconds=spec.seconds,
        warm_up=warm_up,
    )


def _pipeline_job(
    context: RunContext, spec: ProduceSpec, topic: RunTopic, records: int | None, warm_up: int
) -> PipelineJob:
    assert spec.batch_records is not None
    return PipelineJob(
        settings=context.settings(),
        topic=topic.name,
        leaders=leaders_of(context.admin, topic.name),
        batch_records=spec.batch_records,
        acks=-1 if spec.acks == "all" else int(spec.acks),
        in_flight=spec.in_flight,
        compression=spec.compression,
        payload=spec.payload,
        records=records,
        seconds=spec.seconds,
        warm_up=warm_up,
    )
