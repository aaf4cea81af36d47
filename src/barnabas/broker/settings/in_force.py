"""The settings of this broker as they are in force: its file and flags, changed while it runs (KIP-226).

Changes are kept in the tree, for all brokers (`/config/brokers/<default>`) or for one (`/config/brokers/0`). They
take precedence over file and flags, and a change for one broker takes precedence over a change for all. Only settings
that take effect at once can be changed in this way: those that are the defaults of topics' settings, those of
compaction, how many connections there may be, and how fast replicas are copied. Pure.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.broker.settings.cleaner_table import CLEANER_RULES
from barnabas.broker.settings.rules import FLAG, Rule, number, small, text, whole
from barnabas.broker.settings.sources import ConfigSource, DescribedSetting, Synonym
from barnabas.broker.settings.static import SETTING_DOCUMENTATION, BrokerConfig
from barnabas.broker.settings.throttle_table import THROTTLE_RULES
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS, check_supported
from barnabas.broker.settings.unused import NO_EFFECT, UNUSED_BROKER_SETTINGS
from barnabas.errors import ConfigurationError, ErrorCode, KafkaError

_FIELDS = {field.name.replace("_", "."): field for field in dataclasses.fields(BrokerConfig)}
CONNECTION_RULES = {"max.connections": small(1), "max.connections.per.ip": small(1)}
"""Who is connected stays so when there may be fewer; with none nobody could take that back."""
_READ_ONLY_DEFAULTS = frozenset({"file.delete.delay.ms"})
"""A default of the topics' that the broker needs itself, from its start on."""

DYNAMIC_RULES: dict[str, Rule] = (
    {
        setting.broker_setting: setting.rule
        for setting in TOPIC_SETTINGS.values()
        if setting.broker_setting in _FIELDS and setting.broker_setting not in _READ_ONLY_DEFAULTS
    }
    | {name: unused.rule for name, unused in UNUSED_BROKER_SETTINGS.items()}
    | CLEANER_RULES
    | CONNECTION_RULES
    | THROTTLE_RULES
)
"""The settings that can be changed while the broker runs."""

_READ_ONLY_RULES = {bool: FLAG, int: whole(-1), float: number(), str: text()}


def _parse_flag(value: str) -> bool:
    return value.strip().lower() == "true"


_PARSERS: dict[type, Callable[[str], Any]] = {bool: _parse_flag, int: int, float: float, str: str}


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
        changed = {**self.of_all, **self.own}
        values: dict[str, Any] = {
            field.name: _PARSERS[type(field.default)](changed[name])
            for name, field in _FIELDS.items()
            if name in changed
        }
        return dataclasses.replace(self.static, **values)

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Return where a setting has its value from, the strongest first."""
        found = []
        if name in self.own:
            found.append(Synonym(name, self.own[name], ConfigSource.DYNAMIC_BROKER))
        if name in self.of_all:
            found.append(Synonym(name, self.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if name in UNUSED_BROKER_SETTINGS:
            return (*found, Synonym(name, UNUSED_BROKER_SETTINGS[name].default, ConfigSource.DEFAULT))
        field = _FIELDS[name]
        value, default = _told(getattr(self.static, field.name)), _told(field.default)
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
        for name, field in _FIELDS.items():
            rule = DYNAMIC_RULES.get(name, _READ_ONLY_RULES[type(field.default)])
            documentation = SETTING_DOCUMENTATION[field.name]
            read_only = name not in DYNAMIC_RULES
            yield DescribedSetting(name, rule.kind, documentation, self.synonyms(name), read_only)
        for name, unused in UNUSED_BROKER_SETTINGS.items():
            yield DescribedSetting(name, unused.rule.kind, NO_EFFECT, self.synonyms(name), read_only=False)


def describe_of_all(of_all: Mapping[str, str]) -> Iterator[DescribedSetting]:
    """Yield what is said of all brokers, as Kafka does for the broker without a name."""
    for name, value in of_all.items():
        documentation = SETTING_DOCUMENTATION.get(name.replace(".", "_"), NO_EFFECT)
        synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        yield DescribedSetting(name, DYNAMIC_RULES[name].kind, documentation, synonyms, read_only=False)


def check_dynamic(settings: Mapping[str, str]) -> None:
    """Check settings that are to be changed while the broker runs.

    :raises KafkaError: INVALID_REQUEST where one can only be set before, INVALID_CONFIG where there is no such
        setting or it cannot have the value.
    """
    for name, value in settings.items():
        if name not in DYNAMIC_RULES:
            raise _not_dynamic(name)
        try:
            DYNAMIC_RULES[name].check(name, value)
            check_supported(name, value)
        except ConfigurationError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _not_dynamic(name: str) -> KafkaError:
    if name in _FIELDS:
        message = f"{name} cannot be changed while the broker runs; it stands in the broker's file and flags"
        return KafkaError(ErrorCode.INVALID_REQUEST, message)
    near = difflib.get_close_matches(name, DYNAMIC_RULES, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"there is no broker setting {name!r}{hint}")


def _told(value: object) -> str:
    if isinstance(value, float):
        return str(value).replace("e+", "E")  # as Java writes it
    return str(value).lower() if isinstance(value, bool) else str(value)
