"""Change events: the rows that records insert, update and delete in a state table. Pure.

A record is a plain row, or an envelope around rows:

    none       the value is the row; `op` may name a field with the operation
    debezium   {"before": row, "after": row, "op": "c" | "u" | "r" | "d", "source": ..., "ts_ms": ...}, also inside
               {"schema": ..., "payload": ...}, where the converter writes schemas
    maxwell    {"type": "insert" | "update" | "delete" | "bootstrap-insert", "data": row, "old": changed fields, ...}

A null value (tombstone) has the key of its row in the record's key: an object with the key columns, with or without a
schema, or a plain value for a single key column. A key column that a row lacks is also taken from the record's key.

Arrow's parser reads a batch of JSON if all of its values fit the columns. Otherwise, the parts of the batch with other
values are parsed one by one, as in json_fields.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from barnabas.errors import BarnabasError, SerializationError
from barnabas.formats import times
from barnabas.formats.column_types import ColumnType, Fields, arrow_type, decimal_parts, merge_fields, settled
from barnabas.formats.decoding import REASON_LETTERS_MAX, ValueDecoder
from barnabas.formats.further_columns import is_further
from barnabas.formats.json_fields import (
    PART_ROWS,
    JsonRules,
    decode,
    decode_objects,
    infer_at_once,
    infer_fields,
    keeps_number_texts,
    note_fields,
    parse_lines,
    parse_object,
    read_fields,
)
from barnabas.formats.record_keys import KeyReader, cast_or_null, places_of
from barnabas.formats.upsert_rules import CHANGE_ORDER, DEBEZIUM, KEY_OF_RECORD, MAXWELL, NO_ENVELOPE, UpsertRules

MAXWELL_KEYS = "pk."
"""The text before the names of key columns in Maxwell's keys: `{"database":"shop","table":"orders","pk.id":17}`."""
_PREFIXES_MAX = 8
"""The maximum number of different schemas in a batch that are cut off without parsing each value."""
_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields of an envelope, and the meaning of its operations."""

    row: str
    former: str
    op: str
    upserts: frozenset[str]
    deletes: frozenset[str]
    ignored: frozenset[str]
    deleted_row: str
    """The field with the row in events that delete."""
    others: frozenset[str]
    """The names of further fields, by which `order_by` is recognised as a field of the envelope."""


ENVELOPE_FIELDS: Mapping[str, Envelope] = {
    DEBEZIUM: Envelope(
        "after",
        "before",
        "op",
        frozenset({"c", "u", "r"}),
        frozenset({"d"}),
        frozenset(),
        "before",
        frozenset({"source", "ts_ms", "ts_us", "ts_ns", "transaction"}),
    ),
    "maxwell": Envelope(
        "data",
        "old",
        "type",
        frozenset({"insert", "update", "bootstrap-insert"}),
        frozenset({"delete"}),
        frozenset({"bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop"})
        | frozenset({"database-create", "database-alter", "database-drop"}),
        "data",
        frozenset(
            {"database", "table", "ts", "xid", "commit", "xoffset", "position", "gtid", "server_id", "thread_id"}
        ),
    ),
}


@dataclass(slots=True)
class Events:
    """The values of a batch, without tombstones, as change events.

    :param columns: one column per requested field, in the same order.
    :param deletes: for each value, True if it deletes the row.
    :param former: the key columns before the change, null where they are unknown; None without such columns.
    :param order: the value of the field that orders the changes; None without such a field.
    :param lost: for each value, True if its row has a field, not null, that no column takes.
    :param reasons: for each bad record, the reason; else null.
    :param ignored: for each value, True if it changes no row.
    :param found: as in `Decoded`.
    """

    columns: list[pa.Array]
    deletes: pa.Array
    former: list[pa.Array] | None
    order: pa.Array | None
    lost: pa.Array
    reasons: pa.Array
    ignored: pa.Array
    found: Fields


class EventReader(Protocol):
    """Reads the values of change events. Values are not null."""

    def infer(self, values: pa.Array) -> Fields:
        """Return the fields of the rows, and `CHANGE_ORDER` if a field orders the changes."""
        ...

    def read(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        """Read the values.

        :param fields: the fields of the rows, without `CHANGE_ORDER`.
        :param order: the type of `CHANGE_ORDER`; None without such a column. Numbers are read with this type, because
            Arrow would read large integers as doubles if there are fractions beside them.
        """
        ...


@dataclass(slots=True)
class Changes:
    """The changes of a batch of records.

    :param rows: for each change, the index of its record.
    :param columns: one column per requested field.
    :param deletes: for each change, True if it deletes the row with its key.
    :param reasons: for each record, the reason why it is bad; else null.
    :param lost_values: the number of new rows with a field that no column takes.
    """

    rows: pa.Array
    columns: list[pa.Array]
    deletes: pa.Array
    reasons: pa.Array
    found: Fields
    lost_values: int = 0


@dataclass(slots=True)
class ChangeDecoder:
    """Decodes records to changes of rows.

    :param events: reads the values.
    :param keys: reads the records' keys.
    """

    rules: UpsertRules
    events: EventReader
    keys: KeyReader
    prepare: Callable[[pa.Array], pa.Array] | None = None
    """Removes the bytes before the values and keys that belong to no value; None for nothing to remove."""

    def infer(self, values: pa.Array, keys: pa.Array) -> Fields:
        """Return the fields of the rows. Key columns that rows lack are also there with the prefix `KEY_OF_RECORD`, and
        the types of the records' keys.
        """
        try:
            return self._infer(values, keys)
        except Exception as error:
            if isinstance(error, BarnabasError) and not isinstance(error, SerializationError):
                raise
            if len(values) <= 1:
                return {}
        middle = len(values) // 2
        halves = ((values[:middle], keys[:middle]), (values[middle:], keys[middle:]))
        return merge_fields(self.infer(*half) for half in halves)

    def _infer(self, values: pa.Array, keys: pa.Array) -> Fields:
        values, keys = self._prepared(values, keys)
        found = self.events.infer(values.filter(values.is_valid())) if values.null_count < len(values) else {}
        lacking = [name for name in self.rules.keys if found.get(name) is None]
        own = self.keys.infer(keys, lacking) if lacking else {}
        return found | {KEY_OF_RECORD + name: kind for name, kind in own.items()}

    def _prepared(self, values: pa.Array, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        return (values, keys) if self.prepare is None else (self.prepare(values), self.prepare(keys))

    def decode(self, values: pa.Array, keys: pa.Array, fields: Mapping[str, ColumnType]) -> Changes:
        """Decode records to changes. A bad record makes no change.

        A record for which a library raises an error is bad: the batch is bisected to find it.

        :raises BarnabasError: if a registry does not respond.
        """
        try:
            return self._decode(*self._prepared(values, keys), fields)
        except Exception as error:
            if isinstance(error, BarnabasError) and not isinstance(error, SerializationError):
                raise
            if len(values) <= 1:
                return _undecoded(len(values), fields, error)
        middle = len(values) // 2
        first = self.decode(values[:middle], keys[:middle], fields)
        second = self.decode(values[middle:], keys[middle:], fields)
        return Changes(
            pa.concat_arrays([first.rows, pc.add(second.rows, middle)]),
            [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)],
            pa.concat_arrays([first.deletes, second.deletes]),
            pa.concat_arrays([first.reasons, second.reasons]),
            merge_fields([first.found, second.found]),
            first.lost_values + second.lost_values,
        )

    def _decode(self, values: pa.Array, keys: pa.Array, fields: Mapping[str, ColumnType]) -> Changes:
        count = len(values)
        row_fields = {name: kind for name, kind in fields.items() if name != CHANGE_ORDER}
        is_there = values.is_valid()
        events = self.events.read(values.filter(is_there), row_fields, fields.get(CHANGE_ORDER))
        place = places_of(is_there)
        columns = dict(zip(row_fields, (column.take(place) for column in events.columns), strict=True))
        reasons = events.reasons.take(place)
        deletes = pc.if_else(is_there, events.deletes.take(place), self.rules.deletes_by_tombstone)
        left_out = pc.if_else(is_there, events.ignored.take(place), not self.rules.deletes_by_tombstone)
        if not self.rules.deletes_at_all:
            left_out = pc.or_(left_out, deletes)
        self._fill_keys(columns, deletes, keys, fields)
        lacks_key = _any([columns[name].is_null() for name in self.rules.keys])
        reasons = pc.if_else(pc.and_(reasons.is_null(), pc.and_not(lacks_key, left_out)), self._no_key(), reasons)
        if self.rules.has_order_column:
            kind = fields[CHANGE_ORDER]
            order = (
                pa.nulls(count, arrow_type(kind)) if events.order is None else as_order(events.order.take(place), kind)
            )
            columns[CHANGE_ORDER] = order
            lacks_order = pc.and_(pc.and_(is_there, order.is_null()), pc.invert(left_out))
            reasons = pc.if_else(pc.and_(reasons.is_null(), lacks_order), self._no_order(kind), reasons)
        applied = pc.and_not(reasons.is_null(), left_out)
        lost = pc.and_(pc.and_not(applied, deletes), events.lost.take(place).fill_null(False))
        rows = pc.indices_nonzero(applied).cast(pa.int64())
        taken = [columns[name].take(rows) for name in fields]
        changed = deletes.take(rows)
        if events.former is not None:
            former = [column.take(place) for column in events.former]
            moved = self._moved(columns, former, pc.and_not(applied, deletes))
            if len(moved):
                own = dict(zip(self.rules.keys, former, strict=True)) | {
                    name: columns[name] for name in (CHANGE_ORDER,) if name in columns
                }
                old = [
                    own[name].take(moved) if name in own else pa.nulls(len(moved), arrow_type(kind))
                    for name, kind in fields.items()
                ]
                taken = [pa.concat_arrays(parts) for parts in zip(old, taken, strict=True)]
                rows = pa.concat_arrays([moved, rows])
                changed = pa.concat_arrays([pa.repeat(pa.scalar(True), len(moved)), changed])
        return Changes(rows, taken, changed, reasons, events.found, lost.true_count)

    def _fill_keys(
        self, columns: dict[str, pa.Array], deletes: pa.Array, keys: pa.Array, fields: Mapping[str, ColumnType]
    ) -> None:
        """Take key columns from the records' keys, for deletions and for columns that rows lack."""
        lacking = pc.and_(_any([columns[name].is_null() for name in self.rules.keys]), keys.is_valid())
        if not self.rules.keys_of_records:
            lacking = pc.and_(lacking, deletes)
        if not lacking.true_count:
            return
        read = self.keys.read(keys.filter(lacking), {name: fields[name] for name in self.rules.keys})
        place = places_of(lacking)
        for name, column in zip(self.rules.keys, read, strict=True):
            own = column.take(place)
            if self.rules.keys_of_records and name not in self.rules.keys_of_records:
                own = pc.if_else(deletes, own, pa.scalar(None, own.type))
            columns[name] = pc.coalesce(columns[name], own)

    def _moved(self, columns: Mapping[str, pa.Array], former: Sequence[pa.Array], updates: pa.Array) -> pa.Array:
        """Return the indexes of the updates that give a row another key. The row with the former key is deleted."""
        known = pc.invert(_any([column.is_null() for column in former]))
        differs = _any(
            [pc.not_equal(columns[name], column) for name, column in zip(self.rules.keys, former, strict=True)]
        )
        return pc.indices_nonzero(pc.and_(pc.and_(updates, known), differs.fill_null(False))).cast(pa.int64())

    def _no_key(self) -> str:
        names = ", ".join(self.rules.keys)
        return f"no key: a column of the key ({names}) is null"

    def _no_order(self, kind: ColumnType) -> str:
        own = arrow_type(kind)
        if pa.types.is_integer(own):
            what = "integer"
        elif _is_number(own):
            what = "number"
        else:
            what = "time" if pa.types.is_temporal(own) else "text"
        return f"no order: the field {self.rules.order_by!r} has no {what}, by which this table orders changes"


