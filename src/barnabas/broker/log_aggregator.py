"""Lines of the log that many partitions have in common: one, with a few of them, instead of thousands.

A broker that was stopped for a while, or whose neighbour was, has the same to say of each partition that they share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.model import TopicPartition

_NAMED_MAX = 3
"""So many are named in a line."""


def named(them: Sequence[object]) -> str:
    """Name a few, and say how many more there are.

    >>> named(["clicks-0"]), named(["clicks-0", "clicks-1", "clicks-2", "clicks-3", "clicks-4"])
    ('clicks-0', 'clicks-0, clicks-1, clicks-2 and 2 more')
    """
    names = ", ".join(map(str, them[:_NAMED_MAX]))
    more = len(them) - _NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names


class _Told(NamedTuple):
    partition: TopicPartition
    alone: str

    def __str__(self) -> str:
        return f"{self.partition}{self.alone}"


class ToldTogether:
    """Used from the event loop's thread only. What is told in one round of the event loop is one line.

    :param log: to which the lines go.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[tuple[int, str], list[_Told]] = {}

    def tell(self, level: int, what: str, whom: TopicPartition, alone: str = "") -> None:
        """Say something of a partition.

        :param level: of the log.
        :param what: the same for all that are to share a line.
        :param alone: what is said of this partition alone, behind its name.
        """
        if not self._told:
            asyncio.get_running_loop().call_soon(self._write)
        self._told.setdefault((level, what), []).append(_Told(whom, alone))

    def _write(self) -> None:
        told, self._told = self._told, {}
        for (level, what), whom in told.items():
            if len(whom) == 1:
                # The partition is an argument as it is, so that the line is known to be about it.
                self._log.log(level, "%s: %s%s", what, *whom[0])
            else:
                self._log.log(level, "%s: %s", what, named(whom))
