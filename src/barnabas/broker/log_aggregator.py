"""Log lines that concern many partitions: one line names a few of them, instead of one line for each of thousands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log_lines import LogEvent, event
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


class LogAggregator:
    """Joins the notes of one round of the event loop that have the same text. Used from the event loop's thread only.

    :param log: receives the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[tuple[int, str, LogEvent | None], list[_Told]] = {}

    def note(self, level: int, what: str, whom: TopicPartition, alone: str = "", event: LogEvent | None = None) -> None:
        """Note a text of a partition.

        :param level: of the log.
        :param what: the text; partitions with the same text share a line.
        :param alone: the text of this partition alone, behind its name.
        :param event: of the line.
        """
        if not self._told:
            asyncio.get_running_loop().call_soon(self._write)
        self._told.setdefault((level, what, event), []).append(_Told(whom, alone))

    def _write(self) -> None:
        told, self._told = self._told, {}
        for (level, what, of), whom in told.items():
            extra = None if of is None else event(of)
            if len(whom) == 1:
                # The partition is an argument as it is, so that the line is known to be about it.
                self._log.log(level, "%s: %s%s", what, *whom[0], extra=extra)
            else:
                self._log.log(level, "%s: %s", what, named(whom), extra=extra)
