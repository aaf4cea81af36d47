"""The settings of this broker as they are in force: its file and flags, changed while it runs (KIP-226).

Changes are kept in the tree, for all brokers (`/config/brokers/<default>`) or for one (`/config/brokers/0`). They
take precedence over file and flags, and a change for one broker takes precedence over a change for all. Only settings
that take effect at once can be changed in this way: those that are the defaults of topics' settings, those of
compaction, how many connections there may be, how fast replicas are copied, and whether topics can be deleted. Kafka's
settings without meaning here are kept and shown. Pure.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.broker.settings.kafka_names import WITHOUT_EFFECT, check_promise, has_no_effect
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
    """Where the value of a setting comes from (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """One place where a setting's value may come from, the strongest first."""

    name: str
    value: str
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """A setting with its value in force; the first synonym is where it comes from."""

    name: str
    kind: ConfigType
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


_DECLARED: dict[str, tuple[str, BrokerSetting]] = {dotted(name): (name, each) for name, each in BROKER_SETTINGS.items()}
"""Fields and declarations of the settings, by their names."""
ALIASES = {other: name for other, name in OTHER_NAMES.items() if _DECLARED[name][1].is_dynamic}
"""Kafka's names of settings that can be changed while the broker runs, and the names here."""
_SPECIFIC_RULES = {name: each.rule for name, (_, each) in _DECLARED.items() if each.is_dynamic} | {
    name: unused.rule for name, unused in UNUSED_BROKER_SETTINGS.items()
}
_WITHOUT_EFFECT = WITHOUT_EFFECT | (TOPIC_SETTINGS.keys() - _SPECIFIC_RULES.keys())
"""Kafka takes any name that a broker does not know, also that of a topic's setting, and so do tools count on it."""

DYNAMIC_RULES: dict[str, Rule] = (
    dict.fromkeys(sorted(_WITHOUT_EFFECT), text())
    | {alias: _SPECIFIC_RULES[name] for alias, name in ALIASES.items()}
    | _SPECIFIC_RULES
)
"""The settings that can be changed while the broker runs."""

_ANY_TEXT = text()

_PARSERS: dict[type, Callable[[str], Any]] = {bool: parse_flag, int: int, float: float, str: str}


class BrokerSettings(NamedTuple):
    """All settings of a broker: those of its file and flags, those said of all brokers, and those said of it."""

    static: BrokerConfig
    of_all: Mapping[str, str] = {}
    own: Mapping[str, str] = {}

    @property
    def config(self) -> BrokerConfig:
        """What is in force.

        :raises ConfigurationError: a value cannot be.
        """
        changed = {ALIASES.get(name, name): value for said in (self.of_all, self.own) for name, value in said.items()}
        values: dict[str, Any] = {
            field: _PARSERS[type(declared.default)](changed[name])
            for name, (field, declared) in _DECLARED.items()
            if name in changed
        }
        return dataclasses.replace(self.static, **values)

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Return where a setting has its value from, the strongest first."""
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
        value, default = _told(getattr(self.static, field)), _told(declared.default)
        if value != default:
            found.append(Synonym(name, value, ConfigSource.STATIC_BROKER))
        return (*found, Synonym(name, default, ConfigSource.DEFAULT))

    def inherited(self, name: str, *, by_all: bool) -> tuple[Synonym, ...]:
        """Return where a setting would have its value from if this broker, or all together, had none of their own."""
        own = {ConfigSource.DYNAMIC_BROKER}
        if by_all:
            own.add(ConfigSource.DYNAMIC_DEFAULT_BROKER)
        return tuple(each for each in self.synonyms(name) if each.source not in own)

    def describe(self) -> Iterator[DescribedSetting]:
        """Yield all settings."""
        for name, (_, declared) in _DECLARED.items():
            kind, read_only = declared.rule.kind, not declared.is_dynamic
            yield DescribedSetting(name, kind, declared.about, self.synonyms(name), read_only)
        for alias, name in ALIASES.items():
            documentation = f"Kafka's name of {name}."
            yield DescribedSetting(alias, DYNAMIC_RULES[alias].kind, documentation, self.synonyms(name), False)
        for name, unused in UNUSED_BROKER_SETTINGS.items():
            yield DescribedSetting(name, unused.rule.kind, NO_EFFECT, self.synonyms(name), read_only=False)
        for name in sorted({*self.of_all, *self.own}):
            if is_without_effect(name):
                yield DescribedSetting(name, _rule_of(name).kind, NO_EFFECT, self.synonyms(name), False)


def is_without_effect(name: str) -> bool:
    """Whether a setting is accepted, and neither has a meaning here nor a default that is shown."""
    return name in _WITHOUT_EFFECT or (has_no_effect(name) and name not in DYNAMIC_RULES)


def describe_of_all(of_all: Mapping[str, str]) -> Iterator[DescribedSetting]:
    """Yield what is said of all brokers, as Kafka does for the broker without a name."""
    for name, value in of_all.items():
        _, declared = _DECLARED.get(ALIASES.get(name, name), ("", None))
        documentation = NO_EFFECT if declared is None else declared.about
        synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        yield DescribedSetting(name, _rule_of(name).kind, documentation, synonyms, read_only=False)


def check_dynamic(settings: Mapping[str, str]) -> None:
    """Check settings that are to be changed while the broker runs.

    :raises ApiError: INVALID_REQUEST where one can only be set before, INVALID_CONFIG where there is no such
        setting or it cannot have the value.
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
"""The settings of brokers whose own cannot be read: nothing says that records may be deleted."""


def usable_settings(
    known: BrokerSettings, found: Mapping[str, str], *, is_of_all: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the settings of all brokers, or of one, that this version can have, and what is wrong with the others.

    Where one of the others decides which records are deleted, the broker keeps all of them.

    :param known: what else is in force.
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
    if name in _DECLARED:
        message = f"{name} cannot be changed while the broker runs; it stands in the broker's file and flags"
        return ApiError(ErrorCode.INVALID_REQUEST, message)
    near = difflib.get_close_matches(name, DYNAMIC_RULES, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ApiError(ErrorCode.INVALID_CONFIG, f"there is no broker setting {name!r}{hint}")


def _told(value: object) -> str:
    if isinstance(value, float):
        return str(value).replace("e+", "E")  # as Java writes it
    return str(value).lower() if isinstance(value, bool) else str(value)
