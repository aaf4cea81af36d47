"""`barnabas load --until-complete TIME`: loads until the tables have all records produced before a time.

Each load computes the completeness from the reports of producers (docs/how-to/audit.md). After each incomplete round,
one line shows the tables that are not complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.cli.permanent_failures import PermanentFailures
from barnabas.cli.times import parse_time_ms, show_time_ms
from barnabas.clock import Clock
from barnabas.spark.errors import DataLossError, HistoryExpiredError, RecreatedTopicError, TooManyBadRecordsError

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult, TableLoad

DAY_MS = 86_400_000
INTERVAL_S = 10.0
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)

_UNRECOVERABLE = (DataLossError, HistoryExpiredError, RecreatedTopicError, TooManyBadRecordsError)
"""Errors that end the command even if other tables can still be loaded, because no later round can succeed."""

Round = tuple["LoadResult", Mapping[str, Exception]]
"""The results of a round's loads, and the errors of the tables that could not be loaded."""


def parse_until_ms(text: str, now_ms: int) -> int:
    """Return the time in ms of an ISO 8601 text, or of HH:MM today (UTC).

    :raises ValueError: the text has neither form.

    >>> parse_until_ms("10:30", 5 * 86_400_000 + 1), parse_until_ms("1970-01-06T10:30", 0)
    (469800000, 469800000)
    """
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        return parse_time_ms(text)
    return now_ms - now_ms % DAY_MS + (int(found[1]) * 60 + int(found[2])) * 60_000


class LoadUntil:
    """Runs loads in rounds until all tables are complete up to a time. Not thread-safe.

    :param load: runs one round.
    :param within_s: time limit in seconds, after which no round starts; None for no limit.
    :param done: called with the result of each round.
    :param on_line: called with a line about the incomplete tables.
    :param wait: waits for a number of seconds.
    """

    def __init__(
        self,
        load: Callable[[], Round],
        until_ms: int,
        interval_s: float,
        within_s: float | None,
        done: Callable[[LoadResult, Mapping[str, Exception]], object],
        on_line: Callable[[str], object],
        clock: Clock,
        wait: Callable[[float], object],
    ) -> None:
        self._load = load
        self._until_ms = until_ms
        self._interval_s = interval_s
        self._within_s = within_s
        self._done = done
        self._on_line = on_line
        self._clock = clock
        self._wait = wait
        self._permanent = PermanentFailures()
        self._is_first = True

    def run(self) -> bool:
        """Run the rounds; return True if the tables are complete, False at the time limit.

        :raises Exception: the first round failed, a later failure is permanent (`permanent_failures.py`), or records or
            a topic were deleted.
        """
        began_s = self._clock.monotonic()
        while True:
            round_s = self._clock.monotonic()
            missing = self._round()
            if not missing:
                return True
            next_s = max(round_s + self._interval_s, self._clock.monotonic())
            if self._within_s is not None and next_s > began_s + self._within_s:
                self._on_line(f"not complete until {show_time_ms(self._until_ms)} within {self._within_s:g} s: "
                           f"{'; '.join(missing)}")  # fmt: skip
                return False
            self._on_line(f"waiting for {show_time_ms(self._until_ms)}: {'; '.join(missing)}")
            self._wait(next_s - self._clock.monotonic())

    def _round(self) -> list[str]:
        """Run one round; return a line for each incomplete table."""
        try:
            result, failures = self._load()
        except Exception as error:  # report any other failure; the next round retries
            if self._is_first or isinstance(error, _UNRECOVERABLE) or self._permanent.is_permanent(error):
                raise
            return [f"{type(error).__name__}: {error}"]
        self._is_first = False
        self._done(result, failures)
        self._permanent.note(result, failures)
        gone = next((failure for failure in failures.values() if isinstance(failure, _UNRECOVERABLE)), None)
        permanent = self._permanent.first_permanent(result, failures) or gone
        if permanent is not None:
            raise permanent
        waiting = [*map(self._what_is_missing, result.tables), *(f"{table} is not loaded" for table in failures)]
        return [line for line in waiting if line]

    def _what_is_missing(self, load: TableLoad) -> str:
        if load.complete_until_ms is None:
            return f"no producer has reported records of {load.table} to the audit (Producer(audit=True))"
        if load.complete_until_ms >= self._until_ms:
            return ""
        return f"{load.table} is complete until {show_time_ms(load.complete_until_ms)}"
