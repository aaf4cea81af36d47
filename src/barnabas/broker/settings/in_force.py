"""The effective settings of this broker: its static settings, overridden by dynamic settings (KIP-226).

Static settings come from the file, the environment and flags. Dynamic settings are in the metadata store, for all
brokers (`/config/brokers/<default>`) or for one broker (`/config/brokers/0`). They override static settings, and
settings of one broker override settings of all brokers. Only settings that take effect immediately can be dynamic:
defaults of topic settings, and settings of compaction, connection limits, replication rates and topic deletion. Kafka's
settings that have no effect in Barnabas are stored and described. The module does no I/O.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.broker.settings.kafka_names import WITHOUT_EFFECT, check_promise, has_no_effect
from barnabas.broker.settings.listeners import OVERRIDE_PREFIX
from barnabas.broker.settings.rules import ConfigType, Rule, text
from barnabas.broker.settings.static import (
    BROKER_SETTINGS,
    OTHER_NAMES,
    BrokerConfig,
    BrokerSetting,
    dotted,
    parse_flag,
)
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS, check_supported
from barnabas.broker.settings.unused import NO_EFFECT, UNUSED_BROKER_SETTINGS
from barnabas.errors import ApiError, ConfigurationError, ErrorCode


class ConfigSource(enum.IntEnum):
    """The source of a setting's value (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """A configured value of a setting and its source. The first synonym in a list is the effective value."""

    name: str
    value: str
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """A setting with its effective value, which is the value of the first synonym."""

    name: str
    kind: ConfigType
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool
    is_secret: bool = False
    """True if the values must not be shown; the synonyms then have empty values."""

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


_DECLARED: dict[str, tuple[str, BrokerSetting]] = {dotted(name): (name, each) for name, each in BROKER_SETTINGS.items()}
"""The field name and the declaration of each setting, by the setting's name."""
ALIASES = {other: name for other, name in OTHER_NAMES.items() if _DECLARED[name][1].is_dynamic}
"""The names of dynamic settings, by Kafka's alternative names for them."""
_SPECIFIC_RULES = {name: each.rule for name, (_, each) in _DECLARED.items() if each.is_dynamic} | {
    name: unused.rule for name, unused in UNUSED_BROKER_SETTINGS.items()
}
_WITHOUT_EFFECT = WITHOUT_EFFECT | (TOPIC_SETTINGS.keys() - _SPECIFIC_RULES.keys())
"""The dynamic settings that have no effect.

They include topic settings, because Kafka accepts unknown names, and tools rely on this.
"""

DYNAMIC_RULES: dict[str, Rule] = (
    dict.fromkeys(sorted(_WITHOUT_EFFECT), text())
    | {alias: _SPECIFIC_RULES[name] for alias, name in ALIASES.items()}
    | _SPECIFIC_RULES
)
"""The rules of all dynamic settings, by name."""

_ANY_TEXT = text()

_PARSERS: dict[type, Callable[[str], Any]] = {bool: parse_flag, int: int, float: float, str: str}


