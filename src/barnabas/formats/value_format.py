r"""The formats of values (`raw`, `json`, `lines:PATTERN`) and their decoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType, Fields, without_large_types
from barnabas.formats.decoding import Decoded, ValueDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.json_fields import JsonRules, decode, infer_fields
from barnabas.formats.json_text import restore, value_forms
from barnabas.formats.line_patterns import NAMED_PATTERNS
from barnabas.formats.lines import LineDecoder

RAW, JSON, LINES = "raw", "json", "lines"


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """A `ValueDecoder` of JSON objects.

    :param is_guess: True if the columns were inferred from a sample of the values, as for `decode`.
    """

    rules: JsonRules
    is_guess: bool = False

    def infer(self, values: pa.Array) -> Fields:
        return infer_fields(values, self.rules)

    def renames(self, values: pa.Array) -> Aliases:
        return NO_ALIASES

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        parsed = decode(values, fields, self.rules, is_guess=self.is_guess)
        forms = value_forms(values, parsed.whole, dict(zip(fields, parsed.columns, strict=True)))
        reasons = pa.array(parsed.reasons, pa.string()) if parsed.reasons else pa.nulls(len(values), pa.string())
        return Decoded(parsed.columns, forms, reasons, parsed.found)

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        return restore(values, forms, {name: without_large_types(column) for name, column in columns.items()})


def decoder_of(value_format: str, rules: JsonRules | None = None, *, others: Sequence[str] = ()) -> ValueDecoder | None:
    """Return the decoder of a format; None for raw values.

    :param rules: the rules by which JSON becomes columns.
    :param others: the names of formats that other modules add, for the error message.
    :raises ConfigurationError: if the format or the pattern is invalid.
    """
    name, _, rest = value_format.partition(":")
    if rules and rules != JsonRules() and name != JSON:
        raise ConfigurationError("nested and decimals (--nested, --decimals) need format json (--format json)")
    if value_format == RAW:
        return None
    if value_format == JSON:
        return JsonDecoder(rules or JsonRules())
    if name == LINES:
        if not rest:
            raise ConfigurationError(
                f"format lines needs a pattern, lines:PATTERN: {', '.join(NAMED_PATTERNS)}, or a regular expression"
            )
        return LineDecoder.of(rest)
    raise ConfigurationError(
        f"unknown format {value_format!r}: use {', '.join((RAW, JSON, *others))}, or {LINES}:PATTERN, with a "
        f"pattern {', '.join(NAMED_PATTERNS)}, or a regular expression"
    )
