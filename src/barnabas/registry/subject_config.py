"""Compatibility levels, modes, metadata and rules of subjects in requests and records.

Requests and records pass the same checks, so a forged record cannot set a value that no request can set.
"""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Mapping
from typing import Any

from barnabas.registry.errors import RegistryError

NUMBER_MAX = 2**31 - 1
"""The highest id and version: serializers write an id in four bytes, and readers interpret these bytes as a signed
number."""
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
LATEST = -1
"""The version number that means the latest version in a reference."""

CONFIG_TEXTS = ("alias", "compatibilityGroup")
CONFIG_SWITCHES = ("normalize", "validateFields", "validateRules")
CONFIG_OBJECTS = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
_CONFIG_KINDS: dict[str, type] = {
    **dict.fromkeys(CONFIG_TEXTS, str),
    **dict.fromkeys(CONFIG_SWITCHES, bool),
    **dict.fromkeys(CONFIG_OBJECTS, dict),
}
_EXTRAS: dict[str, dict[str, type]] = {
    "metadata": {"tags": dict, "properties": dict, "sensitive": list},
    "ruleSet": {"migrationRules": list, "domainRules": list, "encodingRules": list},
}


class InvalidValueError(ValueError):
    """A value that no registry accepts."""


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
        """Return the compatibility level with this name, in upper or lower case.

        :raises RegistryError: there is no such level (42203).
        """
        try:
            return cls(str(name).lower())
        except ValueError:
            raise RegistryError.invalid_level() from None

    @property
    def is_transitive(self) -> bool:
        """True if the level applies to all earlier versions instead of only the last version."""
        return self.endswith("_transitive")

    @property
    def is_backward(self) -> bool:
        """True if a new schema must be able to read data of earlier schemas."""
        return self.startswith(("backward", "full"))

    @property
    def is_forward(self) -> bool:
        """True if earlier schemas must be able to read data of a new schema."""
        return self.startswith(("forward", "full"))


def is_number(value: object) -> bool:
    """Return whether a value is a valid id or version.

    >>> is_number(1), is_number(2**31 - 1), is_number(2**31), is_number(0), is_number(True), is_number("1")
    (True, True, False, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= NUMBER_MAX


def is_reference_version(value: object) -> bool:
    """Return whether a value is a valid version of a reference: a number, or -1 for the latest."""
    return is_number(value) or (isinstance(value, int) and value == LATEST)


def check_config(values: Mapping[str, Any]) -> None:
    """Check the types of settings; unknown settings pass.

    :raises InvalidValueError: a setting has the wrong type.
    :raises RegistryError: the compatibility level does not exist (42203).
    """
    level = values.get("compatibilityLevel")
    if level is not None:
        Level.of(level)
    for name, kind in _CONFIG_KINDS.items():
        if not isinstance(values.get(name), kind | None):
            raise InvalidValueError(f"the field '{name}' must be of type {kind.__name__}")


def check_extras(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata and rules of a schema that are set.

    :raises InvalidValueError: they have the wrong type.
    """
    extras = {name: values[name] for name in _EXTRAS if values.get(name)}
    for name, value in extras.items():
        if not isinstance(value, dict):
            raise InvalidValueError(f"the field '{name}' must be an object, not {shortened(value)}")
        for part, kind in _EXTRAS[name].items():
            if not isinstance(value.get(part), kind | None):
                raise InvalidValueError(f"the field '{name}.{part}' must be of type {kind.__name__}")
    return extras


def shortened(value: object) -> str:
    """Return a value as text of about 100 characters for log lines and errors."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 60, 60, 30
