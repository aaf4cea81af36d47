"""ListConfigResources (key 74): return the resources that have settings (KIP-1142).

Version 0 returns only resources of client metrics (KIP-714), version 1 the resources of the requested types.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, struct

CLIENT_METRICS = 16


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = field(array(INT8), since=1, default_factory=list)


@struct
class ConfigResource:
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=CLIENT_METRICS, ignorable=True)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
