"""Where the logs of followers begin, as their leaders may know it: once it is stored durably.

A leader that has deleted records on request (KIP-107) says so when the replicas in sync have deleted them too. These
may die at once, all of them, and any of them may lead next: what it has told its leader must be so after a crash.
Nobody waits here but those who asked for the deletion; what is followed goes on to be fetched meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.broker.follower_replica import FollowerReplica
from barnabas.errors import BarnabasError
from barnabas.replication.fetch_state import Followed

log = logging.getLogger(__name__)

Store = Callable[[], Awaitable[None]]
"""Stores durably where all logs begin."""

OnStored = Callable[[Followed[FollowerReplica], int], None]
"""Called with a replica, and where its log begins at least, whatever happens."""


class LogStarts:
    """Used from the event loop's thread only.

    :param pause_s: how long to wait, where the disk refused, before it is tried again.
    """

    def __init__(self, store: Store, on_stored: OnStored, pause_s: float) -> None:
        self._store = store
        self._on_stored = on_stored
        self._pause_s = pause_s
        self._wanted: dict[Followed[FollowerReplica], None] = {}
        self._storing: asyncio.Task[None] | None = None
        self._is_told = False

    def store(self, followed: Followed[FollowerReplica]) -> None:
        """Have it stored where a log begins now; with it, all others for which that is asked meanwhile."""
        self._wanted[followed] = None
        if self._storing is None:
            self._storing = asyncio.get_running_loop().create_task(self._store_all())

    def close(self) -> None:
        """Call nobody any more."""
        self._wanted.clear()
        if self._storing is not None:
            self._storing.cancel()

    async def _store_all(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                starts = {followed: followed.replica.log.log_start_offset for followed in wanted}
                try:
                    await self._store()
                except BarnabasError as error:
                    self._tell(error)
                    await asyncio.sleep(self._pause_s)
                    self._wanted |= wanted
                else:
                    self._is_told = False
                    for followed, start in starts.items():
                        self._on_stored(followed, start)
        finally:
            self._storing = None

    def _tell(self, error: BarnabasError) -> None:
        """Say what is wrong; once, until all is well again."""
        if not self._is_told:
            self._is_told = True
            log.warning("it cannot be stored where logs begin; tried again every %g s: %s", self._pause_s, error)
