"""Kills a leader in the middle of shipping, where others can take over. Nothing may be lost by it, nothing doubled."""

from __future__ import annotations

from demo.brokers import Brokers
from demo.events import Feed


class Failover:
    """Counts what is acknowledged, and kills the broker that leads most when it is half of the feed."""

    def __init__(self, brokers: Brokers, feed: Feed) -> None:
        self._brokers = brokers
        self._feed = feed
        self._acknowledged = 0
        self._killed: int | None = None

    def advance(self, count: int) -> None:
        """Take note of how many more were acknowledged."""
        self._acknowledged += count
        if self._brokers.count > 1 and self._killed is None and 2 * self._acknowledged >= self._feed.count:
            self._killed = self._brokers.kill_leader(self._feed.topic)

    @property
    def outcome(self) -> str:
        """What is said of it behind the counts."""
        return "" if self._killed is None else f"; broker {self._killed}, a leader, was killed half way"
