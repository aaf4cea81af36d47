"""An account: the counts of the records that one load or task has read, by topic and window of event time.

An account counts records by producer identity and also by offset. The rows of a table, and records of producers without
an id, have only offsets. An account covers one operation, such as a load, and is reported as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.audit.events import MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, Tally
from barnabas.model import NO_PRODUCER_ID


def offsets_of(partition: int) -> Producer:
    """Return the `Producer` value that represents a partition when records are counted by offset."""
    return Producer(NO_PRODUCER_ID, -1, partition)


@dataclass(slots=True)
class WindowAccount:
    """The counts of one window of a topic. `counted` maps each producer to its counts. `offsets` maps each partition to
    its counts, where the number of a record is its offset.
    """

    counted: dict[Producer, Tally] = field(default_factory=dict)
    offsets: dict[int, Tally] = field(default_factory=dict)

    def add(self, counted: Mapping[Producer, Tally], offsets: Mapping[int, Tally]) -> None:
        """Add the counts of further records."""
        for producer, found in counted.items():
            self.counted[producer] = self.counted.get(producer, NOTHING).plus(found)
        for partition, found in offsets.items():
            self.offsets[partition] = self.offsets.get(partition, NOTHING).plus(found)


class Account:
    """The counts of read records by topic and window. Not thread-safe."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], WindowAccount] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def of(self, topic: str, window_ms: int) -> WindowAccount:
        """Return the account of a window, which the caller may modify. A new window gets an empty account."""
        return self._windows.setdefault((topic, window_ms), WindowAccount())

    def items(self) -> Iterator[tuple[str, int, WindowAccount]]:
        """Yield the topic, the start in ms, and the account of each window."""
        for (topic, window_ms), window in sorted(self._windows.items()):
            yield topic, window_ms, window

    def records_of(self, topic: str) -> int:
        """Return the number of records read from a topic."""
        windows = (window for (name, _window_ms), window in self._windows.items() if name == topic)
        return sum(found.records for window in windows for found in window.offsets.values())

    @classmethod
    def together(cls, parts: Iterable[Account]) -> Account:
        """Return an account with the sums of several accounts. Each record must be counted in only one of these
        accounts."""
        whole = cls()
        for part in parts:
            for topic, window_ms, window in part.items():
                whole.of(topic, window_ms).add(window.counted, window.offsets)
        return whole

    def events(
        self, tier: str, width_ms: int, instance: str, host: str, application: str, topic_ids: Mapping[str, str]
    ) -> Iterator[MonitoringEvent]:
        """Yield one audit event for each window of each topic."""
        for topic, window_ms, window in self.items():
            yield MonitoringEvent(
                topic=topic,
                tier=tier,
                window_ms=window_ms,
                width_ms=width_ms,
                instance=instance,
                number=1,
                host=host,
                application=application,
                counted=window.counted,
                offsets=window.offsets,
                topic_id=topic_ids.get(topic, ""),
            )
