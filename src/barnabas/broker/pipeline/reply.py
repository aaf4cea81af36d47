"""The reply to a request: a response now, later, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeVar

R = TypeVar("R")
Steps = Generator[None, None, R]
"""Work that may be long: it yields wherever it may pause, and returns its result."""

ENTRIES_PER_STEP = 32
"""Work yields after so many entries, each of which takes some microseconds."""
LAST_OF_STEP = ENTRIES_PER_STEP - 1

WAITING_BYTES = 2_048
"""What any waiting request keeps: its task and its futures."""

WAITING_ENTRY_BYTES = 256
"""What a waiting request keeps for each topic or partition that its answer must name."""


def is_pause_due(number: int) -> bool:
    """Whether a generator that has done so many entries is to yield; not before the first."""
    return number % ENTRIES_PER_STEP == LAST_OF_STEP


class Reply:
    """What a handler gives back: a response now, or (`LaterReply`, `StepsReply`) later, or none.

    The response to a run is a list with a response for each request; None stands for a request that wants no answer,
    bytes for a whole frame that was made from a template. A run may have the responses to its first requests now, and
    those to the others later.
    """

    __slots__ = ("response",)

    later: Awaitable[Any] | None = None
    steps: Steps[Any] | None = None

    def __init__(self, response: Any = None) -> None:
        self.response = response


class LaterReply(Reply):
    """A response that has to be waited for.

    :param later: ends with the response, or with the steps that make it.
    :param kept_bytes: what the wait keeps of the request besides `WAITING_BYTES`; None: as much as the frame has.
    :param end: ends the wait. Called where waiting requests keep as much as they may.
    :param before: what needs the frame, and ends before the wait begins.
    :param response: to the first requests of a run.
    """

    __slots__ = ("before", "end", "kept_bytes", "later")

    later: Awaitable[Any]

    def __init__(
        self,
        later: Awaitable[Any],
        kept_bytes: int | None = None,
        end: Callable[[], None] | None = None,
        before: Sequence[asyncio.Future[Any]] = (),
        response: Any = None,
    ) -> None:
        self.response = response
        self.later = later
        self.kept_bytes = kept_bytes
        self.end = end
        self.before = before


class StepsReply(Reply):
    """Work that ends with the response, or with another reply."""

    __slots__ = ("steps",)

    def __init__(self, steps: Steps[Any]) -> None:
        self.response = None
        self.steps = steps
