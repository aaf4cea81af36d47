"""The settings of topics, brokers and groups: coroutines of the admin clients that describe and change them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.admin.controller import controller_id, refusal
from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    DELETE,
    SET,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

TOPICS_PER_REQUEST = 500

_TOPIC = 2
_BROKER = 4
_GROUP = 32


class ConfigSource(enum.IntEnum):
    """The source of a setting's value (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @property
    def label(self) -> str:
        """The source as text, for example `static broker`."""
        return self.name.lower().replace("_", " ")

    @classmethod
    def of(cls, number: int) -> ConfigSource:
        """Return the enum member for a number in a response, or UNKNOWN if this client does not know the number."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


class ConfigType(enum.IntEnum):
    """The type of a setting's value (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def of(cls, number: int) -> ConfigType:
        """Return the enum member for a number in a response, or UNKNOWN if this client does not know the number."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A possible source of a setting's value, with the name that the setting has in this source."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigSetting:
    """A setting of a topic, broker or group, with its current value. The value is None if the broker hides it as
    sensitive.

    `synonyms` are the possible sources of the value, in order of precedence.
    """

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str = field(repr=False)
    is_read_only: bool = field(repr=False)
    is_sensitive: bool = field(repr=False)
    synonyms: tuple[ConfigSynonym, ...] = field(repr=False)

    @property
    def is_default(self) -> bool:
        """Return whether the value is the default: neither the topic nor its broker overrides it."""
        return self.source is ConfigSource.DEFAULT

    @property
    def default(self) -> str | None:
        """The default value, or None if the broker does not return it."""
        return next((each.value for each in self.synonyms if each.source is ConfigSource.DEFAULT), None)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """The topic, group or broker that a setting belongs to. A broker resource without an id means all brokers."""

    kind: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(_TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(_BROKER, str(node_id))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """Return the resource with the cluster-wide dynamic settings of all brokers."""
        return cls(_BROKER, "")

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        return cls(_GROUP, name)

    async def home(self, cluster: Cluster) -> int:
        """Return the id of the broker to send requests to. Only a broker itself can return its own settings."""
        if self.kind != _BROKER or not self.name:
            return await controller_id(cluster)
        if int(self.name) not in cluster.view.brokers:
            await cluster.refresh()
        return int(self.name)

    def __str__(self) -> str:
        if self.kind == _BROKER:
            return f"broker {self.name}" if self.name else "all brokers"
        return f"{'topic' if self.kind == _TOPIC else 'group'} {self.name!r}"

    def need(self, operation: str) -> Need:
        """Return the permission for an operation on the settings. Those of brokers belong to the cluster."""
        kinds = {_TOPIC: "topic", _GROUP: "group"}
        return Need(operation, kinds[self.kind], self.name) if self.kind in kinds else Need(operation, "cluster")


async def describe_config(cluster: Cluster, resource: ConfigResource) -> dict[str, ConfigSetting]:
    """Return all settings of a topic, broker or group, by name.

    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST and other errors.
    """
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=resource.kind, resource_name=resource.name, configuration_keys=None)
        ],
        include_synonyms=True,
        include_documentation=True,
    )

    async def attempt() -> dict[str, ConfigSetting]:
        response: DescribeConfigsResponse = await cluster.send(await resource.home(cluster), request)
        result = next((each for each in response.results if each.resource_name == resource.name), None)
        if result is None:
            raise missing_in_response(f"settings of {resource}")
        if result.error_code:
            raise refusal(result.error_code, f"settings of {resource}", resource.name, result.error_message)
        return {each.name: _setting(each) for each in sorted(result.configs, key=lambda each: each.name)}

    return await cluster.retrying(
        attempt,
        what=f"cannot describe settings of {resource}",
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
        needs=(resource.need("describe-configs"),),
    )


async def describe_topic_configs(
    cluster: Cluster, topics: Sequence[str], settings: Sequence[str]
) -> dict[str, dict[str, ConfigSetting]]:
    """Return the named settings of many topics, by topic and name. Topics that do not exist are omitted. The request
    can go to any broker.
    """
    found: dict[str, dict[str, ConfigSetting]] = {}
    for first in range(0, len(topics), TOPICS_PER_REQUEST):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(settings))
                for name in topics[first : first + TOPICS_PER_REQUEST]
            ]
        )

        async def attempt(request: DescribeConfigsRequest = request) -> DescribeConfigsResponse:
            answer: DescribeConfigsResponse = await cluster.ask(await cluster.any_channel(), request)
            return answer

        for result in (await cluster.retrying(attempt, what="cannot describe settings of topics")).results:
            if not result.error_code:
                found[result.resource_name] = {each.name: _setting(each) for each in result.configs}
            elif ErrorCode.of(result.error_code) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic = ConfigResource.topic(result.resource_name)
                error = refusal(result.error_code, f"settings of {topic}", result.resource_name, result.error_message)
                raise cluster.refused(error, topic.need("describe-configs"))
    return found


def _setting(each: DescribeConfigsResourceResult) -> ConfigSetting:
    return ConfigSetting(
        name=each.name,
        value=each.value,
        source=ConfigSource.of(each.config_source),
        type=ConfigType.of(each.config_type),
        documentation=each.documentation or "",
        is_read_only=each.read_only,
        is_sensitive=each.is_sensitive,
        synonyms=tuple(ConfigSynonym(s.name, s.value, ConfigSource.of(s.source)) for s in each.synonyms),
    )


async def alter_config(
    cluster: Cluster, resource: ConfigResource, to_set: Mapping[str, str], to_unset: Iterable[str]
) -> None:
    """Set and unset individual settings, and keep all others (KIP-339). Either all changes succeed, or none."""
    changes = [IncrementallyAlterableConfig(name=n, config_operation=SET, value=str(v)) for n, v in to_set.items()]
    changes += [IncrementallyAlterableConfig(name=name, config_operation=DELETE, value=None) for name in to_unset]
    if not changes:
        return
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=changes)
        ],
        validate_only=False,
    )

    async def attempt() -> None:
        response: IncrementalAlterConfigsResponse = await cluster.send(await resource.home(cluster), request)
        for result in response.responses:
            if result.error_code:
                raise refusal(result.error_code, f"settings of {resource}", resource.name, result.error_message)

    await cluster.retrying(
        attempt,
        what=f"cannot change settings of {resource}",
        unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
        needs=(resource.need("alter-configs"),),
    )
