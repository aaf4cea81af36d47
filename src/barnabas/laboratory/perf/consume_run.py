"""`consume`: one consumer or several read what is in a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.errors import ConfigurationError
from barnabas.laboratory.perf.consuming import ConsumeJob, ReadMode, consume
from barnabas.laboratory.perf.errors import RunFailedError
from barnabas.laboratory.perf.meter import together
from barnabas.laboratory.perf.quotas import share_evenly, share_partitions, share_records
from barnabas.laboratory.perf.report import Report
from barnabas.laboratory.perf.stage import Stage
from barnabas.laboratory.perf.topics import beginnings_of, ends_of


@dataclass(frozen=True, slots=True)
class ConsumeOrder:
    """What to consume: a topic from its beginning to its end as it is now, or where a group stopped.

    :param records: in all; None: all there are.
    :param consumers: so many at once, a process each. Without a group they share the partitions evenly.
    :param fetch_bytes: what one fetch brings; None: the client's own setting.
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
        """Return what a report tells about it."""
        return {
            "topic": self.topic,
            "mode": str(self.mode),
            "group": self.group,
            "warm_up": self.warm_up,
            "consumers": self.consumers,
            "fetch_bytes": self.fetch_bytes,
        }


def run_consume(stage: Stage, order: ConsumeOrder) -> Report:
    """Consume.

    :raises RunFailedError: there is nothing to read.
    :raises ConfigurationError: there are more consumers than partitions.
    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    ends = ends_of(stage.admin, order.topic)
    counts = _counts(stage, order, ends)
    if not sum(counts.values()):
        whose = f"group {order.group!r} has read all of" if order.group else "there are no records in"
        raise RunFailedError(f"{whose} topic {order.topic!r}")
    jobs = _group_jobs(stage, order, counts) if order.group else _lone_jobs(stage, order, counts)
    names = ["consumer"] if len(jobs) == 1 else [f"consumer {number}" for number in range(len(jobs))]
    parts, interrupted = stage.perform(consume, dict(zip(names, jobs, strict=True)), ends)
    measured = together(parts) if len(parts) > 1 else parts[0]
    about = {**order.as_json(), "partitions": len(ends)}
    return Report("consume", stage.bootstrap, measured, about, interrupted=interrupted)


def _counts(stage: Stage, order: ConsumeOrder, ends: dict[int, int]) -> dict[int, int]:
    """Return how many records there are to read in each partition."""
    beginnings = beginnings_of(stage.admin, order.topic)
    if order.group:
        for tp, committed in stage.admin.group_offsets(order.group).items():
            if tp.topic == order.topic:
                beginnings[tp.partition] = max(committed.offset, beginnings.get(tp.partition, 0))
    return {partition: max(0, end - beginnings[partition]) for partition, end in ends.items()}


def _settings(stage: Stage, order: ConsumeOrder) -> dict[str, Any]:
    own: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if order.fetch_bytes is not None:
        own |= {"fetch_max_bytes": order.fetch_bytes, "max_partition_fetch_bytes": order.fetch_bytes}
    if order.group:
        own["group_id"] = order.group
    return stage.settings(**own)


def _lone_jobs(stage: Stage, order: ConsumeOrder, counts: dict[int, int]) -> list[ConsumeJob]:
    if order.consumers > len(counts):
        raise ConfigurationError(
            f"{order.consumers} consumers cannot share {len(counts)} partitions; without a group each needs one"
        )
    shares = share_partitions(sorted(counts), order.consumers)
    there = [sum(counts[partition] for partition in share) for share in shares]
    records = there if order.records is None else share_records(order.records, there)
    warm_ups = share_records(order.warm_up, there)
    return [
        ConsumeJob(
            settings=_settings(stage, order),
            topic=order.topic,
            partitions=share,
            mode=order.mode,
            records=each,
            seconds=order.seconds,
            warm_up=warm_up,
        )
        for share, each, warm_up in zip(shares, records, warm_ups, strict=True)
    ]


def _group_jobs(stage: Stage, order: ConsumeOrder, counts: dict[int, int]) -> list[ConsumeJob]:
    there = sum(counts.values())
    records: list[int | None] = [None] * order.consumers  # who gets which partitions, the group decides
    if order.consumers == 1:
        records = [there if order.records is None else min(order.records, there)]
    elif order.records is not None:
        records = [*share_evenly(min(order.records, there), order.consumers)]
    return [
        ConsumeJob(
            settings=_settings(stage, order),
            topic=order.topic,
            partitions=None,
            mode=order.mode,
            records=each,
            seconds=order.seconds,
        )
        for each in records
    ]
