"""Which logs are being made, and in which data folder: new ones are to be spread evenly, though many are made at once.

Threads: whoever calls holds one lock, that of the choice.
"""

from __future__ import annotations

from collections import Counter

from barnabas.model import TopicPartition
from barnabas.storage.log_manager import LogManager


class LogsInTheMaking:
    """Logs from the choice of their folder until they are there."""

    def __init__(self) -> None:
        self._managers: dict[TopicPartition, LogManager] = {}
        self._makers: Counter[TopicPartition] = Counter()
        """So many make each of them."""

    def begin(self, partition: TopicPartition, manager: LogManager) -> None:
        """Note that a log is being made; `end` must follow."""
        self._makers[partition] += 1
        self._managers[partition] = manager

    def end(self, partition: TopicPartition) -> None:
        """Note that it is there, or was given up."""
        self._makers[partition] -= 1
        if not self._makers[partition]:
            del self._makers[partition], self._managers[partition]

    def where(self, partition: TopicPartition) -> LogManager | None:
        """Return where a log is being made, if it is."""
        return self._managers.get(partition)

    def load_of(self, manager: LogManager) -> int:
        """Return how many logs a folder has, with those that are being made in it: each counts once, whenever it is
        done."""
        while True:
            count = manager.count()
            making = sum(
                each is manager and manager.get(partition) is None for partition, each in self._managers.items()
            )
            if manager.count() == count:
                return count + making
