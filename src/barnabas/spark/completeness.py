"""Up to which event time a loaded table is complete, kept in the snapshot of each load. Pure.

    barnabas.complete  {"at_ms": 1700000000000, "before_ms": {"clicks": [10000]}}

`at_ms` is when the brokers were asked for the ends of the logs: what was in them then is in the table. `before_ms` says
how long before that the latest event time of each partition is (compact_json.py); older releases wrote the time itself,
`latest_ms`. Times later than `at_ms` are of clocks that are wrong, and do not count.

Where the events of a partition come in their order, the table is complete up to the earliest of these: later events of
that partition may still be on their way. A partition that has nothing holds nobody up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.model import TopicPartition
from barnabas.spark.compact_json import dump_compact, pack, unpack

COMPLETE = "barnabas.complete"
CLOCK_DIFFERENCE_MAX_MS = 60_000
"""So far may the clocks of producers be ahead."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """How far a table is complete: when the logs' ends were asked for, and the latest event time per partition."""

    at_ms: int = 0
    latest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def event_time_ms(self) -> int | None:
        """The event time up to which all partitions are in the table; None where no record has one."""
        return min(self.latest_ms.values(), default=None)

    def advanced(self, at_ms: int, parts: Iterable[Mapping[TopicPartition, int]]) -> Completeness:
        """Return it after a load.

        :param parts: the latest event times that tasks have seen.

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
        """Return the text that a snapshot carries."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), time_ms in sorted(self.latest_ms.items()):
            by_topic.setdefault(topic, {})[partition] = self.at_ms - time_ms
        return dump_compact({"at_ms": self.at_ms, "before_ms": {topic: pack(ms) for topic, ms in by_topic.items()}})

    @classmethod
    def parse(cls, text: str | None) -> Completeness:
        """Read what `dump` wrote, in this release or an older one; a snapshot without it says nothing."""
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
