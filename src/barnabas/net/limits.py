"""The limits on what clients may use of a broker: connections, memory for requests, time.

The names are Kafka's where Kafka has one. Deadlines are kept by one sweep over all connections, not by a timer
for each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

OnMemory: TypeAlias = "Callable[[int], None]"
"""Called with the size that was asked for, when there is memory for it."""


class _Waiter(NamedTuple):
    size: int
    held: int
    go_on: OnMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one listener.

    `frame_bytes_max`: the largest request (`socket.request.max.bytes`).
    `queued_bytes_max`: bytes of requests held over all connections (`queued.max.request.bytes`).
    `connections_max`: tells how many connections may be open now, which depends on `max.connections` and on the files
    that the process may have open. `connections_per_host_max`: how many from one address (`max.connections.per.ip`).
    Both can change while the broker runs.
    `idle_s_max`: how long a connection may be silent (`connections.max.idle.ms`).
    `partial_frame_s_max`: how long a request may take to arrive, from its first byte to its last; a large one may
    take longer.
    """

    frame_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 512 * 1024 * 1024
    connections_max: Callable[[], int] = lambda: 10_000
    connections_per_host_max: Callable[[], int] = lambda: 10_000
    idle_s_max: float = 600.0
    partial_frame_s_max: float = 30.0


class RequestMemory:
    """The memory that requests use, over all connections: arriving, waiting, or being carried out.

    A large request is counted with the size that it announces. If there is no room for it, its connection stands in
    line and is not read until there is. So every request that is being read can be completed, and all of them together
    stay within the limit, except for the few bytes that have already come of those in line. Small requests are counted
    too, and never wait.

    A request of more than 1/`MEDIUM_PARTS` of the memory is large. Large ones leave 1/`KEPT_PARTS` of the memory to
    the others, and the others overtake them in line: a client that announces much and sends little holds up only
    clients that announce as much.
    """

    MEDIUM_PARTS = 64
    KEPT_PARTS = 8

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._large: deque[_Waiter] = deque()
        self._others: deque[_Waiter] = deque()
        self._under_way = 0
        self._held_in_line = 0
        self._is_letting_go_on = False
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.used_bytes > self._bytes_max

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody stands in line."""
        return bool(self._large or self._others)

    def change(self, difference: int) -> None:
        """Count more or fewer bytes. When there is room again, the first in line go on."""
        self.used_bytes += difference
        if difference < 0:
            self._let_go_on()

    def reserve(self, size: int, go_on: OnMemory, *, held: int = 0) -> bool:
        """Count the rest of a large request if there is room for it; else stand in line.

        :param size: of the rest; with 0, nothing is counted, and there is room whenever the limit is not exceeded.
        :param held: bytes of the request that have come already; they stay in memory while it is in line.
        :param go_on: called with `size`, counted by then, when it is this one's turn; not called if there is room now.
        :returns: whether there is room now.
        """
        line = self._large if self.is_large(size) else self._others
        if not line and self._fits(size):
            self._take(size)
            return True
        line.append(_Waiter(size, held, go_on))
        self._held_in_line += held
        return False

    def arrived(self) -> None:
        """Note that a request for which memory was reserved is whole, or will never be."""
        self._under_way -= 1
        self._let_go_on()

    def give_up(self, go_on: OnMemory) -> None:
        """Wait no longer."""
        for line in (self._large, self._others):
            for waiter in [waiter for waiter in line if waiter.go_on == go_on]:
                line.remove(waiter)
                self._held_in_line -= waiter.held

    def is_large(self, size: int) -> bool:
        """Return whether a request of this size counts as large."""
        return size > self._bytes_max // self.MEDIUM_PARTS

    def _fits(self, size: int) -> bool:
        kept = self._bytes_max // self.KEPT_PARTS if self.is_large(size) else 0
        used = self.used_bytes - self._held_in_line
        if used + size <= self._bytes_max - kept:
            return True
        # A request nearly as large as all the memory would otherwise wait for ever.
        return size > 0 and not self._under_way and used <= self._bytes_max // 2

    def _take(self, size: int) -> None:
        self.used_bytes += size
        self._under_way += size > 0

    def _let_go_on(self) -> None:
        if self._is_letting_go_on:
            return  # called by `go_on` below; the loop there looks again
        self._is_letting_go_on = True
        try:
            while waiter := self._next():
                self._held_in_line -= waiter.held
                self._take(waiter.size)
                waiter.go_on(waiter.size)
        finally:
            self._is_letting_go_on = False

    def _next(self) -> _Waiter | None:
        for line in (self._others, self._large):
            if line and self._fits(line[0].size):
                return line.popleft()
        return None


class WaitingMemory:
    """The bytes that waiting requests keep, over all connections.

    A request that waits for records, for a group or for replicas may wait for minutes, so its frame leaves
    `RequestMemory`. The request then counts here, with the bytes that it keeps.

    :param bytes_max: the bound; `PARTS` of them make up the memory for requests under way.
    """

    PARTS = 4

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Count `size` more bytes; return False, and count nothing, if they exceed the bound."""
        if self.used_bytes + size > self.bytes_max:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Count `size` bytes less."""
        self.used_bytes -= size


class ConnectionCount:
    """How many connections are open, in all and from each address."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()

    def admit(self, host: str) -> str | None:
        """Count a connection; return None, or why there may not be another one."""
        connections_max = self._limits.connections_max()
        if self._by_host.total() >= connections_max:
            return f"{connections_max} connections are open (max.connections, or the limit of open files)"
        if self._by_host[host] >= self._limits.connections_per_host_max():
            return f"{host} has {self._by_host[host]} connections open (max.connections.per.ip)"
        self._by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Count a connection no longer."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
