"""The columns of a topic in queries: the columns of the record, then one column per field of the value. Pure.

topic, partition, offset
timestamp     in UTC, with microseconds; null before year 2 or after 9998; -1 ms if the record has none
key, value    as text; bytes that are not UTF-8 are escaped as in Python, \\xff
headers       a map from names to text; null without headers; the last header of a name wins
...           the fields of values, see `value_columns`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from barnabas.formats import times
from barnabas.sql.value_columns import ValueColumns

RECORD_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", times.TIME_TYPE),
        ("key", pa.string()),
        ("value", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)
HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Converts the records of a topic to rows."""

    values: ValueColumns

    @property
    def schema(self) -> pa.Schema:
        """All columns of the topic."""
        return pa.schema([*RECORD_COLUMNS, *self.values.schema])

    def make(self, records: pa.RecordBatch, wanted: Sequence[str]) -> pa.RecordBatch:
        """Return the requested columns of records. Other columns are not computed.

        :param records: Records in the columns of `barnabas.records.arrow`.
        :param wanted: The names of the columns, in this order.
        """
        of_values = [name for name in wanted if name not in RECORD_COLUMNS.names]
        decoded = dict(zip(of_values, self.values.decode(records.column("value"), of_values), strict=True))
        arrays = [
            decoded[name] if name in decoded else _MAKERS.get(name, _same)(records.column(name)) for name in wanted
        ]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_text(values: pa.Array) -> pa.Array:
    r"""Return bytes as text; bytes that are not UTF-8 are escaped.

    >>> as_text(pa.array([b"caf\xc3\xa9", b"\xff!", None])).to_pylist()
    ['café', '\\xff!', None]
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="backslashreplace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def headers_as_map(headers: pa.Array) -> pa.Array:
    """Return lists of (name, value) structs as maps. The field names of the structs do not matter.

    >>> pairs = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    >>> both = [{"name": "a", "value": b"1"}, {"name": "a", "value": b"\\xff"}]
    >>> headers_as_map(pa.array([both, [], None], pairs)).to_pylist()
    [[('a', '\\\\xff')], None, None]
    """
    kind = pa.map_(pa.string(), pa.string())
    if not len(headers.values):  # most records have no headers; skip the loop over Python objects
        return pa.nulls(len(headers), kind)
    last = [dict(map(_pair, given)) if given else None for given in headers.to_pylist()]
    return pa.array([None if each is None else list(each.items()) for each in last], kind)


def _pair(header: Mapping[str, Any]) -> tuple[str, str | None]:
    name, value = header.values()
    return name, None if value is None else value.decode(errors="backslashreplace")


def _as_times(timestamps: pa.Array) -> pa.Array:
    return times.from_numbers(timestamps.cast(pa.int64()), "ms")


def _same(column: pa.Array) -> pa.Array:
    return column


_MAKERS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "timestamp": _as_times,
    "key": as_text,
    "value": as_text,
    HEADERS: headers_as_map,
}
