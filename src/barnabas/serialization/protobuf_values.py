"""The columns of Protobuf records: the implementation of the interfaces in `record_values.py`.

The package protobuf parses the messages; this module collects their fields into columns. A column is null if its field
is not set and has presence (`optional`, messages, members of a oneof, all fields of proto2). Other fields of proto3
have their zero value instead.

    int32 ... bool, string, bytes     the column of the same type; uint32 is long, uint64 decimal(20,0)
    enum                              the symbol as a string; an unknown number as text
    repeated, map, message            list, map, struct
    google.protobuf.Timestamp         timestamp; a wrapper (Int64Value ...): its value, or null
    google.protobuf.Struct, Value     string with JSON

Messages without fields, recursive messages, and structs that tables cannot represent have no column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SerializationError
from barnabas.formats.column_types import STRUCT_DEPTH_MAX, ColumnType, arrow_type, is_good_struct
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.times import TIME_US_MAX, TIME_US_MIN
from barnabas.serialization import wire_format
from barnabas.serialization.column_casts import fitted, with_items
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.protobuf import message_class
from barnabas.serialization.record_values import writers_by_id
from barnabas.serialization.registry_client import SchemaRegistry
from barnabas.serialization.wire_format import Writer

UNUSUAL_INDEXES = "the message indexes are not in the usual form"
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))
_TIMESTAMP = "google.protobuf.Timestamp"
_PLAIN: Mapping[str, ColumnType] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), "long"),
    **dict.fromkeys(("uint64", "fixed64"), "decimal(20,0)"),
    **{"double": "double", "float": "float", "bool": "boolean", "string": "string", "bytes": "binary"},
    **{"enum": "string"},
}
_TYPE_NAMES = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The names of the field types, by the type numbers in descriptors."""


