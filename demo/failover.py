"""Causes a failover in the middle of shipping, if there are several brokers. No record may be lost or duplicated."""

from __future__ import annotations

from demo.brokers import Brokers
from demo.events import Feed


class Failover:
    """Counts acknowledgements. After half of the feed, it kills the broker that leads most partitions."""

    def __init__(self, brokers: Brokers, feed: Feed) -> None:
        self._brokers = brokers
        self._feed = feed
        self._acknowledged = 0
        self._killed: int | None = None

    def advance(self, count: int) -> None:
        """Add newly acknowledged records."""
        self._acknowledged += count
        if self._brokers.count > 1 and self._killed is None and 2 * self._acknowledged >= self._feed.count:
            self._killed = self._brokers.kill_leader(self._feed.topic)

    @property
    def outcome(self) -> str:
        """The text about the failover, which the demo prints after the counts."""
        return "" if self._killed is None else f"; broker {self._killed}, a leader, was killed half way"
