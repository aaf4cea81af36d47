"""The lag of a streaming query, computed from Spark's progress reports. Pure.

Spark's Kafka source reports its lag as metrics (`minOffsetsBehindLatest` and so on). A Python data source has no
metrics, so the lag is computed from the offsets in a progress report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.model import TopicPartition
from barnabas.spark.stream_offsets import restore_offsets


@dataclass(frozen=True, slots=True)
class OffsetsBehind:
    """The lag of each partition, in offsets: log end offset when the last batch was planned, minus the end of that
    batch."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def least(self) -> int:
        """The smallest lag of a partition; 0 without partitions."""
        return min(self.by_partition.values(), default=0)

    @property
    def greatest(self) -> int:
        """The largest lag of a partition; 0 without partitions."""
        return max(self.by_partition.values(), default=0)


def offsets_behind(progress: Mapping[str, Any], source: int = 0) -> OffsetsBehind:
    """Return the lag of a streaming query on the format `barnabas`.

    :param progress: `query.lastProgress`, or an element of `query.recentProgress`.
    :param source: The index of the source in the query.
    :raises ConfigurationError: The source has another format.

    >>> report = {"sources": [{"endOffset": {"clicks": {"0": 40}}, "latestOffset": {"clicks": {"0": 42}}}]}
    >>> offsets_behind(report).total
    2
    """
    reported = progress["sources"][source]
    end, latest = (restore_offsets(_offsets(reported.get(name))) for name in ("endOffset", "latestOffset"))
    return OffsetsBehind({tp: max(latest[tp] - end.get(tp, 0), 0) for tp in sorted(latest)})


def _offsets(reported: Any) -> Any:
    """Return parsed offsets. Some Spark releases report them as JSON text, and None before the first batch."""
    if reported is None:
        return {}
    return json.loads(reported) if isinstance(reported, str) else reported
