"""Compatibility levels: which earlier versions a new schema of a subject is compared with, and in which direction.

The levels are those of Confluent's registry. BACKWARD: the new schema reads what the last one wrote. FORWARD: the last
one reads what the new one writes. FULL: both. The transitive ones compare with all versions instead of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.registry.errors import cut
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError
from barnabas.registry.state import Version
from barnabas.registry.subject_config import Level

REASONS_MAX = 100
"""So many reasons an answer has."""


def versions_to_compare(level: Level, earlier: Sequence[Version]) -> Sequence[Version]:
    """Return the versions that a level compares a new schema with, newest first.

    :param earlier: those of the subject that are not deleted, oldest first.
    """
    if level is Level.NONE:
        return ()
    return list(reversed(earlier if level.is_transitive else earlier[-1:]))


def incompatibilities_with(
    level: Level, new: Schema, new_type: str, version: Version, parse: Callable[[], Schema]
) -> list[str]:
    """Return the reasons for which a new schema does not fit an earlier version; empty where it fits.

    :param parse: returns the schema of the version.
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
    """Return the obstacles to reading; an error of the comparison is an obstacle as well.

    A $ref may lead to a part of a schema that its meta-schema does not check, so a keyword can hold any value.
    """
    try:
        return reader.read_incompatibilities(writer)
    except Exception as error:  # noqa: BLE001
        return [f"the schemas cannot be compared: {type(error).__name__}: {error}"]
