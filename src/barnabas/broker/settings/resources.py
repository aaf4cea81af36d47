"""The settings of topics, brokers and groups as config resources, which administrators describe and change (KIP-133,
KIP-226, KIP-848).
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.internal_topics import replication_factor_of, settings_in_force
from barnabas.broker.settings.dynamic import ALL_BROKERS, DynamicSettings
from barnabas.broker.settings.in_force import (
    DYNAMIC_RULES,
    BrokerSettings,
    ConfigSource,
    DescribedSetting,
    Synonym,
    describe_of_all,
)
from barnabas.broker.settings.rules import Rule
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS, TopicSetting
from barnabas.broker.settings.unused import GROUP_SETTINGS, NO_EFFECT
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.topics import Topic, Topics

__all__ = ["ConfigSource", "DescribedSetting", "ResourceType", "describe", "names_of", "target_of"]


class ResourceType(enum.IntEnum):
    """The types of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Target(NamedTuple):
    """A config resource whose settings a request changes."""

    rules: Mapping[str, Rule]
    """The rules of the resource's settings, by name."""
    inherited: Callable[[str], str]
    """Returns the value of a setting if the resource does not override it."""
    change: Callable[..., Awaitable[None]]
    """Changes the settings that the resource overrides."""


def describe(topics: Topics, settings: DynamicSettings, resource_type: int, name: str) -> list[DescribedSetting]:
    """Return the descriptions of all settings of a topic, this broker, all brokers (empty name) or a group.

    :raises ApiError: the topic or broker is unknown, or resources of this type have no settings.
    """
    if resource_type == ResourceType.TOPIC:
        topic = find_topic(topics, name)
        factor = replication_factor_of(topic.partitions)
        return list(_topic_settings(settings.broker, settings_in_force(settings.config, name, topic.settings, factor)))
    if resource_type == ResourceType.BROKER:
        settings.check_broker(name)
        return list(describe_of_all(settings.broker.of_all) if name == ALL_BROKERS else settings.broker.describe())
    if resource_type == ResourceType.GROUP:
        return list(_group_settings(settings.groups.get(name, {})))
    raise _no_settings(resource_type)


def target_of(
    topics: Topics, topic_admin: TopicAdmin, settings: DynamicSettings, resource_type: int, name: str
) -> Target:
    """Return the resource for a change of settings.

    :raises ApiError: the topic or broker is unknown, or resources of this type have no settings.
    """
    if resource_type == ResourceType.TOPIC:
        find_topic(topics, name)
        rules, change = {each.name: each.rule for each in TOPIC_SETTINGS.values()}, topic_admin.alter
    elif resource_type == ResourceType.BROKER:
        settings.check_broker(name)
        rules, change = DYNAMIC_RULES, settings.alter_broker
    elif resource_type == ResourceType.GROUP:
        rules, change = {each.name: each.rule for each in GROUP_SETTINGS.values()}, settings.alter_group
    else:
        raise _no_settings(resource_type)

    def inherited(setting: str) -> str:
        if resource_type == ResourceType.TOPIC:
            synonyms = default_synonyms(settings.broker, TOPIC_SETTINGS[setting])
        elif resource_type == ResourceType.BROKER:
            synonyms = settings.broker.inherited(setting, by_all=name == ALL_BROKERS)
        else:
            synonyms = (_group_default(setting, GROUP_SETTINGS[setting].default),)
        return synonyms[0].value

    return Target(rules, inherited, partial(change, name))


def names_of(topics: Topics, settings: DynamicSettings, resource_type: ResourceType) -> list[str]:
    """Return the names of all resources of a type. A group is included only if it overrides a setting."""
    if resource_type is ResourceType.TOPIC:
        return sorted(topic.name for topic in topics.all())
    if resource_type is ResourceType.GROUP:
        return sorted(name for name, own in settings.groups.items() if own)
    return [settings.own_name] if resource_type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} else []


def find_topic(topics: Topics, name: str) -> Topic:
    """Return a topic by name.

    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
    """
    topic = topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic


def default_synonyms(settings: BrokerSettings, setting: TopicSetting) -> tuple[Synonym, ...]:
    """Return the synonyms of a topic setting if the topic does not override it."""
    if setting.broker_setting is None:
        return (Synonym(setting.name, setting.default, ConfigSource.DEFAULT),)
    return settings.synonyms(setting.broker_setting)


def _topic_settings(settings: BrokerSettings, own: Mapping[str, str | None]) -> Iterator[DescribedSetting]:
    for setting in TOPIC_SETTINGS.values():
        synonyms = default_synonyms(settings, setting)
        value = own.get(setting.name)
        if value is not None:
            synonyms = (Synonym(setting.name, value, ConfigSource.TOPIC), *synonyms)
        yield DescribedSetting(setting.name, setting.rule.kind, setting.documentation, synonyms, read_only=False)


def _group_settings(own: Mapping[str, str]) -> Iterator[DescribedSetting]:
    for name, setting in GROUP_SETTINGS.items():
        synonyms: tuple[Synonym, ...] = (_group_default(name, setting.default),)
        if name in own:
            synonyms = (Synonym(name, own[name], ConfigSource.GROUP), *synonyms)
        yield DescribedSetting(name, setting.rule.kind, NO_EFFECT, synonyms, read_only=False)


def _group_default(name: str, default: str) -> Synonym:
    return Synonym(f"group.{name}", default, ConfigSource.DEFAULT)


def _no_settings(resource_type: int) -> ApiError:
    kind = _OTHER_KINDS.get(resource_type, f"resources of the unknown type {resource_type}")
    return ApiError(
        ErrorCode.INVALID_REQUEST, f"{kind} have no settings; only topics, brokers and groups have settings"
    )


_OTHER_KINDS = {8: "broker loggers", 16: "client metrics subscriptions"}
"""The types in Kafka's ConfigResource.Type that have no settings in Barnabas."""
