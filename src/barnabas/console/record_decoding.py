"""Keys and values in Confluent's wire format, decoded with the schemas of a registry.

Each schema is fetched once, on a thread. A page waits for its schemas only for a moment: it shows the other keys and
values as bytes, with the reason. Records and schemas are untrusted. Sizes are limited, and each error of a format's
library becomes a reason.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.clock import Clock
from barnabas.console.threads import on_thread
from barnabas.errors import BarnabasError, SchemaRegistryError, SerializationError, TimedOutError
from barnabas.serialization import avro, protobuf, wire_format
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.registry_client import (
    AVRO,
    JSON,
    NO_SUCH_SCHEMA,
    PROTOBUF,
    Schema,
    SchemaRegistry,
)

WAIT_S = 2.0
"""The time that a page waits for schemas."""
DECODING_S_MAX = 2.0
"""The time in which one call decodes records."""
LOOKUPS_AT_ONCE = 4
LOOKUPS_MAX = 20
"""The maximum number of new schemas for one call. Bytes of another format can look like many different ids."""
SCHEMAS_MAX = 100
CHARACTERS_MAX = 4 * 1024 * 1024
"""The maximum number of characters of all schemas that stay in memory."""
SCHEMA_CHARACTERS_MAX = 512 * 1024
"""The maximum number of characters of a schema with its references."""
SUBJECTS_MAX = 100
MESSAGE_TYPES_MAX = 100
BYTES_MAX = 256 * 1024
"""The maximum size of a decoded key or value."""
VALUES_MAX = 200_000
"""The maximum number of nested values of a decoded Avro record."""
FAILED_S = 10.0
"""The time after a failure before a schema is requested again."""
FAILURES_MAX = 1_000
REASON_CHARACTERS_MAX = 300

_NO_TIME = "the time for decoding is over; ask for fewer records"

Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema of the registry.

    :ivar subjects: the subjects that have it, with the version numbers; empty if the user may not see them.
    """

    id: int
    kind: str
    subjects: tuple[tuple[str, int], ...] = ()

    def home(self, topic: str, part: str) -> tuple[str, int] | None:
        """Return a subject with the schema, and its version: if possible the subject of a topic's keys or values.

        :param part: `key` or `value`.
        """
        own = [each for each in self.subjects if each[0] in (f"{topic}-{part}", f"{topic}/{part}")]
        found = own or self.subjects
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or a value with a schema id.

    :ivar value: the decoded value, made of dicts, lists and scalars.
    :ivar problem: the reason why there is no decoded value; empty if there is one.
    :ivar schema: the schema; None if it is not known.
    """

    schema_id: int
    value: Any = None
    problem: str = ""
    schema: KnownSchema | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A schema, and the function that decodes with it."""

    schema: KnownSchema
    decode: Decode
    characters: int


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a schema cannot be used, and the monotonic time until which it is not requested again.

    :ivar is_outage: True if no registry answers, so that no other schema is requested either.
    """

    reason: str
    until_s: float
    is_outage: bool = False


class RecordDecoding:
    """Decodes records as one user. Used on one event loop.

    :param new_registry: returns a client whose calls last at most `WAIT_S`. Each lookup uses a new one, because the
        cache of a client has no limit for bytes.
    """

    def __init__(self, new_registry: Callable[[], SchemaRegistry], clock: Clock) -> None:
        self._new_registry = new_registry
        self._clock = clock
        self._turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._failures: OrderedDict[int, _Failure] = OrderedDict()
        self._lookups: dict[int, asyncio.Task[None]] = {}
        self._outage: _Failure | None = None

    async def decode(self, values: Sequence[bytes | None]) -> list[Decoded | None]:
        """Return the decoded keys or values; None for those without a schema id."""
        ids = [_schema_id(value) for value in values]
        wanted = [schema_id for schema_id, _count in Counter(each for each in ids if each is not None).most_common()]
        if not wanted:
            return [None] * len(values)
        await self._look_up(wanted)
        found = {schema_id: self._find(schema_id) for schema_id in wanted}

        def decode_all() -> list[Decoded | None]:
            until_s = self._clock.monotonic() + DECODING_S_MAX
            return [
                None
                if value is None or schema_id is None
                else self._decoded(value, found[schema_id], schema_id, until_s)
                for value, schema_id in zip(values, ids, strict=True)
            ]

        return await on_thread(decode_all, "console-decoding")

    async def _look_up(self, ids: Iterable[int]) -> None:
        """Request the schemas that are not known yet, and wait for them."""
        missing = [schema_id for schema_id in ids if isinstance(self._find(schema_id), str)]
        now_s = self._clock.monotonic()
        for schema_id in missing[:LOOKUPS_MAX]:
            failure = self._outage or self._failures.get(schema_id)
            if schema_id in self._lookups or (failure is not None and now_s < failure.until_s):
                continue
            self._lookups[schema_id] = asyncio.create_task(self._request(schema_id))
        waiting = [self._lookups[schema_id] for schema_id in missing if schema_id in self._lookups]
        if waiting:
            await asyncio.wait(waiting, timeout=WAIT_S)

    def _find(self, schema_id: int) -> _Entry | str:
        """Return a schema, or the reason why it is not known."""
        entry = self._entries.get(schema_id)
        if entry is not None:
            self._entries.move_to_end(schema_id)
            return entry
        failure = self._failures.get(schema_id) or self._outage
        if failure is not None:
            return failure.reason
        if schema_id in self._lookups:
            return "the schema registry has not answered yet; load the page again"
        return f"the page has more than {LOOKUPS_MAX} new schema ids; load it again for further ones"

    async def _request(self, schema_id: int) -> None:
        try:
            async with self._turns:
                if self._outage is None or self._clock.monotonic() >= self._outage.until_s:
                    self._keep(schema_id, await on_thread(lambda: self._load(schema_id), "console-schema"))
        finally:
            del self._lookups[schema_id]

    def _keep(self, schema_id: int, found: _Entry | _Failure) -> None:
        self._failures.pop(schema_id, None)
        self._outage = found if isinstance(found, _Failure) and found.is_outage else None
        if isinstance(found, _Entry):
            self._entries[schema_id] = found
            while len(self._entries) > SCHEMAS_MAX or self._characters() > CHARACTERS_MAX:
                self._entries.popitem(last=False)
        elif not found.is_outage:
            self._failures[schema_id] = found
            while len(self._failures) > FAILURES_MAX:
                self._failures.popitem(last=False)

    def _characters(self) -> int:
        return sum(each.characters for each in self._entries.values())

    # -- on a thread -----------------------------------------------------------------------------------------------

    def _load(self, schema_id: int) -> _Entry | _Failure:
        """Request a schema, and make the function that decodes with it."""
        is_outage = False
        try:
            return _entry(self._new_registry(), schema_id)
        except SchemaRegistryError as error:
            is_unknown = error.code == NO_SUCH_SCHEMA
            reason = f"the registry has no schema {schema_id}" if is_unknown else f"schema {schema_id}: {error}"
        except TimedOutError as error:
            is_outage, reason = True, str(error)
        except BarnabasError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - format libraries raise arbitrary errors for untrusted schemas
            reason = f"schema {schema_id} cannot be used: {type(error).__name__}: {error}"
        return _Failure(reason[:REASON_CHARACTERS_MAX], self._clock.monotonic() + FAILED_S, is_outage)

    def _decoded(self, data: bytes, found: _Entry | str, schema_id: int, until_s: float) -> Decoded:
        if isinstance(found, str):
            return Decoded(schema_id, problem=found)
        if len(data) > BYTES_MAX:
            return Decoded(schema_id, problem=f"more than {BYTES_MAX} bytes are not decoded", schema=found.schema)
        if self._clock.monotonic() >= until_s:
            return Decoded(schema_id, problem=_NO_TIME, schema=found.schema)
        try:
            return Decoded(schema_id, found.decode(data), schema=found.schema)
        except BarnabasError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - format libraries raise arbitrary errors for untrusted bytes
            reason = f"{type(error).__name__}: {error}"
        return Decoded(schema_id, problem=reason[:REASON_CHARACTERS_MAX], schema=found.schema)


def _schema_id(data: bytes | None) -> int | None:
    """Return the schema id of a key or a value; None without one. No registry has a schema 0."""
    if data is None or len(data) < wire_format.HEADER_BYTES or data[0] != wire_format.MAGIC:
        return None
    return wire_format.schema_id(data) or None


def _entry(registry: SchemaRegistry, schema_id: int) -> _Entry:
    """Request a schema with its references.

    :raises BarnabasError: there is no such schema, or it cannot be used.
    """
    kind = registry.schema(schema_id).kind
    form = "serialized" if kind == PROTOBUF else ""
    schema = registry.schema(schema_id, form=form)
    characters = len(schema.text) + sum(len(text) for _name, text in registry.dependencies(schema, form=form))
    if characters > SCHEMA_CHARACTERS_MAX:
        raise SerializationError(f"schema {schema_id} has more than {SCHEMA_CHARACTERS_MAX} characters")
    decode = _decoder(registry, schema_id, schema)
    return _Entry(KnownSchema(schema_id, kind, _subjects(registry, schema_id)), decode, characters)


def _subjects(registry: SchemaRegistry, schema_id: int) -> tuple[tuple[str, int], ...]:
    """Return the subjects with a schema. A registry may let a user read a schema, and not the list of its subjects."""
    try:
        return tuple(registry.versions_with(schema_id)[-SUBJECTS_MAX:])
    except SchemaRegistryError:
        return ()


def _decoder(registry: SchemaRegistry, schema_id: int, schema: Schema) -> Decode:
    """Return the function that decodes records of a schema.

    :raises BarnabasError: the schema is invalid, or a package is missing.
    """
    if schema.kind == AVRO:
        return avro.WriterSchema(registry, schema, VALUES_MAX).read
    if schema.kind == JSON:
        return _decoded_json
    if schema.kind == PROTOBUF:
        return _Messages(protobuf.schema_file(registry, schema_id), schema_id).decode
    raise SerializationError(f"schema {schema_id} is of the unknown type {schema.kind[:50]}")


def _decoded_json(data: bytes) -> Any:
    try:
        return json.loads(data[wire_format.HEADER_BYTES :])
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"invalid JSON: {error}") from error


class _Messages:
    """The messages of a Protobuf file."""

    def __init__(self, file: Any, schema_id: int) -> None:
        self._file = file
        self._schema_id = schema_id
        self._types: dict[tuple[int, ...], Any] = {}
        self._to_dict = require_schema_package("google.protobuf.json_format").MessageToDict

    def decode(self, data: bytes) -> Any:
        """Return a message with the names of the file's fields.

        :raises SerializationError: the file has no such message type.
        """
        indexes, position = wire_format.decode_indexes(data)
        key = tuple(indexes)
        if key not in self._types:
            if len(self._types) >= MESSAGE_TYPES_MAX:
                self._types.clear()
            self._types[key] = protobuf.class_in_file(self._file, self._schema_id, key)
        message = self._types[key].FromString(data[position:])
        return self._to_dict(message, preserving_proto_field_name=True)
