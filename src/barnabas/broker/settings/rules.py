"""Rules for the valid values of settings: type, bounds and choices, checked as in Kafka's ConfigDef.

Values are strings in requests and in the metadata store. The module does no I/O.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from barnabas.errors import ConfigurationError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")
"""The format of a whole number. It has at most 100 digits, because Python refuses to parse very long numbers."""
_SHOWN_CHARACTERS_MAX = 100


class ConfigType(enum.IntEnum):
    """The type of a setting's value, as in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for the valid values of a setting.

    >>> whole(1).check("segment.ms", "0")
    Traceback (most recent call last):
    barnabas.errors.ConfigurationError: segment.ms is 0; it must be from 1 to 9223372036854775807
    """

    kind: ConfigType
    least: float = 0
    greatest: float = LONG_MAX
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """The regular expression that a string, or each item of a list, must match."""

    def check(self, name: str, value: str) -> None:
        """Check a value.

        :raises ConfigurationError: the value is invalid.
        """
        if self.kind in {ConfigType.INT, ConfigType.LONG}:
            if not _WHOLE_NUMBER.fullmatch(value.strip()):
                raise ConfigurationError(f"{name} is {value[:_SHOWN_CHARACTERS_MAX]!r}; it must be a whole number")
            self._check_range(name, int(value))
        elif self.kind is ConfigType.DOUBLE:
            self._check_range(name, _number(name, value))
        elif self.kind is ConfigType.BOOLEAN:
            if value.strip().lower() not in {"true", "false"}:
                raise ConfigurationError(f"{name} is {value!r}; it must be true or false")
        else:
            for item in items_of(value) if self.kind is ConfigType.LIST else [value]:
                self._check_text(name, item)

    def _check_range(self, name: str, value: float) -> None:
        if not self.least <= value <= self.greatest:
            raise ConfigurationError(f"{name} is {value}; it must be from {self.least} to {self.greatest}")

    def _check_text(self, name: str, text: str) -> None:
        if self.choices and text not in self.choices:
            raise ConfigurationError(f"{name} is {text!r}; it must be one of {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise ConfigurationError(f"{name} is {text!r}; it must match {self.pattern}")

    @property
    def description(self) -> str:
        """The rule as text for the documentation."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is ConfigType.BOOLEAN:
            return "true, false"
        if self.kind in {ConfigType.STRING, ConfigType.LIST}:
            return "text"
        if self.greatest in {INT_MAX, LONG_MAX}:
            return f"{self.least} or more"
        return f"{self.least} to {self.greatest}"


def whole(least: int = 0, greatest: int = LONG_MAX) -> Rule:
    """Return a rule for a 64-bit integer."""
    return Rule(ConfigType.LONG, least, greatest)


def small(least: int = 0, greatest: int = INT_MAX) -> Rule:
    """Return a rule for a 32-bit integer."""
    return Rule(ConfigType.INT, least, greatest)


def number(least: float = 0.0, greatest: float = LONG_MAX) -> Rule:
    """Return a rule for a floating-point number."""
    return Rule(ConfigType.DOUBLE, least, greatest)


def text(*choices: str) -> Rule:
    """Return a rule for a string. If choices are given, the string must be one of them."""
    return Rule(ConfigType.STRING, choices=choices)


def items(*choices: str, pattern: str = "") -> Rule:
    """Return a rule for a comma-separated list of strings."""
    return Rule(ConfigType.LIST, choices=choices, pattern=pattern)


FLAG = Rule(ConfigType.BOOLEAN)
"""The rule for a boolean."""


def items_of(value: str) -> list[str]:
    """Return the items of a comma-separated list. A blank string is an empty list, as in Kafka's ConfigDef."""
    return [item.strip() for item in value.split(",")] if value.strip() else []


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f"{name} is {value[:_SHOWN_CHARACTERS_MAX]!r}; it must be a number") from None
