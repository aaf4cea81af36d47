"""An account: what one place has taken of topics, by windows of event time.

Beside the identities that producers give their records, it counts offsets: these are what a table's rows have, and all
that there is of records whose producer has no id. An account stands for one deed, as one load, and is told whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.audit.events import MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, Tally
from barnabas.model import NO_PRODUCER_ID


def offsets_of(partition: int) -> Producer:
    """Return under which identity the offsets of a partition are counted."""
    return Producer(NO_PRODUCER_ID, -1, partition)


@dataclass(slots=True)
class WindowAccount:
    """What was taken of one window of a topic: by producer, and by partition with the offsets for numbers."""

    counted: dict[Producer, Tally] = field(default_factory=dict)
    offsets: dict[int, Tally] = field(default_factory=dict)

    def add(self, counted: Mapping[Producer, Tally], offsets: Mapping[int, Tally]) -> None:
        """Add what is new."""
        for producer, found in counted.items():
            self.counted[producer] = self.counted.get(producer, NOTHING).plus(found)
        for partition, found in offsets.items():
            self.offsets[partition] = self.offsets.get(partition, NOTHING).plus(found)


class Account:
    """What was taken, by topic and window. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], WindowAccount] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def of(self, topic: str, window_ms: int) -> WindowAccount:
        """Return what was taken of a window, to be added to."""
        return self._windows.setdefault((topic, window_ms), WindowAccount())

    def items(self) -> Iterator[tuple[str, int, WindowAccount]]:
        """Yield topic, begin of the window, and what was taken of it."""
        for (topic, window_ms), window in sorted(self._windows.items()):
            yield topic, window_ms, window

    def records_of(self, topic: str) -> int:
        """Return how many records were taken of a topic."""
        windows = (window for (name, _window_ms), window in self._windows.items() if name == topic)
        return sum(found.records for window in windows for found in window.offsets.values())

    @classmethod
    def together(cls, parts: Iterable[Account]) -> Account:
        """Return the account of several places that have each taken their own."""
        whole = cls()
        for part in parts:
            for topic, window_ms, window in part.items():
                whole.of(topic, window_ms).add(window.counted, window.offsets)
        return whole

    def events(
        self, tier: str, width_ms: int, instance: str, host: str, application: str, topic_ids: Mapping[str, str]
    ) -> Iterator[MonitoringEvent]:
        """Yield what tells of it, one event for each window of a topic."""
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
