"""Compatibility levels: which earlier versions a new schema of a subject is compared with, and in which direction.

The levels are those of Confluent's registry. BACKWARD: the new schema reads what the last one wrote. FORWARD: the last
one reads what the new one writes. FULL: both. The transitive ones compare with all versions instead of the last.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from barnabas.registry.errors import RegistryError
from barnabas.registry.kinds.schema import Schema
from barnabas.registry.state import Version


class Level(enum.StrEnum):
    """A compatibility level."""

    NONE = enum.auto()
    BACKWARD = enum.auto()
    BACKWARD_TRANSITIVE = enum.auto()
    FORWARD = enum.auto()
    FORWARD_TRANSITIVE = enum.auto()
    FULL = enum.auto()
    FULL_TRANSITIVE = enum.auto()

    @classmethod
    def of(cls, name: object) -> Level:
        """Return the level of a name in any case.

        :raises RegistryError: 42203.
        """
        try:
            return cls(str(name).lower())
        except ValueError:
            raise RegistryError.invalid_level() from None

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, and not the last alone."""
        return self.endswith("_transitive")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read what earlier ones wrote."""
        return self.startswith(("backward", "full"))

    @property
    def is_forward(self) -> bool:
        """Whether earlier schemas must read what the new one writes."""
        return self.startswith(("forward", "full"))


def incompatibilities(
    level: Level, new: Schema, new_type: str, earlier: Sequence[Version], parse: Callable[[Version], Schema]
) -> list[str]:
    """Return why a new schema does not fit the versions before it, newest first; empty where it does.

    :param earlier: those of the subject that are not deleted, oldest first.
    """
    if level is Level.NONE:
        return []
    for version in reversed(earlier if level.is_transitive else earlier[-1:]):
        if version.content.schema_type != new_type:
            return [f"version {version.version} is of type {version.content.schema_type}, this one of type {new_type}"]
        old = parse(version)
        reasons = [
            *(f"the new schema cannot read version {version.version}: {why}" for why in _reads(level, new, old)),
            *(f"version {version.version} cannot read the new schema: {why}" for why in _is_read(level, new, old)),
        ]
        if reasons:
            return reasons
    return []


def _reads(level: Level, new: Schema, old: Schema) -> list[str]:
    return new.obstacles_to_reading(old) if level.is_backward else []


def _is_read(level: Level, new: Schema, old: Schema) -> list[str]:
    return old.obstacles_to_reading(new) if level.is_forward else []
