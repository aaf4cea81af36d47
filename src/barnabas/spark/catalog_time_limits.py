"""The time limits in the properties of a catalog. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DIGITS_MAX = 9


def milliseconds(properties: Mapping[str, Any], name: str, default: int) -> int:
    """Return a time limit from the properties of a catalog.

    :raises ValueError: The value is no positive whole number, or longer than eleven days.
    """
    value = str(properties.get(name) or default)
    is_number = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
    if not is_number or int(value) == 0:
        raise ValueError(f"{name}: {value[:100]!r} is not a positive number of milliseconds")
    return int(value)
