"""DescribeConfigs, versions 0 to 4: return settings with value, source, type and, if requested, documentation."""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, Steps, serves
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.broker.settings.resources import ConfigSource, DescribedSetting, describe
from barnabas.broker.topics import Topics
from barnabas.errors import ApiError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@serves(DescribeConfigsRequest, ends_with_client=True)
def describe_configs(
    topics: Topics, settings: DynamicSettings, request: DescribeConfigsRequest, call: Call
) -> Steps[DescribeConfigsResponse]:
    """Describe each resource, once."""
    results: dict[tuple[int, str], DescribeConfigsResult] = {}
    for resource in request.resources:
        where = resource.resource_type, resource.resource_name
        if where not in results:
            if results:
                yield  # Let other requests run, because each description takes some time.
            results[where] = _describe(topics, settings, request, resource, call)
    return DescribeConfigsResponse(results=list(results.values()))


def _describe(
    topics: Topics,
    settings: DynamicSettings,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    call: Call,
) -> DescribeConfigsResult:
    # As in Kafka, an empty list of names means all settings.
    wanted = set(resource.configuration_keys) if resource.configuration_keys else None
    error: ApiError | None = None
    described: list[DescribedSetting] = []
    try:
        described = describe(topics, settings, resource.resource_type, resource.resource_name)
    except ApiError as caught:
        error = caught
    return DescribeConfigsResult(
        error_code=error_code(error),
        error_message=error_message(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_setting(setting, request, call) for setting in described if wanted is None or setting.name in wanted],
    )


def _setting(setting: DescribedSetting, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResourceResult:
    synonyms = setting.synonyms if request.include_synonyms else ()
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_secret else setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.is_secret,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=None if setting.is_secret else s.value, source=s.source)
            for s in synonyms
        ],
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )
    if call.version == 0:
        result.is_default = setting.source is ConfigSource.DEFAULT
    return result
