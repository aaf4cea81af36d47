"""What clients may cost a broker: connections, memory for requests, time. All of it bounded.

The names are Kafka's where Kafka has one. Deadlines are kept by one sweep over all connections, not by a timer
for each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one listener.

    `frame_bytes_max`: the largest request (`socket.request.max.bytes`).
    `queued_bytes_max`: bytes of requests held over all connections (`queued.max.request.bytes`).
    `connections_max`, `connections_per_host_max`: open connections, in all and from one address
    (`max.connections`, `max.connections.per.ip`).
    `idle_s_max`: how long a connection may be silent (`connections.max.idle.ms`).
    `partial_frame_s_max`: how long a request may take to arrive, from its first byte to its last; a large one may
    take longer.
    """

    frame_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 512 * 1024 * 1024
    connections_max: int = 10_000
    connections_per_host_max: int = 10_000
    idle_s_max: float = 600.0
    partial_frame_s_max: float = 30.0


class RequestMemory:
    """What requests hold, over all connections: those under way, those that wait, those that are carried out.

    Every byte that came counts, and none that was only announced. While the bound is exceeded, who holds much reads
    no more and waits in line; so it is exceeded by a little for each connection at the most.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Callable[[], None]] = deque()
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.used_bytes > self._bytes_max

    def change(self, difference: int) -> None:
        """Count more or fewer bytes; when there is room again, those who wait go on, in their order."""
        self.used_bytes += difference
        if difference < 0:
            for _ in range(len(self._waiting)):
                if self.is_full:
                    return
                self._waiting.popleft()()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called when there is room."""
        if go_on not in self._waiting:
            self._waiting.append(go_on)

    def give_up(self, go_on: Callable[[], None]) -> None:
        """Wait no longer."""
        if go_on in self._waiting:
            self._waiting.remove(go_on)


class ConnectionCount:
    """How many connections are open, in all and from each address."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()

    def admit(self, host: str) -> str | None:
        """Count a connection; return None, or why there may not be another one."""
        if self._by_host.total() >= self._limits.connections_max:
            return f"{self._limits.connections_max} connections are open (max.connections)"
        if self._by_host[host] >= self._limits.connections_per_host_max:
            return f"{host} has {self._limits.connections_per_host_max} connections open (max.connections.per.ip)"
        self._by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Count a connection no longer."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
