"""The conversion of log lines to columns by a pattern (line_patterns.py), and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats import times
from barnabas.formats.column_types import ColumnType, Fields, arrow_type, without_large_types
from barnabas.formats.decoding import TOMBSTONE, VALUE, Decoded
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.further_columns import further_key, is_further, keys_of_fields
from barnabas.formats.line_patterns import LinePattern, Piece, line_pattern

COLUMNS = "columns"
"""The form of a line that its columns restore."""
COLUMNS_AND_RETURN = "columns+cr"
"""The form of a line that its columns restore, and that ends with the carriage return of a CRLF line break."""
NO_MATCH = "the line does not match the pattern"
NOT_UTF8 = "not UTF-8"
CARRIAGE_RETURN = r"\r"
"""A carriage return as it is written in a pattern."""

_LONG = r"^(?:0|-?[1-9]\d{0,17})$"
_NUMBER = r"^-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?$"
_EXPRESSIONS: Mapping[str, str] = {
    "long": _LONG,
    "int": r"^(?:0|-?[1-9]\d{0,8})$",
    "double": _NUMBER,
    "float": _NUMBER,
    "boolean": "^(?:true|false)$",
}


@dataclass(frozen=True, slots=True)
class LineDecoder:
    """A `ValueDecoder` of lines by a pattern.

    A group without a declared type has the type long if all its texts are integers, else string.
    """

    pattern: LinePattern

    @classmethod
    def of(cls, text: str) -> LineDecoder:
        """Return the decoder for a pattern's name or a regular expression.

        :raises ConfigurationError: if the text is neither a known name nor a valid expression.
        """
        return cls(line_pattern(text))

    def infer(self, values: pa.Array) -> Fields:
        parts = pc.extract_regex(self._without_line_ends(as_text(values)), self.pattern.whole_line)
        if parts.null_count == len(parts):
            return {}
        found = {field.name: parts.filter(parts.is_valid()).field(field.name) for field in parts.type}
        return {group: self.pattern.types.get(group) or _type_of(texts) for group, texts in found.items()}

    def renames(self, values: pa.Array) -> Aliases:
        return NO_ALIASES

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        texts = as_text(values)
        lines = self._without_line_ends(texts)
        parts = pc.extract_regex(lines, self.pattern.whole_line)
        rows = parts.is_valid()
        found = {field.name: _null_where_no_match(parts, rows, field.name) for field in parts.type}
        for piece in self.pattern.pieces or ():
            if piece.if_null is None:
                group = found[piece.group]
                found[piece.group] = pc.if_else(pc.equal(group, ""), pa.scalar(None, pa.string()), group)
        columns, more = _columns(found, fields)
        forms = pc.if_else(pc.is_null(values), TOMBSTONE, VALUE)
        if self.pattern.pieces is not None and all(piece.group in columns for piece in self.pattern.pieces):
            made = compose(columns, self.pattern.pieces, len(values))
            is_same = pc.and_(rows, pc.equal(made, lines).fill_null(False))
            form = pc.if_else(pc.equal(lines, texts).fill_null(False), COLUMNS, COLUMNS_AND_RETURN)
            forms = pc.if_else(is_same, form, forms)
        return Decoded([columns[name] for name in fields], forms, _reasons(values, texts, rows), more)

    def _without_line_ends(self, texts: pa.Array) -> pa.Array:
        """Remove the carriage return that CRLF leaves at the end of lines, unless the pattern contains one."""
        if CARRIAGE_RETURN in self.pattern.expression or "\r" in self.pattern.expression:
            return texts
        return pc.replace_substring_regex(texts, r"\r$", "")

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        if self.pattern.pieces is None:
            return values
        usual = {name: without_large_types(column) for name, column in columns.items()}
        made = compose(usual, self.pattern.pieces, len(values))
        ended = pc.binary_join_element_wise(made, pc.if_else(pc.equal(forms, COLUMNS_AND_RETURN), "\r", ""), "")
        comes_back = pc.is_in(forms, pa.array([COLUMNS, COLUMNS_AND_RETURN]))
        return pc.if_else(comes_back, ended.cast(values.type), values)


def as_text(values: pa.Array) -> pa.Array:
    """Return binary values as strings; null for a value that is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _null_where_no_match(parts: pa.StructArray, rows: pa.Array, group: str) -> pa.Array:
    if not parts.null_count:
        return parts.field(group)
    return pc.if_else(rows, parts.field(group), pa.scalar(None, pa.string()))


