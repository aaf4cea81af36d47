"""Looks after the ZooKeeper servers of a cluster on this machine: tells of those that end, and starts them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.cli.supervision import Restarts, Say
from barnabas.errors import CoordinationError
from barnabas.exit_codes import how_it_ended


class Servers(Protocol):
    """What `barnabas.coordination.zookeeper.servers.ZooKeeperServers` has of it."""

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit code of each that ended."""
        ...

    def restart(self, number: int) -> None:
        """Start one again, and wait until it serves.

        :raises CoordinationError: it does not.
        """
        ...


class ZooKeeperWatch:
    """Looks when it is called.

    :param now_s: monotonic seconds.
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
        """Tell of each server that has ended since, and start again those whose time has come."""
        for number, code in enumerate(self._servers.exit_codes):
            if code is not None and number not in self._dead:
                self._died(number, code)
            if self._restarts[number].is_due:
                self._start_again(number)

    def _died(self, number: int, code: int) -> None:
        self._dead.add(number)
        then = ""
        if self._restart:
            then = f"; it is started again in {self._restarts[number].died():.0f} s"
        self._say(f"ZooKeeper server {number} {how_it_ended(code)}{then}")

    def _start_again(self, number: int) -> None:
        self._restarts[number].started()
        self._dead.discard(number)
        try:
            self._servers.restart(number)
        except CoordinationError as error:
            self._say(str(error))  # where it has ended, the next look finds it so
        else:
            self._say(f"ZooKeeper server {number} serves again")
