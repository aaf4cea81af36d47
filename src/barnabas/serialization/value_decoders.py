"""The decoder of each format, also of those that ask a schema registry: one for loads, SQL and Arrow.

They are named here, and not beside the others in `barnabas.formats`: that package is pure and stands below
`barnabas.serialization`, which has the registry's client.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from barnabas.errors import ConfigurationError
from barnabas.formats.decoding import GuardedDecoder, ValueDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.value_format import JSON, JsonDecoder, decoder_of
from barnabas.serialization.avro_values import AvroFormat
from barnabas.serialization.framed_json import FramedJsonDecoder
from barnabas.serialization.protobuf_values import ProtobufFormat
from barnabas.serialization.record_values import RecordDecoder, RecordFormat
from barnabas.serialization.registry_client import SchemaRegistry

AVRO, PROTOBUF = "avro", "protobuf"
_KINDS: Mapping[str, type[RecordFormat]] = {AVRO: AvroFormat, PROTOBUF: ProtobufFormat}


def value_decoder(
    value_format: str,
    rules: JsonRules | None = None,
    registry: str | None = None,
    aliases: Aliases = NO_ALIASES,
    *,
    may_rename: bool = True,
    with_forms: bool = True,
) -> ValueDecoder | None:
    """Return the decoder for a format, None for raw values.

    :param rules: how JSON becomes columns.
    :param registry: the url of a schema registry.
    :param aliases: names that fields had before, with the names that they have in the table.
    :param may_rename: whether the table's fields may get other names later.
    :param with_forms: whether the decoder finds out if values come back from their columns.
    :raises ConfigurationError: there is no such format, a registry is missing, or there is no use for it.
    """
    decoder = _decoder(value_format, rules, registry, aliases, may_rename=may_rename, with_forms=with_forms)
    return None if decoder is None else GuardedDecoder(decoder)


def _decoder(
    value_format: str,
    rules: JsonRules | None,
    registry: str | None,
    aliases: Aliases,
    *,
    may_rename: bool,
    with_forms: bool,
) -> ValueDecoder | None:
    kind = _KINDS.get(value_format)
    if kind is None:
        decoder = decoder_of(value_format, rules, others=tuple(_KINDS))
        if registry is None:
            return decoder
        if isinstance(decoder, JsonDecoder):
            return FramedJsonDecoder(decoder, registry_at(registry))
        raise ConfigurationError("a registry (--registry) is for formats avro, protobuf and json (--format avro)")
    if registry is None:
        raise ConfigurationError(
            f"format {value_format} needs the registry that has the schemas: registry='http://localhost:8081' "
            "(--registry URL)"
        )
    if rules and rules != JsonRules():
        raise ConfigurationError(f"nested and decimals (--nested, --decimals) are for format {JSON} (--format {JSON})")
    return RecordDecoder(kind(), registry_at(registry), aliases, with_forms=with_forms, may_rename=may_rename)


@lru_cache(maxsize=16)
def registry_at(url: str) -> SchemaRegistry:
    """Return the one client of a registry in this process, which remembers the schemas that it was asked for."""
    return SchemaRegistry(url)
