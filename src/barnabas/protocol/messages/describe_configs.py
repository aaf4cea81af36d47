"""DescribeConfigs (key 32): return settings with their values, sources and documentation.

Version 1 adds sources and synonyms (KIP-226), version 3 types and documentation (KIP-569), version 4 is the first
flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class DescribeConfigsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(nullable(array(STRING)))


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOLEAN, since=1, default=False)
    include_documentation: bool = field(BOOLEAN, since=3, default=False)


@struct
class DescribeConfigsSynonym:
    name: str = field(STRING, since=1, default="")
    value: str | None = field(nullable(STRING), since=1, default="")
    source: int = field(INT8, since=1, default=0)


@struct
class DescribeConfigsResourceResult:
    name: str = field(STRING)
    value: str | None = field(nullable(STRING))
    read_only: bool = field(BOOLEAN)
    config_source: int = field(INT8, since=1, default=-1, ignorable=True)
    is_default: bool = field(BOOLEAN, until=0, default=False)
    is_sensitive: bool = field(BOOLEAN)
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym), since=1, default_factory=list, ignorable=True
    )
    config_type: int = field(INT8, since=3, default=0, ignorable=True)
    documentation: str | None = field(nullable(STRING), since=3, default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
