"""Supervises the ZooKeeper servers of a cluster on this machine: reports servers that end, and restarts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.cli.supervision import Restarts, Say
from barnabas.errors import CoordinationError
from barnabas.exit_codes import how_it_ended


class Servers(Protocol):
    """The part of `barnabas.coordination.zookeeper.servers.ZooKeeperServers` that `ZooKeeperWatch` uses."""

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit code of each server; None while the server is running."""
        ...

    def restart(self, number: int) -> None:
        """Restart a server and wait until it serves.

        :raises CoordinationError: the server did not start.
        """
        ...


class ZooKeeperWatch:
    """Checks the ZooKeeper servers at each call of `check`.

    :param now_s: returns the monotonic time in seconds.
    """

    def __init__(self, servers: Servers, *, restart: bool, now_s: Callable[[], float], say: Say) -> None:
        self._servers = servers
        self._restart = restart
        self._say = say
        self._restarts = [Restarts(now_s) for _ in servers.exit_codes]
        self._dead: set[int] = set()
        for each in self._restarts:
            each.started()

    def check(self) -> None:
        """Report servers that have ended since the last call, and restart the servers whose backoff has passed."""
        for number, code in enumerate(self._servers.exit_codes):
            if code is not None and number not in self._dead:
                self._died(number, code)
            if self._restarts[number].is_due:
                self._start_again(number)

    def _died(self, number: int, code: int) -> None:
        self._dead.add(number)
        then = ""
        if self._restart:
            then = f"; restarting it in {self._restarts[number].died():.0f} s"
        self._say(f"ZooKeeper server {number} {how_it_ended(code)}{then}")

    def _start_again(self, number: int) -> None:
        self._restarts[number].started()
        self._dead.discard(number)
        try:
            self._servers.restart(number)
        except CoordinationError as error:
            self._say(str(error))  # if the server has ended again, the next check reports it
        else:
            self._say(f"ZooKeeper server {number} serves again")
