"""Parses and formats times (ISO 8601, by default UTC, or relative to now), durations, and intervals such as 30s."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from barnabas.clock import SYSTEM_CLOCK

TIME_HELP = (
    "milliseconds since 1970, ISO 8601 such as 2013-01-31T15:00 (UTC) or 2013-01-31T15:00+01:00, now, or a time"
    " before now such as -15m, -1h30m or -7d"
)

DURATION_HELP = "ISO 8601, such as P7D, PT1H30M or P1DT12H"

_DURATION = re.compile(
    r"P(?=[\dT])(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_AGO = re.compile(
    r"-(?=\d)(?:(?P<weeks>\d{1,6})w)?(?:(?P<days>\d{1,6})d)?(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?"
    r"(?:(?P<seconds>\d{1,9}(?:\.\d{1,3})?)s)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


TIME_MS_MAX = 2**63 - 1
"""The latest time that requests to brokers can contain."""


def parse_time_ms(text: str, now_ms: int | None = None) -> int:
    """Return a time in milliseconds since the epoch.

    :param now_ms: the current time; None for that of the system clock.
    :raises ValueError: `text` has none of the formats in TIME_HELP, or is before 1970.

    >>> parse_time_ms("1970-01-01T00:00:01.500Z"), parse_time_ms("1970-01-02"), parse_time_ms("1234")
    (1500, 86400000, 1234)
    >>> parse_time_ms("-1h30m", now_ms=6_000_000), parse_time_ms("now", now_ms=7)
    (600000, 7)
    """
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= TIME_MS_MAX:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None or text == "now":
        parts = {} if ago is None else ago.groupdict("0")
        ago_ms = timedelta(**{unit: float(count) for unit, count in parts.items()}) // _MILLISECOND
        time_ms = (SYSTEM_CLOCK.time_ms() if now_ms is None else now_ms) - ago_ms
        if time_ms < 0:
            raise ValueError(f"{text!r} is a time before 1970")
        return time_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; use {TIME_HELP}") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds.

    :raises ValueError: `text` does not have the format in DURATION_HELP, or exceeds the range of `timedelta` (2.7
    million
        years).

    >>> parse_duration_ms("P1DT2H"), parse_duration_ms("PT0.5S")
    (93600000, 500)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration; use {DURATION_HELP}")
    try:
        return timedelta(**{unit: float(count) for unit, count in found.groupdict("0").items()}) // _MILLISECOND
    except OverflowError:
        raise ValueError(f"{text!r} is too long for a duration") from None


def show_time_ms(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, or as a number if Python's calendar does not have this time.

    >>> show_time_ms(1500)
    '1970-01-01T00:00:01.500Z'
    """
    try:
        moment = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return str(time_ms)
    return "-" if time_ms < 0 else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_INTERVAL = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)")


def parse_interval_s(text: str) -> float:
    """Return an interval in seconds.

    :raises ValueError: `text` is not an interval.

    >>> parse_interval_s("1m"), parse_interval_s("30s"), parse_interval_s("0.5h")
    (60.0, 30.0, 1800.0)
    """
    match = _INTERVAL.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is not an interval; use for example 30s, 1m or 2h")
    return float(match[1]) * _UNITS_S[match[2]]
