"""IncrementalAlterConfigs (key 44): change individual settings of a resource (KIP-339).

Version 1 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT32, STRING, array, field, message, nullable, struct
from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse

SET, DELETE, APPEND, SUBTRACT = range(4)
"""The operations on a setting. APPEND and SUBTRACT apply to lists only."""


@struct
class IncrementallyAlterableConfig:
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(nullable(STRING))


@struct
class IncrementalAlterConfigsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[IncrementallyAlterableConfig] = field(array(IncrementallyAlterableConfig))


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = field(array(IncrementalAlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
