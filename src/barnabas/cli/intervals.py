"""Intervals as people write them."""

from __future__ import annotations

import re

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_INTERVAL = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)")


def parse_interval_s(text: str) -> float:
    """Return an interval in seconds.

    :raises ValueError: it is none.

    >>> parse_interval_s("1m"), parse_interval_s("30s"), parse_interval_s("0.5h")
    (60.0, 30.0, 1800.0)
    """
    match = _INTERVAL.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no interval; give it as in 30s, 1m or 2h")
    return float(match[1]) * _UNITS_S[match[2]]
