"""Settings as administrators see and change them: topics' settings, and the broker's own (KIP-133, KIP-226)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.config import SETTING_DOCUMENTATION, BrokerConfig
from barnabas.broker.topic_settings import TOPIC_SETTINGS, ConfigType
from barnabas.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.topics import Topic


class ResourceType(enum.IntEnum):
    """What can have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Where the value of a setting comes from (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


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


def describe(broker: Broker, resource_type: int, name: str) -> list[DescribedSetting]:
    """Return all settings of a topic or of this broker.

    :raises KafkaError: there is no such topic or broker, or nothing of that type has settings.
    """
    if resource_type == ResourceType.TOPIC:
        return list(_topic_settings(broker.config, find_topic(broker, name).settings))
    if resource_type == ResourceType.BROKER:
        if name != str(broker.node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}")
        return list(_broker_settings(broker.config))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")


def names_of(broker: Broker, resource_type: ResourceType) -> list[str]:
    """Return the names of all that has settings of a type."""
    if resource_type is ResourceType.TOPIC:
        return sorted(topic.name for topic in broker.topics.all())
    return [str(broker.node_id)] if resource_type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} else []


def find_topic(broker: Broker, name: str) -> Topic:
    """Return a topic.

    :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = broker.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def check_alterable(resource_type: int) -> None:
    """Check that settings of this type can be changed while the broker runs.

    :raises KafkaError: INVALID_REQUEST.
    """
    if resource_type != ResourceType.TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "only topics' settings can be changed while the broker runs; its own stand in its file and flags",
        )


def _topic_settings(config: BrokerConfig, own: Mapping[str, str]) -> Iterator[DescribedSetting]:
    for setting in TOPIC_SETTINGS.values():
        synonyms = []
        if setting.name in own:
            synonyms.append(Synonym(setting.name, own[setting.name], ConfigSource.TOPIC))
        default, of_broker = setting.default(BrokerConfig()), setting.default(config)
        if of_broker != default and setting.broker_setting:
            synonyms.append(Synonym(setting.broker_setting, of_broker, ConfigSource.STATIC_BROKER))
        synonyms.append(Synonym(setting.broker_setting or setting.name, default, ConfigSource.DEFAULT))
        yield DescribedSetting(setting.name, setting.kind, setting.documentation, tuple(synonyms), read_only=False)


_KINDS = {bool: ConfigType.BOOLEAN, int: ConfigType.LONG, str: ConfigType.STRING}


def _broker_settings(config: BrokerConfig) -> Iterator[DescribedSetting]:
    for field in dataclasses.fields(BrokerConfig):
        name = field.name.replace("_", ".")
        value, default = _text(getattr(config, field.name)), _text(field.default)
        synonyms = [Synonym(name, default, ConfigSource.DEFAULT)]
        if value != default:
            synonyms.insert(0, Synonym(name, value, ConfigSource.STATIC_BROKER))
        documentation = SETTING_DOCUMENTATION[field.name]
        yield DescribedSetting(name, _KINDS[type(field.default)], documentation, tuple(synonyms), read_only=True)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
