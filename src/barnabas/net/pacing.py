"""How soon a peer may be asked again whose answers bring nothing. Pure: the time is an argument.

A peer that answers at once with nothing, or with bytes that are no answer, would else be asked thousands of times a
second. Pauses grow with each futile exchange, and end with the first one that makes progress.
"""

from __future__ import annotations

FIRST_PAUSE_S = 0.05
FREE_FUTILE = 3
"""So many futile exchanges in a row cost no pause: leaders change, and sessions end."""


class RequestBackoff:
    """The pauses between the requests to one peer.

    >>> pacing = RequestBackoff(pause_s_max=1.0)
    >>> for _ in range(FREE_FUTILE + 2):
    ...     pacing.note_futile(now_s=5.0)
    >>> round(pacing.wait_s(now_s=5.0), 3)
    0.1
    """

    __slots__ = ("_futile", "_not_before_s", "_pause_s_max")

    def __init__(self, pause_s_max: float) -> None:
        self._pause_s_max = pause_s_max
        self._futile = 0
        self._not_before_s = 0.0

    @property
    def is_slow(self) -> bool:
        """Whether requests wait for a pause."""
        return self._futile > FREE_FUTILE

    def note_progress(self) -> None:
        """Ask at once from now on: an exchange brought something, or took as long as it may."""
        self._futile = 0

    def note_futile(self, now_s: float) -> None:
        """Lengthen the pause: an exchange failed, or brought nothing and took no time."""
        self._futile += 1
        if self.is_slow:
            doublings = min(self._futile - FREE_FUTILE - 1, 16)
            self._not_before_s = now_s + min(FIRST_PAUSE_S * 2.0**doublings, self._pause_s_max)

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait before the next request; 0: it may leave."""
        return max(0.0, self._not_before_s - now_s) if self.is_slow else 0.0