@dataclass(frozen=True, slots=True)
class _Item:
    """The conversion of a field's single value between a message and a column.

    :param column: the type of the column.
    :param read: converts a value of the message to a value of the column.
    :param plain: converts a value of the column to a value of the message; None if the value is a message.
    :param put: fills a message with the column's value; called only if `plain` is None.
    """

    column: ColumnType
    read: Callable[[Any], Any]
    plain: Callable[[Any], Any] | None
    put: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message, with its column type and the functions that read and write the field."""

    name: str
    column: ColumnType
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


def _same(value: Any) -> Any:
    return value


class ProtobufRecords:
    """The `RecordType` of one Protobuf message type."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self._name = made.DESCRIPTOR.full_name
        self._failures = (
            require_schema_package("google.protobuf.message").DecodeError,
            UnicodeDecodeError,
            RecursionError,
        )
        self._fields = _fields_of(made.DESCRIPTOR, ())
        self.fields: Mapping[str, ColumnType] = {each.name: each.column for each in self._fields}
        self.aliases = NO_ALIASES
        self.is_strict = True

    def decode(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array]:
        try:
            messages = [self._made.FromString(payload) for payload in payloads]
            return {
                each.name: pa.array(list(map(each.read, messages)), arrow_type(each.column)) for each in self._fields
            }
        except self._failures as error:
            raise SerializationError(f"invalid message of type {self._name}") from error

    def suspect_rows(self, fields: Mapping[str, pa.Array], payloads: pa.Array) -> Sequence[int]:
        return ()  # protobuf's parser already rejects every damaged record

    def damage_reason(self, payload: bytes) -> str | None:
        try:
            self.decode([payload])
        except SerializationError as error:
            return str(error)
        return None

    def canonical(self, payloads: pa.Array) -> pa.Array:
        # Normalize the order of fields and of map entries, which has no meaning. Keep unknown fields, so that such a
        # record differs from its columns.
        messages = map(self._made.FromString, payloads.to_pylist())
        return pa.array([each.SerializePartialToString(deterministic=True) for each in messages], pa.binary())

    def has_columns_for_all(self, name: str, column: ColumnType) -> bool:
        return True  # this format keeps all field names

    def to_column(self, name: str, values: pa.Array, wanted: ColumnType) -> pa.Array:
        return fitted(values, wanted)

    def encode(self, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
        messages = [self._made() for _ in range(count)]
        for each in self._fields:
            if each.name not in columns:
                continue
            for message, value in zip(messages, _times_as_numbers(columns[each.name]).to_pylist(), strict=True):
                if value is not None:
                    _put(each, message, value)
        return pa.array([each.SerializePartialToString(deterministic=True) for each in messages], pa.binary())


def _put(field: _Field, message: Any, value: Any) -> None:
    """Write a field. A value that the field cannot represent is omitted; the caller detects the
    loss by a comparison.
    """
    try:
        field.write(message, value)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        message.ClearField(field.name)


class ProtobufFormat:
    """The `RecordFormat` of Protobuf."""

    name = "protobuf"

    def rows_by_writer(self, values: pa.Array, reasons: dict[int, str]) -> dict[Writer, pa.Array]:
        found: dict[Writer, list[pa.Array]] = {}
        for schema_id, rows in writers_by_id(values, reasons).items():
            own = values if len(rows) == len(values) else values.take(rows)
            start = wire_format.HEADER_BYTES
            is_first = pc.equal(pc.binary_slice(own, start, start + 1), pa.scalar(b"\0", own.type))
            if is_first.true_count:
                found.setdefault(Writer(schema_id, (0,)), []).append(rows.filter(is_first))
            others: dict[Writer, list[int]] = {}
            for place in pc.indices_nonzero(pc.invert(is_first)).to_pylist():
                row = rows[place].as_py()
                try:
                    others.setdefault(_writer_of(schema_id, own[place].as_py()), []).append(row)
                except SerializationError as error:
                    reasons[row] = str(error)
            for writer, places in others.items():
                found.setdefault(writer, []).append(pa.array(places, rows.type))
        return {writer: pa.concat_arrays(parts) for writer, parts in found.items()}

    def record_type(self, registry: SchemaRegistry, writer: Writer, known: Aliases) -> ProtobufRecords:
        return ProtobufRecords(message_class(registry, writer.schema_id, writer.indexes))


def _writer_of(schema_id: int, value: bytes) -> Writer:
    indexes, position = wire_format.decode_indexes(value)
    writer = Writer(schema_id, tuple(indexes))
    if min(indexes) < 0 or value[:position] != writer.prefix():
        raise SerializationError(UNUSUAL_INDEXES)
    return writer


def _times_as_numbers(array: pa.Array) -> pa.Array:
    """Return an array with timestamps replaced by microseconds at any depth."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_struct(kind):
        children = [_times_as_numbers(each) for each in array.flatten()]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, names=[field.name for field in kind], mask=mask)
    if pa.types.is_map(kind):
        items = _times_as_numbers(array.items)
        return with_items(array, items, pa.map_(kind.key_type, items.type))
    if pa.types.is_list(kind):
        items = _times_as_numbers(array.values)
        return with_items(array, items, pa.list_(pa.field("element", items.type)))
    return array


def _fields_of(descriptor: Any, within: tuple[str, ...]) -> list[_Field]:
    """Return the fields of a message that have a column in the table.

    :param within: the full names of the enclosing messages.
    """
    found = []
    for field in descriptor.fields:
        made = _field(field, (*within, descriptor.full_name))
        if made is not None:
            found.append(made)
    return found


def _field(field: Any, within: tuple[str, ...]) -> _Field | None:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return _map_field(field, message, within)
    item = _item(field, within)
    if item is None:
        return None
    return _list_field(field, item) if _is_repeated(field) else _single_field(field, item)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # protobuf 5 lacks `is_repeated`, and later versions deprecate `label`
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _single_field(field: Any, item: _Item) -> _Field:
    name, get = field.name, attrgetter(field.name)

    def write(message: Any, value: Any) -> None:
        if item.plain is None:
            inner = getattr(message, name)
            inner.SetInParent()
            item.put(inner, value)
        else:
            setattr(message, name, item.plain(value))

    if field.has_presence:
        return _Field(
            name, item.column, lambda message: item.read(get(message)) if message.HasField(name) else None, write
        )
    is_plain = item.read is _same
    return _Field(name, item.column, get if is_plain else lambda message: item.read(get(message)), write)


def _list_field(field: Any, item: _Item) -> _Field:
    name, get = field.name, attrgetter(field.name)

    def write(message: Any, values: Any) -> None:
        target = get(message)
        for value in values:
            if item.plain is None:
                item.put(target.add(), value)
            else:
                target.append(item.plain(value))

    return _Field(name, [item.column], lambda message: [item.read(each) for each in get(message)], write)


def _map_field(field: Any, entry: Any, within: tuple[str, ...]) -> _Field | None:
    key, item = (_item(entry.fields_by_name[part], within) for part in ("key", "value"))
    if key is None or item is None or key.plain is None:
        return None
    name, get, plain_key = field.name, attrgetter(field.name), key.plain

    def read(message: Any) -> list[tuple[Any, Any]]:
        return [(key.read(each), item.read(value)) for each, value in sorted(get(message).items(), key=_first)]

    def write(message: Any, pairs: Any) -> None:
        target = get(message)
        for each, value in pairs:
            if item.plain is None:
                item.put(target[plain_key(each)], value)
            else:
                target[plain_key(each)] = item.plain(value)

    return _Field(name, [key.column, item.column], read, write)


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _item(field: Any, within: tuple[str, ...]) -> _Item | None:
    if field.message_type is not None:
        return _message_item(field.message_type, within)
    if field.enum_type is not None:
        return _enum_item(field.enum_type)
    kind = _TYPE_NAMES[field.type]
    plain = int if kind in ("uint64", "fixed64", "uint32", "fixed32") else _same
    return _Item(_PLAIN[kind], _same, plain, _no_message)


def _no_message(_message: Any, _value: Any) -> None:
    raise AssertionError("put() is only called for messages")


def _enum_item(descriptor: Any) -> _Item:
    names = {number: each.name for number, each in descriptor.values_by_number.items()}
    numbers = {name: each.number for name, each in descriptor.values_by_name.items()}
    return _Item(
        "string",
        lambda number: names.get(number) or str(number),
        lambda text: numbers[text] if text in numbers else int(text),
        _no_message,
    )


def _message_item(descriptor: Any, within: tuple[str, ...]) -> _Item | None:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return _Item("timestamp", _microseconds, None, _put_microseconds)
    if name in _AS_JSON:
        return _Item("string", _json_text, None, _put_json)
    if name in within or len(within) > STRUCT_DEPTH_MAX:
        return None
    fields = _fields_of(descriptor, within)
    if name in _WRAPPERS:
        value = fields[0]
        return _Item(value.column, value.read, None, value.write)
    if not is_good_struct({each.name: each.column for each in fields}):
        return None

    def read(message: Any) -> dict[str, Any]:
        return {each.name: each.read(message) for each in fields}

    def put(message: Any, values: Mapping[str, Any]) -> None:
        for each in fields:
            value = values.get(each.name)
            if value is not None:
                each.write(message, value)

    return _Item({each.name: each.column for each in fields}, read, None, put)


def _microseconds(message: Any) -> int | None:
    found = message.seconds * 1_000_000 + message.nanos // 1_000
    return found if TIME_US_MIN <= found <= TIME_US_MAX else None


def _put_microseconds(message: Any, value: int) -> None:
    message.seconds, rest = divmod(value, 1_000_000)
    message.nanos = rest * 1_000


def _json_text(message: Any) -> str | None:
    try:
        found = require_schema_package("google.protobuf.json_format").MessageToDict(message)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except Exception:  # noqa: BLE001 - protobuf raises several exception types for NaN or a value without a kind
        return None


def _put_json(message: Any, text: str) -> None:
    try:
        require_schema_package("google.protobuf.json_format").Parse(text, message)
    except Exception as error:  # protobuf's errors do not derive from ValueError
        raise ValueError("the text is not valid JSON for this message") from error
