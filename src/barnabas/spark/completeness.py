"""The event time up to which a loaded table is complete, stored in the snapshot of each load. Pure.

    barnabas.complete  {"at_ms": 1700000000000, "before_ms": {"clicks": [10000]}}

`at_ms` is the time when the load read the ends of the logs; the table has all records before those ends. `before_ms` is
the time between the latest event of each partition and `at_ms` (compact_json.py). Older releases wrote the time of the
event itself, `latest_ms`. Event times far after `at_ms` come from wrong clocks and are ignored.

If the events of each partition arrive in order, the table is complete up to the earliest of these latest events. A
partition without records does not limit the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.model import TopicPartition
from barnabas.spark.compact_json import dump_compact, pack, unpack

COMPLETE = "barnabas.complete"
CLOCK_DIFFERENCE_MAX_MS = 60_000
"""The maximum accepted time by which a producer's clock is ahead, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """The time when the last load read the logs' ends, and the latest event time of each partition, in ms."""

    at_ms: int = 0
    latest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def event_time_ms(self) -> int | None:
        """The event time up to which the table has the records of all partitions; None without event times."""
        return min(self.latest_ms.values(), default=None)

    def advanced(self, at_ms: int, parts: Iterable[Mapping[TopicPartition, int]]) -> Completeness:
        """Return the completeness after a load.

        :param at_ms: The time when the load read the ends of the logs.
        :param parts: The latest event times that the tasks of the load read.

        >>> before = Completeness(5, {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4})
        >>> before.advanced(9, [{TopicPartition("t", 0): 8}, {TopicPartition("t", 0): 7}]).event_time_ms
        4
        """
        latest = dict(self.latest_ms)
        for part in parts:
            for partition, time_ms in part.items():
                latest[partition] = max(time_ms, latest.get(partition, time_ms))
        return Completeness(at_ms, latest)

    def dump(self) -> str:
        """Return the value of the snapshot property."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), time_ms in sorted(self.latest_ms.items()):
            by_topic.setdefault(topic, {})[partition] = self.at_ms - time_ms
        return dump_compact({"at_ms": self.at_ms, "before_ms": {topic: pack(ms) for topic, ms in by_topic.items()}})

    @classmethod
    def parse(cls, text: str | None) -> Completeness:
        """Parse the output of `dump` of this or an older release. None means that the snapshot lacks the property."""
        if text is None:
            return cls()
        kept = json.loads(text)
        latest = {
            TopicPartition(topic, partition): time_ms
            for topic, times_ms in kept.get("latest_ms", {}).items()
            for partition, time_ms in unpack(times_ms).items()
        }
        latest |= {
            TopicPartition(topic, partition): kept["at_ms"] - before_ms
            for topic, times_ms in kept.get("before_ms", {}).items()
            for partition, before_ms in unpack(times_ms).items()
        }
        return cls(kept["at_ms"], latest)
