"""The `ValueDecoder` of records with schemas in Confluent's wire format, for loads into tables.

Each record is decoded with the schema that it was written with. Its fields go to the table's columns of the same names.
A column is null if the record's own schema has no such field, even if a newer schema has a default for the field. So a
load before a schema change and a load after it produce the same row. Renamed fields, including fields in structs, go to
the column of the new name (`aliases`).

A form describes how to restore a value. `avro:7` means: encode the columns with schema 7. `protobuf:7:0` adds the
message indexes. The decoder encodes each record again and compares the bytes, because one value can have several
encodings (overlong integers, several blocks of a list, another order of fields). If the bytes differ, the load keeps
the original value. It also keeps the original value of a record with a field that has no column, because another field
uses its name: after a second rename, both would map to the same column.

A record without a schema id, with an unknown id or with a damaged body is a bad record. If no registry responds, the
load stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import BarnabasError, SchemaRegistryError, SerializationError
from barnabas.formats.column_types import (
    ColumnType,
    Fields,
    arrow_type,
    merge_fields,
    takes,
    type_word,
    wider,
    without_large_types,
)
from barnabas.formats.decoding import REASON_LETTERS_MAX, TOMBSTONE, VALUE, Decoded
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.further_columns import further_key
from barnabas.serialization import wire_format
from barnabas.serialization.column_casts import fitted
from barnabas.serialization.distinct_map_keys import with_distinct_keys
from barnabas.serialization.registry_client import NO_SUCH_SCHEMA, SchemaRegistry
from barnabas.serialization.unknown_ids import UnknownIds, most_frequent_first
from barnabas.serialization.wire_format import Writer

BYTES_MAX = 2**31 - 1
ONE_BY_ONE_MAX = 64
"""A damaged batch with at most this number of records is decoded one record at a time. A larger batch is bisected."""
NAME_LETTERS_SHOWN = 60


class RecordType(Protocol):
    """The records of one schema.

    :param fields: the fields that have a column, with the column types. Fields in structs have the table's names.
    :param aliases: the earlier names of fields with their current names, as the schema declares them.
    :param is_strict: True if `decode` raises an error for every damaged record. If False, check the rows that
        `suspect_rows` returns.
    """

    fields: Mapping[str, ColumnType]
    aliases: Aliases
    is_strict: bool

    def decode(self, payloads: Sequence[bytes]) -> Mapping[str, pa.Array]:
        """Decode records, without their headers, to one column per field.

        :raises SerializationError: if at least one record is damaged.
        """
        ...

    def suspect_rows(self, fields: Mapping[str, pa.Array], payloads: pa.Array) -> Sequence[int]:
        """Return the indexes of records that may be damaged although `decode` has accepted them."""
        ...

    def damage_reason(self, payload: bytes) -> str | None:
        """Return the reason why a record is bad, or None if it is valid."""
        ...

    def canonical(self, payloads: pa.Array) -> pa.Array:
        """Return valid records as `encode` would write them, including unknown fields, so that both can be compared."""
        ...

    def has_columns_for_all(self, name: str, column: ColumnType) -> bool:
        """Return whether a column type has a separate subfield for each nested field of the record's field."""
        ...

    def to_column(self, name: str, values: pa.Array, wanted: ColumnType) -> pa.Array:
        """Convert a field to a column type. A value that does not fit becomes null."""
        ...

    def encode(self, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
        """Encode the rows of columns as binary records. The keys of `columns` are field names."""
        ...


class RecordFormat(Protocol):
    """A format with schemas in a registry: Avro or Protobuf."""

    name: str

    def rows_by_writer(self, values: pa.Array, reasons: dict[int, str]) -> dict[Writer, pa.Array]:
        """Return the row indexes (ascending) of each writer. Add the reason of each invalid row to `reasons`."""
        ...

    def record_type(self, registry: SchemaRegistry, writer: Writer, known: Aliases) -> RecordType:
        """Return the record type of a schema.

        :param known: the aliases of the table.
        :raises SerializationError: if the schema has another type, or is invalid.
        """
        ...


@dataclass(slots=True)
class _Columns:
    """Decoded rows: their indexes in the batch, one column per field of the table, and the form of each row."""

    rows: pa.Array
    columns: list[pa.Array]
    forms: pa.Array


@dataclass(slots=True)
class RecordDecoder:
    """A `ValueDecoder` of records with schemas. Not thread-safe.

    :param kind: the format of the records.
    :param registry: the registry of the schemas.
    :param known: the earlier names of fields with their names in the table.
    :param with_forms: True to check that the columns restore the values. A caller that keeps the values does not need
        this check.
    :param may_rename: True if the table's fields may be renamed later.
    """

    kind: RecordFormat
    registry: SchemaRegistry
    known: Aliases = NO_ALIASES
    with_forms: bool = True
    may_rename: bool = True
    _types: dict[Writer, RecordType] = field(default_factory=dict)
    _unknown: UnknownIds[Writer] = field(default_factory=UnknownIds)

    def infer(self, values: pa.Array) -> Fields:
        return merge_fields(dict(each.fields) for each in self._types_in(values))

    def renames(self, values: pa.Array) -> Aliases:
        return Aliases.together(each.aliases for each in self._types_in(values))

    def _types_in(self, values: pa.Array) -> list[RecordType]:
        rows_by_writer = self.kind.rows_by_writer(values, {})
        self._look_up(rows_by_writer)
        return [found for writer in sorted(rows_by_writer) if not isinstance(found := self._type(writer), str)]

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        reasons: dict[int, str] = {}
        found: Fields = {}
        parts: list[_Columns] = []
        rows_by_writer = self.kind.rows_by_writer(values, reasons)
        self._look_up(rows_by_writer)
        for writer, rows in sorted(rows_by_writer.items()):
            record_type = self._type(writer)
            if isinstance(record_type, str):
                reasons.update(dict.fromkeys(rows.to_pylist(), record_type))
                continue
            targets = self._targets(record_type, fields)
            form = VALUE
            if self._comes_back(record_type, targets, fields):
                form = f"{self.kind.name}:{writer}"
            group = _Group(form, writer, record_type, targets, fields, self.with_forms)
            found = merge_fields([found, group.found()])
            parts.append(group.decode(values, rows, reasons))
        return _joined(values, fields, parts, reasons, found)

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the values as they were produced.

        :raises SerializationError: if the registry no longer has the schema of one of the values.
        """
        restored = values
        self._unknown.begin()
        for form in pc.unique(forms).to_pylist():
            name, _, writer = (form or "").partition(":")
            if name != self.kind.name:
                continue
            wanted = Writer.parse(writer)
            record_type = self._type(wanted)
            if isinstance(record_type, str):
                raise SerializationError(record_type)
            rows = pc.equal(forms, form).fill_null(False)
            own = {name: without_large_types(column.filter(rows)) for name, column in columns.items()}
            targets = self._targets(record_type, own)
            sources = {name: _source(record_type.fields[name], target, own) for name, target in targets.items()}
            made = record_type.encode(sources, rows.true_count)
            whole = pc.binary_join_element_wise(pa.scalar(wanted.prefix()), made, b"")
            restored = pc.replace_with_mask(restored, rows, whole.cast(restored.type))
        return restored

    def _targets(self, record_type: RecordType, fields: Mapping[str, object]) -> dict[str, str]:
        """Return the table's field for each field of a record.

        An earlier name of a field always maps to this field, so another field with the same name has no column.
        Otherwise values could not be restored after the table has changed.
        """
        targets = {}
        for name in record_type.fields:
            target = self.known.now(name)
            if target in fields and (target == name or target not in record_type.fields):
                targets[name] = target
        return targets

    def _comes_back(
        self, record_type: RecordType, targets: Mapping[str, str], fields: Mapping[str, ColumnType]
    ) -> bool:
        """Return whether the columns will still restore the records after any later rename."""
        if not self.may_rename:
            return True
        are_distinct = len(set(targets.values())) == len(targets)
        has_hidden = any(name in self.known.names and name not in targets for name in record_type.fields)
        return (
            are_distinct
            and not has_hidden
            and all(
                record_type.has_columns_for_all(name, fields[_column_of(record_type.fields[name], target, fields)])
                for name, target in targets.items()
            )
        )

    def _look_up(self, rows_by_writer: Mapping[Writer, pa.Array]) -> None:
        """Look up the schemas of a batch's writers, up to the limit of registry requests.

        :param rows_by_writer: the writers with their rows.
        """
        self._unknown.begin()
        for writer in most_frequent_first(rows_by_writer):
            self._type(writer)

    def _type(self, writer: Writer) -> RecordType | str:
        """Return the record type for a writer's schema, or the reason why there is none."""
        known = self._types.get(writer) or self._unknown.reason(writer)
        if known is not None:
            return known
        made = self._make(writer)
        if isinstance(made, str):
            self._unknown.note(writer, made)
        else:
            self._types[writer] = made
        return made

    def _make(self, writer: Writer) -> RecordType | str:
        try:
            return self.kind.record_type(self.registry, writer, self.known)
        except SerializationError as error:
            return f"schema {writer.schema_id}: {error}"
        except SchemaRegistryError as error:
            if not error.is_about_schema:
                raise
            if error.code == NO_SUCH_SCHEMA:
                return f"schema {writer.schema_id} is not known to the registry"
            return f"schema {writer.schema_id}: {error}"
        except BarnabasError:  # no registry responds, so stop the load
            raise
        except Exception as error:  # noqa: BLE001 - format libraries raise arbitrary errors for untrusted schemas
            return f"schema {writer.schema_id}: cannot be parsed: {type(error).__name__}: {error}"[:REASON_LETTERS_MAX]


@dataclass(frozen=True, slots=True)
class _Group:
    """The records of one writer in a batch, with the conversion to the table's columns.

    :param form: the form of records that the columns can restore.
    :param targets: maps each record field that has a column to the table's field.
    :param fields: all fields of the table.
    """

    form: str
    writer: Writer
    record_type: RecordType
    targets: Mapping[str, str]
    fields: Mapping[str, ColumnType]
    with_forms: bool

    def found(self) -> Fields:
        """Return the fields for which the table has no column that can represent all values."""
        missing: Fields = {}
        for name, own in self.record_type.fields.items():
            target = self.targets.get(name)
            if target is None:
                if name not in self.fields:
                    missing[name] = own
                continue
            key = target
            if not takes(self.fields[target], own, widens=False):
                key = further_key(target, type_word(own))
            if key not in self.fields or wider(self.fields[key], own) != self.fields[key]:
                missing[key] = own
        return missing

    def decode(self, values: pa.Array, rows: pa.Array, reasons: dict[int, str]) -> _Columns:
        """Decode rows. Add the reason of each bad row to `reasons`."""
        own = values if len(rows) == len(values) else values.take(rows)
        # Pass an explicit end: without it, Arrow 26 tries to allocate a negative number of bytes.
        payloads = pc.binary_slice(own, len(self.writer.prefix()), BYTES_MAX)
        try:
            decoded = self.record_type.decode(payloads.to_pylist())
        except SerializationError:
            rows, payloads = self._sound(rows, payloads, reasons)
            decoded = self.record_type.decode(payloads.to_pylist())
        return self._columns(rows, decoded, payloads, reasons)

    def _sound(self, rows: pa.Array, payloads: pa.Array, reasons: dict[int, str]) -> tuple[pa.Array, pa.Array]:
        """Return the records of a damaged batch that can be decoded. Add the reasons of the others to `reasons`."""
        damaged = dict(_damaged(self.record_type, payloads.to_pylist(), 0))
        reasons.update((rows[place].as_py(), reason) for place, reason in damaged.items())
        is_sound = pa.array([place not in damaged for place in range(len(rows))], pa.bool_())
        return rows.filter(is_sound), payloads.filter(is_sound)

    def _columns(
        self, rows: pa.Array, decoded: Mapping[str, pa.Array], payloads: pa.Array, reasons: dict[int, str]
    ) -> _Columns:
        count = len(rows)
        columns = {name: pa.nulls(count, arrow_type(kind)) for name, kind in self.fields.items()}
        for name, target in self.targets.items():
            columns |= self._cells(name, target, decoded[name])
            self._note_misfits(name, decoded[name], columns, rows, reasons)
        if not self.with_forms:
            if not self.record_type.is_strict:
                self._clear_damaged(columns, decoded, payloads, pa.array(range(count), pa.int64()), rows, reasons)
            return _Columns(rows, list(columns.values()), pa.repeat(pa.scalar(VALUE), count))
        kinds = self.record_type.fields
        sources = {name: _source(kinds[name], target, columns) for name, target in self.targets.items()}
        made = self.record_type.encode(sources, count)
        is_same = pc.equal(made, payloads)
        if is_same.true_count < count:
            left = pc.invert(is_same)
            canonical = self.record_type.canonical(payloads.filter(left))
            is_same = pc.replace_with_mask(is_same, left, pc.equal(made.filter(left), canonical))
        forms = pc.if_else(is_same, self.form, VALUE)
        if is_same.true_count < count:
            places = pc.indices_nonzero(pc.invert(is_same))
            self._clear_damaged(columns, decoded, payloads, places, rows, reasons)
        return _Columns(rows, list(columns.values()), forms)

    def _cells(self, name: str, target: str, values: pa.Array) -> dict[str, pa.Array]:
        """Return the column of a field, and the further column for values that do not fit the column."""
        own, column = self.record_type.fields[name], self.fields[target]
        key = further_key(target, type_word(own))
        if key not in self.fields:
            return {target: with_distinct_keys(self.record_type.to_column(name, values, column))}
        if _column_of(own, target, self.fields) == key and not isinstance(own, str):
            to_column = pa.nulls(len(values), arrow_type(column))  # a value must not be partly in the first column
        else:
            to_column = with_distinct_keys(self.record_type.to_column(name, values, column))
        left = pc.and_(to_column.is_null(), values.is_valid())
        others = with_distinct_keys(self.record_type.to_column(name, values, self.fields[key]))
        places = pc.if_else(left, pa.array(range(len(values)), pa.int64()), pa.scalar(None, pa.int64()))
        return {target: to_column, key: others.take(places)}

    def _note_misfits(
        self,
        name: str,
        values: pa.Array,
        columns: Mapping[str, pa.Array],
        rows: pa.Array,
        reasons: dict[int, str],
    ) -> None:
        target = self.targets[name]
        is_there = columns[target].is_valid()
        further = columns.get(further_key(target, type_word(self.record_type.fields[name])))
        if further is not None:
            is_there = pc.or_(is_there, further.is_valid())
        if is_there.true_count == len(values) - values.null_count:
            return
        shown = name if len(name) <= NAME_LETTERS_SHOWN else name[:NAME_LETTERS_SHOWN] + "..."
        kind = self.fields[target]
        expected = kind if isinstance(kind, str) else "struct" if isinstance(kind, dict) else "list or map"
        misfits = rows.filter(pc.and_not(values.is_valid(), is_there)).to_pylist()
        reasons.update(dict.fromkeys(misfits, f"field {shown!r} does not fit its column ({expected})"))

    def _clear_damaged(
        self,
        columns: dict[str, pa.Array],
        decoded: Mapping[str, pa.Array],
        payloads: pa.Array,
        places: pa.Array,
        rows: pa.Array,
        reasons: dict[int, str],
    ) -> None:
        """Find the damaged records among suspects, and set their columns to null.

        :param places: the indexes of the records to check.
        """
        own = payloads
        if len(places) < len(rows):
            own = payloads.take(places)
            decoded = {name: values.take(places) for name, values in decoded.items()}
        suspect_rows = [places[number].as_py() for number in self.record_type.suspect_rows(decoded, own)]
        damaged = {
            place: why for place in suspect_rows if (why := self.record_type.damage_reason(payloads[place].as_py()))
        }
        if not damaged:
            return
        reasons.update((rows[place].as_py(), reason) for place, reason in damaged.items())
        takes = pa.array([None if place in damaged else place for place in range(len(rows))], pa.int64())
        columns.update({name: column.take(takes) for name, column in columns.items()})


def _column_of(own: ColumnType, target: str, fields: Mapping[str, ColumnType]) -> str:
    """Return the column for a field type: the first column if it can represent all values of the type, and otherwise
    the further column.
    """
    key = further_key(target, type_word(own))
    return target if key not in fields or takes(fields[target], own, widens=False) else key


def _source(own: ColumnType, target: str, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Combine a field's column and its further column into the values to encode."""
    further = columns.get(further_key(target, type_word(own)))
    if further is None:
        return columns[target]
    parts = [fitted(each, own) for each in (columns[target], further)]
    return pc.coalesce(*parts)


def _damaged(record_type: RecordType, payloads: Sequence[bytes], first: int) -> Iterator[tuple[int, str]]:
    """Yield the index and the reason of each record that cannot be decoded. Bisect the batch until
    its parts are small.
    """
    try:
        record_type.decode(payloads)
    except SerializationError as error:
        if len(payloads) == 1:
            yield first, record_type.damage_reason(payloads[0]) or str(error)
            return
        size = 1 if len(payloads) <= ONE_BY_ONE_MAX else len(payloads) // 2
        for start in range(0, len(payloads), size):
            yield from _damaged(record_type, payloads[start : start + size], first + start)


def _joined(
    values: pa.Array,
    fields: Mapping[str, ColumnType],
    parts: Sequence[_Columns],
    reasons: Mapping[int, str],
    found: Fields,
) -> Decoded:
    """Combine parts into one result in the order of the batch. Rows that were not decoded are null."""
    count = len(values)
    whys = pa.nulls(count, pa.string())
    if reasons:
        whys = pa.array([reasons.get(row) for row in range(count)], pa.string())
    if len(parts) == 1 and len(parts[0].rows) == count:
        return Decoded(parts[0].columns, parts[0].forms, whys, found)
    forms = pc.if_else(values.is_null(), TOMBSTONE, VALUE)
    if not parts:
        return Decoded([pa.nulls(count, arrow_type(kind)) for kind in fields.values()], forms, whys, found)
    placed = pa.concat_arrays([part.rows for part in parts])
    takes = pc.index_in(pa.array(range(count), placed.type), value_set=placed)
    columns = [pa.concat_arrays([part.columns[number] for part in parts]).take(takes) for number in range(len(fields))]
    own = pa.concat_arrays([part.forms for part in parts]).take(takes)
    return Decoded(columns, pc.coalesce(own, forms), whys, found)


def writers_by_id(values: pa.Array, reasons: dict[int, str]) -> dict[int, pa.Array]:
    """Return the row indexes (ascending) of each schema id. Add the reason of each invalid row to `reasons`."""
    heads = pc.binary_slice(values, 0, wire_format.HEADER_BYTES).dictionary_encode()
    by_head = pc.sort_indices(heads.indices)  # the sort is stable and puts nulls last
    runs = pc.run_end_encode(heads.indices.take(by_head).drop_null())
    groups = {}
    start = 0
    for head, end in zip(heads.dictionary.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        rows, start = by_head.slice(start, end - start), end
        try:
            groups[wire_format.schema_id(head)] = rows
        except SerializationError as error:
            reasons.update(dict.fromkeys(rows.to_pylist(), str(error)))
    return groups
