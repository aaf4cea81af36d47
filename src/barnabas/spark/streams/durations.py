"""Durations in readable form: `timedelta(minutes=10)`, `"10 minutes"`, `"10m"`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from barnabas.errors import ConfigurationError

Duration = timedelta | str
"""A `timedelta`, or a number with a unit: `"500 ms"`, `"30 s"`, `"10 minutes"`, `"1 hour"`, `"7 days"`."""

_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_TEXT = re.compile(r"\s*(\d{1,12})\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)


def duration_ms(given: Duration, name: str, *, least_ms: int = 1) -> int:
    """Return a duration in milliseconds.

    :param name: The name of the argument, for the error.
    :raises ConfigurationError: The text is no duration, or it is shorter than `least_ms`.

    >>> duration_ms("10 minutes", "size"), duration_ms(timedelta(seconds=1.5), "size")
    (600000, 1500)
    """
    if isinstance(given, timedelta):
        total_ms = given // timedelta(milliseconds=1)
    else:
        found = _TEXT.fullmatch(given)
        unit_ms = found and _UNITS_MS.get(found[2].lower())
        if not found or not unit_ms:
            raise ConfigurationError(
                f"{name}: {given!r} is not a duration; use one such as '30 s', '10 minutes', '1 day'"
            )
        total_ms = int(found[1]) * unit_ms
    if total_ms < least_ms:
        raise ConfigurationError(f"{name}: {given!r} is too short; use {least_ms} ms or more")
    return total_ms


def spark_interval(milliseconds: int) -> str:
    """Return a duration in the format of Spark's functions.

    >>> spark_interval(1500)
    '1500 milliseconds'
    """
    return f"{milliseconds} milliseconds"
