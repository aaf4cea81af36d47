"""Whole columns of Avro records as Arrow columns: one pass by compiled code for each schema they were written with.

This is what loads use, on executors too: a pure function of Arrow arrays that asks the registry once for each id. What
`pyruhvro` (Rust) decodes is checked, because records come from strangers: strings must be UTF-8. A batch in which
something is wrong is halved until the bad records are found; all others are decoded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import SchemaRegistryError, SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.avro import parse
from barnabas.serialization.avro_codec import is_panic
from barnabas.serialization.extras import need
from barnabas.serialization.registry_client import AVRO, Schema, SchemaRegistry

ROWS_AT_ONCE = 50_000
"""Records that become one batch of compiled code: bounds the list of bytes objects that it wants."""

_WIDENED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """What came of a column of records.

    `batch`: the fields of the reader's schema, a row for each record; all null where it is null or bad.
    `reasons`: a string for each record that is bad: why; else null.
    `schema_ids`: with which schema each was written; null where it says none.
    """

    batch: pa.RecordBatch
    reasons: pa.Array
    schema_ids: pa.Array


def decode_avro(
    column: pa.Array | pa.ChunkedArray, registry: SchemaRegistry, reader: Schema | None = None
) -> DecodedRecords:
    """Decode records with schema ids, by the schemas that they were written with, into columns of one schema.

    :param column: binary, null for tombstones.
    :param reader: the schema whose fields are wanted: records of earlier and later versions are brought to it, by
        Avro's rules. None: that of the largest id in the column.
    :raises SerializationError: the reader's schema has no columns: it is no record, refers to itself, or has unions
        of several types.
    :raises TimedOutError: no registry answers.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = values.cast(pa.binary())
    reasons: dict[int, str] = {}
    groups, ids = _by_id(values, reasons)
    writers = _writers(registry, groups, reasons)
    if reader is None:
        if not writers:
            return _no_columns(values, reasons, ids)
        reader = registry.schema(max(writers))
    target = _Target.of(registry, reader)
    pieces: list[pa.RecordBatch] = []
    placed: list[pa.Array] = []
    for schema_id, writer in writers.items():
        decoding = _Decoding(target, writer)
        for rows in _chunks(groups[schema_id]):
            # Not by Arrow's binary_slice: without an end it reserves a negative number of bytes (Arrow 26).
            payloads = [each[wire_format.HEADER_BYTES :] for each in values.take(rows).to_pylist()]
            for start, piece, reason in decoding.pieces(payloads, 0):
                if piece is None:
                    reasons[rows[start].as_py()] = reason
                    continue
                placed.append(rows.slice(start, piece.num_rows))
                pieces.append(piece)
    batch = pa.concat_batches(pieces) if pieces else pa.RecordBatch.from_pylist([], schema=target.arrow)
    return DecodedRecords(_in_place(batch, placed, len(values)), _reasons(reasons, len(values)), ids)


def _in_place(batch: pa.RecordBatch, placed: Sequence[pa.Array], count: int) -> pa.RecordBatch:
    """Return a batch whose rows are where their records were; rows of nulls where no record was decoded."""
    rows = pa.concat_arrays(placed) if placed else pa.array([], pa.uint64())
    in_order = pa.array(range(count), rows.type)
    return batch if rows.equals(in_order) else batch.take(pc.index_in(in_order, value_set=rows))


def _by_id(values: pa.Array, reasons: dict[int, str]) -> tuple[dict[int, pa.Array], pa.Array]:
    """Return the rows of each schema id, and the id of each row; note why others have none."""
    heads = pc.binary_slice(values, 0, wire_format.HEADER_BYTES).dictionary_encode()
    groups = {}
    ids: list[int | None] = []
    for code, head in enumerate(heads.dictionary.to_pylist()):
        rows = pc.indices_nonzero(pc.equal(heads.indices, code))
        try:
            schema_id = wire_format.schema_id(head)
        except SerializationError as error:
            reasons.update(dict.fromkeys(rows.to_pylist(), str(error)))
            ids.append(None)
            continue
        groups[schema_id] = rows
        ids.append(schema_id)
    return groups, pa.array(ids, pa.int64()).take(heads.indices)


