"""Producer ids for idempotent producers, taken from the tree a block at a time (KIP-98).

An id is never handed out twice; a broker that stops wastes what is left of its block. The counter in the tree may be
missing, or older than the logs, as after a restore. So each broker raises it above the highest id in its own logs: at
its start, and again whenever a higher one comes, by clients or by replication. A block that another broker's raise
shows to be of an older counter is dropped.
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
"""How often a broker compares the counter with its logs."""

log = logging.getLogger(__name__)


class ProducerIds:
    """Hands out producer ids. Used from the event loop's thread only.

    :param replicas: the logs of these replicas have the ids that are in use.
    :param scheduler: other requests run while many logs are read.
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
        """Return the next id.

        :raises CoordinationError: no block could be taken.
        """
        async with self._taking:
            while True:
                if not self._block:
                    take = functools.partial(take_producer_ids, highest_used=await self._highest_used())
                    self._block = await self._in_metadata_thread(take, self._tree, self._broker_id)
                    self._highest_taken = max(self._highest_taken, self._block[-1])
                producer_id, self._block = self._block[0], self._block[1:]
                # A client may have used an id of the block before it is handed out.
                if not await self._is_used(producer_id):
                    return producer_id

    async def raise_counter(self) -> None:
        """Raise the counter in the tree above all ids that are in use here, and drop a block of an older counter.

        :raises CoordinationError: the tree cannot be reached.
        """
        async with self._taking:
            counter: ProducerIdCounter = await self._in_metadata_thread(
                raise_producer_ids, self._tree, self._broker_id, await self._highest_used()
            )
            if self._block and self._block[0] <= counter.raised_to:
                self._block = range(0)

    async def run(self) -> None:
        """Raise the counter again and again."""
        told = ""
        while True:
            await asyncio.sleep(RAISE_INTERVAL_S)
            try:
                await self.raise_counter()
                told = ""
            except BarnabasError as error:
                if str(error) != told:
                    log.warning("cannot compare the counter of producer ids with the logs: %s; retrying", error)
                    told = str(error)

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
