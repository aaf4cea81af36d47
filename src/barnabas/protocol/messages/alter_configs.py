"""AlterConfigs (key 33): replace all settings of a resource (KIP-133).

Version 2 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class AlterableConfig:
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))


@struct
class AlterConfigsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


@struct
class AlterConfigsResourceResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
