"""When what a record tells of happened: the record's own timestamp, a field of its value, or a time in its line.

    record      the record's timestamp, as the producer set it
    line        the first time that the text has, in any form of times.py
    NAME        a field of JSON, or a group of a pattern; NAME:ms says that numbers in it are milliseconds

Without a unit numbers tell by their size what they count (times.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.formats import times
from barnabas.formats.json_fields import SCHEMA_ID_BYTES
from barnabas.formats.lines import as_text
from barnabas.formats.times import FORMS, TIME_TYPE, UNITS, TimeUnit

RECORD, LINE = "record", "line"
LINE_LETTERS_MAX = 4_096
"""A time is looked for in so many letters of a line."""

_GROUP_NAMES = ("year", "month", "day", "clock", "fraction", "zone", "hour", "minute", "second")
_EPOCH = r"\d{10}(?:\.\d{1,9})?|\d{13}"


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where event times come from.

    :param source: `record`, `line` or the name of a field.
    :param unit: of numbers; None to tell by their size.
    :param zone: of texts that name none (`times.checked_zone`); None is UTC.
    """

    source: str
    unit: TimeUnit | None = None
    zone: str | None = None

    @classmethod
    def parse(cls, text: str) -> EventTime:
        """Read `record`, `line`, `NAME` or `NAME:UNIT`.

        :raises ConfigurationError: it names nothing.

        >>> EventTime.parse("sent_at:ms")
        EventTime(source='sent_at', unit='ms', zone=None)
        """
        name, colon, last = text.rpartition(":")
        source, unit = (name, last) if colon and last in UNITS else (text, None)
        if not source:
            raise ConfigurationError(
                f"event time: give record, line, a field's name, or NAME:UNIT of {', '.join(UNITS)}"
            )
        return cls(source, next((known for known in UNITS if known == unit), None))

    def __str__(self) -> str:
        return self.source if self.unit is None else f"{self.source}:{self.unit}"

    def in_zone(self, zone: str | None) -> EventTime:
        """Return the same with the zone of texts that name none; None leaves it.

        :raises ConfigurationError: there is no such zone, or the record's own timestamp is the time.
        """
        if zone is None:
            return self
        if self.source == RECORD:
            raise ConfigurationError(
                "time zone: records have their own timestamps here, which need none; say where the times of lines are "
                "(event time, --event-time)"
            )
        return replace(self, zone=times.checked_zone(zone))

    @property
    def field(self) -> str | None:
        """The name of the field, None where it is none."""
        return None if self.source in (RECORD, LINE) else self.source

    def renamed(self, names: Mapping[str, str]) -> EventTime:
        """Return where they come from once fields have other names: old ones and new.

        >>> EventTime("at", "ms").renamed({"at": "happened"})
        EventTime(source='happened', unit='ms', zone=None)
        """
        return self if self.field is None else replace(self, source=names.get(self.field, self.field))


def times_of_column(column: pa.Array, near: pa.Array, unit: TimeUnit | None, zone: str | None = None) -> pa.Array:
    """Return the times in a column of any type, null where there are none.

    :param near: the records' timestamps, for texts without a year.
    :param zone: the zone of texts that name none; None is UTC.
    """
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        return column.cast(pa.timestamp("us")).cast(TIME_TYPE)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return times.from_numbers(column, unit)
    if pa.types.is_decimal(column.type):
        return times.from_numbers(column.cast(pa.float64()), unit)
    if pa.types.is_string(column.type):
        return times.from_texts(column, near, unit, zone)
    return pa.nulls(len(column), TIME_TYPE)


def times_in_lines(values: pa.Array, near: pa.Array, zone: str | None = None) -> pa.Array:
    """Return the first time in each value (binary), null where there is none.

    Forms are tried one after the other, so that of two times in a line the one in the more exact form counts.

    >>> times_in_lines(pa.array([b'h - - [17/May/2015:10:05:03 +0000] "GET /"']), pa.nulls(1, TIME_TYPE))[0].as_py()
    datetime.datetime(2015, 5, 17, 10, 5, 3, tzinfo=zoneinfo.ZoneInfo(key='UTC'))
    """
    texts = pc.utf8_slice_codeunits(as_text(values), 0, LINE_LETTERS_MAX)
    found = pa.nulls(len(values), TIME_TYPE)
    for expression in (*map(_without_groups, (form.expression for form in FORMS)), _EPOCH):
        left = pc.and_(pc.is_null(found), pc.is_valid(texts))
        if not left.true_count:
            break
        some = pc.extract_regex(texts.filter(left), rf"(?:^|[^\w.:/-])(?P<time>{expression})(?:$|[^\w:/])")
        if some.null_count == len(some):
            continue
        told = pc.if_else(some.is_valid(), some.field("time"), pa.scalar(None, pa.string()))
        found = pc.replace_with_mask(found, left, times.from_texts(told, near.filter(left), zone=zone))
    return found


def _without_groups(expression: str) -> str:
    for name in _GROUP_NAMES:
        expression = expression.replace(f"(?P<{name}>", "(?:")
    return expression


def times_in_json(
    values: pa.Array, field: str, near: pa.Array, unit: TimeUnit | None, zone: str | None = None
) -> pa.Array:
    """Return the times that a field of JSON values (binary) has, value by value; null where there are none."""
    texts = pa.array([_text_of(value, field) for value in values.to_pylist()], pa.string())
    return times.from_texts(texts, near, unit, zone)


def _text_of(value: bytes | None, field: str) -> str | None:
    if value and value[0] == 0:
        value = value[SCHEMA_ID_BYTES:]
    try:
        parsed = json.loads(value.decode(), parse_float=str) if value else None
        item = parsed.get(field) if isinstance(parsed, dict) else None
        if isinstance(item, bool) or not isinstance(item, str | int):
            return None
        text = str(item)
        text.encode()
    except (ValueError, RecursionError):
        return None
    return text
