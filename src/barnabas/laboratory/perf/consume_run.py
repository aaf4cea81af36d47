"""`consume`: one or more consumers read the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.errors import ConfigurationError
from barnabas.laboratory.perf.consume_workload import ConsumeJob, ReadMode, consume
from barnabas.laboratory.perf.meter import combined
from barnabas.laboratory.perf.report import Report
from barnabas.laboratory.perf.run_context import RunContext
from barnabas.laboratory.perf.run_control import RunFailedError
from barnabas.laboratory.perf.topics import beginnings_of, ends_of
from barnabas.laboratory.perf.work_shares import share_evenly, share_partitions, share_records


@dataclass(frozen=True, slots=True)
class ConsumeSpec:
    """The specification of a consume run: a topic from its beginning, or from the committed offsets of a group, to its
    current end.

    :param records: the total number of records; None for all.
    :param consumers: the number of consumers, each in its own process. Without a group they share the partitions
        evenly.
    :param fetch_bytes: the maximum size of a fetch, in bytes; None for the client's default.
    """

    topic: str
    mode: ReadMode = ReadMode.RECORDS
    group: str | None = None
    records: int | None = None
    seconds: float | None = None
    warm_up: int = 0
    consumers: int = 1
    fetch_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields for the report."""
        return {
            "topic": self.topic,
            "mode": str(self.mode),
            "group": self.group,
            "warm_up": self.warm_up,
            "consumers": self.consumers,
            "fetch_bytes": self.fetch_bytes,
        }


def run_consume(context: RunContext, spec: ConsumeSpec) -> Report:
    """Consume the topic.

    :raises RunFailedError: if there is nothing to read.
    :raises ConfigurationError: if there are more consumers than partitions.
    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    ends = ends_of(context.admin, spec.topic)
    counts = _counts(context, spec, ends)
    if not sum(counts.values()):
        whose = f"group {spec.group!r} has read all of" if spec.group else "there are no records in"
        raise RunFailedError(f"{whose} topic {spec.topic!r}")
    jobs = _group_jobs(context, spec, counts) if spec.group else _lone_jobs(context, spec, counts)
    names = ["consumer"] if len(jobs) == 1 else [f"consumer {number}" for number in range(len(jobs))]
    parts, interrupted = context.run_workload(consume, dict(zip(names, jobs, strict=True)), ends)
    measured = combined(parts) if len(parts) > 1 else parts[0]
    about = {**spec.as_json(), "partitions": len(ends)}
    return Report("consume", context.bootstrap, measured, about, interrupted=interrupted)


def _counts(context: RunContext, spec: ConsumeSpec, ends: dict[int, int]) -> dict[int, int]:
    """Return the number of available records in each partition."""
    beginnings = beginnings_of(context.admin, spec.topic)
    if spec.group:
        for tp, committed in context.admin.group_offsets(spec.group).items():
            if tp.topic == spec.topic:
                beginnings[tp.partition] = max(committed.offset, beginnings.get(tp.partition, 0))
    return {partition: max(0, end - beginnings[partition]) for partition, end in ends.items()}


def _settings(context: RunContext, spec: ConsumeSpec) -> dict[str, Any]:
    own: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if spec.fetch_bytes is not None:
        own |= {"fetch_max_bytes": spec.fetch_bytes, "max_partition_fetch_bytes": spec.fetch_bytes}
    if spec.group:
        own["group_id"] = spec.group
    return context.settings(**own)


def _lone_jobs(context: RunContext, spec: ConsumeSpec, counts: dict[int, int]) -> list[ConsumeJob]:
    if spec.consumers > len(counts):
        raise ConfigurationError(
            f"{spec.consumers} consumers cannot share {len(counts)} partitions: without a group each consumer needs one"
        )
    shares = share_partitions(sorted(counts), spec.consumers)
    there = [sum(counts[partition] for partition in share) for share in shares]
    records = there if spec.records is None else share_records(spec.records, there)
    warm_ups = share_records(spec.warm_up, there)
    return [
        ConsumeJob(
            settings=_settings(context, spec),
            topic=spec.topic,
            partitions=share,
            mode=spec.mode,
            records=each,
            seconds=spec.seconds,
            warm_up=warm_up,
        )
        for share, each, warm_up in zip(shares, records, warm_ups, strict=True)
    ]


def _group_jobs(context: RunContext, spec: ConsumeSpec, counts: dict[int, int]) -> list[ConsumeJob]:
    there = sum(counts.values())
    records: list[int | None] = [None] * spec.consumers  # in a group, the group assigns the partitions
    if spec.consumers == 1:
        records = [there if spec.records is None else min(spec.records, there)]
    elif spec.records is not None:
        records = [*share_evenly(min(spec.records, there), spec.consumers)]
    return [
        ConsumeJob(
            settings=_settings(context, spec),
            topic=spec.topic,
            partitions=None,
            mode=spec.mode,
            records=each,
            seconds=spec.seconds,
        )
        for each in records
    ]
