"""The key columns that the keys of records have: objects with or without a schema, or plain values. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_types import ColumnType, Fields, arrow_type, merge_fields
from barnabas.formats.decoding import ValueDecoder, piecewise
from barnabas.formats.json_fields import JsonRules, infer_fields, read_fields

_TEXT = pa.string()


@dataclass(slots=True)
class KeyReader:
    """Reads key columns from the keys of records.

    :param decoder: the decoder of keys with schemas; None for JSON and plain values.
    """

    names: tuple[str, ...]
    decoder: ValueDecoder | None = None
    prefix: str = ""
    """The text before the names of key columns in keys that are objects."""

    def infer(self, keys: pa.Array, wanted: Sequence[str]) -> Fields:
        """Return the types of key columns."""
        keys = keys.drop_null()
        found: Fields = {}
        if not len(keys):
            return found
        if self.decoder is not None:
            whole = self.decoder.infer(keys)
            found = {name: whole[name] for name in wanted if name in whole}
            if not found and len(self.names) == 1 and len(whole) == 1:
                found = {self.names[0]: next(iter(whole.values()))}
            if found:
                return found
        is_object = pc.starts_with(keys, "{")
        objects = keys.filter(is_object)
        if len(objects):
            inner = infer_fields(objects, JsonRules(nested=True))
            payload = inner.get("payload")
            if isinstance(payload, dict):
                inner = cast("Fields", payload)
            named = {name: inner.get(self.prefix + name, inner.get(name)) for name in wanted}
            found = {name: kind for name, kind in named.items() if isinstance(kind, str)}
        if len(objects) < len(keys) and len(self.names) == 1 and self.names[0] in wanted:
            texts = cast_or_null(keys.filter(pc.invert(is_object)), _TEXT)
            is_whole = pc.match_substring_regex(texts.drop_null(), r"^-?(0|[1-9]\d{0,17})$")
            kind = "long" if len(is_whole) and is_whole.true_count == len(is_whole) else "string"
            found = merge_fields([found, {self.names[0]: kind}])
        return found

    def read(self, keys: pa.Array, fields: Mapping[str, ColumnType]) -> list[pa.Array]:
        """Return the key columns of keys that are not null; null where a key lacks them."""
        columns = {name: pa.nulls(len(keys), arrow_type(kind)) for name, kind in fields.items()}
        if self.decoder is not None:
            self._read_with_schemas(keys, fields, columns)
        is_object = pc.starts_with(keys, "{")
        objects = keys.filter(is_object)
        if len(objects):
            place = places_of(is_object)
            plain = read_fields(objects, fields)
            wrapped = read_fields(objects, {"payload": dict(fields)})[0].flatten()
            for name, one, other in zip(fields, plain, wrapped, strict=True):
                columns[name] = pc.coalesce(columns[name], one.take(place), other.take(place))
            if self.prefix:
                prefixed = read_fields(objects, {self.prefix + name: kind for name, kind in fields.items()})
                for name, one in zip(fields, prefixed, strict=True):
                    columns[name] = pc.coalesce(columns[name], one.take(place))
        if len(self.names) == 1 and len(objects) < len(keys):
            (name,) = self.names
            scalars = keys.filter(pc.invert(is_object))
            read = _plain_keys(cast_or_null(scalars, _TEXT), arrow_type(fields[name]))
            columns[name] = pc.coalesce(columns[name], read.take(places_of(pc.invert(is_object))))
        return [columns[name] for name in self.names]

    def _read_with_schemas(
        self, keys: pa.Array, fields: Mapping[str, ColumnType], columns: dict[str, pa.Array]
    ) -> None:
        assert self.decoder is not None, "the caller checks it"
        wanted = dict(fields)
        if len(self.names) == 1:
            # A key that is no record has a column with the name of its type.
            wanted |= {kind: kind for kind in ("int", "long", "string") if kind not in fields}
        decoded = dict(zip(wanted, self.decoder.decode(keys, wanted).columns, strict=True))
        for name in fields:
            columns[name] = decoded[name]
        if len(self.names) == 1:
            (name,) = self.names
            for kind in ("int", "long", "string"):
                if kind not in fields:
                    columns[name] = pc.coalesce(columns[name], cast_or_null(decoded[kind], columns[name].type))


def _plain_keys(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert keys that are plain texts, or JSON strings, to a type; null where that is not possible."""
    is_quoted = pc.match_substring_regex(texts, r'^"(?:[^"\\]|\\.)*"$').fill_null(False)
    if is_quoted.true_count:
        unquoted = pa.array([_unquoted(text) for text in texts.filter(is_quoted).to_pylist()], _TEXT)
        texts = pc.replace_with_mask(texts, is_quoted, unquoted)
    if pa.types.is_string(wanted):
        return texts
    return cast_or_null(texts, wanted)


def cast_or_null(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast values; null where that is not possible."""
    parts = piecewise(values, lambda part: part.cast(wanted), lambda part, _error: pa.nulls(len(part), wanted))
    return pa.concat_arrays(parts)


def _unquoted(text: str) -> str | None:
    with suppress(ValueError):
        parsed = json.loads(text)
        return parsed if isinstance(parsed, str) else None
    return None


def places_of(chosen: pa.Array) -> pa.Array:
    """Return, for each position, its index among the chosen positions; null for the others."""
    numbers = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
    return pc.if_else(chosen, numbers, pa.scalar(None, pa.int64()))
