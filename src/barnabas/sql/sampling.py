"""The inference of the value format and the columns of a topic, from a sample of its records.

The sample has the first and the last records of a few partitions, because fields change over time. A field outside of
the sample gets no column; it is still part of the column `value`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mode

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError, SchemaRegistryError
from barnabas.formats.column_types import ColumnType, Fields, settled
from barnabas.formats.decoding import GuardedDecoder, ValueDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Renaming
from barnabas.formats.json_fields import PLAIN, JsonRules
from barnabas.formats.line_patterns import NAMED_PATTERNS
from barnabas.formats.lines import LineDecoder, as_text
from barnabas.formats.value_format import JSON, LINES, decoder_of
from barnabas.model import TopicPartition
from barnabas.serialization import registry_client
from barnabas.serialization.framed_json import without_schema_ids
from barnabas.serialization.registry_client import Schema, SchemaRegistry
from barnabas.serialization.registry_settings import RegistryTarget
from barnabas.serialization.value_decoders import AVRO, PROTOBUF, registry_at
from barnabas.serialization.wire_format import HEADER_BYTES, schema_id
from barnabas.sql.value_columns import (
    JsonColumns,
    LineColumns,
    RawValues,
    RecordColumns,
    ValueColumns,
    has_schema_ids,
    record_decoder,
)

AUTO = "auto"
WITH_SCHEMAS = (AVRO, PROTOBUF)
_FORMATS = {registry_client.AVRO: AVRO, registry_client.PROTOBUF: PROTOBUF}
PARTITIONS_LOOKED_AT = 4
RECORDS_AT_EACH_END = 250
UNKNOWN_IDS_MAX = 10
"""The maximum number of unknown schema ids to look up in the registry before the search falls back to the most frequent
id.
"""
FIELDS_MAX = 1_000
"""The maximum number of fields that get a column, in case a producer uses data as field names. `value` contains the
other fields.
"""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The interpretation of values.

    :param format: `auto`, or one of the formats of loads.
    :param registry: The URL or the settings of the schema registry, for values that begin with a schema id.
    """

    format: str = AUTO
    registry: RegistryTarget | None = field(default=None, repr=False)
    rules: JsonRules = PLAIN

    def __post_init__(self) -> None:
        if self.format in WITH_SCHEMAS and self.registry is None:
            raise ConfigurationError(
                f"format {self.format} needs the schemas: set the address of the registry (--registry URL)"
            )
        if self.format not in (AUTO, *WITH_SCHEMAS):
            decoder_of(self.format, others=(*WITH_SCHEMAS, AUTO))


def json_rules(*, nested: bool) -> JsonRules:
    """Return the rules for JSON: objects and arrays become text, or structs and lists if `nested`."""
    return JsonRules(nested=nested)