def _writers(registry: SchemaRegistry, groups: Mapping[int, pa.Array], reasons: dict[int, str]) -> dict[int, _Shape]:
    """Return the schemas of ids; note why records have none that is known."""
    writers = {}
    for schema_id, rows in groups.items():
        try:
            writers[schema_id] = _Shape.of(registry, registry.schema(schema_id))
        except (SchemaRegistryError, SerializationError) as error:
            reasons.update(dict.fromkeys(rows.to_pylist(), f"schema {schema_id}: {error}"))
    return writers


def _chunks(rows: pa.Array) -> Iterator[pa.Array]:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows.slice(start, ROWS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A schema: as fastavro has parsed it, and as text with all types in it."""

    parsed: Any
    text: str
    fields: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, registry: SchemaRegistry, schema: Schema) -> _Shape:
        if schema.kind != AVRO:
            raise SerializationError(f"it is of type {schema.kind}, not AVRO")
        parsed = parse(registry, schema, for_reading=True)
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise SerializationError("only records have columns")
        whole = _expanded(registry, schema)
        return cls(parsed, json.dumps(whole), {field["name"]: field for field in whole["fields"]})


@dataclass(frozen=True, slots=True)
class _Target:
    """The reader's schema, and its columns, all of which may be null."""

    shape: _Shape
    arrow: pa.Schema

    @classmethod
    def of(cls, registry: SchemaRegistry, schema: Schema) -> _Target:
        shape = _Shape.of(registry, schema)
        try:
            arrow = need("pyruhvro").avro_to_arrow_schema(shape.text)
        except BaseException as error:
            if not isinstance(error, ValueError) and not is_panic(error):
                raise
            raise SerializationError(f"the schema has no columns: {error}") from error
        if any("union" in str(field.type) for field in arrow):
            raise SerializationError("the schema has no columns: it has unions of several types")
        return cls(shape, pa.schema([field.with_nullable(True) for field in arrow]))


class _Decoding:
    """Decodes records of one writer's schema into the columns of the reader's."""

    def __init__(self, target: _Target, writer: _Shape) -> None:
        self._target = target
        self._writer = writer
        self._decode = need("pyruhvro").deserialize_array
        self._sources = _sources(target, writer)

    def pieces(self, payloads: Sequence[bytes], first: int) -> Iterator[tuple[int, pa.RecordBatch | None, str]]:
        """Yield batches with the index of their first record, or in place of one record None and why it is bad."""
        try:
            yield first, self._batch(payloads), ""
        except Exception as error:  # noqa: BLE001 - of decoders that were given a stranger's bytes
            if len(payloads) == 1:
                yield first, None, f"not decoded: {error}"
                return
            half = len(payloads) // 2
            yield from self.pieces(payloads[:half], first)
            yield from self.pieces(payloads[half:], first + half)

    def _batch(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        if self._sources is None:
            return self._batch_of_objects(payloads)
        try:
            batch = self._decode(list(payloads), self._writer.text)
        except BaseException as error:
            if not is_panic(error):
                raise
            return self._batch_of_objects(payloads)  # bytes and fixed it does not know
        batch.validate(full=True)  # that strings are UTF-8, among others
        columns = []
        for field, source in zip(self._target.arrow, self._sources, strict=True):
            if isinstance(source, pa.Scalar):
                columns.append(pa.repeat(source, len(payloads)))
                continue
            column = batch.column(source)
            if column.null_count and not _takes_null(self._target.shape.fields[field.name]["type"]):
                raise SerializationError(f"field {field.name!r} is null, which the reader's schema does not allow")
            columns.append(column if column.type == field.type else column.cast(field.type, safe=False))
        return pa.RecordBatch.from_arrays(columns, schema=self._target.arrow)

    def _batch_of_objects(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """The long way, for all that Avro's schema resolution can do: an object for each record."""
        read = need("fastavro").schemaless_reader
        rows = [read(io.BytesIO(each), self._writer.parsed, self._target.shape.parsed) for each in payloads]
        return pa.RecordBatch.from_pylist(rows, schema=self._target.arrow)


def _sources(target: _Target, writer: _Shape) -> list[str | pa.Scalar] | None:
    """Return for each column the writer's field or the default value; None where that is not all there is to it."""
    if target.shape.text == writer.text:
        return list(target.arrow.names)
    sources: list[str | pa.Scalar] = []
    for column in target.arrow:
        field = target.shape.fields[column.name]
        names = [name for name in (column.name, *field.get("aliases", ())) if name in writer.fields]
        if names:
            if not _is_plain(field["type"], writer.fields[names[0]]["type"]):
                return None
            sources.append(names[0])
        elif "default" in field and (field["default"] is None or _bare(field["type"]) in _PLAIN_DEFAULTS):
            sources.append(pa.scalar(field["default"], column.type))
        else:
            return None
    return sources


_PLAIN_DEFAULTS = frozenset({"int", "long", "float", "double", "boolean", "string"})


def _is_plain(now: Any, before: Any) -> bool:
    """Whether columns of one type become those of another by a cast, or are the same."""
    bare_now, bare_before = _bare(now), _bare(before)
    if bare_now == bare_before:
        return True
    if not isinstance(bare_now, str) or not isinstance(bare_before, str):
        return False
    return bare_now in _WIDENED.get(bare_before, ())


def _bare(kind: Any) -> Any:
    """Return the type within a union with null."""
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return next(each for each in kind if each != "null")
    return kind


def _takes_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _expanded(registry: SchemaRegistry, schema: Schema) -> Any:
    """Return a schema as JSON, with the types that it refers to in place of their names."""
    if not schema.references:
        return json.loads(schema.text)
    known: dict[str, Any] = {}
    for _, text in registry.dependencies(schema):
        _note_names(json.loads(text), "", known)
    return _with_names(json.loads(schema.text), "", known, set())


def _note_names(data: Any, space: str, known: dict[str, Any]) -> None:
    if isinstance(data, dict) and data.get("type") in ("record", "enum", "fixed", "error"):
        known[_full_name(data, space)] = data


def _full_name(data: Mapping[str, Any], space: str) -> str:
    name = str(data["name"])
    own = data.get("namespace", space)
    return name if "." in name or not own else f"{own}.{name}"


def _with_names(data: Any, space: str, known: Mapping[str, Any], used: set[str]) -> Any:
    if isinstance(data, str):
        name = data if data in known else f"{space}.{data}"
        if name not in known or name in used:
            return data
        used.add(name)
        return _with_names(known[name], name.rpartition(".")[0], known, used)
    if isinstance(data, list):
        return [_with_names(each, space, known, used) for each in data]
    if not isinstance(data, dict):
        return data
    if data.get("type") in ("record", "error"):
        inner = _full_name(data, space).rpartition(".")[0]
        fields = [{**each, "type": _with_names(each["type"], inner, known, used)} for each in data["fields"]]
        return {**data, "namespace": inner, "fields": fields} if inner else {**data, "fields": fields}
    changed = {name: _with_names(data[name], space, known, used) for name in ("items", "values") if name in data}
    if isinstance(data.get("type"), (dict, list)):
        changed["type"] = _with_names(data["type"], space, known, used)
    return {**data, **changed}


def _reasons(reasons: Mapping[int, str], count: int) -> pa.Array:
    return (
        pa.array([reasons.get(row) for row in range(count)], pa.string()) if reasons else pa.nulls(count, pa.string())
    )


def _no_columns(values: pa.Array, reasons: Mapping[int, str], ids: pa.Array) -> DecodedRecords:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}] * len(values), pa.struct([])))
    return DecodedRecords(empty, _reasons(reasons, len(values)), ids)
