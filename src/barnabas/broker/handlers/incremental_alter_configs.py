"""IncrementalAlterConfigs, versions 0 and 1: change single settings of a topic, and leave the others (KIP-339)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.broker.config_resources import check_alterable, find_topic
from barnabas.broker.handlers.alter_configs import altered
from barnabas.broker.topic_settings import TOPIC_SETTINGS, ConfigType
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@serves(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    """Change the settings of each resource, or check that they could be changed."""
    responses = []
    for resource in request.resources:
        error = await _alter(broker, resource, request.validate_only)
        responses.append(altered(resource.resource_type, resource.resource_name, error))
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    broker: Broker, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> BarnabasError | None:
    """Return why the settings cannot be changed, or None when they are."""
    try:
        check_alterable(resource.resource_type)
        topic = find_topic(broker, resource.resource_name)
        names = [config.name for config in resource.configs]
        if len(names) != len(set(names)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting stands in the request twice")
        change = functools.partial(_changed, resource.configs, broker)
        await broker.topics.configure(topic.name, change, validate_only=validate_only)
    except BarnabasError as error:
        return error
    return None


def _changed(
    changes: Sequence[IncrementallyAlterableConfig], broker: Broker, settings: Mapping[str, str]
) -> dict[str, str]:
    changed = dict(settings)
    for change in changes:
        _apply(changed, change, broker)
    return changed


def _apply(settings: dict[str, str], change: IncrementallyAlterableConfig, broker: Broker) -> None:
    """Do one change to a topic's own settings."""
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        settings.pop(name, None)
    elif change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is to be set, and no value is given")
    elif operation == SET:
        settings[name] = change.value
    elif operation in {APPEND, SUBTRACT}:
        settings[name] = _change_list(settings, name, operation, change.value, broker)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no operation {operation} on settings")


def _change_list(settings: Mapping[str, str], name: str, operation: int, value: str, broker: Broker) -> str:
    """Return the value of a list with some items more, or less."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None or setting.kind is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list; it can be set or deleted")
    items = settings.get(name, setting.default(broker.config)).split(",")
    changed = value.split(",")
    if operation == APPEND:
        return ",".join([*items, *(item for item in changed if item not in items)])
    return ",".join(item for item in items if item not in changed)
