"""What a mirror did and how far behind it is, as Prometheus' text, and as a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.mirror.link import Link

_COUNTERS = {
    "records_total": "records",
    "bytes_total": "bytes",
    "batches_total": "batches",
    "source_missing_total": "source_missing",
    "placed_total": "replaced",
}


@dataclass(frozen=True, slots=True)
class Sums:
    """Over all partitions."""

    partitions: int
    stopped: int
    records: int
    bytes: int
    missing: int
    """Source offsets that were deleted before they were mirrored."""
    lag: int | None
    """Source offsets that are not mirrored yet, also of stopped partitions; None: not known of all partitions."""

    @classmethod
    def of(cls, links: Iterable[Link]) -> Sums:
        """Return the sums of these partitions."""
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


def metrics_text(links: Iterable[Link], group_commits: int) -> str:
    """Return the metrics in Prometheus' text format, a line for each partition."""
    known = sorted(links, key=lambda link: link.source)
    lines = []
    for name, attribute in _COUNTERS.items():
        lines.append(f"# TYPE barnabas_mirror_{name} counter")
        lines += [f"barnabas_mirror_{name}{_labels(link)} {getattr(link.counts, attribute)}" for link in known]
    lines.append("# TYPE barnabas_mirror_lag gauge")
    lines += [f"barnabas_mirror_lag{_labels(link)} {link.lag}" for link in known if link.lag is not None]
    lines.append("# TYPE barnabas_mirror_stopped gauge")
    lines += [f"barnabas_mirror_stopped{_labels(link)} {int(link.stopped is not None)}" for link in known]
    lines += [
        "# TYPE barnabas_mirror_group_commits_total counter",
        f"barnabas_mirror_group_commits_total {group_commits}",
    ]
    return "\n".join(lines) + "\n"


def _labels(link: Link) -> str:
    return f'{{topic={json.dumps(link.source.topic)},partition="{link.source.partition}"}}'
