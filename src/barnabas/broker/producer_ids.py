"""Producer ids for idempotent producers, taken from the tree a block at a time (KIP-98).

An id is never handed out twice; a broker that stops wastes what is left of its block.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.tree_thread import InTreeThread
from barnabas.coordination.registry import take_producer_ids
from barnabas.coordination.tree import Tree


class ProducerIds:
    """Hands out producer ids. Used from the event loop's thread only."""

    def __init__(self, tree: Tree, broker_id: int, in_tree_thread: InTreeThread) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._in_tree_thread = in_tree_thread
        self._block = iter(range(0))
        self._taking = asyncio.Lock()

    async def next(self) -> int:
        """Return the next id.

        :raises CoordinationError: no block could be taken.
        """
        async with self._taking:
            producer_id = next(self._block, None)
            if producer_id is None:
                block: range = await self._in_tree_thread(take_producer_ids, self._tree, self._broker_id)
                self._block = iter(block)
                producer_id = next(self._block)
            return producer_id
