"""A client that writes single records to some partitions and notes the times of their acknowledgements."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from barnabas import Producer
from barnabas.errors import BarnabasError
from bench.cluster.stage import LIMIT_S

PAUSE_S = 0.005


class Pulse:
    """One `Producer` (acks=all) with one thread per partition. The thread sends each record after the acknowledgement
    of the previous record.

    :param partitions: the partitions of the topic to write to.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: Iterable[int]) -> None:
        self._producer = Producer(bootstrap, acks="all", linger_ms=0)
        self._topic = topic
        self._ending = threading.Event()
        self.acknowledged_s: dict[int, list[float]] = {partition: [] for partition in partitions}
        """The times of acknowledgements (`time.monotonic`) by partition."""
        self.errors: list[BarnabasError] = []
        self._threads = [threading.Thread(target=self._beat, args=(each,), daemon=True) for each in self.acknowledged_s]

    def __enter__(self) -> Self:
        self._producer.partitions_for(self._topic)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        self._producer.close()

    def _beat(self, partition: int) -> None:
        while not self._ending.wait(PAUSE_S):
            try:
                self._producer.send(self._topic, b"beat", partition=partition).result(LIMIT_S)
            except BarnabasError as error:
                self.errors.append(error)
            else:
                self.acknowledged_s[partition].append(time.monotonic())

    def has_beaten_since(self, moment_s: float) -> bool:
        """Return whether every partition has had an acknowledgement since a given time."""
        return all(times and times[-1] > moment_s for times in self.acknowledged_s.values())

    def longest_pause_s(self, begin_s: float, end_s: float) -> float:
        """Return the longest time without an acknowledgement in any partition, between two given times."""
        return max(longest_gap_s(times, begin_s, end_s) for times in self.acknowledged_s.values())


def longest_gap_s(times_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest gap between consecutive times within an interval.

    >>> longest_gap_s([0.5, 1.0, 1.25, 2.5, 4.0], 1.0, 3.0)
    1.25
    """
    within = [begin_s, *(each for each in times_s if begin_s < each < end_s), end_s]
    return max(after - before for before, after in itertools.pairwise(within))
