"""Assigns producer ids to idempotent producers, from blocks that the broker takes from the metadata store (KIP-98).

No producer id is assigned twice. When a broker stops, the rest of its block is lost. After a restore, the counter in
the metadata store may be missing, or older than the logs. Each broker therefore raises the counter above the highest
producer id in its logs, at its start and periodically. If the counter was raised above the broker's current block, the
block comes from an older counter, and the broker drops it.
"""

from __future__ import annotations

import asyncio
import functools
import logging

from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.topic_metadata_store import raise_producer_ids, take_producer_ids
from barnabas.coordination.values import ProducerIdCounter
from barnabas.errors import BarnabasError
from barnabas.model import NO_PRODUCER_ID

RAISE_INTERVAL_S = 5.0
"""The interval in seconds between comparisons of the producer id counter with the logs."""

log = logging.getLogger(__name__)


class ProducerIds:
    """Assigns producer ids. Used from the event loop's thread only.

    :param replicas: the replicas, whose logs contain the used producer ids.
    :param scheduler: lets other requests run while many logs are checked.
    """

    def __init__(
        self,
        tree: MetadataStore,
        broker_id: int,
        in_metadata_thread: InMetadataThread,
        replicas: ReplicaManager,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._in_metadata_thread = in_metadata_thread
        self._replicas = replicas
        self._scheduler = scheduler
        self._block = range(0)
        self._highest_taken = NO_PRODUCER_ID
        self._taking = asyncio.Lock()

    async def next(self) -> int:
        """Return the next producer id.

        :raises CoordinationError: the broker cannot take a block from the metadata store.
        """
        async with self._taking:
            while True:
                if not self._block:
                    take = functools.partial(take_producer_ids, highest_used=await self._highest_used())
                    self._block = await self._in_metadata_thread(take, self._tree, self._broker_id)
                    self._highest_taken = max(self._highest_taken, self._block[-1])
                producer_id, self._block = self._block[0], self._block[1:]
                # Skip ids that already occur in a log, because a client may have used an id before it was assigned.
                if not await self._is_used(producer_id):
                    return producer_id

    async def raise_counter(self) -> None:
        """Raise the counter above all producer ids in the logs of this broker.

        Drop a block that comes from an older counter.

        :raises CoordinationError: the metadata store is unreachable.
        """
        async with self._taking:
            counter: ProducerIdCounter = await self._in_metadata_thread(
                raise_producer_ids, self._tree, self._broker_id, await self._highest_used()
            )
            if self._block and self._block[0] <= counter.raised_to:
                self._block = range(0)

    async def run(self) -> None:
        """Compare the counter with the logs, and raise it if necessary, periodically until cancelled."""
        last_error = ""
        while True:
            await asyncio.sleep(RAISE_INTERVAL_S)
            try:
                await self.raise_counter()
                last_error = ""
            except BarnabasError as error:
                if str(error) != last_error:
                    log.warning("cannot compare the producer id counter with the logs: %s; retrying", error)
                    last_error = str(error)

    async def _is_used(self, producer_id: int) -> bool:
        async for replica in self._scheduler.each(self._replicas.all()):
            if replica.log.knows_producer(producer_id):
                return True
        return False

    async def _highest_used(self) -> int:
        highest = self._highest_taken
        async for replica in self._scheduler.each(self._replicas.all()):
            highest = max(highest, replica.log.highest_producer_id)
        return highest
