"""Raises the life counters of this broker's log directories: on the disk first, in the metadata tree afterwards.

At each start, when the replicas of an older copy have left the in-sync replicas, and every 10 s while this broker is a
member of the cluster. `barnabas.storage.life_counter` says what the counters are for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.broker.disk_work import Run
from barnabas.broker.tree_thread import InTreeThread
from barnabas.clock import Clock
from barnabas.coordination.lives import write_lives
from barnabas.coordination.tree import Tree
from barnabas.errors import BarnabasError
from barnabas.storage.data_folders import DataFolders

INTERVAL_S = 10.0
"""An older copy is recognised if it is older than this."""

log = logging.getLogger(__name__)


class Lives:
    """Used from the event loop's thread only.

    :param run: runs what may wait for the disk.
    :param is_member: returns whether this broker is registered and has heard of the metadata tree.
    """

    def __init__(
        self,
        broker_id: int,
        logs: DataFolders,
        tree: Tree,
        in_tree_thread: InTreeThread,
        run: Run,
        clock: Clock,
        is_member: Callable[[], bool],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._tree = tree
        self._in_tree_thread = in_tree_thread
        self._run = run
        self._clock = clock
        self._is_member = is_member
        self._refused = False

    async def raise_all(self) -> None:
        """Raise the counters once, if this broker is a member of the cluster."""
        if not self._is_member():
            return
        raised = await self._run(self._logs.raise_lives, self._clock.time_ms())
        try:
            overtaken = await self._in_tree_thread(write_lives, self._tree, self._broker_id, raised)
        except BarnabasError as error:
            if not self._refused:
                log.warning("cannot raise life counters in the metadata tree: %s; retrying every 10 s", error)
            self._refused = True
            return
        self._refused = False
        for directory_id in overtaken:
            self._logs.stop_raising(directory_id)

    async def run(self) -> None:
        """Raise the counters every 10 s until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.raise_all()
            except Exception:
                log.exception("cannot raise life counters; retrying every 10 s")
