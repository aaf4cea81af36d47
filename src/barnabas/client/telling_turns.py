"""When a producer or a consumer tells the audit: every few seconds, and when it is asked to; one telling at a time.

What cannot be told now is told the next time. That is logged once, until something could be told again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.client.audit.event_sender import TELLING_S, EventSender
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
        self._is_warned = False
        self.is_in_trouble = False
        """Whether the last telling failed, and not for having had less than `TELLING_S`."""

    def went_well(self) -> None:
        """To be called when something could be told."""
        self.is_in_trouble = self._is_warned = False

    async def take(self, tell: Callable[[], Awaitable[None]], timeout_s: float | None) -> None:
        """Tell, when it is its turn.

        :param timeout_s: how long that may take, at most `TELLING_S`.
        """
        limit_s = TELLING_S if timeout_s is None else min(timeout_s, TELLING_S)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit, self._turn:
                await tell()
        except (BarnabasError, TimeoutError) as error:
            self._sender.look_again()  # the topic may be gone
            if limit_s >= TELLING_S or not limit.expired():
                self.is_in_trouble = True
            if not self._is_warned:
                self._is_warned = True
                reason = str(error) or f"no answer within {limit_s:g} s"
                log.warning("the audit cannot be told for now: %s; it is tried again every %g s", reason, INTERVAL_S)
