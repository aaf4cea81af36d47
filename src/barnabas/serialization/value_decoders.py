"""The decoders of all value formats, for loads, SQL and Arrow.

This module is not in `barnabas.formats`, because that package does no I/O and must not import the registry's client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from barnabas.serialization.registry_client import SchemaRegistry, registry_of
from barnabas.serialization.registry_settings import RegistrySettings, RegistryTarget

AVRO, PROTOBUF = "avro", "protobuf"
_KINDS: Mapping[str, type[RecordFormat]] = {AVRO: AvroFormat, PROTOBUF: ProtobufFormat}


def value_decoder(
    value_format: str,
    rules: JsonRules | None = None,
    registry: RegistryTarget | None = None,
    aliases: Aliases = NO_ALIASES,
    *,
    may_rename: bool = True,
    with_forms: bool = True,
    is_guess: bool = False,
) -> ValueDecoder | None:
    """Return the decoder of a format, or None for raw values.

    :param value_format: the name of the format.
    :param rules: the rules for the conversion of JSON to columns.
    :param registry: the URL of a schema registry, or its settings.
    :param aliases: the earlier names of fields with their names in the table.
    :param may_rename: True if the table's fields may be renamed later.
    :param with_forms: True if the decoder checks that columns restore the values.
    :param is_guess: True if the fields were inferred from a sample of the values.
    :raises ConfigurationError: if the format does not exist, or if `registry` or `rules` do not match the format.
    """
    decoder = _decoder(
        value_format, rules, registry, aliases, may_rename=may_rename, with_forms=with_forms, is_guess=is_guess
    )
    return None if decoder is None else GuardedDecoder(decoder)


def _decoder(
    value_format: str,
    rules: JsonRules | None,
    registry: RegistryTarget | None,
    aliases: Aliases,
    *,
    may_rename: bool,
    with_forms: bool,
    is_guess: bool,
) -> ValueDecoder | None:
    kind = _KINDS.get(value_format)
    if kind is None:
        decoder = decoder_of(value_format, rules, others=tuple(_KINDS))
        if isinstance(decoder, JsonDecoder):
            decoder = replace(decoder, is_guess=is_guess)
        if registry is None:
            return decoder
        if isinstance(decoder, JsonDecoder):
            return FramedJsonDecoder(decoder, registry_at(registry))
        raise ConfigurationError("a registry (--registry) needs format avro, protobuf or json (--format avro)")
    if registry is None:
        raise ConfigurationError(
            f"format {value_format} needs a schema registry: registry='http://localhost:8081' (--registry URL)"
        )
    if rules and rules != JsonRules():
        raise ConfigurationError(f"nested and decimals (--nested, --decimals) need format {JSON} (--format {JSON})")
    return RecordDecoder(kind(), registry_at(registry), aliases, with_forms=with_forms, may_rename=may_rename)


@lru_cache(maxsize=16)
def registry_at(target: RegistryTarget) -> SchemaRegistry:
    """Return the client of a registry. All callers in this process share one client and its cache per target."""
    return registry_of(target if isinstance(target, RegistrySettings) else RegistrySettings(target))