def _reasons(values: pa.Array, texts: pa.Array, rows: pa.Array) -> pa.Array:
    if rows.true_count + values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    reason = pc.if_else(pc.is_valid(texts), NO_MATCH, NOT_UTF8)
    is_good = pc.or_(rows, pc.is_null(values))
    return pc.if_else(is_good, pa.scalar(None, pa.string()), reason)


def _type_of(texts: pa.Array) -> ColumnType | None:
    filled = texts.filter(pc.invert(pc.is_in(texts, pa.array(["", "-"]))))
    if not len(filled):
        return None
    return "long" if pc.all(pc.match_substring_regex(filled, _LONG)).as_py() else "string"


def _columns(found: Mapping[str, pa.Array], fields: Mapping[str, ColumnType]) -> tuple[dict[str, pa.Array], Fields]:
    """Return the column of each field, and the further columns for texts that do not fit it."""
    columns: dict[str, pa.Array] = {}
    more: Fields = {}
    for name, column_type in fields.items():
        if is_further(name):
            columns.setdefault(name, pa.nulls(len(next(iter(found.values()))), arrow_type(column_type)))
            continue
        columns[name] = _converted(found, name, column_type)
        left = found.get(name)
        if left is None or columns[name].null_count == left.null_count:
            continue
        is_left = pc.and_(columns[name].is_null(), pc.invert(pc.is_in(left, pa.array(["", "-", None]))))
        for kind in ("long", "double", "string"):
            texts = pc.if_else(is_left, left, pa.scalar(None, pa.string()))
            made = _converted({name: texts}, name, kind)
            if made.null_count == len(made) or kind == column_type:
                continue
            key = further_key(name, kind)
            if key in fields:
                columns[key] = made
            else:
                more[key] = kind
            is_left = pc.and_(is_left, made.is_null())
    return columns, more


def _converted(found: Mapping[str, pa.Array], name: str, column_type: ColumnType) -> pa.Array:
    """Return the texts of a group as a column of a type. A text that does not fit the type becomes null."""
    length = len(next(iter(found.values())))
    wanted = arrow_type(column_type)
    texts = found.get(name)
    if texts is None:
        return pa.nulls(length, wanted)
    if column_type == "string":
        return texts
    if column_type == "timestamp":
        return times.from_texts(texts)
    expression = _EXPRESSIONS.get(column_type, "") if isinstance(column_type, str) else ""
    if not expression:
        return pa.nulls(length, wanted)
    fits = pc.match_substring_regex(texts, expression).fill_null(False)
    return pc.if_else(fits, texts, pa.scalar(None, pa.string())).cast(wanted)


def compose(columns: Mapping[str, pa.Array], pieces: tuple[Piece, ...], length: int) -> pa.Array:
    """Compose lines from columns."""
    if any(piece.group not in columns for piece in pieces):
        return pa.nulls(length, pa.string())
    joined: list[Any] = []
    further = keys_of_fields(columns)
    for piece in pieces:
        column = columns[piece.group]
        texts = [_as_string(each) for each in (column, *(columns[key] for key in further.get(piece.group, ())))]
        text = texts[0] if len(texts) == 1 else pc.coalesce(*texts)
        if not text.null_count:
            joined += [piece.before, text, piece.after]
            continue
        around = pc.binary_join_element_wise(piece.before, text, piece.after, "")
        absent = "" if piece.if_null is None else piece.before + piece.if_null + piece.after
        joined.append(around.fill_null(absent))
    return pc.binary_join_element_wise(*[part for part in joined if not isinstance(part, str) or part], "")


def _as_string(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())
