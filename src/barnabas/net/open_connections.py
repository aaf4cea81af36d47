"""The open connections of an HTTP server, up to a limit of all and of each address, and their deadlines.

At a limit, a new connection takes the place of one that waits for a request. So connections that send nothing do not
lock out others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar


class OpenConnection(Protocol):
    """A connection that may be closed for a new one."""

    @property
    def is_waiting(self) -> bool:
        """True if the connection waits for a request, or for the rest of one."""

    def abort(self) -> None:
        """Close the connection without waiting for pending data."""


ConnectionT = TypeVar("ConnectionT", bound=OpenConnection)


class OpenConnections(Generic[ConnectionT]):
    """The open connections of a server, by a key.

    :param connections_max: the maximum number of connections.
    :param of_address_max: the maximum number of connections of one address; None for no such limit.
    """

    def __init__(self, connections_max: int, of_address_max: int | None = None) -> None:
        self._connections_max = connections_max
        self._of_address_max = connections_max if of_address_max is None else of_address_max
        self._addresses: dict[Hashable, str] = {}
        self._of_address: dict[str, dict[Hashable, ConnectionT]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[ConnectionT]:
        return iter([each for found in self._of_address.values() for each in found.values()])

    def find(self, key: Hashable) -> ConnectionT | None:
        """Return the connection with a key."""
        address = self._addresses.get(key)
        return None if address is None else self._of_address[address][key]

    def admit(self, key: Hashable, address: str, connection: ConnectionT) -> bool:
        """Return whether to accept a new connection; at a limit, first close a waiting connection.

        At the limit of an address, the connection of this address that has waited longest is closed. At the limit of
        all addresses, it is one of the address with the most connections.
        """
        crowd = address
        is_crowded = len(self._of_address.get(address, ())) >= self._of_address_max
        if is_crowded or len(self) >= self._connections_max:
            if not is_crowded:
                crowd = max(self._of_address, key=lambda each: len(self._of_address[each]))
            waiting = next(((key, each) for key, each in self._of_address[crowd].items() if each.is_waiting), None)
            if waiting is None:
                return False
            self.forget(*waiting)
            waiting[1].abort()
        self._addresses[key] = address
        self._of_address.setdefault(address, {})[key] = connection
        return True

    def begin_to_wait(self, key: Hashable) -> None:
        """Note that a connection begins to wait for a request: those that wait already are closed before it."""
        address = self._addresses.get(key)
        if address is not None:
            found = self._of_address[address]
            found[key] = found.pop(key)

    def forget(self, key: Hashable, connection: ConnectionT) -> None:
        """Remove a connection that has ended, unless another one has its key."""
        if self.find(key) is not connection:
            return
        address = self._addresses.pop(key)
        found = self._of_address[address]
        del found[key]
        if not found:
            del self._of_address[address]


class Deadline:
    """The time by which something must happen on a connection.

    :param on_expiry: called if it does not happen.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expiry: Callable[[], object]) -> None:
        self._loop = loop
        self._on_expiry = on_expiry
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def start(self, delay_s: float) -> None:
        """Set the deadline, in place of an earlier one."""
        self.stop()
        self._timer = self._loop.call_later(delay_s, self._on_expiry)

    def stop(self) -> None:
        """Remove the deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
