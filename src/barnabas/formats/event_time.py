r"""The event time of a record: the record's timestamp, a field of its value, or a time in its line.

    record      the record's timestamp, as the producer set it
    line        the first time in the text, in any notation of times.py
    NAME        a field of JSON, or a group of a pattern; NAME:ms declares that its numbers are milliseconds
    A.B         the field B of the object A, at any depth; a top-level field with the name `A.B` has precedence

A backslash escapes a dot or a backslash: `meta.sent\.at` is the field `sent.at` of the object `meta`. Without a unit,
`times.py` derives the unit of a number from its size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.formats import times
from barnabas.formats.field_aliases import Aliases, Path
from barnabas.formats.further_columns import field_of
from barnabas.formats.json_fields import SCHEMA_ID_BYTES
from barnabas.formats.lines import as_text
from barnabas.formats.times import FORMS, TIME_TYPE, UNITS, TimeUnit

RECORD, LINE = "record", "line"
LINE_LETTERS_MAX = 4_096
"""The number of characters at the beginning of a line in which a time is searched."""

_GROUP_NAMES = ("year", "month", "day", "clock", "fraction", "zone", "hour", "minute", "second")
_STEP = re.compile(r"\\[.\\]|[^.]|\.", re.DOTALL)
_EPOCH = r"\d{10}(?:\.\d{1,9})?|\d{13}"


@dataclass(frozen=True, slots=True)
class EventTime:
    """The source of event times.

    :param source: `record`, `line` or the name of a field.
    :param unit: the unit of numbers; None to derive it from their size.
    :param zone: the time zone of times without a zone, as `times.checked_zone` returns it; None for UTC.
    """

    source: str
    unit: TimeUnit | None = None
    zone: str | None = None

    @classmethod
    def parse(cls, text: str) -> EventTime:
        """Parse `record`, `line`, `NAME` or `NAME:UNIT`.

        :raises ConfigurationError: if the name is empty.

        >>> EventTime.parse("sent_at:ms")
        EventTime(source='sent_at', unit='ms', zone=None)
        """
        name, colon, last = text.rpartition(":")
        source, unit = (name, last) if colon and last in UNITS else (text, None)
        if not source:
            raise ConfigurationError(f"event time: use record, line, NAME or NAME:UNIT; units are {', '.join(UNITS)}")
        return cls(source, next((known for known in UNITS if known == unit), None))

    def __str__(self) -> str:
        return self.source if self.unit is None else f"{self.source}:{self.unit}"

    def in_zone(self, zone: str | None) -> EventTime:
        """Return a copy with a time zone for times without a zone. If the zone is None, return this object.

        :raises ConfigurationError: if the zone does not exist, or if the source is the record's timestamp.
        """
        if zone is None:
            return self
        if self.source == RECORD:
            raise ConfigurationError(
                "time zone: the event time is the record's timestamp, which needs no time zone; set the source of "
                "times (--event-time)"
            )
        return replace(self, zone=times.checked_zone(zone))

    @property
    def field(self) -> str | None:
        """The name or path of the field; None if the source is not a field."""
        return None if self.source in (RECORD, LINE) else self.source

    @property
    def path(self) -> Path:
        r"""The path to the field: the names of the enclosing objects, outermost first, then the name of the field.

        >>> EventTime("source.ts_ms").path, EventTime(r"meta.sent\.at").path, EventTime("at").path
        (('source', 'ts_ms'), ('meta', 'sent.at'), ('at',))
        """
        names = [""]
        for step in _STEP.findall(self.source):
            if step == ".":
                names.append("")
            else:
                names[-1] += step[-1]
        return tuple(names)

    def renamed(self, aliases: Aliases) -> EventTime:
        """Return the source with the current names of fields.

        >>> EventTime("at", "ms").renamed(Aliases({"at": "happened"}))
        EventTime(source='happened', unit='ms', zone=None)
        >>> EventTime("m.at").renamed(Aliases({"m": "meta"}, {"meta": Aliases({"at": "sent"})})).source
        'meta.sent'
        """
        if self.field is None:
            return self
        if self.source in aliases.names:
            return replace(self, source=aliases.names[self.source])
        names = []
        for name in self.path:
            names.append(aliases.now(name))
            aliases = aliases.of(names[-1])
        if tuple(names) == self.path:
            return self
        return replace(self, source=".".join(re.sub(r"([.\\])", r"\\\1", name) for name in names))

    def in_columns(self, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
        """Return the columns that may contain the field, including columns in structs and maps, in order of precedence.

        :param columns: the columns by field name.
        """
        first, *within = self.path
        found = _columns_of(first, columns)
        for name in within:
            found = [inner for column in found for inner in _within(column, name)]
        return [*(_columns_of(self.source, columns) if within else ()), *found]


def _columns_of(field: str, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Return the column of a field and its further columns."""
    return [column for key, column in columns.items() if field in (key, field_of(key))]


