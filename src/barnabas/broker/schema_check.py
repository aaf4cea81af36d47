"""Validates record values against schemas, for topics with `barnabas.value.schema.validation`.

A value is valid if it begins with the id of a schema that the registry has as a version of the subject `TOPIC-value`.
The bytes after the id are not checked, because decoding them would cost more than all other work of the broker. Null
values are valid, because they are tombstones. The validation runs on a separate thread, after the other checks of a
batch and before its append.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from barnabas.errors import (
    ApiError,
    ConfigurationError,
    CorruptBatchError,
    ErrorCode,
    RetriableError,
    SchemaRegistryError,
    SerializationError,
)
from barnabas.records.compaction_pure import records_of
from barnabas.records.compression import Decompressor
from barnabas.records.header import read_header
from barnabas.serialization import wire_format
from barnabas.serialization.registry_client import SchemaRegistry, registry_of
from barnabas.serialization.registry_settings import RegistrySettings
from barnabas.storage.log_appender import KEYED_BYTES_MAX, InvalidRecordsError

if TYPE_CHECKING:
    from barnabas.records.header import Buffer

REGISTRY_TIMEOUT_S = 5.0
"""The timeout for a response of the schema registry in seconds.

After it, the append fails, and the producer must retry.
"""
NUMBERS_MAX = 1_000
"""The maximum number of invalid records that an error lists."""


@functools.lru_cache(8)
def _registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return the client of a registry. All topics share its cache."""
    return registry_of(settings, REGISTRY_TIMEOUT_S)


def check_values(batch: Buffer, topic: str, registry: RegistrySettings, batch_bytes_max: int) -> None:
    """Check that each value in a batch has a schema of the topic's subject.

    :param batch: a batch whose header and CRC were checked.
    :param registry: the registry, with an empty URL if none is set.
    :param batch_bytes_max: the maximum size of the decompressed batch, if larger than the default.
    :raises ApiError: INVALID_RECORD: a value has no valid schema; REQUEST_TIMED_OUT: the registry does not respond;
        INVALID_CONFIG: `schema.registry.url` is not set.
    """
    if not registry.url:
        message = f"topic {topic!r} requires values with schemas, but schema.registry.url is not set"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    ids: dict[int, list[int]] = {}
    for number, value in enumerate(_values(batch, max(KEYED_BYTES_MAX, batch_bytes_max))):
        if value is None:
            continue
        try:
            ids.setdefault(wire_format.schema_id(value), []).append(number)
        except SerializationError as error:
            raise InvalidRecordsError([number], f"a value without a schema: {error}") from error
    subject = f"{topic}-value"
    for schema_id, numbers in ids.items():
        if not _is_version(registry, subject, schema_id):
            # Report only the first unknown id, because a batch may contain thousands of ids, and each costs a request.
            reason = (
                f"schema {schema_id} is not a version of the subject {subject!r} (barnabas.value.schema.validation)"
            )
            raise InvalidRecordsError(numbers[:NUMBERS_MAX], reason)


def _values(batch: Buffer, bytes_max: int) -> list[bytes | None]:
    try:
        with memoryview(batch) as view:
            # Producers may send any base offset, because the log assigns the offsets.
            header = read_header(view)._replace(base_offset=0)
            _, lists = records_of(view, 0, header, Decompressor(bytes_max))
    except CorruptBatchError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    return lists.values


def _is_version(registry: RegistrySettings, subject: str, schema_id: int) -> bool:
    try:
        return _registry(registry).is_version_of(subject, schema_id)
    except RetriableError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"cannot check schemas now: {error}") from error
    except (SchemaRegistryError, ConfigurationError) as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"cannot check schemas: {error}") from error
