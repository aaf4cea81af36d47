"""The quota for throttled replication (KIP-73): a rate, and the throttled replicas.

The quota is a token bucket with a capacity of `BURST_S` times the rate. The size of a response is known only
afterwards, so the bucket may be overdrawn. No further fetch may start until the overdraft is gone. In any period, at
most the rate times the period is replicated, plus the bucket size and the last response.

Kafka instead counts the bytes within a sliding window of eleven seconds. In Kafka, responses that are larger than the
quota of a window therefore exceed the rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BURST_S = 1.0
"""The maximum idle time in seconds that a burst can make up for.

If a fetch is late by at most this time, the full rate is still used.
"""


class ReplicationQuota:
    """A replication rate, and the state of its token bucket.

    :param bytes_per_second: the rate. 0 blocks throttled replication.
    :param now_s: returns monotonic seconds.

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
        """The number of times that the quota has been exceeded."""

    @property
    def bytes_per_second(self) -> int:
        return self._rate

    def set_rate(self, bytes_per_second: int) -> None:
        """Set a new rate and refill the bucket. Earlier bytes no longer count."""
        if bytes_per_second != self._rate:
            self._rate = bytes_per_second
            self._left = bytes_per_second * BURST_S
            self._at_s = self._now_s()

    def note(self, size: int) -> None:
        """Record that `size` bytes of throttled replicas were transferred."""
        was_exceeded = self.is_exceeded
        self._left -= size
        if not was_exceeded and self._left <= 0:
            self.overdraft_count += 1

    @property
    def is_exceeded(self) -> bool:
        """True if no further fetch may start now."""
        now_s = self._now_s()
        self._left = min(self._left + (now_s - self._at_s) * self._rate, self._rate * BURST_S)
        self._at_s = now_s
        return self._left <= 0

    @property
    def wait_s(self) -> float:
        """The time in seconds until the quota is no longer exceeded, if no more bytes are recorded.

        Infinite if the rate is 0.
        """
        if not self.is_exceeded:
            return 0.0
        return -self._left / self._rate if self._rate else float("inf")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of a topic, parsed from `leader.` or `follower.replication.throttled.replicas`.

    >>> (3, 1) in ThrottledReplicas.parse("0:1,3:1"), (4, 9) in ThrottledReplicas.parse("*")
    (True, True)
    """

    are_all: bool
    replicas: frozenset[tuple[int, int]]
    """The throttled replicas as (partition, broker id) pairs."""

    @classmethod
    def parse(cls, value: str) -> ThrottledReplicas:
        """Parse the value of the setting: `*`, a comma-separated list of `partition:broker`, or an empty string.

        :param value: a valid value. The broker has checked it when the setting was changed.
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