def _within(column: pa.Array, name: str) -> list[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        return [
            pc.struct_field(column, [number])
            for number, each in enumerate(kind)
            if name in (each.name, field_of(each.name))
        ]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return [pc.map_lookup(column, pa.scalar(name), "last")]
    return []


def times_of_column(column: pa.Array, near: pa.Array, unit: TimeUnit | None, zone: str | None = None) -> pa.Array:
    """Return the times in a column of any type. A value that is not a time becomes null.

    :param near: the timestamps of the records, from which times without a year get their year.
    :param zone: the time zone of times without a zone; None for UTC.
    """
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        return times.from_dates_and_times(column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return times.from_numbers(column, unit)
    if pa.types.is_decimal(column.type):
        return times.from_numbers(column.cast(pa.float64()), unit)
    if pa.types.is_string(column.type):
        return times.from_texts(column, near, unit, zone)
    return pa.nulls(len(column), TIME_TYPE)


def times_in_lines(values: pa.Array, near: pa.Array, zone: str | None = None) -> pa.Array:
    """Return the first time in each binary value; null if there is none.

    Notations are tried in order. If a line has two times in different notations, the more exact notation takes
    precedence.

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
        written = pc.if_else(some.is_valid(), some.field("time"), pa.scalar(None, pa.string()))
        found = pc.replace_with_mask(found, left, times.from_texts(written, near.filter(left), zone=zone))
    return found


def _without_groups(expression: str) -> str:
    for name in _GROUP_NAMES:
        expression = expression.replace(f"(?P<{name}>", "(?:")
    return expression


def times_in_json(values: pa.Array, event_time: EventTime, near: pa.Array) -> tuple[pa.Array, int]:
    """Return the time in a field of each binary JSON value; null for a value without a time.

    :returns: the times, and the number of values in which the field is present and not null.
    """
    items = [_item_of(value, event_time) for value in values.to_pylist()]
    unit, zone = event_time.unit, event_time.zone
    found = times.from_texts(pa.array([each if isinstance(each, str) else None for each in items], pa.string()),
                             near, unit, zone)  # fmt: skip
    for kind, column_type in ((int, pa.int64()), (float, pa.float64())):
        numbers = pa.array([each if type(each) is kind else None for each in items], column_type)
        if numbers.null_count < len(numbers):
            found = pc.coalesce(found, times.from_numbers(numbers, unit))
    return found, sum(each is not None for each in items)


_OTHER = object()
"""A marker for a field value that is neither a text nor a number."""
_LONG_MAX = 2**63 - 1


def _item_of(value: bytes | None, event_time: EventTime) -> object:
    """Return the text or number in the field. Return `_OTHER` for another type of value, and None if the field is null
    or absent.
    """
    if value and value[0] == 0:
        value = value[SCHEMA_ID_BYTES:]
    try:
        item = json.loads(value.decode()) if value else None
        if not isinstance(item, dict):
            return None
        for name in event_time.path if item.get(event_time.source) is None else (event_time.source,):
            item = item.get(name) if isinstance(item, dict) else None
        if isinstance(item, str):
            item.encode()
    except (ValueError, RecursionError):
        return None
    if isinstance(item, bool) or not isinstance(item, str | int | float | None):
        return _OTHER
    return _OTHER if isinstance(item, int) and not -_LONG_MAX <= item <= _LONG_MAX else item
