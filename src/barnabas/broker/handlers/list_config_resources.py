"""ListConfigResources, versions 0 and 1: list the resources that have settings.

In Barnabas, client metrics (version 0) and loggers have no settings. A group is listed only if it overrides a setting.
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.resources import ResourceType, names_of
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

FIRST_VERSION_WITH_TYPES = 1


@serves(ListConfigResourcesRequest)
def list_config_resources(
    topics: Topics, settings: DynamicSettings, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    """List the resources of each requested type, or of all types."""
    wanted = request.resource_types or [*ResourceType]
    if call.version < FIRST_VERSION_WITH_TYPES:
        wanted = [CLIENT_METRICS]
    if not set(wanted) <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in names_of(topics, settings, ResourceType(kind))
        ],
    )
