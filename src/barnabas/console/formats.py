"""Formats of numbers, sizes and times on the pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from barnabas.console.record_text import visible

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "unknown"
NO_TIME = "no timestamp"


def number(value: float | None) -> str:
    """Return a number with separators.

    >>> number(1234567), number(None)
    ('1,234,567', 'unknown')
    """
    return UNKNOWN if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Return a number of bytes.

    >>> size(512), size(1536), size(3 * 1024**3), size(None)
    ('512 B', '1.5 KiB', '3.0 GiB', 'unknown')
    """
    if value is None:
        return UNKNOWN
    unit = 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def rate(value: float | None) -> str:
    """Return a number per second.

    >>> rate(0.25), rate(1234.5), rate(None)
    ('0.2/s', '1,234/s', 'unknown')
    """
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}/s" if value == 0 or abs(value) >= 10 else f"{value:.1f}/s"


def time_of(milliseconds: float | None) -> str:
    """Return a time in UTC.

    >>> time_of(0), time_of(None), time_of(-1), time_of(10**18)
    ('1970-01-01 00:00:00.000', 'unknown', 'no timestamp', '1000000000000000000 ms since 1970')
    """
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 0:
        return NO_TIME
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms since 1970"
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{found.microsecond // 1000:03d}"


def minute_of(milliseconds: float | None) -> str:
    """Return a time in UTC without seconds, unless it has some.

    >>> minute_of(0), minute_of(61_500), minute_of(-1)
    ('1970-01-01 00:00', '1970-01-01 00:01:01.500', 'no timestamp')
    """
    return time_of(milliseconds).removesuffix(".000").removesuffix(":00")


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units.

    >>> duration(0.5), duration(200), duration(600), duration(3 * 3600 + 61), duration(90_000), duration(None)
    ('0 s', '3 min 20 s', '10 min', '3 h 1 min', '1 d 1 h', 'unknown')
    """
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    parts = ((whole // 86_400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next((number for number, (value, _) in enumerate(parts) if value), len(parts) - 1)
    shown = [f"{value} {unit}" for value, unit in parts[first : first + 2] if value or not whole]
    return " ".join(shown)


FILTERS: dict[str, Callable[[Any], str]] = {
    "number": number,
    "size": size,
    "rate": rate,
    "time": time_of,
    "minute": minute_of,
    "duration": duration,
    "visible": visible,
}
