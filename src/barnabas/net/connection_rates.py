"""Limits for the rate of new connections (KIP-612): of each address, and of all addresses together.

A connection above the rate of its address is accepted, and waits before the broker serves it. It counts towards the
limits of open connections meanwhile. A connection that would wait longer than `WAIT_S_MAX` is closed, because its
client would have given up. Above the rate of all addresses, connections wait in the backlog of the listener.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.rates import TokenBucket, Windows

BURST = Windows(5, 1.0)
"""The burst that is permitted: the connections of five seconds."""
WAIT_S_MAX = 30.0
ADDRESSES_MAX = 10_000
"""The maximum number of addresses whose rates are known. Above it, those with the oldest rates start again."""


class ConnectionRate:
    """The rate of new connections from all addresses together.

    :param limit: returns the maximum rate per second; None for no limit.
    """

    def __init__(self, limit: Callable[[], float | None]) -> None:
        self._limit = limit
        self._bucket: TokenBucket | None = None
        self._known: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next connection may be accepted."""
        limit = self._limit()
        if limit is None:
            self._bucket = None
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(BURST, limit, now_s)
        elif limit != self._known:
            self._bucket.set_limit(limit)
        self._known = limit
        return self._bucket.wait_s(1, now_s)

    def note(self, now_s: float) -> None:
        """Count a connection."""
        if self._bucket is not None:
            self._bucket.take(1, now_s)


class ConnectionRates:
    """The rates of new connections from each address.

    :param limit_of: returns the maximum rate per second of an address; None for no limit.
    """

    def __init__(self, limit_of: Callable[[str], float | None]) -> None:
        self._limit_of = limit_of
        self._buckets: dict[str, tuple[float, TokenBucket]] = {}

    def take(self, host: str, now_s: float) -> float | None:
        """Count a connection. Return the time that it must wait; None, and count nothing, if it must be closed."""
        limit = self._limit_of(host)
        if limit is None:
            self._buckets.pop(host, None)
            return 0.0
        known, bucket = self._buckets.get(host, (None, None))
        if bucket is None:
            self._make_room(now_s)
            bucket = TokenBucket(BURST, limit, now_s)
        elif known != limit:
            bucket.set_limit(limit)
        self._buckets[host] = limit, bucket
        wait_s = bucket.wait_s(1, now_s)
        if wait_s > WAIT_S_MAX:
            return None
        bucket.take(1, now_s)
        return wait_s

    def give_back(self, host: str, now_s: float) -> None:
        """Do not count a connection whose client went while the connection waited."""
        if host in self._buckets:
            self._buckets[host][1].take(-1, now_s)

    def _make_room(self, now_s: float) -> None:
        if len(self._buckets) < ADDRESSES_MAX:
            return
        self._buckets = {host: each for host, each in self._buckets.items() if not each[1].is_idle(now_s)}
        for host in list(self._buckets)[: max(0, len(self._buckets) - ADDRESSES_MAX * 9 // 10)]:
            del self._buckets[host]