def _undecoded(count: int, fields: Mapping[str, ColumnType], error: Exception) -> Changes:
    reason = f"cannot be decoded: {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:REASON_LETTERS_MAX]
    return Changes(
        pa.array([], pa.int64()),
        [pa.array([], arrow_type(kind)) for kind in fields.values()],
        pa.array([], pa.bool_()),
        pa.array([reason] * count, _TEXT),
        {},
    )


def _any(conditions: Sequence[pa.Array]) -> pa.Array:
    found = conditions[0]
    for each in conditions[1:]:
        found = pc.or_kleene(found, each)
    return found


def order_kind(kind: object, values: pa.Array | None) -> ColumnType | None:
    """Return the type of `CHANGE_ORDER` for a field of a type; None if values of this type have no order.

    :param values: the values of a text field. Texts that are all times are compared as times.
    """
    if kind in ("int", "long"):
        return "long"
    if kind in ("float", "double"):
        return "double"
    if kind == "string" and values is not None and pa.types.is_string(values.type):
        texts = values.drop_null()
        return "timestamp" if len(texts) and times.from_texts(texts).null_count == 0 else "string"
    if kind in ("string", "timestamp", "timestamp_ntz", "date"):
        return cast("ColumnType", kind)
    return cast("ColumnType", kind) if isinstance(kind, str) and decimal_parts(kind) else None


