"""Parses web server logs in the common or combined log format.

The common format is `host ident user [17/May/2015:10:05:03 +0000] "GET /page HTTP/1.1" 200 1234`; the combined format
adds two quoted fields. Lines are bytes, because a log may contain invalid UTF-8.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

LINE = re.compile(
    rb"(\S+) \S+ .*?\[(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\]"
    rb' "((?:[^"\\]|\\.)*)" (\d{3}) (?:\d+|-)'
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"), 1
    )
}


class Request(NamedTuple):
    """The fields of a line."""

    host: bytes
    timestamp_ms: int
    page: bytes
    status: int


def parse_line(line: bytes) -> Request | None:
    r"""Parse a line; return None if it has another format.

    >>> parse_line(b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 404 -')
    Request(host=b'10.0.0.1', timestamp_ms=1431857103000, page=b'/a', status=404)
    """
    match = LINE.match(line)
    if match is None:
        return None
    host, day, month, year, hour, minute, second, sign, zone_hours, zone_minutes, request, status = match.groups()
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        moment = datetime(
            int(year),
            _MONTHS[month],
            int(day),
            int(hour),
            int(minute),
            int(second),
            tzinfo=timezone(-offset if sign == b"-" else offset),
        )
    except (KeyError, ValueError):
        return None
    return Request(host, round(moment.timestamp() * 1000), page_of(request), int(status))


def page_of(request: bytes) -> bytes:
    """Return the page of a request line without its query.

    >>> page_of(b"GET /a?b=1 HTTP/1.1"), page_of(b"-")
    (b'/a', b'-')
    """
    words = request.split(b" ")
    return (words[1] if len(words) > 1 else request).partition(b"?")[0]
