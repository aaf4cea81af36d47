"""AlterConfigs, versions 0 to 2: replace all settings of a topic, broker or group.

Settings that are not in the request are reset to their defaults. A broker resource with an empty name means all
brokers.
"""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.resources import target_of
from barnabas.broker.topic_admin import TopicAdmin
from barnabas.broker.topics import Topics
from barnabas.errors import BarnabasError
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@serves(AlterConfigsRequest)
async def alter_configs(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    scheduler: CooperativeScheduler,
    request: AlterConfigsRequest,
    call: Call,
) -> AlterConfigsResponse:
    """Replace the settings of each resource. With `validate_only`, only check the new settings."""
    responses = []
    for resource in request.resources:
        error = await _alter(topics, topic_admin, settings, resource, request.validate_only)
        await scheduler.pause()
        responses.append(altered(resource.resource_type, resource.resource_name, error))
    return AlterConfigsResponse(responses=responses)


async def _alter(
    topics: Topics,
    topic_admin: TopicAdmin,
    settings: DynamicSettings,
    resource: AlterConfigsResource,
    validate_only: bool,
) -> BarnabasError | None:
    """Replace the settings of a resource. Return the error or None."""
    try:
        target = target_of(topics, topic_admin, settings, resource.resource_type, resource.resource_name)
        wanted = {config.name: config.value for config in resource.configs if config.value is not None}
        await target.change(lambda _: wanted, validate_only=validate_only)
    except BarnabasError as error:
        return error
    return None


def altered(resource_type: int, name: str, error: BarnabasError | None) -> AlterConfigsResourceResponse:
    """Return the result for a resource. AlterConfigs and IncrementalAlterConfigs have the same results."""
    return AlterConfigsResourceResponse(
        error_code=error_code(error),
        error_message=error_message(error),
        resource_type=resource_type,
        resource_name=name,
    )
