"""How far a streaming query is behind, from what Spark reports of it. Pure.

Spark's Kafka source reports this as metrics (`minOffsetsBehindLatest` and so on); a data source in Python has none.
What it has are the offsets that each progress report carries.
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
    """The offsets between the end of the last batch and the end of the log when that batch was planned."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def least(self) -> int:
        """The lag of the partition that is behind the least; 0 where there is none."""
        return min(self.by_partition.values(), default=0)

    @property
    def greatest(self) -> int:
        """The lag of the partition that is behind the most; 0 where there is none."""
        return max(self.by_partition.values(), default=0)


def offsets_behind(progress: Mapping[str, Any], source: int = 0) -> OffsetsBehind:
    """Return how far a query on `barnabas` is behind.

    :param progress: `query.lastProgress`, or one of `query.recentProgress`.
    :param source: which of the query's sources, where it has several.
    :raises ConfigurationError: the source is another one.

    >>> report = {"sources": [{"endOffset": {"clicks": {"0": 40}}, "latestOffset": {"clicks": {"0": 42}}}]}
    >>> offsets_behind(report).total
    2
    """
    reported = progress["sources"][source]
    end, latest = (restore_offsets(_offsets(reported.get(name))) for name in ("endOffset", "latestOffset"))
    return OffsetsBehind({tp: max(latest[tp] - end.get(tp, 0), 0) for tp in sorted(latest)})


def _offsets(reported: Any) -> Any:
    """Return offsets, which Spark reports as a text in some releases; none where the query has not read yet."""
    if reported is None:
        return {}
    return json.loads(reported) if isinstance(reported, str) else reported
