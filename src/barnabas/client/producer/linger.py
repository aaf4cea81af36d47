"""How long a batch that is not full waits for more records: a lone message leaves at once, a flood makes full batches.

Waiting costs latency and saves requests, so it is done only where it saves some:

- While nothing is under way to a broker, an open batch for it leaves at once. While something is, records gather
  until the answer comes, as bytes do under Nagle's algorithm: the more there are, the more travel together.
- Where a batch's worth flows within `linger_s`, it is worth waiting for a full one.
- No batch waits longer than `linger_s`.

Without acknowledgements no answer tells when the broker is free, so that a pause after each request takes its place.
"""

from __future__ import annotations

import math

POST_PAUSE_S = 0.0005
"""Between two requests without acknowledgement that are not full: at most 2,000 small ones a second."""


class TopicThroughput:
    """How much flows of one topic, measured whenever batches of it leave."""

    __slots__ = ("_batch_size", "_left_at_s", "_level_bytes", "_linger_s", "flooded_until_s")

    def __init__(self, *, batch_size: int, linger_s: float) -> None:
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._left_at_s = 0.0
        self._level_bytes = 0.0
        """What left lately: each byte counts less with time, by e for each `linger_s`. So a steady flow has the level
        of what flows within `linger_s`, and a short burst is none."""
        self.flooded_until_s = float("-inf")
        """Until then an open batch may wait to become full."""

    def left(self, size_bytes: int, now_s: float) -> None:
        """Note that a batch of `size_bytes` leaves.

        >>> flow = Flow(batch_size=1000, linger_s=0.005)
        >>> for millisecond in range(100):
        ...     flow.left(100, millisecond / 1000)  # 500 bytes in 5 ms
        >>> flow.flooded_until_s
        -inf
        >>> for millisecond in range(100, 200):
        ...     flow.left(250, millisecond / 1000)  # 1250 bytes in 5 ms
        >>> round(flow.flooded_until_s, 3)
        0.204
        """
        if now_s > self._left_at_s:
            fading = math.exp((self._left_at_s - now_s) / self._linger_s) if self._linger_s else 0.0
            self._level_bytes *= fading
            self._left_at_s = now_s
        self._level_bytes += size_bytes
        if self._level_bytes >= self._batch_size:
            self.flooded_until_s = now_s + self._linger_s

    def leaves_at_s(self, lingered_at_s: float, idle_at_s: float) -> float:
        """Return when an open batch leaves.

        :param lingered_at_s: when it will have waited as long as it may.
        :param idle_at_s: since when, or from when on, its broker is free.
        """
        return min(lingered_at_s, max(idle_at_s, self.flooded_until_s))
