"""`barnabas load --until-complete TIME`: loads until all that was produced before a time is in the tables.

How far that is, each load finds out from what producers tell (docs/how-to/audit.md). What it waits for is a line after
each
round in which it is not there yet.
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

_FOR_GOOD = (DataLossError, HistoryExpiredError, RecreatedTopicError, TooManyBadRecordsError)
"""What no round gets past by itself, though other tables may go on."""

Round = tuple["LoadResult", Mapping[str, Exception]]
"""What was loaded, and the tables that were not."""


def parse_until_ms(text: str, now_ms: int) -> int:
    """Return the time that is given, in ms: as ISO 8601, or HH:MM of today (UTC).

    :raises ValueError: it is neither.

    >>> parse_until_ms("10:30", 5 * 86_400_000 + 1), parse_until_ms("1970-01-06T10:30", 0)
    (469800000, 469800000)
    """
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        return parse_time_ms(text)
    return now_ms - now_ms % DAY_MS + (int(found[1]) * 60 + int(found[2])) * 60_000


class LoadUntil:
    """Loads round by round, until all tables are complete up to a time. Not thread-safe.

    :param load: does one round.
    :param within_s: begins no further round after so long; None: goes on for ever.
    :param done: takes what a round has done.
    :param tell: takes a line that says what is waited for.
    :param wait: waits for so many seconds.
    """

    def __init__(
        self,
        load: Callable[[], Round],
        until_ms: int,
        interval_s: float,
        within_s: float | None,
        done: Callable[[LoadResult, Mapping[str, Exception]], object],
        tell: Callable[[str], object],
        clock: Clock,
        wait: Callable[[float], object],
    ) -> None:
        self._load = load
        self._until_ms = until_ms
        self._interval_s = interval_s
        self._within_s = within_s
        self._done = done
        self._tell = tell
        self._clock = clock
        self._wait = wait
        self._hopeless = PermanentFailures()
        self._is_first = True

    def run(self) -> bool:
        """Do the rounds; return whether the tables are complete, or time was up.

        :raises Exception: the first round failed, or a later one, or one of the tables, so that all further ones would
            (permanent_failures.py), or as records or their topic are gone.
        """
        began_s = self._clock.monotonic()
        while True:
            round_s = self._clock.monotonic()
            missing = self._round()
            if not missing:
                return True
            next_s = max(round_s + self._interval_s, self._clock.monotonic())
            if self._within_s is not None and next_s > began_s + self._within_s:
                self._tell(f"not complete until {show_time_ms(self._until_ms)} within {self._within_s:g} s: "
                           f"{'; '.join(missing)}")  # fmt: skip
                return False
            self._tell(f"waiting for {show_time_ms(self._until_ms)}: {'; '.join(missing)}")
            self._wait(next_s - self._clock.monotonic())

    def _round(self) -> list[str]:
        """Load once, and return what is missing then."""
        try:
            result, failures = self._load()
        except Exception as error:  # whatever it is, it is told, and the next round tries again
            if self._is_first or isinstance(error, _FOR_GOOD) or self._hopeless.is_permanent(error):
                raise
            return [f"{type(error).__name__}: {error}"]
        self._is_first = False
        self._done(result, failures)
        self._hopeless.note(result, failures)
        gone = next((failure for failure in failures.values() if isinstance(failure, _FOR_GOOD)), None)
        in_vain = self._hopeless.first_permanent(result, failures) or gone
        if in_vain is not None:
            raise in_vain
        waiting = [*map(self._what_is_missing, result.tables), *(f"{table} is not loaded" for table in failures)]
        return [line for line in waiting if line]

    def _what_is_missing(self, load: TableLoad) -> str:
        if load.complete_until_ms is None:
            return f"nobody has told the audit what is to be in {load.table} (Producer(audit=True))"
        if load.complete_until_ms >= self._until_ms:
            return ""
        return f"{load.table} is complete until {show_time_ms(load.complete_until_ms)}"
