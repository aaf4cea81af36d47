"""Tells in the topic `_audit` what a consumer was handed (`consumed.py`). Runs on the consumer's event loop."""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.consumed import Consumed
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.event_sender import TELLING_S, EventSender
from barnabas.errors import BarnabasError
from barnabas.protocol.types import ZERO_UUID

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""Between two tellings, while there is something to tell."""


class ConsumedTelling:
    """Tells for one consumer: now and then, and before what it was handed is committed.

    So nothing is committed that was not told, unless it cannot be told: then it is committed all the same. Only the
    first commit waits to find that out, and none after it until a telling has succeeded.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, consumed: Consumed) -> None:
        self._state = state
        self._cluster = cluster
        self._consumed = consumed
        self._sender = EventSender(cluster, state.config.request_timeout_ms)
        self._turn = asyncio.Lock()
        self._is_in_trouble = False
        consumed.topic_id = self._topic_id

    def _topic_id(self, name: str) -> str:
        view = self._cluster.view.topics.get(name)
        return "" if view is None or view.topic_id == ZERO_UUID else view.topic_id.hex()

    async def run(self) -> None:
        """Tell what is new, every few seconds, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.tell()

    async def tell_before_commit(self, timeout_s: float | None) -> None:
        """Tell what is new, unless the last telling has failed: others try it again, and nobody waits for that."""
        if not self._is_in_trouble:
            await self.tell(timeout_s)

    async def tell(self, timeout_s: float | None = None) -> None:
        """Tell what is new. What cannot be told now is told the next time; that is logged.

        :param timeout_s: how long that may take, at most `TELLING_S`.
        """
        limit_s = TELLING_S if timeout_s is None else min(timeout_s, TELLING_S)
        try:
            async with asyncio.timeout(limit_s), self._turn:
                await self._tell()
        except (BarnabasError, TimeoutError) as error:
            self._sender.look_again()
            if not self._is_in_trouble:
                self._is_in_trouble = True
                reason = str(error) or f"no answer within {limit_s:g} s"
                log.warning("the audit cannot be told for now: %s; it is tried again every %g s", reason, INTERVAL_S)

    async def _tell(self) -> None:
        guard, consumed = self._state.guard, self._consumed
        with guard.lock:
            consumed.forget_told()
            self._state.count_consumed()
            if not consumed.has_news:
                return
        if await self._sender.have_topic():
            with guard.lock:
                consumed.tell_all_again()
        with guard.lock:
            news = consumed.news()
        try:
            refused = await self._sender.send(news.values())
        except BaseException:
            with guard.lock:
                consumed.not_told(news)
            raise
        with guard.lock:
            for event in refused:
                consumed.cannot_be_told(event)
        if self._is_in_trouble:
            # A request of which nobody knows may come late, and stand behind this: so it is said once more.
            self._is_in_trouble = False
            with guard.lock:
                consumed.not_told(news)