class BrokerSettings(NamedTuple):
    """All settings of a broker: static settings, dynamic settings of all brokers, and the broker's own dynamic
    settings.
    """

    static: BrokerConfig
    of_all: Mapping[str, str] = {}
    own: Mapping[str, str] = {}

    @property
    def config(self) -> BrokerConfig:
        """The effective settings.

        :raises ConfigurationError: a value is invalid.
        """
        changed = {ALIASES.get(name, name): value for said in (self.of_all, self.own) for name, value in said.items()}
        values: dict[str, Any] = {
            field: _PARSERS[type(declared.default)](changed[name])
            for name, (field, declared) in _DECLARED.items()
            if name in changed
        }
        return dataclasses.replace(self.static, **values)

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Return the configured values of a setting with their sources, beginning with the effective value."""
        found = []
        name = ALIASES.get(name, name)
        for said, source in (
            (self.own, ConfigSource.DYNAMIC_BROKER),
            (self.of_all, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ):
            found += [Synonym(each, said[each], source) for each in said if ALIASES.get(each, each) == name]
        if name in UNUSED_BROKER_SETTINGS:
            return (*found, Synonym(name, UNUSED_BROKER_SETTINGS[name].default, ConfigSource.DEFAULT))
        if name not in _DECLARED:
            return tuple(found)
        field, declared = _DECLARED[name]
        value, default = _as_text(getattr(self.static, field)), _as_text(declared.default)
        if value != default:
            found.append(Synonym(name, value, ConfigSource.STATIC_BROKER))
        return (*found, Synonym(name, default, ConfigSource.DEFAULT))

    def inherited(self, name: str, *, by_all: bool) -> tuple[Synonym, ...]:
        """Return the synonyms of a setting without this broker's dynamic settings.

        `by_all` also omits the dynamic settings of all brokers.
        """
        own = {ConfigSource.DYNAMIC_BROKER}
        if by_all:
            own.add(ConfigSource.DYNAMIC_DEFAULT_BROKER)
        return tuple(each for each in self.synonyms(name) if each.source not in own)

    def describe(self) -> Iterator[DescribedSetting]:
        """Yield the descriptions of all settings."""
        for name, (_, declared) in _DECLARED.items():
            kind, read_only = declared.rule.kind, not declared.is_dynamic
            synonyms = self.synonyms(name)
            if declared.is_secret:
                synonyms = tuple(each._replace(value="") for each in synonyms)
            yield DescribedSetting(name, kind, declared.about, synonyms, read_only, declared.is_secret)
        for alias, name in ALIASES.items():
            documentation = f"Kafka's name of {name}."
            yield DescribedSetting(alias, DYNAMIC_RULES[alias].kind, documentation, self.synonyms(name), False)
        for name, unused in UNUSED_BROKER_SETTINGS.items():
            yield DescribedSetting(name, unused.rule.kind, NO_EFFECT, self.synonyms(name), read_only=False)
        for name in sorted({*self.of_all, *self.own}):
            if is_without_effect(name):
                yield DescribedSetting(name, _rule_of(name).kind, NO_EFFECT, self.synonyms(name), False)


def is_without_effect(name: str) -> bool:
    """Return whether a setting is accepted but has no effect and no default to describe."""
    return name in _WITHOUT_EFFECT or (has_no_effect(name) and name not in DYNAMIC_RULES)


def describe_of_all(of_all: Mapping[str, str]) -> Iterator[DescribedSetting]:
    """Yield the descriptions of the dynamic settings of all brokers, as Kafka does for a broker resource with an empty
    name.
    """
    for name, value in of_all.items():
        _, declared = _DECLARED.get(ALIASES.get(name, name), ("", None))
        documentation = NO_EFFECT if declared is None else declared.about
        synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        yield DescribedSetting(name, _rule_of(name).kind, documentation, synonyms, read_only=False)


def check_dynamic(settings: Mapping[str, str]) -> None:
    """Check new values of dynamic settings.

    :raises ApiError: INVALID_REQUEST for a static setting, INVALID_CONFIG for an unknown setting or an invalid value.
    """
    for name, value in settings.items():
        if name not in DYNAMIC_RULES and not has_no_effect(name):
            raise _not_dynamic(name)
        try:
            _rule_of(name).check(name, value)
            check_supported(name, value)
            check_promise(name, value)
        except ConfigurationError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _rule_of(name: str) -> Rule:
    return DYNAMIC_RULES.get(name, _ANY_TEXT)


DECIDE_ON_DELETION = frozenset({"log.retention.ms", "log.retention.bytes", "log.cleanup.policy"})
KEEP_RECORDS = {"log.retention.ms": "-1", "log.retention.bytes": "-1", "log.cleanup.policy": "delete"}
"""The settings that replace unreadable broker settings. No record may be deleted while the settings are unknown."""


def usable_settings(
    known: BrokerSettings, found: Mapping[str, str], *, is_of_all: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the supported settings, and the problems with unsupported settings.

    If an unsupported setting controls the deletion of records, the broker keeps all records.

    :param known: the current settings of the broker.
    """
    usable: dict[str, str] = {}
    problems = []
    for name, value in found.items():
        tried = {**usable, name: value}
        try:
            check_dynamic({name: value})
            (known._replace(of_all=tried, own={}) if is_of_all else known._replace(own=tried)).config  # noqa: B018
        except (ApiError, ConfigurationError) as error:
            problems.append(error.reason if isinstance(error, ApiError) else str(error))
        else:
            usable[name] = value
    if DECIDE_ON_DELETION & (found.keys() - usable.keys()):
        usable |= KEEP_RECORDS
    return usable, problems


def _not_dynamic(name: str) -> ApiError:
    if name in _DECLARED or name.startswith(OVERRIDE_PREFIX):
        message = f"{name} cannot be changed while the broker runs; set it in the broker's file or flags and restart"
        return ApiError(ErrorCode.INVALID_REQUEST, message)
    near = difflib.get_close_matches(name, DYNAMIC_RULES, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ApiError(ErrorCode.INVALID_CONFIG, f"unknown broker setting {name!r}{hint}")


def _as_text(value: object) -> str:
    if isinstance(value, float):
        return str(value).replace("e+", "E")  # Use Java's format: Java writes 1.5E300, and Python writes 1.5e+300.
    return str(value).lower() if isinstance(value, bool) else str(value)
