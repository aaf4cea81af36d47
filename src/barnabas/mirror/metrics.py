"""The metrics of a mirror, and the totals over all partitions for its status line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.metrics.metric import Sample, counter, gauge
from barnabas.mirror.partition_link import PartitionLink

_PARTITION = ("topic", "partition")
_COUNTERS = {
    "records": counter("barnabas_mirror_records_total", "Records written to the target.", *_PARTITION),
    "bytes": counter("barnabas_mirror_bytes_total", "Bytes of record batches written to the target.", *_PARTITION),
    "batches": counter("barnabas_mirror_batches_total", "Record batches written to the target.", *_PARTITION),
    "source_missing": counter(
        "barnabas_mirror_source_missing_total", "Source offsets deleted before they were mirrored.", *_PARTITION
    ),
    "replaced": counter(
        "barnabas_mirror_placed_total",
        "Number of times that the mirror searched for its resume position in the target log.",
        *_PARTITION,
    ),
}
"""The counter metrics of a partition. The key is the field of `PartitionLink.counts` that has the value."""
LAG = gauge("barnabas_mirror_lag", "Source offsets that are not mirrored yet.", *_PARTITION)
LAG_SECONDS = gauge(
    "barnabas_mirror_lag_seconds",
    "Age in seconds of the first record that is not mirrored yet; 0 without lag. For records older than the mirror's"
    " start, the age counts from the start.",
    *_PARTITION,
)
STOPPED = gauge("barnabas_mirror_stopped", "1 if the mirror has stopped the partition, else 0.", *_PARTITION)
GROUP_COMMITS = counter("barnabas_mirror_group_commits_total", "Committed group offsets that the mirror synchronized.")
AUDIT_EVENTS = counter("barnabas_mirror_audit_events_total", "Audit events written to the target.")


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals over all partitions of a mirror."""

    partitions: int
    stopped: int
    records: int
    bytes: int
    missing: int
    """The number of source offsets deleted before they were mirrored."""
    lag: int | None
    """The number of source offsets not mirrored yet, including stopped partitions; None if it is unknown for some
    partition."""

    @classmethod
    def of(cls, links: Iterable[PartitionLink]) -> Sums:
        """Return the totals over the given partitions."""
        known = list(links)
        lags = [link.lag for link in known]
        return cls(
            len(known),
            sum(link.stopped is not None for link in known),
            sum(link.counts.records for link in known),
            sum(link.counts.bytes for link in known),
            sum(link.counts.source_missing for link in known),
            None if None in lags else sum(lag for lag in lags if lag is not None),
        )


def collect(links: Iterable[PartitionLink], group_commits: int, audit_events: int, now_s: float) -> Iterator[Sample]:
    """Yield the metrics of a mirror, with one sample per partition.

    :param group_commits: number of group offsets that the mirror committed.
    :param audit_events: number of audit events that the mirror wrote.
    :param now_s: the monotonic time in seconds.
    """
    for link in sorted(links, key=lambda link: link.source):
        partition = link.source.topic, str(link.source.partition)
        for field, metric in _COUNTERS.items():
            yield metric.sample(getattr(link.counts, field), *partition)
        if (lag := link.lag) is not None:
            yield LAG.sample(lag, *partition)
        if (lag_s := link.lag_s(now_s)) is not None:
            yield LAG_SECONDS.sample(lag_s, *partition)
        yield STOPPED.sample(link.stopped is not None, *partition)
    yield GROUP_COMMITS.sample(group_commits)
    yield AUDIT_EVENTS.sample(audit_events)