def sampled_ranges(ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[tuple[TopicPartition, int, int]]:
    """Return the offsets to sample, from the offsets of each partition.

    >>> sampled_ranges({TopicPartition("t", 0): (0, 9_000), TopicPartition("t", 1): (5, 5)})
    [(TopicPartition(topic='t', partition=0), 0, 250), (TopicPartition(topic='t', partition=0), 8750, 9000)]
    """
    filled = [tp for tp, (start, end) in sorted(ranges.items()) if start < end]
    step = max(1, len(filled) // PARTITIONS_LOOKED_AT)
    chosen: list[tuple[TopicPartition, int, int]] = []
    for tp in filled[::step][:PARTITIONS_LOOKED_AT]:
        start, end = ranges[tp]
        if end - start <= 2 * RECORDS_AT_EACH_END:
            chosen.append((tp, start, end))
        else:
            chosen += [(tp, start, start + RECORDS_AT_EACH_END), (tp, end - RECORDS_AT_EACH_END, end)]
    return chosen


def columns_of_values(values: pa.Array, options: ValueOptions) -> ValueColumns:
    """Return the columns of values, inferred from a sample.

    :param values: The values as binary; null for tombstones.
    :raises TimedOutError: The schema registry does not answer.
    """
    if options.format in WITH_SCHEMAS or (
        options.format == AUTO and options.registry is not None and has_schema_ids(values)
    ):
        assert options.registry is not None, "these formats need a registry"
        return _columns_by_registry(values, options.registry, options.rules)
    if options.format == AUTO:
        return _json_columns(values, options.rules) if _are_json(values) else _usual_lines(values)
    decoder = decoder_of(options.format)
    if decoder is None:
        return RawValues()
    if isinstance(decoder, LineDecoder):
        return _line_columns(decoder, values, options.format)
    return _json_columns(values, options.rules)


def _columns_by_registry(values: pa.Array, registry: RegistryTarget, rules: JsonRules) -> ValueColumns:
    ids = [schema_id(head) for head in _framed(values)]
    schema = _newest_schema(registry_at(registry), ids) if ids else None
    if schema is None:
        return RawValues()
    if schema.kind == registry_client.JSON:
        return replace(_json_columns(without_schema_ids(values), rules), is_framed=True)
    value_format = _FORMATS.get(schema.kind)
    if value_format is None:
        return RawValues(f"{schema.kind.lower()}, not decoded")
    decoder = record_decoder(value_format, registry)
    renaming = Renaming.of({}, decoder.infer(values), decoder.renames(values), NO_ALIASES, FIELDS_MAX)
    return RecordColumns(value_format, registry, _settled(renaming.found), renaming.aliases)


def _newest_schema(registry: SchemaRegistry, ids: Sequence[int]) -> Schema | None:
    """Return the schema with the greatest id that the registry knows. Other ids are skipped: their bytes may only look
    like an id.
    """
    newest = sorted(set(ids), reverse=True)[:UNKNOWN_IDS_MAX]
    for each in dict.fromkeys([*newest, mode(ids)]):
        try:
            return registry.schema(each)
        except SchemaRegistryError as error:
            if not error.is_about_schema:
                raise
    return None


def _framed(values: pa.Array) -> Iterable[bytes]:
    return [value for value in values.drop_null().to_pylist() if len(value) >= HEADER_BYTES and value[0] == 0]


def _are_json(values: pa.Array) -> bool:
    """Return whether most values look like JSON objects."""
    filled = [value.strip() for value in values.drop_null().to_pylist()]
    objects = [value for value in filled if value.startswith(b"{") and value.endswith(b"}")]
    return 2 * len(objects) > len(filled)


def _json_columns(values: pa.Array, rules: JsonRules) -> JsonColumns:
    decoder = decoder_of(JSON, rules)
    assert decoder is not None
    return JsonColumns(_settled(GuardedDecoder(decoder).infer(values)), rules)


def _usual_lines(values: pa.Array) -> ValueColumns:
    """Return the columns of the named pattern that matches most values. If no pattern matches, return raw values."""
    texts = as_text(values.drop_null())
    for name in NAMED_PATTERNS:
        decoder = LineDecoder.of(name)
        matching = pc.count(pc.extract_regex(texts, decoder.pattern.whole_line)).as_py()
        if 2 * matching > len(texts):
            return _line_columns(decoder, values, f"{LINES}:{name}")
    return RawValues()


def _line_columns(decoder: LineDecoder, values: pa.Array, value_format: str) -> LineColumns:
    return LineColumns(decoder, _settled(_groups(decoder, values)), value_format)


def _groups(decoder: LineDecoder, values: pa.Array) -> Fields:
    """Return the types of a pattern's groups. The groups have types even if no line matches the pattern."""
    found = _inferred(decoder, values)
    return {group: found.get(group) or decoder.pattern.types.get(group) for group in decoder.pattern.groups}


def _inferred(decoder: ValueDecoder, values: pa.Array) -> Fields:
    return GuardedDecoder(decoder).infer(values) if len(values) else {}


def _settled(fields: Fields) -> dict[str, ColumnType]:
    return {name: settled(kind) for name, kind in list(fields.items())[:FIELDS_MAX]}
