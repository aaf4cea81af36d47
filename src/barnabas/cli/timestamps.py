"""Points in time as people write them, and as tables show them: ISO 8601, in UTC unless an offset is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

TIME_HELP = "milliseconds since 1970, or ISO 8601 such as 2013-01-31T15:00 (UTC) or 2013-01-31T15:00+01:00"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_time_ms(text: str) -> int:
    """Return milliseconds since the epoch.

    :raises ValueError: `text` is none of TIME_HELP.

    >>> parse_time_ms("1970-01-01T00:00:01.500Z"), parse_time_ms("1970-01-02"), parse_time_ms("1234")
    (1500, 86400000, 1234)
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no point in time; give {TIME_HELP}") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def show_time_ms(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; a number that is no time of the calendar as it is.

    >>> show_time_ms(1500)
    '1970-01-01T00:00:01.500Z'
    """
    try:
        moment = _EPOCH + time_ms * _MILLISECOND
    except OverflowError:
        return str(time_ms)
    return "-" if time_ms < 0 else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
