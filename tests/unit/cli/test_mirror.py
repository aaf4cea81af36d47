"""When `barnabas mirror --once` is at its end."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.cli.mirror import _Output, _watch


class CaughtUp:
    """A mirror that has all records, of a cluster that does not answer at first about its groups."""

    has_caught_up = True

    def __init__(self) -> None:
        self.rounds = [False, True]

    async def follow_groups(self) -> bool:
        return self.rounds.pop(0)


def test_mirror_that_runs_once_ends_after_the_groups_have_followed_the_records() -> None:
    mirror: Any = CaughtUp()

    async def watched() -> bool:
        stop = asyncio.Event()
        async with asyncio.timeout(60):
            await _watch(mirror, _Output(as_json=True, status_s=3_600), stop, once=True)
        return stop.is_set()

    assert asyncio.run(watched())
    assert mirror.rounds == []
