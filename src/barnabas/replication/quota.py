"""How fast replicas are copied that are to be copied slowly (KIP-73): a rate, and whose replicas it is for.

Pure: sizes and a clock go in. A token bucket: it holds what may pass within `BURST_S`, and may be overdrawn, since it
is known only afterwards how much there was. Until that is paid, nothing more is to be begun. So what passes in any
time is at most the rate times that time, and beyond it the bucket and what was begun last. Kafka counts within a
window of eleven seconds instead, and forgets what is older: there, answers that hold more than the rate allows within
that time go faster than they are to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 1.0
"""So much unused time is made up for: a follower may be so late with its next fetch without losing any of the rate."""


class ReplicationQuota:
    """A rate, and what has passed.

    :param bytes_per_second: the rate; 0 lets nothing pass.
    :param now_s: monotonic seconds.

    >>> now_s = 0.0
    >>> quota = ReplicationQuota(100, lambda: now_s)
    >>> quota.note(300)
    >>> quota.is_exceeded, quota.wait_s
    (True, 2.0)
    >>> now_s = 2.5
    >>> quota.is_exceeded
    False
    """

    def __init__(self, bytes_per_second: int, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._rate = bytes_per_second
        self._left = bytes_per_second * BURST_S
        self._at_s = now_s()
        self.overdraft_count = 0
        """How often it came to be exceeded."""

    @property
    def bytes_per_second(self) -> int:
        """The rate."""
        return self._rate

    def set_rate(self, bytes_per_second: int) -> None:
        """Let another rate be in force; what has passed at the one before counts no more."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._left = bytes_per_second * BURST_S
            self._at_s = self._now_s()

    def note(self, size: int) -> None:
        """So many bytes have passed."""
        was_exceeded = self.is_exceeded
        self._left -= size
        if not was_exceeded and self._left <= 0:
            self.overdraft_count += 1

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more is to be begun now."""
        now_s = self._now_s()
        self._left = min(self._left + (now_s - self._at_s) * self._rate, self._rate * BURST_S)
        self._at_s = now_s
        return self._left <= 0

    @property
    def wait_s(self) -> float:
        """How long that will be so, if nothing more passes; infinite where the rate is 0."""
        if not self.is_exceeded:
            return 0.0
        return -self._left / self._rate if self._rate else float("inf")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Replicas of a topic, as `leader.replication.throttled.replicas` and its twin name them.

    >>> (3, 1) in ThrottledReplicas.parse("0:1,3:1"), (4, 9) in ThrottledReplicas.parse("*")
    (True, True)
    """

    are_all: bool
    replicas: frozenset[tuple[int, int]]
    """Each with its partition and its broker."""

    @classmethod
    def parse(cls, value: str) -> ThrottledReplicas:
        """Return what a setting says: `*`, or `partition:broker` with commas between them, or nothing.

        :param value: as it was checked when it was set.
        """
        parts = [part for each in value.split(",") if (part := each.strip())]
        if not parts:
            return NONE_THROTTLED
        if "*" in parts:
            return cls(True, frozenset())
        pairs = (part.split(":") for part in parts)
        return cls(False, frozenset((int(partition), int(broker)) for partition, broker in pairs))

    def __contains__(self, replica: object) -> bool:
        return self.are_all or replica in self.replicas


NONE_THROTTLED = ThrottledReplicas(False, frozenset())
