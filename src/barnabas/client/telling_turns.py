"""When a producer or a consumer tells the audit: every few seconds, and when it is asked to; one telling at a time.

What cannot be told now is told the next time. That is logged once, until something could be told again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.client.event_sender import TELLING_S, EventSender
from barnabas.errors import BarnabasError

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""Between two tellings, while there is something to tell."""


async def every_few_seconds(tell: Callable[[], Awaitable[None]]) -> None:
    """Tell what is new, for ever."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        await tell()


class TellingTurns:
    """The tellings of one client, on its event loop."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self._turn = asyncio.Lock()
        self.is_in_trouble = False
        """Whether the last telling failed; who could tell something sets it back."""

    async def take(self, tell: Callable[[], Awaitable[None]], timeout_s: float | None) -> None:
        """Tell, when it is its turn.

        :param timeout_s: how long that may take, at most `TELLING_S`.
        """
        limit_s = TELLING_S if timeout_s is None else min(timeout_s, TELLING_S)
        try:
            async with asyncio.timeout(limit_s), self._turn:
                await tell()
        except (BarnabasError, TimeoutError) as error:
            self._sender.look_again()  # the topic may be gone
            if not self.is_in_trouble:
                self.is_in_trouble = True
                reason = str(error) or f"no answer within {limit_s:g} s"
                log.warning("the audit cannot be told for now: %s; it is tried again every %g s", reason, INTERVAL_S)
