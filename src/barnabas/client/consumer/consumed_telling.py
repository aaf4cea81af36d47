"""Tells in the topic `_audit` what a consumer was handed (`consumed.py`). Runs on the consumer's event loop."""

from __future__ import annotations

from barnabas.client.audit.event_sender import EventSender, topic_id_of
from barnabas.client.cluster import Cluster
from barnabas.client.consumer.consumed import Consumed
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.telling_turns import TellingTurns, every_few_seconds


class ConsumedTelling:
    """Tells for one consumer: now and then, and before what it was handed is committed.

    So nothing is committed that was not told, unless it cannot be told: then it is committed all the same. Commits wait
    to find that out, each as long as its timeout allows, until one telling has failed that had `TELLING_S`; none waits
    after that until a telling has succeeded.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, consumed: Consumed) -> None:
        self._state = state
        self._consumed = consumed
        self._sender = EventSender(cluster, state.config.request_timeout_ms)
        self._turns = TellingTurns(self._sender)
        self._is_unsure = False
        """Whether a request may be under way of which nobody knows."""
        consumed.topic_id = lambda name: topic_id_of(cluster, name)

    async def run(self) -> None:
        """Tell what is new, every few seconds, for ever."""
        await every_few_seconds(self.tell)

    async def tell_before_commit(self, timeout_s: float | None) -> None:
        """Tell what is new, unless the last telling has failed: others try it again, and nobody waits for that."""
        if not self._turns.is_in_trouble:
            await self.tell(timeout_s)

    async def tell(self, timeout_s: float | None = None) -> None:
        """Tell what is new. What cannot be told now is told the next time; that is logged.

        :param timeout_s: how long that may take, at most `TELLING_S`.
        """
        await self._turns.take(self._tell, timeout_s)

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
            news = events = consumed.news()
        try:
            while events:
                refused = await self._sender.send(events)
                with guard.lock:
                    events = consumed.instead_of(refused)
        except BaseException:
            self._is_unsure = True
            with guard.lock:
                consumed.not_told(news)
            raise
        self._turns.went_well()
        if self._is_unsure:
            # A request of which nobody knows may come late, and stand behind this: so it is said once more.
            self._is_unsure = False
            with guard.lock:
                consumed.not_told(news)