def as_order(values: pa.Array, kind: ColumnType) -> pa.Array:
    """Convert the values of the order field to the type of `CHANGE_ORDER`; null where that is not possible.

    Numbers, texts and times stay apart: no number is compared with the text or the time that an earlier change has.
    """
    own, wanted = values.type, arrow_type(kind)
    if own.equals(wanted):
        return values
    if pa.types.is_timestamp(wanted) and pa.types.is_string(own):
        return times.from_texts(values).cast(wanted)
    if not (_is_number(own) and _is_number(wanted)) and not (
        pa.types.is_temporal(own) and pa.types.is_temporal(wanted)
    ):
        return pa.nulls(len(values), wanted)
    return cast_or_null(values, wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


@dataclass(slots=True)
class PlainReader:
    """Reads values that are rows themselves.

    :param decoder: the decoder of the values; for JSON None, because its checks of restored values are not needed.
    """

    rules: UpsertRules
    json_rules: JsonRules
    decoder: ValueDecoder | None = None

    def infer(self, values: pa.Array) -> Fields:
        found = infer_fields(values, self.json_rules) if self.decoder is None else self.decoder.infer(values)
        if self.rules.has_order_column:
            found[CHANGE_ORDER] = self._infer_order(values, found)
        return found

    def _infer_order(self, values: pa.Array, found: Fields) -> ColumnType | None:
        path = self.rules.order_by.split(".")
        kinds: Fields = found
        if len(path) > 1 and self.decoder is None:
            kinds = infer_fields(values, JsonRules(nested=True))
        kind = _type_at(kinds, path)
        if kind is None:
            return None
        texts = None
        if kind == "string":
            texts = self._order(values, {}, (), "string")
        return order_kind(kind, texts)

    def read(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        if self.decoder is None:
            parsed = decode(values, fields, self.json_rules)
            columns, found, lost = parsed.columns, parsed.found, parsed.unplaced
            reasons = pa.array(parsed.reasons, _TEXT) if parsed.reasons else pa.nulls(len(values), _TEXT)
        else:
            decoded = self.decoder.decode(values, fields)
            columns, found, reasons = decoded.columns, decoded.found, decoded.reasons
            lost = _unplaced(self.decoder, values, found, dict(zip(fields, columns, strict=True)))
        deletes = pa.repeat(pa.scalar(False), len(values))
        if self.rules.op is not None:
            ops = self._ops(self.rules.op, values, dict(zip(fields, columns, strict=True)))
            deletes = pc.is_in(ops, pa.array(sorted(self.rules.deletes_by_op), _TEXT))
        orders = None if order is None else self._order(values, fields, columns, order)
        return Events(columns, deletes, None, orders, lost, reasons, pa.repeat(pa.scalar(False), len(values)), found)

    def _ops(self, name: str, values: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the operations, also if the table has no column for their field."""
        if name in columns:
            return columns[name].cast(_TEXT)
        wanted: dict[str, ColumnType] = {name: "string"}
        if self.decoder is None:
            return read_fields(values, wanted)[0]
        return self.decoder.decode(values, wanted).columns[0]

    def _order(
        self, values: pa.Array, fields: Mapping[str, ColumnType], columns: Sequence[pa.Array], kind: ColumnType
    ) -> pa.Array | None:
        """Return the values of the order field, from its column if possible."""
        path = self.rules.order_by.split(".")
        order = None
        if self.rules.order_by in fields:
            order = columns[list(fields).index(self.rules.order_by)]
        elif path[0] in fields:
            order = _at(columns[list(fields).index(path[0])], path[1:])
        if self.decoder is None:
            # Columns of texts and times may have values of other JSON types, converted.
            is_usable = order is not None and order.type == _json_type(kind) != _TEXT
            return order if is_usable else read_order(values, path, kind)
        if order is not None:
            return order
        found = _type_at(self.decoder.infer(values), path)
        if not isinstance(found, str):
            return None
        return _at(self.decoder.decode(values, _nested(path, cast("ColumnType", found))).columns[0], path[1:])


@dataclass(slots=True)
class JsonEnvelopeReader:
    """Reads JSON envelopes, with and without `schema` and `payload`."""

    rules: UpsertRules
    json_rules: JsonRules

    @property
    def envelope(self) -> Envelope:
        return ENVELOPE_FIELDS[self.rules.envelope]

    def infer(self, values: pa.Array) -> Fields:
        found = self._infer_at_once(values)
        if found is None:
            found = self._infer_one_by_one(values)
        if self.rules.has_order_column and found.get(CHANGE_ORDER) is not None:
            texts = None
            if found[CHANGE_ORDER] == "string":
                rows = {name: settled(kind) for name, kind in found.items() if name != CHANGE_ORDER}
                texts = self.read(values, rows, "string").order
            found[CHANGE_ORDER] = order_kind(found[CHANGE_ORDER], texts)
        return found

    def _infer_at_once(self, values: pa.Array) -> Fields | None:
        """Infer with Arrow's parser; return None if it cannot parse the values, or finds types with exceptions."""
        whole = infer_at_once(without_schemas(values), JsonRules(nested=True, decimals=self.json_rules.decimals))
        if whole is None or "payload" in whole:
            return None
        rows = [kind for name in (self.envelope.row, self.envelope.former) if isinstance(kind := whole.get(name), dict)]
        found = merge_fields([cast("Fields", kind) for kind in rows])
        if not self.json_rules.nested:
            found = {name: "string" if isinstance(kind, dict | list) else kind for name, kind in found.items()}
        if self.rules.has_order_column:
            found[CHANGE_ORDER] = cast("Any", _type_at(found if self._is_order_in_row else whole, self._order_path))
        return found

    def _infer_one_by_one(self, values: pa.Array) -> Fields:
        found: Fields = {}
        rules = JsonRules(nested=True, decimals=self.json_rules.decimals)
        for value in without_schemas(values).to_pylist():
            event = _payload(parse_object(value, self.json_rules.decimals))
            if not isinstance(event, dict):
                continue
            for name in (self.envelope.row, self.envelope.former):
                row = event.get(name)
                if isinstance(row, dict):
                    note_fields(found, row.items(), self.json_rules)
            if self.rules.has_order_column:
                order = self._order_of(event)
                if order is not None:
                    note_fields(found, [(CHANGE_ORDER, order)], rules)
        return found

    @property
    def _order_path(self) -> list[str]:
        """The path of the order field from the envelope; for a field of the row, from the row."""
        return self.rules.order_by.split(".")

    @property
    def _is_order_in_row(self) -> bool:
        own = self.envelope
        return self._order_path[0] not in {own.row, own.former, own.op, *own.others}

    def _order_of(self, event: Mapping[str, Any]) -> object:
        """Return the order of a parsed event."""
        item: Any = event
        if self._is_order_in_row:
            item = event.get(self.envelope.row) or event.get(self.envelope.former)
        item = _item_at(item, self._order_path)
        return item if isinstance(item, str | int | float) and not isinstance(item, bool) else None

    def read(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        return self._read(without_schemas(values), fields, order)

    def _read(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        if not len(values):
            return self._read_one_by_one(values, fields, order)
        events = self._read_at_once(values, fields, order)
        if events is not None:
            return events
        if len(values) <= PART_ROWS:
            return self._read_one_by_one(values, fields, order)
        return _joined(
            [self._read(values.slice(start, PART_ROWS), fields, order) for start in range(0, len(values), PART_ROWS)]
        )

    def _read_at_once(
        self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None
    ) -> Events | None:
        """Read with Arrow's parser; return None if a value does not fit."""
        own = self.envelope
        row_type = pa.struct([(name, arrow_type(kind)) for name, kind in fields.items() if not is_further(name)])
        schema = pa.schema([(own.row, row_type), (own.op, _TEXT)])
        if own.deleted_row == own.former:
            schema = schema.append(pa.field(own.former, row_type))
        else:
            types = [(name, arrow_type(fields[name])) for name in self.rules.keys if name in fields]
            schema = schema.append(pa.field(own.former, pa.struct(types)))
        table = parse_lines(values, pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"))
        if table is None or table.column(own.row).type != row_type or table.column(own.op).null_count:
            return None
        if own.deleted_row == own.former and table.column(own.former).type != row_type:
            return None
        parts = {name: table.column(name).combine_chunks() for name in table.schema.names}
        parts = {name: part.chunk(0) if isinstance(part, pa.ChunkedArray) else part for name, part in parts.items()}
        former = dict(zip((field.name for field in parts[own.former].type), parts[own.former].flatten(), strict=True))
        cells = {
            side: dict(zip(row_type.names, parts[side].flatten(), strict=True)) for side in {own.row, own.deleted_row}
        }
        return _events_of(
            self.rules,
            own,
            parts[own.op],
            {side: parts[side].is_valid() for side in cells},
            cells,
            former,
            fields,
            None if order is None else self._order_at_once(values, parts, order),
            pa.repeat(pa.scalar(False), len(values)),
            pa.nulls(len(values), _TEXT),
            {},
        )

    def _order_at_once(self, values: pa.Array, parts: Mapping[str, pa.Array], kind: ColumnType) -> pa.Array:
        """Return the values of the order field, from the parts of the envelopes if they have it with its type."""
        own, path = self.envelope, self._order_path

        def at(path: list[str]) -> pa.Array:
            found = _at(parts[path[0]], path[1:]) if path[0] in parts else None
            return found if found is not None and found.type == _json_type(kind) else read_order(values, path, kind)

        if not self._is_order_in_row:
            return at(path)
        row = at([own.row, *path])
        if own.deleted_row == own.row:
            return row
        return pc.if_else(
            pc.is_in(parts[own.op], pa.array(sorted(own.deletes), _TEXT)), at([own.deleted_row, *path]), row
        )

    def _read_one_by_one(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        own = self.envelope
        keeps_text = keeps_number_texts(fields, self.json_rules)
        events = [_payload(parse_object(value, keeps_text)) for value in values.to_pylist()]
        reasons = [event if isinstance(event, str) else None for event in events]
        parsed = [event if isinstance(event, dict) else {} for event in events]
        sides = {}
        is_there = {}
        found: Fields = {}
        lost = pa.repeat(pa.scalar(False), len(values))
        for side in {own.row, own.former}:
            objects = [row if isinstance(row := event.get(side), dict) else None for event in parsed]
            is_there[side] = pa.array([row is not None for row in objects], pa.bool_())
            decoded = decode_objects(objects, fields, self.json_rules)
            sides[side] = dict(zip(fields, decoded.columns, strict=True))
            found = merge_fields([found, decoded.found])
            lost = decoded.unplaced if side == own.row else lost
            if side in (own.row, own.deleted_row):
                for row, reason in enumerate(decoded.reasons or ()):
                    reasons[row] = reasons[row] or reason
        ops = [op if isinstance(op := event.get(own.op), str) else None for event in parsed]
        orders = None if order is None else _order_array([self._order_of(event) for event in parsed], order)
        cells = {side: sides[side] for side in {own.row, own.deleted_row}}
        return _events_of(
            self.rules,
            own,
            pa.array(ops, _TEXT),
            is_there,
            cells,
            sides[own.former],
            fields,
            orders,
            lost,
            pa.array(reasons, _TEXT),
            found,
        )


def _events_of(
    rules: UpsertRules,
    own: Envelope,
    ops: pa.Array,
    is_there: Mapping[str, pa.Array],
    cells: Mapping[str, Mapping[str, pa.Array]],
    former: Mapping[str, pa.Array],
    fields: Mapping[str, ColumnType],
    order: pa.Array | None,
    lost: pa.Array,
    reasons: pa.Array,
    found: Fields,
) -> Events:
    """Combine the parts of envelopes.

    :param ops: the operations.
    :param is_there: for each of the fields with a row, whether the event has it.
    :param cells: for each of the fields with a row, its columns.
    :param former: the columns before the change.
    """
    deletes = pc.is_in(ops, pa.array(sorted(own.deletes), _TEXT))
    upserts = pc.is_in(ops, pa.array(sorted(own.upserts), _TEXT))
    ignored = pc.is_in(ops, pa.array(sorted(own.ignored), _TEXT))
    unknown = pc.and_(reasons.is_null(), pc.invert(pc.or_(ignored, pc.or_(deletes, upserts))))
    why = pc.binary_join_element_wise(f"{own.op} is no change of a row:", pc.coalesce(ops, "null"), " ")
    reasons = pc.if_else(unknown, pc.utf8_slice_codeunits(why, 0, 100), reasons)
    lacks_row = pc.and_(reasons.is_null(), pc.and_not(upserts, is_there[own.row]))
    reasons = pc.if_else(lacks_row, f"no row in {own.row!r}", reasons)
    nothing = {name: pa.nulls(len(ops), arrow_type(kind)) for name, kind in fields.items()}
    columns = [
        pc.if_else(deletes, cells[own.deleted_row].get(name, nothing[name]), cells[own.row].get(name, nothing[name]))
        if own.deleted_row != own.row
        else cells[own.row].get(name, nothing[name])
        for name in fields
    ]
    by_name = dict(zip(fields, columns, strict=True))
    # An event of Maxwell has only the changed fields in `old`; the others are those of the row.
    keys = [
        pc.coalesce(former.get(name, nothing[name]), by_name[name])
        if own.deleted_row == own.row
        else former.get(name, nothing[name])
        for name in rules.keys
    ]
    if order is None and rules.has_order_column:
        path = rules.order_by.split(".")
        if path[0] in by_name:
            order = _at(by_name[path[0]], path[1:])
    return Events(columns, deletes, keys, order, lost, reasons, ignored, found)


@dataclass(slots=True)
class NestedEnvelopeReader:
    """Reads envelopes that a decoder with schemas returns as structs (Avro, Protobuf)."""

    rules: UpsertRules
    decoder: ValueDecoder

    @property
    def envelope(self) -> Envelope:
        return ENVELOPE_FIELDS[self.rules.envelope]

    def infer(self, values: pa.Array) -> Fields:
        whole = self.decoder.infer(values)
        own = self.envelope
        rows = [kind for name in (own.row, own.former) if isinstance(kind := whole.get(name), dict)]
        found = merge_fields([cast("Fields", kind) for kind in rows])
        if self.rules.has_order_column:
            path = self.rules.order_by.split(".")
            order = _type_at(whole if self._is_order_outside else found, path)
            texts = None
            if order == "string":
                texts = self.read(values, {name: settled(each) for name, each in found.items()}, "string").order
            found[CHANGE_ORDER] = order_kind(order, texts)
        return found

    @property
    def _is_order_outside(self) -> bool:
        own = self.envelope
        return self.rules.order_by.split(".")[0] in {own.row, own.former, own.op, *own.others}

    def read(self, values: pa.Array, fields: Mapping[str, ColumnType], order: ColumnType | None) -> Events:
        own = self.envelope
        row = dict(fields)
        wanted: dict[str, ColumnType] = {own.row: row, own.former: row, own.op: "string"}
        path = self.rules.order_by.split(".")
        if order is not None and self._is_order_outside and path[0] not in wanted:
            kind = self.decoder.infer(values).get(path[0])
            if kind is not None:
                wanted[path[0]] = settled(kind)
        decoded = self.decoder.decode(values, wanted)
        parts = dict(zip(wanted, decoded.columns, strict=True))
        orders = _at(parts[path[0]], path[1:]) if order is not None and path[0] in parts else None
        cells = {
            side: dict(zip((field.name for field in parts[side].type), parts[side].flatten(), strict=True))
            for side in {own.row, own.former}
        }
        found = merge_fields(
            cast("Fields", kind)
            for name, kind in decoded.found.items()
            if name.partition("\x1f")[0] in (own.row, own.former) and isinstance(kind, dict)
        )
        of_rows = {name: kind for name, kind in decoded.found.items() if name.partition("\x1f")[0] == own.row}
        return _events_of(
            self.rules,
            own,
            parts[own.op],
            {side: parts[side].is_valid() for side in cells},
            cells,
            cells[own.former],
            fields,
            orders,
            _unplaced(self.decoder, values, of_rows, {own.row: parts[own.row]}),
            decoded.reasons,
            found,
        )


def without_schemas(values: pa.Array) -> pa.Array:
    """Return the payloads of values with `schema` and `payload`, as far as they can be cut off as text.

    The text before the payload is the same in all records of a schema. A value that cannot be cut stays as it is.

    >>> without_schemas(pa.array([b'{"schema":{"type":"struct"},"payload":{"op":"c"}}'])).to_pylist()
    [b'{"op":"c"}']
    """
    left = pc.starts_with(values, '{"schema"')
    for _ in range(_PREFIXES_MAX):
        if not left.true_count:
            break
        first = pc.index(left, True).as_py()
        prefix = _prefix(values[first].as_py())
        if prefix is None:
            left = pc.and_not(left, _is_row(len(values), first))
            continue
        own = pc.and_(
            left,
            pc.starts_with(values, pattern=prefix.decode("latin-1"))
            if prefix.isascii()
            else _is_row(len(values), first),
        )
        cut = pc.binary_slice(values, len(prefix), -1)
        is_object = pc.and_(pc.starts_with(cut, "{"), pc.ends_with(values, "}}"))
        values = pc.if_else(pc.and_(own, is_object), cut, values)
        left = pc.and_not(left, own)
    return values


def _is_row(count: int, row: int) -> pa.Array:
    return pc.equal(pa.array(range(count), pa.int64()), row)


def _prefix(value: bytes) -> bytes | None:
    """Return the text before the payload, if the payload is the last field of an object with a schema."""
    with suppress(ValueError, RecursionError):
        text = value.decode()
        start = text.index(":") + 1
        _schema, end = json.JSONDecoder().raw_decode(text, start + len(text[start:]) - len(text[start:].lstrip()))
        rest = text[end:]
        begin = rest.index('"payload":') + len('"payload":')
        _payload_of_it, last = json.JSONDecoder().raw_decode(rest, begin)
        if rest[:begin].replace(" ", "") == ',"payload":' and rest[last:] == "}":
            return text[: end + begin].encode()
    return None


def _payload(event: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
    """Return the payload of an event with a schema; other events unchanged."""
    if isinstance(event, dict) and "payload" in event and "schema" in event:
        payload = event["payload"]
        return payload if isinstance(payload, dict) else "no object in 'payload'"
    return event


def _joined(parts: Sequence[Events]) -> Events:
    """Concatenate consecutive events."""
    if len(parts) == 1:
        return parts[0]
    formers = [part.former for part in parts]
    orders = [part.order for part in parts if part.order is not None]
    return Events(
        [pa.concat_arrays(chunks) for chunks in zip(*(part.columns for part in parts), strict=True)],
        pa.concat_arrays([part.deletes for part in parts]),
        [pa.concat_arrays(chunks) for chunks in zip(*(cast("list[pa.Array]", each) for each in formers), strict=True)],
        pa.concat_arrays(orders) if len(orders) == len(parts) else None,
        pa.concat_arrays([part.lost for part in parts]),
        pa.concat_arrays([part.reasons for part in parts]),
        pa.concat_arrays([part.ignored for part in parts]),
        merge_fields(part.found for part in parts),
    )


def read_order(values: pa.Array, path: Sequence[str], kind: ColumnType) -> pa.Array:
    """Return the values of a field of JSON objects that orders changes. A value of another JSON type is null.

    :param kind: the type of `CHANGE_ORDER`. Times are returned as their texts.

    >>> read_order(pa.array([b'{"at": "b"}', b'{"at": 2}']), ["at"], "string").to_pylist()
    ['b', None]
    """
    wanted = _nested(path, "string" if _json_type(kind) == _TEXT else kind)
    schema = pa.schema([(name, arrow_type(each)) for name, each in wanted.items()])
    table = parse_lines(values, pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"))
    if table is not None:
        found = _at(pa.concat_arrays(table.column(path[0]).chunks), path[1:])
        if found is not None:
            return found
    if len(values) > PART_ROWS:
        parts = [values.slice(start, PART_ROWS) for start in range(0, len(values), PART_ROWS)]
        return pa.concat_arrays([read_order(part, path, kind) for part in parts])
    keeps_text = keeps_number_texts(wanted, JsonRules())
    return _order_array([_item_at(parse_object(value, keeps_text), path) for value in values.to_pylist()], kind)


def _json_type(kind: ColumnType) -> pa.DataType:
    """Return the type with which JSON is read: JSON has times as texts."""
    own = arrow_type(kind)
    return _TEXT if pa.types.is_temporal(own) else own


def _item_at(item: object, path: Sequence[str]) -> object:
    """Return a field of a parsed object; None if it lacks the field."""
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _order_array(items: Sequence[object], kind: ColumnType) -> pa.Array:
    """Return order values of parsed JSON as an array; null for values of another type."""
    if _json_type(kind) == _TEXT:
        return pa.array([item if isinstance(item, str) else None for item in items], _TEXT)
    return decode_objects([{"": item} for item in items], {"": kind}, JsonRules()).columns[0]


def _type_at(kinds: Mapping[str, object], path: Sequence[str]) -> object:
    kind: object = kinds.get(path[0])
    for name in path[1:]:
        kind = kind.get(name) if isinstance(kind, dict) else None
    return kind


def _at(column: pa.Array, path: Sequence[str]) -> pa.Array | None:
    """Return a nested field of a struct column; None if the type has no such field."""
    for name in path:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = column.flatten()[column.type.get_field_index(name)]
    return column


def _unplaced(decoder: ValueDecoder, values: pa.Array, found: Fields, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return, for each value, whether it has a field, not null, that no column takes.

    :param found: the fields that the columns do not take in all values.
    """
    wanted = {name.partition("\x1f")[0]: settled(kind) for name, kind in found.items()}
    if not wanted:
        return pa.repeat(pa.scalar(False), len(values))
    cells = dict(zip(wanted, decoder.decode(values, wanted).columns, strict=True))
    return _any_beside(cells, columns, len(values))


def _any_beside(cells: Mapping[str, pa.Array], columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Return, for each row, whether a cell has a value, or a nested field, that the columns lack."""
    found = pa.repeat(pa.scalar(False), count)
    for name, cell in cells.items():
        own = [column for key, column in columns.items() if key.partition("\x1f")[0] == name]
        structs = [column for column in own if pa.types.is_struct(column.type)]
        if structs and pa.types.is_struct(cell.type):
            lacks = _any_beside(_cells(cell), _cells(structs[0]), count)
        elif pa.types.is_nested(cell.type) and all(column.type != cell.type for column in own):
            lacks = cell.is_valid()
        else:
            lacks = cell.is_valid()
            for column in own:
                lacks = pc.and_not(lacks, column.is_valid())
        found = pc.or_(found, lacks)
    return found


def _cells(column: pa.Array) -> dict[str, pa.Array]:
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))


def _nested(path: Sequence[str], kind: ColumnType) -> dict[str, ColumnType]:
    inner: ColumnType = kind
    for name in reversed(path[1:]):
        inner = {name: inner}
    return {path[0]: inner}


def change_decoder(
    rules: UpsertRules,
    json_rules: JsonRules,
    values: ValueDecoder | None,
    keys: ValueDecoder | None,
    prepare: Callable[[pa.Array], pa.Array] | None = None,
) -> ChangeDecoder:
    """Return the decoder of changes.

    :param values: the decoder of values with schemas; None for JSON.
    :param keys: the decoder of keys with schemas; None for JSON and plain keys.
    :param prepare: removes the bytes before values and keys that belong to no value.
    """
    reader: EventReader
    if rules.envelope == NO_ENVELOPE:
        reader = PlainReader(rules, json_rules, values)
    elif values is None:
        reader = JsonEnvelopeReader(rules, json_rules)
    else:
        reader = NestedEnvelopeReader(rules, values)
    prefix = MAXWELL_KEYS if rules.envelope == MAXWELL else ""
    return ChangeDecoder(rules, reader, KeyReader(rules.keys, keys, prefix), prepare)
