"""Combines log messages about many partitions into one line, which names the first few partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log_lines import LogEvent, event
from barnabas.model import TopicPartition

_NAMED_MAX = 3
"""The maximum number of partition names in one log line."""


def named(them: Sequence[object]) -> str:
    """Return a text with the first few names and the number of omitted names.

    >>> named(["clicks-0"]), named(["clicks-0", "clicks-1", "clicks-2", "clicks-3", "clicks-4"])
    ('clicks-0', 'clicks-0, clicks-1, clicks-2 and 2 more')
    """
    names = ", ".join(map(str, them[:_NAMED_MAX]))
    more = len(them) - _NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names


class _Message(NamedTuple):
    partition: TopicPartition
    alone: str

    def __str__(self) -> str:
        return f"{self.partition}{self.alone}"


class LogAggregator:
    """Combines messages with the same text from one iteration of the event loop.

    Used from the event loop's thread only.

    :param log: the logger that receives the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._messages: dict[tuple[int, str, LogEvent | None], list[_Message]] = {}

    def note(self, level: int, what: str, whom: TopicPartition, alone: str = "", event: LogEvent | None = None) -> None:
        """Add a message about a partition.

        :param level: the log level.
        :param what: the text. Partitions with the same text share a line.
        :param alone: an additional text about this partition, which follows its name.
        :param event: the event of the line.
        """
        if not self._messages:
            asyncio.get_running_loop().call_soon(self._write)
        self._messages.setdefault((level, what, event), []).append(_Message(whom, alone))

    def _write(self) -> None:
        messages, self._messages = self._messages, {}
        for (level, what, of), whom in messages.items():
            extra = None if of is None else event(of)
            if len(whom) == 1:
                # Pass the `TopicPartition` itself, so that the log formatter can add its topic and partition.
                self._log.log(level, "%s: %s%s", what, *whom[0], extra=extra)
            else:
                self._log.log(level, "%s: %s", what, named(whom), extra=extra)
