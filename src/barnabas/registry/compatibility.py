"""Compatibility levels: the earlier versions with which a new schema is compared, and the direction of the comparison.

Confluent's registry has the same levels. BACKWARD: the new schema can read data of the last version. FORWARD: the last
version can read data of the new schema. FULL: both conditions. The transitive levels compare with all versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.registry.errors import cut
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError
from barnabas.registry.state import Version
from barnabas.registry.subject_config import Level

REASONS_MAX = 100
"""The maximum number of reasons in a response."""


def versions_to_compare(level: Level, earlier: Sequence[Version]) -> Sequence[Version]:
    """Return the versions with which a level compares a new schema, newest first.

    :param earlier: the versions of the subject that are not deleted, oldest first.
    """
    if level is Level.NONE:
        return ()
    return list(reversed(earlier if level.is_transitive else earlier[-1:]))


def incompatibilities_with(
    level: Level, new: Schema, new_type: str, version: Version, parse: Callable[[], Schema]
) -> list[str]:
    """Return the reasons why a new schema is incompatible with an earlier version; empty if it is compatible.

    :param parse: returns the parsed schema of the earlier version.
    """
    if version.content.schema_type != new_type:
        return [f"version {version.version} is of type {version.content.schema_type}, this one of type {new_type}"]
    try:
        old = parse()
    except SchemaSyntaxError as error:
        return [cut(f"version {version.version} cannot be parsed: {error}")]
    reasons = [
        *(f"the new schema cannot read version {version.version}: {why}" for why in _reads(level, new, old)),
        *(f"version {version.version} cannot read the new schema: {why}" for why in _is_read(level, new, old)),
    ]
    return [cut(reason) for reason in reasons[:REASONS_MAX]]


def _reads(level: Level, new: Schema, old: Schema) -> list[str]:
    return _incompatibilities(new, old) if level.is_backward else []


def _is_read(level: Level, new: Schema, old: Schema) -> list[str]:
    return _incompatibilities(old, new) if level.is_forward else []


def _incompatibilities(reader: Schema, writer: Schema) -> list[str]:
    """Return the reasons why the reader cannot read the writer's data; a failed comparison is also a reason.

    A comparison may fail because a `$ref` may point to a part of a schema that the meta-schema does not check. A
    keyword there may have any value.
    """
    try:
        return reader.read_incompatibilities(writer)
    except Exception as error:  # noqa: BLE001
        return [f"the schemas cannot be compared: {type(error).__name__}: {error}"]
