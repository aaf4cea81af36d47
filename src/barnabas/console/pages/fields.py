"""The values of the fields of forms and queries."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.exceptions import HTTPException

DIGITS_MAX = 18


def whole_number(text: str, name: str, *, digits_max: int = DIGITS_MAX) -> int:
    """Return a whole number.

    :raises HTTPException: the text is not one.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > digits_max:
        raise HTTPException(400, f"{name} must be a whole number")
    return int(text)


def time_in_ms(text: str) -> int:
    """Return a time such as 2026-11-28T17:00, in UTC, as milliseconds since 1970.

    :raises HTTPException: the text is not a time.
    """
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise HTTPException(400, "the time must have the form 2026-11-28T17:00") from None
