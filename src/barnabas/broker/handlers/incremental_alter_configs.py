"""IncrementalAlterConfigs, versions 0 and 1: change some settings of a topic, broker or group (KIP-339).

Settings that are not in the request do not change. A broker resource with an empty name means all brokers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from barnabas.broker.handlers.alter_configs import altered
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.resources import Target, target_of
from barnabas.broker.settings.rules import ConfigType, items_of
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError, BarnabasError, ErrorCode
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


@serves(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    request: IncrementalAlterConfigsRequest,
    call: Call,
) -> IncrementalAlterConfigsResponse:
    """Change the settings of each resource. With `validate_only`, only check the changes."""
    responses = []
    for resource in request.resources:
        error = await _alter(topics, topic_admin, settings, resource, request.validate_only)
        await scheduler.pause()
        responses.append(altered(resource.resource_type, resource.resource_name, error))
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    resource: IncrementalAlterConfigsResource,
    validate_only: bool,
) -> BarnabasError | None:
    """Change the settings of a resource. Return the error or None."""
    try:
        target = target_of(topics, topic_admin, settings, resource.resource_type, resource.resource_name)
        names = [config.name for config in resource.configs]
        if len(names) != len(set(names)):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request contains a setting twice")
        change = functools.partial(_changed, resource.configs, target)
        await target.change(change, validate_only=validate_only)
    except BarnabasError as error:
        return error
    return None


def _changed(
    changes: Sequence[IncrementallyAlterableConfig], target: Target, settings: Mapping[str, str]
) -> dict[str, str]:
    changed = dict(settings)
    for change in changes:
        _apply(changed, change, target)
    return changed


def _apply(settings: dict[str, str], change: IncrementallyAlterableConfig, target: Target) -> None:
    """Apply one change to the settings that a resource overrides."""
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        settings.pop(name, None)
    elif change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the change of {name} has no value")
    elif operation == SET:
        settings[name] = change.value
    elif operation in {APPEND, SUBTRACT}:
        settings[name] = _change_list(settings, name, operation, change.value, target)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"operation {operation} on settings is unknown")


def _change_list(settings: Mapping[str, str], name: str, operation: int, value: str, target: Target) -> str:
    """Return the new value of a list setting, with items added or removed."""
    rule = target.rules.get(name)
    if rule is None or rule.kind is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} is not a list; it can only be set or deleted")
    items = [item for item in items_of(settings.get(name, target.inherited(name))) if item]
    changed = items_of(value)
    if operation == APPEND:
        return ",".join([*items, *(item for item in changed if item not in items)])
    return ",".join(item for item in items if item not in changed)
