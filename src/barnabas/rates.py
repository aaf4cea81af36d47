"""The arithmetic of quotas, as in Kafka: a rate over several windows, and a token bucket.

`WindowedRate` corresponds to Kafka's `Rate`, and `TokenBucket` to Kafka's class of this name (KIP-599). Times are
monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

THROTTLE_MS_MAX = 2**31 - 1
"""The maximum of the field `throttle_time_ms`."""


class Windows(NamedTuple):
    """The windows of a rate: `quota.window.num` and `quota.window.size.seconds`. The last window is the current one."""

    number: int = 11
    size_s: float = 1.0

    @property
    def full_s(self) -> float:
        """The length of all windows before the current one."""
        return (self.number - 1) * self.size_s

    @property
    def all_s(self) -> float:
        """The length of all windows, which is the length of the burst that a token bucket permits."""
        return self.number * self.size_s


class WindowedRate:
    """The rate of an amount per second, over the last windows.

    >>> rate = WindowedRate(Windows(11, 1.0))
    >>> rate.note(3_000, 0.0)
    >>> rate.throttle_s(100, 0.0)  # 300 per second over 10 s
    20.0
    >>> rate.throttle_s(100, 12.0)  # the window of the amount has ended
    0.0
    """

    __slots__ = ("_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque()  # the start and the amount of each window
        self._total = 0.0

    def note(self, amount: float, now_s: float) -> None:
        """Add an amount to the current window."""
        samples = self._samples
        if not samples or now_s >= samples[-1][0] + self._windows.size_s:
            self._drop_old(now_s)
            samples.append([now_s, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def per_s(self, now_s: float) -> float:
        """Return the rate."""
        self._drop_old(now_s)
        return self._total / self._length_s(now_s)

    def throttle_s(self, limit: float, now_s: float) -> float:
        """Return the time after which the rate complies with a limit; 0 if it does so now.

        :param limit: the maximum amount per second, above 0.
        """
        excess = self.per_s(now_s) - limit
        return excess / limit * self._length_s(now_s) if excess > 0 else 0.0

    def is_idle(self, now_s: float) -> bool:
        """Return whether all windows have ended, so that nothing counts any more."""
        self._drop_old(now_s)
        return not self._samples

    def _length_s(self, now_s: float) -> float:
        """Return the time over which the rate is calculated: all full windows, even if the first amount is newer."""
        size_s = self._windows.size_s
        elapsed_s = now_s - self._samples[0][0] if self._samples else 0.0
        missing = self._windows.number - 1 - int(elapsed_s / size_s)
        return max(elapsed_s + max(missing, 0) * size_s, 0.001)

    def _drop_old(self, now_s: float) -> None:
        oldest_s = now_s - self._windows.all_s
        samples = self._samples
        while samples and samples[0][0] <= oldest_s:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # without errors of rounding


class TokenBucket:
    """Tokens that a limit adds continuously. The bucket holds the tokens of all windows.

    A request may take more tokens than there are, if there are any; the next one waits until no token is owed.

    >>> bucket = TokenBucket(Windows(11, 1.0), limit=2, now_s=0.0)
    >>> bucket.take(30, 0.0)
    >>> bucket.throttle_s(0.0), bucket.throttle_s(3.0), bucket.throttle_s(4.0)
    (4.0, 1.0, 0.0)
    """

    __slots__ = ("_at_s", "_limit", "_tokens", "_windows")

    def __init__(self, windows: Windows, limit: float, now_s: float) -> None:
        self._windows = windows
        self._limit = limit
        self._tokens = limit * windows.all_s
        self._at_s = now_s

    def set_limit(self, limit: float) -> None:
        """Set a new limit in tokens per second. Owed tokens stay owed."""
        if limit == self._limit:
            return
        self._limit = limit
        self._tokens = min(self._tokens, limit * self._windows.all_s)

    def take(self, tokens: float, now_s: float) -> None:
        """Take tokens, even if there are too few."""
        self._refill(now_s)
        self._tokens -= tokens

    def throttle_s(self, now_s: float) -> float:
        """Return the time until no token is owed; 0 if none is owed now."""
        self._refill(now_s)
        if self._tokens >= 0:
            return 0.0
        return -self._tokens / self._limit if self._limit else float("inf")

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Return the time until the bucket holds some tokens."""
        self._refill(now_s)
        if self._tokens >= tokens:
            return 0.0
        return (tokens - self._tokens) / self._limit if self._limit else float("inf")

    def is_idle(self, now_s: float) -> bool:
        """Return whether the bucket is full, so that it is the same as a new one."""
        self._refill(now_s)
        return self._tokens >= self._limit * self._windows.all_s

    def _refill(self, now_s: float) -> None:
        self._tokens = min(self._tokens + (now_s - self._at_s) * self._limit, self._limit * self._windows.all_s)
        self._at_s = now_s


def throttle_ms(throttle_s: float) -> int:
    """Return a time as a value for `throttle_time_ms`, rounded as in Kafka.

    >>> throttle_ms(0.0124), throttle_ms(float("inf"))
    (12, 2147483647)
    """
    return round(min(throttle_s * 1000, THROTTLE_MS_MAX))
