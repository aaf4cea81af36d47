"""Runs one task per broker of a cluster, as long as the metadata contains the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError

IDLE_S = 0.25
"""The maximum time in seconds that an idle task sleeps. The leadership of a partition may move to the task's broker at
any time."""

log = logging.getLogger(__name__)


class BrokerTasks:
    """Calls `one_round(broker)` repeatedly for each broker, with backoff after failures.

    :param one_round: runs one round; returns whether it did any work.
    """

    def __init__(self, cluster: Cluster, one_round: Callable[[int], Awaitable[bool]], name: str) -> None:
        self._cluster = cluster
        self._one_round = one_round
        self._name = name
        self._wakes: dict[int, asyncio.Event] = {}

    def wake(self) -> None:
        """Wake the idle tasks, so that their next round starts immediately."""
        for event in self._wakes.values():
            event.set()

    async def run(self) -> None:
        """Run the tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for broker in self._cluster.view.brokers:
                    if broker not in self._wakes:
                        self._wakes[broker] = asyncio.Event()
                        tasks.create_task(self._serve(broker))
                await asyncio.sleep(IDLE_S)

    async def _serve(self, broker: int) -> None:
        wake = self._wakes[broker]
        failures = 0
        try:
            while broker in self._cluster.view.brokers:
                wake.clear()
                try:
                    has_worked = await self._one_round(broker)
                    failures = 0
                except BarnabasError as error:
                    log.debug("%s broker %d: round failed: %s; retrying", self._name, broker, error)
                    self._cluster.request_refresh(is_stale=True)
                    await asyncio.sleep(self._cluster.backoff.delay_s(failures))
                    failures += 1
                    continue
                if has_worked:
                    await asyncio.sleep(0)  # yield to other tasks
                    continue
                try:
                    async with asyncio.timeout(IDLE_S):
                        await wake.wait()
                except TimeoutError:
                    continue
        finally:
            del self._wakes[broker]
